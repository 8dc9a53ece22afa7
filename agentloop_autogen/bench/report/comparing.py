"""One system held against another on the tasks both did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from agentloop_autogen.bench.report.measuring import Cell
from agentloop_autogen.bench.report.statistics import (
    Floats,
    Picks,
    Statistic,
    all_tasks,
    column,
    difference_interval,
    mcnemar,
    ratio_bootstrap,
)
from agentloop_autogen.diagnostics.intervals import Interval

__all__ = ["COMPARED", "SUBJECT", "Compared", "Comparison", "Delta", "Kind", "compare", "compare_all", "is_baseline"]

SUBJECT: Final = "agentloop"
"""The system the report is about; its variants are named after it, and whatever is not is a baseline."""
_SLACK: Final = 1e-9
"""Differences below it are rounding."""


class Kind(str, Enum):
    """How two values are held against each other."""

    SHARE = "share"
    """By their difference."""
    AMOUNT = "amount"
    """By their ratio."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A figure that systems are compared by."""

    key: str
    label: str
    kind: Kind
    columns: tuple[str, ...]
    """What it is computed from: attempts that do not tell one of these are left out, with their counterparts."""
    higher_is_better: bool = False
    unit: str = ""


def _shares(key: str, label: str, source: str, *, higher_is_better: bool = False) -> Compared:
    return Compared(key=key, label=label, kind=Kind.SHARE, columns=(source,), higher_is_better=higher_is_better)


def _mean(key: str, label: str, unit: str = "") -> Compared:
    return Compared(key=key, label=label, kind=Kind.AMOUNT, columns=(key,), unit=unit)


_P90: Final = "latency_p90_s"
_PER_SOLVED: Final = "tokens_per_solved"
COMPARED: Final = (
    _shares("solved", "accuracy", "solved", higher_is_better=True),
    _mean("tokens", "tokens"),
    _mean("input_tokens", "input tokens"),
    _mean("output_tokens", "output tokens"),
    Compared(key=_PER_SOLVED, label="tokens per solved task", kind=Kind.AMOUNT, columns=("tokens", "solved")),
    _mean("tool_calls", "tool calls"),
    _mean("duplicate_calls", "duplicate tool calls"),
    _mean("model_calls", "LLM calls"),
    _mean("rounds", "rounds"),
    _mean("latency_s", "latency", " s"),
    Compared(key=_P90, label="latency P90", kind=Kind.AMOUNT, columns=("latency_s",), unit=" s"),
    _mean("first_token_s", "first token of the answer", " s"),
    _shares("low_value", "low-value tasks (LGR)", "low_value"),
    _shares("failed", "failed attempts", "failed"),
)
"""The figures, in the order in which they are shown."""


@dataclass(frozen=True, kw_only=True)
class Delta:
    """One figure of two systems on the same tasks."""

    compared: Compared
    tasks: int
    mine: float
    """The subject's; infinite for tokens per solved task where none was solved."""
    theirs: float
    value: float
    """Difference or ratio of the two, the subject's first; NaN where both are 0 or both infinite."""
    interval: Interval | None
    """Of `value`, by the paired percentile bootstrap; None for fewer than two tasks."""
    p_value: float | None = None
    """Of the exact McNemar test; None for figures other than accuracy."""

    @property
    def worse(self) -> bool:
        """Whether the subject is the worse one, by however little."""
        gap = self.theirs - self.mine if self.compared.higher_is_better else self.mine - self.theirs
        return gap > _SLACK

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval lies wholly on one side of no difference."""
        even = 0.0 if self.compared.kind is Kind.SHARE else 1.0
        return self.interval is not None and not self.interval.low <= even <= self.interval.high


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The subject against one other system at one family."""

    family: str
    other: str
    tasks: int
    """Tasks both did."""
    deltas: Mapping[str, Delta]
    """By key, in the order of `COMPARED`; those that nothing is known of are left out."""


def is_baseline(system: str) -> bool:
    """Return whether a system is another's work, not the subject or a variant of it."""
    return system != SUBJECT and not system.startswith(f"{SUBJECT}-")


def compare_all(cells: Sequence[Cell]) -> tuple[Comparison, ...]:
    """Return the subject against every other system, family by family, baselines first.

    Args:
        cells: The figures of all systems.
    """
    subjects = {cell.family: cell for cell in cells if cell.system == SUBJECT}
    others = sorted(cells, key=lambda cell: (cell.family, not is_baseline(cell.system), cell.system))
    pairs = [(subjects[cell.family], cell) for cell in others if cell.system != SUBJECT and cell.family in subjects]
    return tuple(comparison for mine, theirs in pairs if (comparison := compare(mine, theirs)).tasks)


def compare(mine: Cell, theirs: Cell) -> Comparison:
    """Compare two systems on the tasks both did.

    Args:
        mine: The subject.
        theirs: The other one, at the same family.
    """
    places = {task: place for place, task in enumerate(theirs.tasks)}
    common = [(place, places[task]) for place, task in enumerate(mine.tasks) if task in places]
    deltas = {
        compared.key: delta
        for compared in COMPARED
        if (delta := _delta(compared, mine.columns, theirs.columns, common)) is not None
    }
    return Comparison(family=mine.family, other=theirs.system, tasks=len(common), deltas=deltas)


def _delta(
    compared: Compared, mine: Mapping[str, Floats], theirs: Mapping[str, Floats], common: Sequence[tuple[int, int]]
) -> Delta | None:
    names = compared.columns
    known = [
        (own, other)
        for own, other in common
        if not any(math.isnan(float(mine[name][own]) + float(theirs[name][other])) for name in names)
    ]
    if not known:
        return None
    ours = [column([float(mine[name][own]) for own, _ in known]) for name in names]
    others = [column([float(theirs[name][other]) for _, other in known]) for name in names]
    top, bottom = _terms(compared, ours)
    other_top, other_bottom = _terms(compared, others)
    whole = all_tasks(len(known))
    value_of_mine = _quotient(float(top(whole)), float(bottom(whole)))
    value_of_theirs = _quotient(float(other_top(whole)), float(other_bottom(whole)))
    if compared.kind is Kind.SHARE:
        value = value_of_mine - value_of_theirs
        interval = difference_interval(top, other_top, len(known))
    else:
        # A ratio of ratios, cross-multiplied: nothing is divided by what may be 0.
        value = _quotient(float(top(whole) * other_bottom(whole)), float(other_top(whole) * bottom(whole)))
        interval = ratio_bootstrap(
            lambda picks: top(picks) * other_bottom(picks), lambda picks: other_top(picks) * bottom(picks), len(known)
        )
    return Delta(
        compared=compared,
        tasks=len(known),
        mine=value_of_mine,
        theirs=value_of_theirs,
        value=value,
        interval=interval,
        p_value=_exact_test(ours[0], others[0]) if compared.key == "solved" else None,
    )


def _terms(compared: Compared, columns: Sequence[Floats]) -> tuple[Statistic, Statistic]:
    """Return the numerator and the denominator of a figure for any choice of tasks."""
    first, last = columns[0], columns[-1]
    if compared.key == _PER_SOLVED:
        return _summed(first), _summed(last)
    if compared.key == _P90:
        return _ninetieth(first), _one
    return lambda picks: first[picks].mean(axis=-1), _one


def _summed(values: Floats) -> Statistic:
    return lambda picks: values[picks].sum(axis=-1)


def _ninetieth(values: Floats) -> Statistic:
    return lambda picks: np.quantile(values[picks], 0.9, axis=-1)


def _one(picks: Picks) -> Floats:
    return np.ones(picks.shape[:-1])


def _quotient(part: float, whole: float) -> float:
    if whole:
        return part / whole
    return math.inf if part else math.nan


def _exact_test(mine: Floats, theirs: Floats) -> float:
    return mcnemar(int(((mine == 1) & (theirs == 0)).sum()), int(((mine == 0) & (theirs == 1)).sum()))
