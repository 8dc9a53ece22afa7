"""The report as one page that needs nothing else: no network, no server, no other file."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

from agentloop_autogen.diagnostics.report import charts
from agentloop_autogen.diagnostics.report.cells import Figure, figures_of, share
from agentloop_autogen.diagnostics.report.data import FrontierPoint, GroupRow, ReportData, Timeline
from agentloop_autogen.diagnostics.report.escaping import Json, script_json, visible
from agentloop_autogen.diagnostics.report.labels import HEADLINE, METRICS, QUANTITIES
from agentloop_autogen.diagnostics.report.rows import (
    ALL_GROUPS,
    OUTCOMES,
    Binned,
    GroupNames,
    binned,
    frontier_rows,
    outcome_of,
)
from agentloop_autogen.errors import MissingExtraError

__all__ = ["render_html"]

_PACKAGE: Final = "agentloop_autogen.diagnostics.report"
_SCRIPTS: Final = ("dom.js", "drawing.js", "rounds.js", "requests.js", "compare.js", "page.js")
"""Parts of the page's script, in the order in which they build on each other."""


def render_html(data: ReportData) -> str:
    """Return a report as one HTML document.

    Its texts come from traces, which may hold anything: they are escaped, shown as text alone, and the policy in the
    document lets no script run but its own.

    Args:
        data: What it shows.

    Returns:
        The document; about 1 MB of it are the chart libraries.

    Raises:
        MissingExtraError: The extra `report` is not installed.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("the report", "report") from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    names = GroupNames(data)
    scripts = (_libraries(), _own_script())
    return environment.from_string(_asset("page.html.j2")).render(
        data=data,
        names=names,
        groups=[_group(row, names) for row in data.groups],
        frontier=[_frontier_row(point, names) for point in data.frontier],
        headline=[METRICS[key] for key in HEADLINE],
        headline_keys=HEADLINE,
        glossary=[METRICS[key] for key in METRICS],
        outcomes=OUTCOMES,
        policy=_policy(scripts),
        style=Markup(_asset("page.css")),  # noqa: S704 -- a file of this package
        scripts=[Markup(script) for script in scripts],  # noqa: S704 -- files of this package and of the chart library
        payload=Markup(script_json(_plain(_payload(data, names)))),  # noqa: S704 -- escaped for where it stands
    )


def _asset(name: str) -> str:
    return files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


@cache
def _libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that leaves one name behind."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("the report", "report") from None
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(() => {{{bundle}}})();"


def _own_script() -> str:
    body = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}}})();'


def _policy(scripts: tuple[str, ...]) -> str:
    """Return the content security policy: scripts by their hash, styles of the page, and nothing from anywhere.

    Styles cannot be hashed: the chart library sets some on its elements while it draws.
    """
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return "; ".join(
        (
            "default-src 'none'",
            "style-src 'unsafe-inline'",
            f"script-src {allowed}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _group(row: GroupRow, names: GroupNames) -> dict[str, Any]:
    figures = figures_of(row)
    topics: dict[str, list[Figure]] = {}
    for figure in figures.values():
        topics.setdefault(figure.topic, []).append(figure)
    return {"row": row, "index": names.index(row), "label": names.label(row), "figures": figures, "topics": topics}


def _frontier_row(point: FrontierPoint, names: GroupNames) -> dict[str, Any]:
    return {
        "point": point,
        "group": names.label(point),
        "saved": share(point.calls_saved / point.calls) if point.calls else "–",
        "lost": share(point.lost / point.solved) if point.solved else "–",
        "unknown": share(point.unknown / point.solved) if point.solved else "–",
    }


def _payload(data: ReportData, names: GroupNames) -> dict[str, Any]:
    quantities = binned(data, names)
    return {
        "groups": [
            {"source": source, "model": model, "label": label}
            for (source, model), label in zip(names.pairs, names.labels, strict=True)
        ],
        "all_groups": ALL_GROUPS,
        "figures": {names.index(row): list(figures_of(row).values()) for row in data.groups},
        "quantities": [_quantity(bins, data, names) for bins in quantities],
        "frontier": {
            "spec": charts.frontier(groups=names.labels, look=charts.PAGE),
            "rows": frontier_rows(data, names),
        },
        "timelines": [_timeline(timeline, names) for timeline in data.timelines],
    }


def _quantity(bins: Binned, data: ReportData, names: GroupNames) -> dict[str, Any]:
    look, labels = charts.PAGE, names.labels
    # Counts in columns; the page makes rows of what it draws. Written out as rows they are several times as long.
    return {
        "key": bins.quantity,
        "label": QUANTITIES[bins.quantity].label,
        "axis": QUANTITIES[bins.quantity].axis,
        "whole": QUANTITIES[bins.quantity].whole,
        "bins": {"edges": bins.edges, "labels": bins.labels, "cells": bins.cells},
        "histogram": charts.histogram(bins.quantity, log=bins.log, groups=labels, look=look),
        "ecdf": charts.ecdf(bins.quantity, log=bins.log, groups=labels, look=look),
        "values": [
            {
                "group": names.labels[names.index(item)],
                "outcome": outcome_of(solved=item.solved),
                "values": item.values,
                "counts": item.counts,
            }
            for item in data.distributions
            if item.quantity == bins.quantity
        ],
    }


def _timeline(timeline: Timeline, names: GroupNames) -> dict[str, Any]:
    return {**asdict(timeline), "group": names.index(timeline), "outcome": outcome_of(solved=timeline.solved)}


def _plain(value: object) -> Json:
    """Return data as JSON can carry it, with every text made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, int):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in cast("dict[object, object]", value).items()}
    return [_plain(item) for item in cast("Iterable[object]", value)]
