"""One figure with what it rests on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Metric"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure of a group of requests with what it rests on."""

    name: str
    """Key of the metric, such as `lgr`."""
    value: float | None
    """None: nothing in the traces says."""
    count: float | None = None
    """Numerator of a ratio; None where it is no ratio."""
    of: float | None = None
    """Denominator of a ratio, or the number of requests an average is over."""
    low: float | None = None
    """Lower end of its 95 % interval; None: it has none."""
    high: float | None = None
    """Upper end of its 95 % interval."""
