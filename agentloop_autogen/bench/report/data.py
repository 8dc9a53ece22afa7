"""A benchmark report as plain data, for machines."""

from __future__ import annotations

import math

from agentloop_autogen.bench.report.collect import BenchReport, GroupReport, on_frontier
from agentloop_autogen.bench.report.comparing import Comparison, Delta, Kind
from agentloop_autogen.bench.report.measuring import Cell
from agentloop_autogen.bench.report.targets import Target
from agentloop_autogen.diagnostics.intervals import Interval

__all__ = ["report_data"]


def report_data(report: BenchReport) -> dict[str, object]:
    """Return a report as data that JSON can carry; an infinite figure is the text `infinite`.

    Args:
        report: The report.
    """
    return {"files": list(report.files), "groups": [_group(group) for group in report.groups]}


def _group(group: GroupReport) -> dict[str, object]:
    best = {family: on_frontier(group.cells_of(family)) for family in group.families}
    return {
        "model": group.model,
        "settings": group.settings,
        "notes": list(group.notes),
        "systems": [_cell(cell, is_best=cell.system in best[cell.family]) for cell in group.cells],
        "comparisons": [_comparison(one) for one in group.comparisons],
        "targets": [_target(target) for target in group.targets],
    }


def _cell(cell: Cell, *, is_best: bool) -> dict[str, object]:
    figures = {
        name: {
            "value": _number(metric.value),
            "count": _number(metric.count),
            "of": _number(metric.of),
            "low": _number(metric.low),
            "high": _number(metric.high),
        }
        for name, metric in cell.figures.items()
    }
    tasks = len(cell.tasks)
    return {"family": cell.family, "system": cell.system, "tasks": tasks, "on_frontier": is_best, "figures": figures}


def _comparison(one: Comparison) -> dict[str, object]:
    deltas = {key: _delta(delta) for key, delta in one.deltas.items()}
    return {"family": one.family, "against": one.other, "tasks": one.tasks, "figures": deltas}


def _delta(delta: Delta) -> dict[str, object]:
    return {
        "kind": "difference" if delta.compared.kind is Kind.SHARE else "ratio",
        "tasks": delta.tasks,
        "agentloop": _number(delta.mine),
        "other": _number(delta.theirs),
        "value": _number(delta.value),
        "interval": _interval(delta.interval),
        "p_value": delta.p_value,
        "worse": delta.worse,
        "beyond_chance": delta.beyond_chance,
    }


def _target(target: Target) -> dict[str, object]:
    return {
        "family": target.family,
        "wanted": target.wanted,
        "against": target.against,
        "value": target.count if target.delta is None else _number(target.delta.value),
        "interval": None if target.delta is None else _interval(target.delta.interval),
        "met": target.met,
        "beyond_chance": target.beyond_chance,
    }


def _interval(interval: Interval | None) -> list[object] | None:
    return None if interval is None else [_number(interval.low), _number(interval.high)]


def _number(value: float | None) -> float | str | None:
    if value is None or math.isnan(value):
        return None
    return value if math.isfinite(value) else "infinite"
