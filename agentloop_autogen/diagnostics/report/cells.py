"""Figures as a reader sees them: rounded, with the counts and the interval they rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from typing_extensions import assert_never

from agentloop_autogen.diagnostics.report.data import GroupRow, Metric
from agentloop_autogen.diagnostics.report.escaping import visible
from agentloop_autogen.diagnostics.report.labels import METRICS, Unit, text_of

__all__ = ["Figure", "figures_of", "share"]

_SPACE = "\u00a0"
_UNKNOWN = "not recorded"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One metric of one group, ready to be shown."""

    key: str
    label: str
    meaning: str
    topic: str
    unit: Unit
    better: str
    value: float | None
    text: str
    counts: str
    """Such as `37/120`; empty: it is no ratio, or nobody counted."""
    interval: str
    """Such as `23–39 %`; empty: it has none."""
    low: float | None
    high: float | None


def figures_of(row: GroupRow) -> dict[str, Figure]:
    """Return the metrics of a group by key, those with a place in the table of labels first and in its order."""
    by_key = {metric.name: metric for metric in row.metrics}
    order = [key for key in METRICS if key in by_key]
    order += [key for key in by_key if key not in METRICS]
    return {key: _figure(by_key[key]) for key in order}


def share(value: float, *, places: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{value * 100:.{places}f}{_SPACE}%"


def _figure(metric: Metric) -> Figure:
    text = text_of(metric.name)
    value = _finite(metric.value)
    low, high = _finite(metric.low), _finite(metric.high)
    unit = Unit.SHARE if metric.count is not None else text.unit
    return Figure(
        key=visible(metric.name),
        label=visible(text.label),
        meaning=text.meaning,
        topic=text.topic,
        unit=unit,
        better=text.better.value,
        value=value,
        text=_UNKNOWN if value is None else _number(value, unit),
        counts=_counts(metric),
        interval="" if low is None or high is None else _interval(low, high, unit),
        low=low,
        high=high,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _number(value: float, unit: Unit) -> str:
    match unit:
        case Unit.SHARE:
            return share(value)
        case Unit.NUMBER:
            return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
        case Unit.SECONDS:
            return f"{value:,.2f}{_SPACE}s"
        case Unit.TOKENS:
            return f"{value:,.0f}"
        case _:
            assert_never(unit)


def _interval(low: float, high: float, unit: Unit) -> str:
    if unit is Unit.SHARE:
        places = 1 if round(low * 100) == round(high * 100) else 0
        return f"{low * 100:.{places}f}–{high * 100:.{places}f}{_SPACE}%"
    return f"{_number(low, unit)}–{_number(high, unit)}"


def _counts(metric: Metric) -> str:
    if metric.of is None:
        return ""
    if metric.count is None:
        return f"over {metric.of:,.0f}"
    return f"{metric.count:,.0f}/{metric.of:,.0f}"
