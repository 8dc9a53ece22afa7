"""Figures as words: one way to write each kind of number."""

from __future__ import annotations

import math
from typing import Final

from agentloop_autogen.bench.report.comparing import Delta, Kind
from agentloop_autogen.diagnostics.metric import Metric

__all__ = ["UNKNOWN", "amount", "ends", "metric_amount", "metric_share", "p_value", "points", "share", "times", "told"]

UNKNOWN: Final = "–"
"""Stands where nothing tells a figure."""


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return UNKNOWN if value is None else f"{value * 100:.1f} %"


def points(value: float) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    return f"{value * 100:+.1f} points"


def times(value: float) -> str:
    """Return a ratio."""
    if math.isnan(value):
        return UNKNOWN
    return "∞" if math.isinf(value) else f"{value:.2f}×"


def amount(value: float | None) -> str:
    """Return a mean or a sum: whole from 100 on, two places below."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def p_value(value: float) -> str:
    """Return a p-value; a tiny one by its bound."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def metric_share(metric: Metric) -> str:
    """Return a share with its counts and its interval."""
    if metric.value is None:
        return UNKNOWN
    interval = "" if metric.low is None or metric.high is None else f" ({metric.low:.0%} to {metric.high:.0%})"
    counts = "" if metric.count is None else f", {_count(metric.count)}/{_count(metric.of)}"
    return f"{share(metric.value)}{counts}{interval}"


def metric_amount(metric: Metric) -> str:
    """Return an amount with its interval."""
    if metric.value is None:
        return UNKNOWN
    interval = "" if metric.low is None or metric.high is None else f" ({amount(metric.low)} to {amount(metric.high)})"
    return f"{amount(metric.value)}{interval}"


def told(delta: Delta) -> str:
    """Return the difference or the ratio of two systems."""
    return points(delta.value) if delta.compared.kind is Kind.SHARE else times(delta.value)


def ends(delta: Delta) -> str:
    """Return the interval of that difference or ratio; empty: it has none."""
    if delta.interval is None or math.isnan(delta.value):
        return ""
    low, high = delta.interval
    if delta.compared.kind is Kind.SHARE:
        return f"{low * 100:+.1f} to {high * 100:+.1f}"
    return f"{times(low)} to {times(high)}"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
