"""What the benchmark set out to show, held against what it shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentloop_autogen.bench.report.comparing import SUBJECT, Comparison, Delta, is_baseline
from agentloop_autogen.bench.report.measuring import Cell

__all__ = ["Target", "targets_of"]

_MOST_TOKENS: Final = 0.30
_MOST_CALLS: Final = 0.25
_PLAIN: Final = "autogen"
_SQL: Final = "spider"
_TASKS: Final = 30


@dataclass(frozen=True, kw_only=True)
class Target:
    """One target with the figure that meets or misses it."""

    family: str
    wanted: str
    """What it asks for, in words."""
    against: str
    """The system it is measured against; empty: none was run."""
    delta: Delta | None
    """The figure; None: nothing to compare, or it is a count."""
    count: int | None
    """A number of tasks, where that is what the target is about."""
    met: bool | None
    """None: there is nothing to tell it by."""
    beyond_chance: bool
    """Whether the whole interval is on the same side of the target as the figure."""


def targets_of(cells: Sequence[Cell], comparisons: Sequence[Comparison]) -> tuple[Target, ...]:
    """Return every target for the families that were run.

    Args:
        cells: The figures of all systems.
        comparisons: The subject against the others.
    """
    found: list[Target] = []
    for family in sorted({cell.family for cell in cells}):
        members = [cell for cell in cells if cell.family == family]
        pairs = {one.other: one for one in comparisons if one.family == family}
        found += _of_family(family, members, pairs)
        if family == _SQL:
            found += _of_sql(pairs.get(_PLAIN))
            found.append(_count(family, f"every variant of {SUBJECT} on at least {_TASKS} tasks", members, own=True))
        found.append(_count(family, f"every other system and {SUBJECT} on at least {_TASKS} tasks", members, own=False))
    return tuple(found)


def _of_family(family: str, cells: Sequence[Cell], pairs: Mapping[str, Comparison]) -> Iterator[Target]:
    baselines = [pairs[cell.system] for cell in cells if is_baseline(cell.system) and cell.system in pairs]
    costliest = max(baselines, key=lambda one: one.deltas["tokens"].theirs, default=None)
    best = max(baselines, key=lambda one: one.deltas["solved"].theirs, default=None)
    yield _below(family, "at least 70 % fewer tokens than the costliest baseline", costliest, "tokens", _MOST_TOKENS)
    yield _below(family, "at least 75 % fewer tool calls than that baseline", costliest, "tool_calls", _MOST_CALLS)
    yield _above(family, "accuracy above the best baseline's", best, 0.0, or_equal=False)


def _of_sql(plain: Comparison | None) -> Iterator[Target]:
    yield _above(_SQL, f"at least 15 points more accuracy than {_PLAIN}", plain, 0.15)
    yield _below(_SQL, f"at most 0.5 times the tokens of {_PLAIN}", plain, "tokens", 0.5)
    yield _below(_SQL, "at most 0.2 times its tokens per solved task", plain, "tokens_per_solved", 0.2)
    yield _above(
        _SQL, f"more than the 17 points above {_PLAIN} of the accurate throw-away guard", plain, 0.17, or_equal=False
    )
    yield _below(_SQL, "less than the 0.26 times its tokens of the thrifty one", plain, "tokens", 0.26, or_equal=False)


def _below(
    family: str, wanted: str, pair: Comparison | None, key: str, bound: float, *, or_equal: bool = True
) -> Target:
    delta = None if pair is None else pair.deltas.get(key)
    met = None if delta is None or math.isnan(delta.value) else _reaches(bound - delta.value, or_equal=or_equal)
    sure = delta is not None and _one_side(delta, bound)
    return _target(family, wanted, pair, delta, met=met, sure=sure)


def _above(family: str, wanted: str, pair: Comparison | None, bound: float, *, or_equal: bool = True) -> Target:
    delta = None if pair is None else pair.deltas.get("solved")
    met = None if delta is None else _reaches(delta.value - bound, or_equal=or_equal)
    return _target(family, wanted, pair, delta, met=met, sure=delta is not None and _one_side(delta, bound))


def _reaches(margin: float, *, or_equal: bool) -> bool:
    return margin >= -1e-9 if or_equal else margin > 1e-9


def _one_side(delta: Delta, bound: float) -> bool:
    return delta.interval is not None and not delta.interval.low <= bound <= delta.interval.high


def _target(
    family: str, wanted: str, pair: Comparison | None, delta: Delta | None, *, met: bool | None, sure: bool
) -> Target:
    against = "" if pair is None else pair.other
    return Target(family=family, wanted=wanted, against=against, delta=delta, count=None, met=met, beyond_chance=sure)


def _count(family: str, wanted: str, cells: Sequence[Cell], *, own: bool) -> Target:
    counted = [cell for cell in cells if cell.system.startswith(f"{SUBJECT}-") is own]
    fewest = min((len({task for task, _ in cell.tasks}) for cell in counted), default=None)
    met = None if fewest is None else fewest >= _TASKS
    return Target(family=family, wanted=wanted, against="", delta=None, count=fewest, met=met, beyond_chance=True)
