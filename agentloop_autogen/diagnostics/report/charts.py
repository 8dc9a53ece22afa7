"""The charts as Vega-Lite specifications: plain data, without the rows they are drawn from.

Each reads the dataset `rows` (see `rows.py`) and carries its colours with it: the page passes the names of its CSS
properties, so that a chart follows the scheme of the page, and files pass the colours themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentloop_autogen.diagnostics.report.labels import QUANTITIES
from agentloop_autogen.diagnostics.report.rows import ALL_GROUPS, OUTCOMES

__all__ = ["PAGE", "PRINT", "Look", "Spec", "ecdf", "frame", "frontier", "histogram"]

Spec = dict[str, Any]
_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
_DASHES: Final = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3])
_KINDS: Final = ("default", "on the frontier", "behind it")
_SHARE: Final = ".0%"


@dataclass(frozen=True, kw_only=True)
class Look:
    """Colours and type of a chart."""

    series: tuple[str, ...]
    """Colours of the groups, used again from the first where there are more groups."""
    outcomes: tuple[str, str, str]
    """Solved, not solved, not known."""
    ink: str
    muted: str
    grid: str
    surface: str
    background: str | None
    """None: whatever is behind the chart."""
    font: str
    legend: bool
    """Whether the chart names its colours itself."""


PAGE: Final = Look(
    series=tuple(f"var(--series-{number})" for number in range(1, 8)),
    outcomes=("var(--solved)", "var(--unsolved)", "var(--unjudged)"),
    ink="var(--ink)",
    muted="var(--muted)",
    grid="var(--line)",
    surface="var(--surface)",
    background=None,
    font="system-ui, sans-serif",
    legend=False,
)
PRINT: Final = Look(
    series=("#0068a8", "#c4450c", "#0b7a5b", "#8b3fa0", "#8a6a00", "#4b4fb3", "#b02a5b"),
    outcomes=("#0068a8", "#e08a3c", "#a3abb5"),
    ink="#16202b",
    muted="#4d5966",
    grid="#dde2e8",
    surface="#ffffff",
    background="#ffffff",
    font="sans-serif",
    legend=True,
)


def histogram(quantity: str, *, log: bool, groups: Sequence[str], look: Look) -> Spec:
    """Return the distribution of a quantity: one small chart for each group, bars split by outcome.

    Args:
        quantity: Its key.
        log: Whether its axis is logarithmic.
        groups: Labels of the groups, in order.
        look: Colours and type.

    Returns:
        A specification; its facets get their width and number of columns from whoever draws it.
    """
    share = _number("share", {"title": "share of requests", "format": _SHARE, "tickCount": 4})
    encoding = {
        "x": {**_number("from", _axis(quantity, log=log)), "scale": _scale(log=log), "bin": "binned"},
        "x2": {"field": "to"},
        "y": {**share, "aggregate": "sum"},
        "color": {
            **_name("outcome"),
            "scale": {"domain": list(OUTCOMES), "range": list(look.outcomes)},
            "legend": {"title": None, "orient": "top"} if look.legend else None,
        },
        "order": {"field": "rank", "type": "quantitative"},
        "tooltip": [
            {"field": "bin", "title": QUANTITIES[quantity].label},
            {"field": "outcome", "title": "outcome"},
            {**_told("n", "requests", ","), "aggregate": "sum"},
            {**_told("share", "share", ".1%"), "aggregate": "sum"},
        ],
    }
    transform = [
        {"joinaggregate": [{"op": "sum", "field": "n", "as": "of"}], "groupby": ["group"]},
        {"calculate": "datum.n / datum.of", "as": "share"},
        {"calculate": f"indexof({list(OUTCOMES)!r}, datum.outcome)", "as": "rank"},
    ]
    # The gap and the edge set neighbours apart without colour.
    mark = {"type": "bar", "binSpacing": 1, "stroke": look.surface, "strokeWidth": 0.6}
    return _faceted({"height": 110, "mark": mark, "encoding": encoding}, transform, groups, look)


def ecdf(quantity: str, *, log: bool, groups: Sequence[str], look: Look) -> Spec:
    """Return the empirical distribution function of a quantity, all groups in one plot.

    Args:
        quantity: Its key.
        log: Whether its axis is logarithmic.
        groups: Labels of the groups, in order.
        look: Colours and type.

    Returns:
        A specification; it gets its width from whoever draws it.
    """
    y_axis = {"title": "share of requests at or below", "format": _SHARE, "tickCount": 5}
    place = {
        "x": {**_number("value", _axis(quantity, log=log)), "scale": _scale(log=log)},
        "y": {**_number("share", y_axis), "scale": {"domain": [0, 1]}},
    }
    lines = {
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {**place, **_line_styles(list(groups), look)},
    }
    tooltip = [
        {"field": "group", "title": "group"},
        _told("value", QUANTITIES[quantity].label, ",.6~g"),
        _told("share", "at or below", ".1%"),
        _told("of", "requests", ","),
    ]
    # Points nobody sees take the pointer: a line has one tooltip for all of it. Where the axis is one value there is
    # no line, and they are seen.
    opacity = {"condition": {"test": "datum.values == 1", "value": 1}, "value": 0}
    spots = {
        "mark": {"type": "point", "size": 90, "filled": True, "color": look.series[0]},
        "encoding": {**place, "opacity": opacity, "tooltip": tooltip},
    }
    body: Spec = {"width": 420, "height": 260, "transform": _adding_up(), "layer": [lines, spots]}
    return {**frame(look), **body}


def _line_styles(groups: list[str], look: Look) -> Spec:
    """Tell groups apart by colour and by dash: neighbours differ in both."""
    legend = {"title": None, "orient": "bottom", "columns": 2, "labelLimit": 300, "symbolSize": 300}
    return {
        channel: {
            **_name("group"),
            "scale": {"domain": groups, "range": [styles[place % len(styles)] for place in range(len(groups))]},
            "legend": legend if look.legend else None,
        }
        for channel, styles in (("color", look.series), ("strokeDash", _DASHES))
    }


def _adding_up() -> list[Spec]:
    return [
        {"aggregate": [{"op": "sum", "field": "n", "as": "n"}], "groupby": ["group", "value"]},
        {
            "window": [{"op": "sum", "field": "n", "as": "up_to"}],
            "sort": [{"field": "value"}],
            "groupby": ["group"],
            "frame": [None, 0],
        },
        {
            "joinaggregate": [{"op": "sum", "field": "n", "as": "of"}, {"op": "count", "as": "values"}],
            "groupby": ["group"],
        },
        {"calculate": "datum.up_to / datum.of", "as": "share"},
    ]


def frontier(*, groups: Sequence[str], look: Look) -> Spec:
    """Return what each setting of the loop saves against what it loses, one small chart for each group.

    Args:
        groups: Labels of the groups, in order.
        look: Colours and type.

    Returns:
        A specification; its facets get their width and number of columns from whoever draws it.
    """
    place = {
        "x": _number("lost", {"title": "solved requests lost", "format": ".2~p", "tickCount": 4}),
        "y": _number("saved", {"title": "calls saved", "format": ".2~p", "tickCount": 4}),
    }
    line = {
        "transform": [{"filter": "datum.on_line"}],
        "mark": {"type": "line", "strokeWidth": 1.5, "color": look.series[0]},
        "encoding": {**place, "order": {"field": "lost", "type": "quantitative"}},
    }
    doubt = {
        "mark": {"type": "rule", "strokeWidth": 1, "strokeDash": [2, 2], "color": look.muted},
        "encoding": {**place, "x2": {"field": "worst"}},
    }
    halos, labels = (
        [_point_labels(side, place, look, halo=halo) for side in ("right", "left")] for halo in (True, False)
    )
    layers = [doubt, line, *halos, _points(place, look), *labels]
    return _faceted({"height": 220, "layer": layers}, [], [*groups, ALL_GROUPS], look)


def _points(place: Spec, look: Look) -> Spec:
    ranges = {"color": [look.series[1], look.series[0], look.muted], "shape": ["diamond", "circle", "cross"]}
    legend = {"title": None, "orient": "top"} if look.legend else None
    kinds = {
        channel: {**_name("kind"), "scale": {"domain": list(_KINDS), "range": values}, "legend": legend}
        for channel, values in ranges.items()
    }
    size = {"condition": {"test": f"datum.kind == '{_KINDS[0]}'", "value": 150}, "value": 60}
    tooltip = [
        {"field": "name", "title": "setting"},
        {"field": "settings", "title": "that is"},
        {"field": "saved_counts", "title": "calls saved"},
        {"field": "lost_counts", "title": "solved lost"},
        {"field": "unknown_counts", "title": "solved, unclear"},
        {"field": "kind", "title": "place"},
    ]
    return {
        "mark": {"type": "point", "filled": True, "opacity": 1},
        "encoding": {**place, **kinds, "size": size, "tooltip": tooltip},
    }


def _point_labels(side: str, place: Spec, look: Look, *, halo: bool) -> Spec:
    """Return the labels on one side of the points; the halo under them keeps lines off the letters."""
    towards = {"align": "left", "dx": 9} if side == "right" else {"align": "right", "dx": -9}
    ink = {"stroke": look.surface, "strokeWidth": 3, "color": look.surface} if halo else {"color": look.ink}
    return {
        "mark": {"type": "text", "fontSize": 11, "dy": -7, **towards, **ink},
        "encoding": {**place, "text": {"field": f"{side}_label"}},
    }


def _number(field: str, axis: Spec) -> Spec:
    return {"field": field, "type": "quantitative", "axis": axis}


def _name(field: str) -> Spec:
    return {"field": field, "type": "nominal"}


def _told(field: str, title: str, form: str) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "format": form}


def _faceted(unit: Spec, transform: list[Spec], groups: Sequence[str], look: Look) -> Spec:
    header = {"title": None, "labelAnchor": "start", "labelLimit": 250, "labelPadding": 6}
    facet = {"field": "group", "type": "nominal", "sort": list(groups), "header": header}
    body: Spec = {"columns": 3, "spacing": 22, "transform": transform, "facet": facet, "spec": {"width": 230, **unit}}
    return {**frame(look), **body}


def frame(look: Look) -> Spec:
    """Return what every chart has: its data set by name, its type and its colours.

    Args:
        look: Colours and type.
    """
    text = {"labelColor": look.muted, "titleColor": look.muted}
    axis = {
        **text,
        "domainColor": look.grid,
        "gridColor": look.grid,
        "tickColor": look.grid,
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
    }
    legend = {**text, "labelColor": look.ink, "labelFontSize": 11}
    config: Spec = {
        "font": look.font,
        "axis": axis,
        "axisX": {"grid": False},
        "legend": legend,
        "header": {"labelColor": look.ink, "labelFontSize": 12, "labelFontWeight": 600},
        "view": {"stroke": None},
        # The page describes its charts in words and tables; hundreds of marks read out one by one describe nothing.
        "aria": False,
    }
    background = look.background or "transparent"
    return {"$schema": _SCHEMA, "background": background, "data": {"name": "rows"}, "config": config}


def _axis(quantity: str, *, log: bool) -> Spec:
    shown = QUANTITIES[quantity]
    title = f"{shown.axis} (log scale)" if log else shown.axis
    axis: Spec = {"title": title, "format": "~s" if log or quantity == "tokens" else ",.6~g", "tickCount": 5}
    return {**axis, "tickMinStep": 1} if shown.whole else axis


def _scale(*, log: bool) -> Spec:
    return {"type": "log", "nice": False} if log else {"zero": False, "nice": True}
