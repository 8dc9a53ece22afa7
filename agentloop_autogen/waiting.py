"""Ending calls of other people's code, which may ignore that they are cancelled."""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["GRACE_S", "leave_behind", "stop_task"]

GRACE_S: Final = 1.0
"""Seconds a cancelled call is given to end; one that will not is left behind."""


async def stop_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task unless it is done, and give it `GRACE_S` to end.

    Args:
        task: The task; what it raises meanwhile is nobody's concern.
    """
    if task.done():
        return
    leave_behind(task)
    await asyncio.wait({task}, timeout=GRACE_S)


def leave_behind(task: asyncio.Future[Any]) -> None:
    """Cancel a task unless it is done, and wait for nothing.

    Args:
        task: The task; its exception is taken, so that the event loop does not report it.
    """
    task.cancel()
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
