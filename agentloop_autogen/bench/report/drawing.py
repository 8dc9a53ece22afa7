"""The figures of a benchmark report, family by family, as Vega-Lite specifications with their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from agentloop_autogen.bench.report.collect import on_frontier
from agentloop_autogen.bench.report.measuring import Cell
from agentloop_autogen.diagnostics.report import charts
from agentloop_autogen.diagnostics.report.charts import PRINT, Spec
from agentloop_autogen.diagnostics.report.escaping import visible

__all__ = ["family_figures"]

Rows = list[dict[str, Any]]
_PARTS: Final = {"model_s": "model", "tool_s": "tools", "control_s": "control", "waiting_s": "waiting"}
_TOKENS: Final = {"input_tokens_mean": "input", "output_tokens_mean": "output"}
_WORK: Final = {"rounds_mean": "rounds", "model_calls_mean": "LLM calls", "tool_calls_mean": "tool calls"}
_WIDE_SPAN: Final = 30
"""Longest over shortest latency from which on its axis is logarithmic."""
_LEAST_S: Final = 0.001
"""A latency shown as this at least: there is no 0 on a logarithmic axis."""
_SHAPES: Final = ("circle", "square", "triangle-up", "diamond")
_WORK_STEP: Final = 40
"""Height of the bars of one system."""


def family_figures(cells: Sequence[Cell]) -> Iterator[tuple[str, str, Spec]]:
    """Return the figures of one family: a name for a file, a title, the chart.

    Args:
        cells: The systems at the family.
    """
    yield "latency", "Latency: share of tasks done within a time", _latency(cells)
    yield "breakdown", "Where the time went, seconds per task", _stacked(_split(cells), "seconds per task")
    yield "tokens", "Tokens per task", _stacked(_means(cells, _TOKENS), "tokens per task")
    yield "work", "Rounds, calls and accuracy", _work(cells)
    yield "frontier", "Accuracy against tokens; in rings, those on the frontier", _frontier(cells)


def _latency(cells: Sequence[Cell]) -> Spec:
    rows: Rows = [
        {"group": visible(cell.system), "value": max(float(value), _LEAST_S), "n": 1}
        for cell in cells
        for value in cell.columns["latency_s"]
    ]
    values = [row["value"] for row in rows]
    log = max(values) / min(values) >= _WIDE_SPAN
    spec = charts.ecdf("elapsed_s", log=log, groups=_names(cells), look=PRINT)
    return _with(spec, rows)


def _split(cells: Sequence[Cell]) -> Rows:
    return _means(cells, {f"{key}_mean": name for key, name in _PARTS.items()})


def _means(cells: Sequence[Cell], keys: dict[str, str]) -> Rows:
    return [
        {"system": visible(cell.system), "part": name, "value": cell.value(key) or 0.0, "rank": rank}
        for cell in cells
        for rank, (key, name) in enumerate(keys.items())
    ]


def _stacked(rows: Rows, title: str) -> Spec:
    parts = list(dict.fromkeys(row["part"] for row in rows))
    encoding = {
        "y": _systems([row["system"] for row in rows]),
        "x": {"field": "value", "type": "quantitative", "stack": "zero", "axis": {"title": title, "tickCount": 5}},
        "color": _parts(parts),
        "order": {"field": "rank", "type": "quantitative"},
    }
    mark = {"type": "bar", "stroke": PRINT.surface, "strokeWidth": 0.6}
    return _with(
        {**charts.frame(PRINT), "width": 420, "height": {"step": 22}, "mark": mark, "encoding": encoding}, rows
    )


def _work(cells: Sequence[Cell]) -> Spec:
    """Bars of rounds and calls side by side, and beside them the accuracy with its interval."""
    # The same scale on both sides, so that the rows lie beside each other.
    systems = {**_systems(_names(cells)), "scale": {"type": "band", "paddingInner": 0.2, "paddingOuter": 0.1}}
    bars = {
        "width": 300,
        "height": _WORK_STEP * len(cells),
        "transform": [{"filter": "isValid(datum.part)"}],
        "mark": "bar",
        "encoding": {
            "y": systems,
            "yOffset": {"field": "part", "type": "nominal", "sort": list(_WORK.values())},
            "x": {"field": "value", "type": "quantitative", "axis": {"title": "per task", "tickCount": 5}},
            "color": _parts(list(_WORK.values())),
        },
    }
    rows = _means(cells, _WORK) + [
        {
            "system": visible(cell.system),
            "solved": cell.value("solved") or 0.0,
            "low": cell.figures["solved"].low,
            "high": cell.figures["solved"].high,
        }
        for cell in cells
    ]
    return _with({**charts.frame(PRINT), "hconcat": [bars, _accuracy(systems, len(cells))], "spacing": 16}, rows)


def _accuracy(systems: Spec, rows: int) -> Spec:
    solved = {
        "field": "solved",
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"title": "accuracy, 95 % (Wilson)", "format": ".0%", "values": [0, 0.25, 0.5, 0.75, 1]},
    }
    bare = {**systems, "axis": {"title": None, "labels": False, "ticks": False}}
    return {
        "width": 200,
        "height": _WORK_STEP * rows,
        "transform": [{"filter": "isValid(datum.solved)"}],
        "layer": [
            {
                "mark": {"type": "rule", "color": PRINT.muted},
                "encoding": {"y": bare, "x": {**solved, "field": "low"}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": PRINT.ink},
                "encoding": {"y": bare, "x": solved},
            },
        ],
    }


def _frontier(cells: Sequence[Cell]) -> Spec:
    best = on_frontier(cells)
    rows: Rows = [
        {
            "system": visible(cell.system),
            "tokens": cell.value("tokens_mean") or 0.0,
            "solved": cell.value("solved") or 0.0,
            "low": cell.figures["solved"].low,
            "high": cell.figures["solved"].high,
            "best": cell.system in best,
        }
        for cell in cells
    ]
    x = {"field": "tokens", "type": "quantitative", "axis": {"title": "tokens per task", "tickCount": 6}}
    y = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"title": "accuracy", "format": ".0%"}}
    place = {"x": {**x, "scale": {"zero": True, "nice": True}}, "y": {**y, "field": "solved"}}
    line = {
        "transform": [{"filter": "datum.best"}],
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.2, "color": PRINT.muted},
        "encoding": {**place, "order": {"field": "tokens", "type": "quantitative"}},
    }
    doubt = {
        "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.35, "color": PRINT.muted},
        "encoding": {**place, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
    }
    rings = {
        "transform": [{"filter": "datum.best"}],
        "mark": {"type": "point", "filled": False, "opacity": 1, "size": 300, "strokeWidth": 1.6, "color": PRINT.ink},
        "encoding": place,
    }
    points = {
        "mark": {"type": "point", "filled": True, "opacity": 1, "size": 110},
        "encoding": {**place, **_point_styles(_names(cells))},
    }
    layers = [doubt, line, points, rings]
    return _with({**charts.frame(PRINT), "width": 420, "height": 280, "layer": layers}, rows)


def _point_styles(names: Sequence[str]) -> Spec:
    """Tell systems apart by colour, and by shape where there are more of them than colours."""
    colours = len(PRINT.series)
    ranges = {
        "color": [PRINT.series[place % colours] for place in range(len(names))],
        "shape": [_SHAPES[place // colours % len(_SHAPES)] for place in range(len(names))],
    }
    legend = {"title": None, "orient": "right", "labelLimit": 260}
    return {
        channel: {"field": "system", "type": "nominal", "scale": {"domain": names, "range": values}, "legend": legend}
        for channel, values in ranges.items()
    }


def _systems(names: Sequence[str]) -> Spec:
    axis = {"title": None, "labelLimit": 260, "labelColor": PRINT.ink}
    return {"field": "system", "type": "nominal", "sort": list(dict.fromkeys(names)), "axis": axis}


def _parts(names: Sequence[str]) -> Spec:
    scale = {"domain": list(names), "range": list(PRINT.series[: len(names)])}
    return {"field": "part", "type": "nominal", "scale": scale, "legend": {"title": None, "orient": "top"}}


def _names(cells: Sequence[Cell]) -> list[str]:
    return [visible(cell.system) for cell in cells]


def _with(spec: Spec, rows: Rows) -> Spec:
    return {**spec, "datasets": {"rows": rows}}
