"""How sure a figure is, given how many requests it rests on: 95 % intervals in closed form, whatever the volume."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["Interval", "mean_interval", "ratio_interval", "wilson"]

_Z: Final = 1.959963984540054
"""Two-sided 95 %."""


class Interval(NamedTuple):
    """The 95 % interval of a figure."""

    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval | None:
    """Return the Wilson score interval of a share of requests; None for no trials (E. B. Wilson, 1927)."""
    if trials <= 0:
        return None
    share = successes / trials
    centre = share + _Z * _Z / (2 * trials)
    spread = _Z * math.sqrt(share * (1 - share) / trials + _Z * _Z / (4 * trials * trials))
    scale = 1 + _Z * _Z / trials
    # At 0 and 1 the ends are exact; rounding must not move them out of the share.
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == trials else (centre + spread) / scale
    return Interval(max(0.0, low), min(1.0, high))


def ratio_interval(
    *, parts: float, wholes: float, part2: float, cross: float, whole2: float, n: int
) -> Interval | None:
    """Return the interval of Σy / Σx over requests, which are what varies, not the calls inside them.

    The linearised variance of a ratio estimator (W. G. Cochran, *Sampling Techniques*): what a bootstrap over requests
    comes to, without its thousand passes.

    Args:
        parts: Σy.
        wholes: Σx, with 0 <= y <= x in each request.
        part2: Σy².
        cross: Σxy.
        whole2: Σx².
        n: How many requests.

    Returns:
        The interval within 0 to 1; None for fewer than two requests or Σx = 0.
    """
    if n < 2 or wholes <= 0:
        return None
    ratio = parts / wholes
    residual = max(0.0, part2 - 2 * ratio * cross + ratio * ratio * whole2)
    half = _Z * math.sqrt(residual * n / (n - 1)) / wholes
    return Interval(max(0.0, ratio - half), min(1.0, ratio + half))


def mean_interval(mean: float, deviation: float | None, n: int) -> Interval | None:
    """Return the normal interval of a mean from the sample deviation; None for fewer than two values."""
    if n < 2 or deviation is None:
        return None
    half = _Z * deviation / math.sqrt(n)
    return Interval(mean - half, mean + half)
