"""Intervals and tests of the report, by SciPy; resampled by a fixed seed: the same files give the same figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agentloop_autogen.diagnostics.intervals import Interval
from agentloop_autogen.errors import MissingExtraError

try:
    import numpy as np
except ModuleNotFoundError as error:
    raise MissingExtraError("the benchmark's report", "bench") from error

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "RESAMPLES",
    "Floats",
    "Picks",
    "Statistic",
    "all_tasks",
    "column",
    "difference_interval",
    "mcnemar",
    "ratio_bootstrap",
]

RESAMPLES: Final = 4_999
_SEED: Final = 20_250_101

Floats: TypeAlias = "NDArray[np.float64]"
"""One value for each task, or each choice of tasks."""
Picks: TypeAlias = "NDArray[np.int64]"
"""Indices of tasks; the last axis is one choice."""
Statistic: TypeAlias = Callable[[Picks], Floats]
"""The value of a figure for each choice of tasks."""


def _scipy() -> Any:  # noqa: ANN401 - SciPy carries no types
    try:
        return import_module("scipy.stats")
    except ModuleNotFoundError as error:
        raise MissingExtraError("the benchmark's report", "bench") from error


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of the exact McNemar test.

    Args:
        only_first: Tasks that only the first system solved.
        only_second: Tasks that only the second one solved.

    Returns:
        From 0 to 1; 1 where they solved the same tasks.
    """
    discordant = only_first + only_second
    return float(_scipy().binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


def difference_interval(first: Statistic, second: Statistic, tasks: int) -> Interval | None:
    """Return the 95 % interval of `first - second` over the same tasks: paired percentile bootstrap.

    Args:
        first: The figure of the first system.
        second: The figure of the second one.
        tasks: How many tasks both did.

    Returns:
        None for fewer than two tasks.
    """
    return _bootstrap(lambda picks: first(picks) - second(picks), tasks)


def ratio_bootstrap(first: Statistic, second: Statistic, tasks: int) -> Interval | None:
    """Return the 95 % interval of `first / second` over the same tasks: paired percentile bootstrap.

    Args:
        first: The numerator, never below 0.
        second: The denominator, never below 0.
        tasks: How many tasks both rest on.

    Returns:
        Its upper end is infinite where the denominator may be 0; None for fewer than two tasks.
    """
    # Percentiles keep under a monotone change of scale, and a share of the sum is finite where the ratio is not.
    found = _bootstrap(lambda picks: _share(first(picks), second(picks)), tasks)
    return None if found is None else Interval(_odds(found.low), _odds(found.high))


def _share(part: Floats, rest: Floats) -> Floats:
    whole = part + rest
    return np.divide(part, whole, out=np.full_like(whole, 0.5), where=whole > 0)


def _odds(share: float) -> float:
    return share / (1 - share) if share < 1 else math.inf


def _bootstrap(statistic: Statistic, tasks: int) -> Interval | None:
    if tasks < 2:
        return None

    def chosen(picks: NDArray[Any], axis: int) -> Floats:
        return statistic(picks.astype(np.int64))

    drawn = _scipy().bootstrap(
        (all_tasks(tasks),),
        chosen,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    )
    return Interval(float(drawn.confidence_interval.low), float(drawn.confidence_interval.high))


def column(values: Sequence[float]) -> Floats:
    """Return values, one for each task, as what figures are computed from.

    Args:
        values: The values.
    """
    return np.asarray(values, dtype=np.float64)


def all_tasks(tasks: int) -> Picks:
    """Return the choice of every task once.

    Args:
        tasks: How many there are.
    """
    return np.arange(tasks, dtype=np.int64)
