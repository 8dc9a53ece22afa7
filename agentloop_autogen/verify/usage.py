"""Token metering of verifier calls, safe where many agents share one verifier.

A verifier reports each model call with `record_usage`; whoever asked for the verdict reads the sum from the meter that
`collect_usage` gave it. The meter travels in a context variable, so calls made in child tasks land in it too, and tasks
that belong to another agent do not. It keeps counting after the block ends, for a call that outlives its time limit.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol

from agentloop_autogen.core.records import RequestUsage

__all__ = ["TokenCounts", "UsageMeter", "collect_usage", "record_usage"]


class TokenCounts(Protocol):
    """Anything with the two token counts, such as AutoGen's `RequestUsage`."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens read."""
        ...

    @property
    def completion_tokens(self) -> int:
        """Tokens written."""
        ...


class UsageMeter:
    """The model calls recorded while one `collect_usage` block was in force."""

    def __init__(self) -> None:
        self._records: list[RequestUsage] = []

    def add(self, usage: RequestUsage) -> None:
        """Count one model call."""
        self._records.append(usage)

    @property
    def calls(self) -> int:
        """How many model calls were recorded; a call that ended without a reply is not among them."""
        return len(self._records)

    @property
    def total(self) -> RequestUsage:
        """Tokens of all recorded calls together."""
        return sum(tuple(self._records), RequestUsage())


# A tuple of meters: blocks may nest (a verifier that asks another one), and each must see the calls inside it.
_METERS: ContextVar[tuple[UsageMeter, ...]] = ContextVar("agentloop_verifier_usage", default=())


def record_usage(usage: TokenCounts | None = None) -> None:
    """Report one model call of a verifier; without a meter in force it does nothing.

    Args:
        usage: The tokens of the call. None: the call was made, its tokens are unknown and count as 0.
    """
    meters = _METERS.get()
    if not meters:
        return
    counted = RequestUsage(
        prompt_tokens=_count(getattr(usage, "prompt_tokens", 0)),
        completion_tokens=_count(getattr(usage, "completion_tokens", 0)),
    )
    for meter in meters:
        meter.add(counted)


@contextmanager
def collect_usage() -> Generator[UsageMeter, None, None]:
    """Meter every verifier call made in this block and in the tasks started from it.

    Returns:
        A context manager giving the meter; its figures may be read at any time, also after a cancelled or late call.
    """
    meter = UsageMeter()
    token = _METERS.set((*_METERS.get(), meter))
    try:
        yield meter
    finally:
        # An async generator may be closed from another context, where there is nothing of ours to restore.
        with suppress(ValueError):
            _METERS.reset(token)


def _count(value: object) -> int:
    """Servers are seen to report null or nonsense; a count is never negative."""
    return max(0, int(value)) if isinstance(value, (int, float)) and value == value and abs(value) < 1e12 else 0
