"""Awaiting things that may hang, fail or refuse to be cancelled, and relaying events of a task to a generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from autogen_core import CancellationToken

__all__ = ["EventChannel", "SelfCancelledError", "bounded", "stop_task"]

T = TypeVar("T")

GRACE_S = 1.0
"""Seconds a cancelled call is given to end; one that will not is left behind."""


class SelfCancelledError(RuntimeError):
    """A call was cancelled although nobody asked for it, as some clients do on a lost connection."""


async def bounded(
    awaitable: Awaitable[T], *, token: CancellationToken, remaining_s: Callable[[], float] | None = None
) -> T:
    """Await a call that must neither outlive its time nor survive the run.

    Args:
        awaitable: The call, made in a task of its own.
        token: The run's token; tells a call cancelled by us from one that cancelled itself.
        remaining_s: Seconds still left, asked again when they should be over (a pause stretches them). None: no limit.

    Returns:
        What the call returns.

    Raises:
        asyncio.TimeoutError: The time is over; the call was cancelled.
        asyncio.CancelledError: The run was cancelled; so was the call.
        SelfCancelledError: The call was cancelled by nobody here.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        while not task.done():
            left = None if remaining_s is None else remaining_s()
            if left is not None and left <= 0:
                raise asyncio.TimeoutError
            await asyncio.wait({task}, timeout=left)
    finally:
        await stop_task(task)
    if task.cancelled():
        if token.is_cancelled():
            raise asyncio.CancelledError
        raise SelfCancelledError("the call was cancelled by itself")
    return task.result()


async def stop_task(task: asyncio.Future[Any]) -> None:
    """Cancel `task` unless it is done, and give it `GRACE_S` to end; what it raises meanwhile is nobody's concern."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_S)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


class EventChannel(Generic[T]):
    """Hands events from a task to a generator one at a time: the sender waits until the reader comes back for more."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()
        self._sending = asyncio.Lock()

    async def send(self, event: T) -> None:
        """Hand over one event and wait until it was taken and dealt with."""
        async with self._sending:
            self._queue.put_nowait(event)
            await self._queue.join()

    async def events(self, task: asyncio.Future[Any]) -> AsyncGenerator[T, None]:
        """Yield what is sent until `task` is done."""
        task.add_done_callback(lambda _: self._queue.put_nowait(_END))
        while not isinstance(item := await self._queue.get(), _End):
            yield cast(T, item)
            self._queue.task_done()


class _End:
    """Stands behind the last event."""


_END = _End()
