"""Where the time of an attempt went: model, tools, waiting for a turn, or control."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentloop_autogen.bench.records import Attempt

__all__ = ["TimeSplit", "split_time"]

_Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class TimeSplit:
    """Seconds of one attempt; the four parts add up to its wall time."""

    model_s: float
    """Some request was at the model."""
    tool_s: float
    """Some tool ran, and no request was at the model."""
    waiting_s: float
    """Requests waited for their turn at the endpoint."""
    control_s: float
    """Everything else: the system's own work."""

    @property
    def elapsed_s(self) -> float:
        """The wall time."""
        return self.model_s + self.tool_s + self.waiting_s + self.control_s


def split_time(attempt: Attempt) -> TimeSplit:
    """Split the wall time of an attempt; what happens at the same time is counted once, the model first.

    Args:
        attempt: The attempt.
    """
    whole = attempt.elapsed_s
    model = _union(((call.began_s, call.ended_s) for call in attempt.model_calls), whole)
    tools = ((call.began_s, call.ended_s) for call in attempt.tool_calls)
    both = _union([*model, *tools], whole)
    model_s, busy_s = _length(model), _length(both)
    # Requests that wait beside each other, or beside a running tool, add up to more than the time there was.
    waiting_s = min(attempt.waited_s, whole - busy_s)
    return TimeSplit(
        model_s=model_s, tool_s=busy_s - model_s, waiting_s=waiting_s, control_s=whole - busy_s - waiting_s
    )


def _union(intervals: Iterable[_Interval], end: float) -> list[_Interval]:
    """Intervals merged where they meet, and cut at the bounds of the attempt."""
    merged: list[_Interval] = []
    for began, ended in sorted((max(0.0, began), min(ended, end)) for began, ended in intervals):
        if ended <= began:
            continue
        if merged and began <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((began, ended))
    return merged


def _length(intervals: Iterable[_Interval]) -> float:
    return sum(ended - began for began, ended in intervals)
