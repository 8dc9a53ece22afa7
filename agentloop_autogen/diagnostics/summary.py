"""Metrics over many traces, by group: every ratio with its counts and its interval."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from agentloop_autogen.diagnostics.measures import measure
from agentloop_autogen.diagnostics.metric import Metric
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.errors import MissingExtraError, UsageError

__all__ = ["GROUPS", "Summary", "SummaryRow", "checked_groups", "needs_polars", "summarize"]

GROUPS: Final = ("source", "model")
"""What traces can be grouped by."""


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """The figures of one group; each can be read as an attribute or a key: `row.lgr`, `row["lgr"]`."""

    group: Mapping[str, str]
    """What the group is, such as `{"source": "...", "model": "..."}`."""
    requests: int
    metrics: Mapping[str, Metric]
    """By key: each figure with its counts and its interval."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a group's name is text, a figure a number or None
        if name.startswith("__") or name in ("group", "metrics"):
            raise AttributeError(name)
        if name in self.group:
            return self.group[name]
        if name in self.metrics:
            return self.metrics[name].value
        raise AttributeError(f"there is no figure {name!r}; there are: {', '.join(self.metrics)}")

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as above
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(name) from error

    def to_dict(self) -> dict[str, object]:
        """Return plain data: figures by key, their counts and intervals under `<key>_count`, `_of`, `_low`, `_high`."""
        row: dict[str, object] = {**self.group, "requests": self.requests}
        for name, metric in self.metrics.items():
            row[name] = metric.value
            parts = {"count": metric.count, "of": metric.of, "low": metric.low, "high": metric.high}
            row.update({f"{name}_{part}": value for part, value in parts.items() if value is not None})
        return row


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Metrics of many traces."""

    rows: tuple[SummaryRow, ...]
    """One for each group, in the order of their names."""

    def to_dict(self) -> dict[str, object]:
        """Return plain data: `{"rows": [...]}`."""
        return {"rows": [row.to_dict() for row in self.rows]}


def summarize(traces: Iterable[Trace], *, by: Sequence[str] = ("source", "model")) -> Summary:
    """Return the metrics of the traces, by group (eq. 8 to 14 and 16 to 18, and what else shows wasted work).

    Args:
        traces: Any number; they are read once, one at a time.
        by: What makes a group: `source`, `model`, both, or nothing for one row over all.

    Returns:
        One row for each group. A figure that the traces say nothing of is None, never 0.

    Raises:
        MissingExtraError: Polars is not installed.
        UsageError: `by` names something else.
    """
    groups = checked_groups(by)
    with needs_polars():
        from agentloop_autogen.diagnostics.aggregation import aggregate, frame_of
    return Summary(rows=aggregate(frame_of(map(measure, traces)), by=groups))


def checked_groups(by: Sequence[str]) -> tuple[str, ...]:
    """Return what makes a group, or raise `UsageError` where traces cannot be grouped so."""
    names = (by,) if isinstance(by, str) else tuple(by)
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        raise UsageError(f"traces cannot be grouped by {unknown[0]!r}: use {' or '.join(GROUPS)}")
    return names


@contextmanager
def needs_polars() -> Generator[None, None, None]:
    """Turn the absence of Polars into a `MissingExtraError`; the import goes inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "polars":
            raise
        raise MissingExtraError("metrics over traces", "diagnose") from error
