"""The model traffic of one attempt, as it is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from agentloop_autogen.bench.endpoint.upstream import UpstreamQueue
from agentloop_autogen.bench.records import CountedModelCall

__all__ = ["AttemptTraffic"]


class AttemptTraffic:
    """What one attempt asked of the model; complete once the attempt is closed.

    Args:
        base_url: Where the attempt's system reaches the model.
        decoding: Fields for requests that do not say how to decode.
    """

    def __init__(self, base_url: str, decoding: Mapping[str, Any]) -> None:
        self.base_url = base_url
        self.decoding = dict(decoding)
        self.waited_s = 0.0
        """Seconds its requests waited for their turn, added up."""
        self.upstream: UpstreamQueue | None = None
        """The endpoint it sticks to, so that its prompts find their beginnings in the cache; None before the first."""
        self.requests: set[asyncio.Task[Any]] = set()
        """Requests under way."""
        self._began = time.monotonic()
        self._calls: list[tuple[CountedModelCall, bool]] = []

    def now(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self._began

    def add(self, call: CountedModelCall, *, unreachable: bool) -> None:
        """Count a request.

        Args:
            call: The request.
            unreachable: Whether the endpoint was down, still loading or overrun.
        """
        self._calls.append((call, unreachable))

    @property
    def calls(self) -> tuple[CountedModelCall, ...]:
        """The requests that reached the endpoint, in the order they were sent."""
        return tuple(sorted((call for call, _ in self._calls), key=lambda call: call.began_s))

    @property
    def unreachable(self) -> bool:
        """Whether the endpoint was out of reach when it was needed last."""
        return bool(self._calls) and max(self._calls, key=lambda item: item[0].ended_s)[1]
