"""The real endpoints behind the counted one: who gets a request, and when it is its turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agentloop_autogen.errors import UsageError

__all__ = ["Upstream", "UpstreamQueue", "least_busy"]


_DOWN_S: Final = 30.0
"""Seconds in which an endpoint that could not be reached gets no attempt another one can take."""


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """One real endpoint."""

    base_url: str
    """Its API, `/v1` included."""
    api_key: str | None = field(default=None, repr=False)
    """None: it asks for none."""


class UpstreamQueue:
    """One endpoint with the requests that wait for it, first come, first served.

    Args:
        upstream: The endpoint.
        most: Requests it gets at once. None: any number.

    Raises:
        UsageError: The number is below 1.
    """

    def __init__(self, upstream: Upstream, *, most: int | None) -> None:
        if most is not None and most < 1:
            raise UsageError(f"an endpoint must get at least 1 request at once, not {most}")
        self.base_url = upstream.base_url.rstrip("/")
        self.headers = {} if upstream.api_key is None else {"Authorization": f"Bearer {upstream.api_key}"}
        self.outstanding = 0
        """Requests that wait for it or are at it."""
        self.attempts = 0
        """Open attempts that stick to it."""
        self._down_until = 0.0
        self._turns = None if most is None else asyncio.Semaphore(most)

    @property
    def down(self) -> bool:
        """Whether it could not be reached a moment ago."""
        return time.monotonic() < self._down_until

    def note(self, *, reachable: bool) -> None:
        """Note whether it could be reached."""
        self._down_until = 0.0 if reachable else time.monotonic() + _DOWN_S

    async def wait_turn(self) -> None:
        """Wait until a request may go out; `give_back` must follow."""
        if self._turns is not None:
            await self._turns.acquire()

    def give_back(self) -> None:
        """Let the next request go out."""
        if self._turns is not None:
            self._turns.release()


def least_busy(queues: Sequence[UpstreamQueue]) -> UpstreamQueue:
    """Return the endpoint with the fewest requests, then the fewest attempts; those that are down come last."""
    return min(queues, key=lambda queue: (queue.down, queue.outstanding, queue.attempts))
