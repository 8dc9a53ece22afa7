"""The clock of one run: wall time without the pauses."""

from __future__ import annotations

import asyncio
import time

__all__ = ["RunClock"]


class RunClock:
    """Counts the seconds of a run and holds it while it is paused."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._paused_s = 0.0
        self._paused_at: float | None = None
        self._running = asyncio.Event()
        self._running.set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began, pauses excluded."""
        end = time.monotonic() if self._paused_at is None else self._paused_at
        return end - self._started - self._paused_s

    def pause(self) -> None:
        """Stop the clock and hold the run before its next call; calls under way are not interrupted."""
        if self._paused_at is None:
            self._paused_at = time.monotonic()
            self._running.clear()

    def resume(self) -> None:
        """Let the clock and the run go on."""
        if self._paused_at is not None:
            self._paused_s += time.monotonic() - self._paused_at
            self._paused_at = None
            self._running.set()

    async def running(self) -> None:
        """Return at once, or when the pause is over."""
        await self._running.wait()
