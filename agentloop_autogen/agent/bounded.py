"""Awaiting things that may hang, fail or refuse to be cancelled, and relaying events of a task to a generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar

from autogen_core import CancellationToken

from agentloop_autogen.waiting import GRACE_S, stop_task

__all__ = ["EventChannel", "SelfCancelledError", "bounded", "unbroken"]

T = TypeVar("T")


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
        RuntimeError: The call raised something that is no `Exception`, which nobody further up would catch.
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
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    return task.result()


async def unbroken(awaitable: Awaitable[T]) -> T:
    """Await a short call that must not stop half-way; a cancellation takes effect behind it."""
    task = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=GRACE_S)
        raise


class EventChannel(Generic[T]):
    """Hands events from a task to a generator one at a time: the sender waits until the reader comes back for more."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Parcel[T] | None] = asyncio.Queue()
        self._waiting: set[_Parcel[T]] = set()
        self._closed = False

    async def send(self, event: T) -> None:
        """Hand over one event and wait until it was taken and dealt with; nobody waits once the reader is gone."""
        if self._closed:
            return
        parcel = _Parcel(event)
        self._waiting.add(parcel)
        self._queue.put_nowait(parcel)
        try:
            await parcel.done.wait()
        finally:
            # A sender that was cancelled takes its event back.
            self._waiting.discard(parcel)

    async def events(self, task: asyncio.Future[Any]) -> AsyncGenerator[T, None]:
        """Yield what is sent until `task` is done."""
        task.add_done_callback(lambda _: self._queue.put_nowait(None))
        try:
            while (parcel := await self._queue.get()) is not None:
                if parcel in self._waiting:
                    yield parcel.event
                    parcel.done.set()
        finally:
            self._closed = True
            for waiting in self._waiting:
                waiting.done.set()


class _Parcel(Generic[T]):
    """One event on its way."""

    def __init__(self, event: T) -> None:
        self.event = event
        self.done = asyncio.Event()
