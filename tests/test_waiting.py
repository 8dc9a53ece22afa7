"""Ending calls that may not want to end."""

from __future__ import annotations

import asyncio
import time

import pytest

from agentloop_autogen import waiting
from agentloop_autogen.waiting import leave_behind, stop_task


async def sleeper() -> None:
    """Sleep until cancelled."""
    await asyncio.sleep(60)


async def test_a_task_that_obeys_is_stopped_at_once() -> None:
    """Stopping a task returns as soon as it ended."""
    task = asyncio.ensure_future(sleeper())
    await asyncio.sleep(0)
    started = time.monotonic()
    await stop_task(task)
    assert task.cancelled()
    assert time.monotonic() - started < 0.5


async def test_a_task_that_does_not_obey_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping a task that swallows its cancellation takes the grace period and no longer."""
    monkeypatch.setattr(waiting, "GRACE_S", 0.05)
    until = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await until.wait()

    task = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(stop_task(task), 1)
    assert not task.done()
    until.set()
    await task


async def test_what_a_left_task_raises_is_nobodys_concern() -> None:
    """The event loop does not report the error of a task that was left behind, and a finished task keeps its result."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def failing() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("late")

    task = asyncio.ensure_future(failing())
    await asyncio.sleep(0)
    leave_behind(task)
    await asyncio.wait({task})
    del task
    await asyncio.sleep(0)
    assert reported == []
    done = asyncio.ensure_future(asyncio.sleep(0, "result"))
    await done
    await stop_task(done)
    leave_behind(done)
    assert done.result() == "result"
