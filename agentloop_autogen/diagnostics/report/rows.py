"""The rows charts are drawn from: binned, named and placed once, for the page and for the files alike."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

from agentloop_autogen.diagnostics.report.data import Distribution, FrontierPoint, ReportData
from agentloop_autogen.diagnostics.report.escaping import visible
from agentloop_autogen.diagnostics.report.labels import QUANTITIES

__all__ = [
    "ALL_GROUPS",
    "OUTCOMES",
    "Binned",
    "GroupNames",
    "bin_rows",
    "binned",
    "frontier_rows",
    "outcome_of",
    "step_rows",
]

OUTCOMES: Final = ("solved", "not solved", "not known")
ALL_GROUPS: Final = "all groups"
MOST_BINS: Final = 32
LABEL_CHARS: Final = 38
WIDE_SPAN: Final = 60
"""Largest over smallest value from which on an axis is logarithmic."""
LETTER: Final = (0.023, 0.075)
"""Width and height of a letter as shares of a small chart, about; by it labels are kept off each other."""


def outcome_of(*, solved: bool | None) -> str:
    """Return the word for whether a request was solved."""
    return OUTCOMES[2] if solved is None else OUTCOMES[0] if solved else OUTCOMES[1]


class Grouped(Protocol):
    """Anything that belongs to a group."""

    @property
    def source(self) -> str:
        """Where its requests are from."""
        ...

    @property
    def model(self) -> str:
        """What answered them."""
        ...


class GroupNames:
    """The groups of a report in their order, with names short enough for a chart."""

    def __init__(self, data: ReportData) -> None:
        settings = (point for point in data.frontier if point.source or point.model)
        parts = (data.groups, data.distributions, settings, data.timelines)
        self.pairs = list(dict.fromkeys((item.source, item.model) for part in parts for item in part))
        self._index = {pair: index for index, pair in enumerate(self.pairs)}
        self.labels = [f"{index + 1} · {name}" for index, name in enumerate(self._names())]

    def index(self, item: Grouped) -> int:
        """Return the place of the group that anything with a source and a model belongs to."""
        return self._index[item.source, item.model]

    def label(self, item: Grouped) -> str:
        """Return the name of its group; a setting without source and model is about all groups together."""
        index = self._index.get((item.source, item.model))
        return ALL_GROUPS if index is None else self.labels[index]

    def _names(self) -> list[str]:
        sources, models = ({pair[place] for pair in self.pairs} for place in (0, 1))
        return [_shorten(_name(pair, sources, models)) for pair in self.pairs]


def _name(pair: tuple[str, str], sources: set[str], models: set[str]) -> str:
    """Name a group by what sets it apart from the others, by both where nothing does."""
    told = [part for part, all_ in zip(pair, (sources, models), strict=True) if len(all_) > 1]
    return visible(" · ".join(part for part in reversed(told or pair) if part)).replace("\n", " ") or "unnamed"


def _shorten(name: str) -> str:
    if len(name) <= LABEL_CHARS:
        return name
    half = LABEL_CHARS // 2
    return f"{name[:half]}…{name[-half + 1 :]}"


@dataclass(frozen=True, kw_only=True)
class Binned:
    """A quantity counted in bins that are the same for all groups."""

    quantity: str
    log: bool
    """Whether its values span so much that a linear axis would show one bar."""
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    """What each bin holds, in words."""
    cells: tuple[tuple[int, str, int, int], ...]
    """Group, outcome, bin and how many requests."""


def binned(data: ReportData, names: GroupNames) -> list[Binned]:
    """Return every quantity that anything is known of, in the order in which they are shown."""
    found: dict[str, list[Distribution]] = defaultdict(list)
    for distribution in data.distributions:
        if distribution.values:
            found[distribution.quantity].append(distribution)
    known = [key for key in QUANTITIES if key in found]
    return [_bin(quantity, found[quantity], names) for quantity in known]


def _bin(quantity: str, distributions: list[Distribution], names: GroupNames) -> Binned:
    whole = QUANTITIES[quantity].whole
    low = min(min(distribution.values) for distribution in distributions)
    high = max(max(distribution.values) for distribution in distributions)
    log = low > 0 and high / low >= WIDE_SPAN
    edges = _log_edges(low, high) if log else _edges(low, high, whole=whole)
    counts: Counter[tuple[int, str, int]] = Counter()
    for distribution in distributions:
        group, outcome = names.index(distribution), outcome_of(solved=distribution.solved)
        for value, count in zip(distribution.values, distribution.counts, strict=True):
            place = min(max(bisect_right(edges, value) - 1, 0), len(edges) - 2)
            counts[group, outcome, place] += count
    labels = [_bin_label(a, b, whole=whole and not log) for a, b in pairwise(edges)]
    cells = tuple((*key, count) for key, count in counts.items())
    return Binned(quantity=quantity, log=log, edges=tuple(edges), labels=tuple(labels), cells=cells)


def _edges(low: float, high: float, *, whole: bool) -> list[float]:
    """Return edges at round steps; whole numbers stand in the middle of their bin where each has its own."""
    step = _round_step((high - low) / MOST_BINS, whole=whole)
    first = math.floor(low / step)
    shift = step / 2 if whole and step == 1 else 0.0
    return [(first + i) * step - shift for i in range(math.floor(high / step) - first + 2)]


def _round_step(least: float, *, whole: bool) -> float:
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return max(step, 1.0) if whole else step


def _log_edges(low: float, high: float) -> list[float]:
    """Return edges at 1, 2 and 5 times the powers of ten."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    first, last = bisect_right(marks, low) - 1, bisect_right(marks, high)
    return marks[first : last + 1]


def _bin_label(low: float, high: float, *, whole: bool) -> str:
    if not whole:
        return f"{low:,g} to under {high:,g}"
    first, last = math.ceil(low), math.ceil(high) - 1
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def bin_rows(bins: Binned, names: GroupNames) -> list[dict[str, Any]]:
    """Return one row for each bar of a histogram."""
    return [
        {
            "group": names.labels[group],
            "outcome": outcome,
            "from": bins.edges[place],
            "to": bins.edges[place + 1],
            "bin": bins.labels[place],
            "n": count,
        }
        for group, outcome, place, count in bins.cells
    ]


def step_rows(data: ReportData, names: GroupNames, quantity: str) -> list[dict[str, Any]]:
    """Return one row for each value of a quantity, and both ends of the axis for each group; the chart adds them up."""
    rows = [
        {"group": names.labels[names.index(item)], "value": value, "n": count}
        for item in data.distributions
        if item.quantity == quantity
        for value, count in zip(item.values, item.counts, strict=True)
    ]
    ends = {choose(row["value"] for row in rows) for choose in (min, max)} if rows else set[float]()
    groups = dict.fromkeys(row["group"] for row in rows)
    return rows + [{"group": group, "value": end, "n": 0} for group in groups for end in sorted(ends)]


def frontier_rows(data: ReportData, names: GroupNames) -> list[dict[str, Any]]:
    """Return one row for each setting that can be placed: its group made calls, and solved something."""
    points = [point for point in data.frontier if point.calls and point.solved]
    rows = [_frontier_row(point, names) for point in points]
    width = max((row["worst"] for row in rows), default=0) or 1.0
    height = max((row["saved"] for row in rows), default=0) or 1.0
    _label_apart(rows, width, height)
    return rows


def _frontier_row(point: FrontierPoint, names: GroupNames) -> dict[str, Any]:
    return {
        "group": names.label(point),
        "name": _shorten(visible(point.label)),
        "left_label": "",
        "right_label": "",
        "settings": visible(point.settings),
        "saved": point.calls_saved / point.calls,
        "lost": point.lost / point.solved,
        "worst": min(1.0, (point.lost + point.unknown) / point.solved),
        "saved_counts": f"{point.calls_saved:,} of {point.calls:,}",
        "lost_counts": f"{point.lost:,} of {point.solved:,}",
        "unknown_counts": f"{point.unknown:,} of {point.solved:,}",
        "kind": "default" if point.is_default else "on the frontier" if point.on_frontier else "behind it",
        "on_line": point.on_frontier,
    }


def _label_apart(rows: list[dict[str, Any]], width: float, height: float) -> None:
    """Give a label to the default and to what lies on the frontier, as far as there is room."""
    taken: list[tuple[str, float, float, float]] = []
    wanted = [row for row in rows if row["on_line"] or row["kind"] == "default"]
    for row in sorted(wanted, key=lambda row: (row["kind"] != "default", -row["saved"])):
        x, y, room = row["lost"] / width, row["saved"] / height, LETTER[0] * len(row["name"])
        # Nothing lies above and to the left of a frontier; near the axis there is no room there.
        side = "left" if x > room else "right"
        left = x - room if side == "left" else x
        crowded = any(
            group == row["group"] and left < end and start < left + room and abs(y - level) < LETTER[1]
            for group, start, end, level in taken
        )
        if not crowded:
            row[f"{side}_label"] = row["name"]
            taken.append((row["group"], left, left + room, y))
