"""Waiting on behalf of an HTTP client for as long as it is there.

Imported only when a server is built, because it needs Starlette.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request

__all__ = ["ClientGoneError", "unless_gone"]

_POLL_S = 0.1
"""How often a waiting request looks whether its client is still there."""

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client hung up before its reply was ready."""


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Wait for work, but cancel it as soon as the client has hung up.

    Args:
        request: The client's request.
        work: What it waits for.

    Raises:
        ClientGoneError: The client hung up.
    """
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=_POLL_S)
            if done:
                return task.result()
            # Looking takes a moment, in which the work may have come to its end and left something to close.
            if await request.is_disconnected() and not task.done():
                raise ClientGoneError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
