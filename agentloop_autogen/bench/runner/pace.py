"""When attempts may begin."""

from __future__ import annotations

import asyncio
import random
import time

from agentloop_autogen.errors import UsageError

__all__ = ["Pace"]


class Pace:
    """Lets attempts begin at a rate; one that is late, because too many are under way, does not shift the others.

    Args:
        rate: Attempts per second on average. None: as soon as there is room.
        poisson: Whether the gaps are random, as of independent users, in place of all the same.
        seed: Which random gaps.

    Raises:
        UsageError: The rate is not above 0.
    """

    def __init__(self, rate: float | None = None, *, poisson: bool = False, seed: int = 0) -> None:
        if rate is not None and not 0 < rate < float("inf"):
            raise UsageError(f"the request rate must be above 0 attempts a second, not {rate}")
        self._rate = rate
        self._random = random.Random(seed) if poisson else None  # noqa: S311 - arrival times are no secret
        self._next: float | None = None

    async def wait(self) -> None:
        """Wait until the next attempt may begin; the first may at once."""
        if self._rate is None:
            return
        now = time.monotonic()
        due = now if self._next is None else self._next
        self._next = due + (self._random.expovariate(self._rate) if self._random else 1 / self._rate)
        await asyncio.sleep(max(0.0, due - now))
