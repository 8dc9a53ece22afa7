"""The charts of a report as files for papers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

from typing_extensions import assert_never

from agentloop_autogen.diagnostics.report import charts
from agentloop_autogen.diagnostics.report.data import ReportData
from agentloop_autogen.diagnostics.report.rows import GroupNames, bin_rows, binned, frontier_rows, step_rows
from agentloop_autogen.errors import MissingExtraError

__all__ = ["FigureFormat", "draw", "render_figures"]

PIXELS_PER_INCH: Final = 300
COLUMNS: Final = 3
"""Small charts side by side, at most; four stand two by two."""


class FigureFormat(str, Enum):
    """What a figure is written as."""

    PNG = "png"
    SVG = "svg"


def render_figures(data: ReportData, directory: Path, *, form: FigureFormat) -> list[Path]:
    """Write every chart of a report into a file of its own, on white, without reaching for the network.

    Args:
        data: What the report shows.
        directory: Where to write; made if it is not there. Files of the same names are replaced.
        form: PNG at 300 pixels per inch, or SVG.

    Returns:
        The files, in the order of the page; charts that nothing is known for are left out.

    Raises:
        MissingExtraError: The extra `report` is not installed.
        OSError: The directory cannot be written.
    """
    drawn = [(name, draw(spec, form)) for name, spec in _figures(data)]
    directory.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, content in drawn:
        path = directory / f"{name}.{form.value}"
        path.write_bytes(content)
        paths.append(path)
    return paths


def _figures(data: ReportData) -> Iterator[tuple[str, charts.Spec]]:
    names = GroupNames(data)
    labels, look = names.labels, charts.PRINT
    quantities = binned(data, names)
    for bins in quantities:
        rows = bin_rows(bins, names)
        spec = charts.histogram(bins.quantity, log=bins.log, groups=labels, look=look)
        yield f"distribution-{_file_name(bins.quantity)}", _with_rows(spec, rows)
    for bins in quantities:
        rows = step_rows(data, names, bins.quantity)
        spec = charts.ecdf(bins.quantity, log=bins.log, groups=labels, look=look)
        yield f"ecdf-{_file_name(bins.quantity)}", _with_rows(spec, rows)
    if points := frontier_rows(data, names):
        yield "frontier", _with_rows(charts.frontier(groups=labels, look=look), points)


def _with_rows(spec: charts.Spec, rows: list[dict[str, Any]]) -> charts.Spec:
    if "facet" in spec:
        present = len({row["group"] for row in rows})
        spec = {**spec, "columns": 2 if present == 4 else min(present, COLUMNS)}
    return {**spec, "datasets": {"rows": rows}}


def _file_name(quantity: str) -> str:
    return quantity.replace("_", "-")


def draw(spec: charts.Spec, form: FigureFormat) -> bytes:
    """Draw a chart without reaching for the network.

    Args:
        spec: The chart with its rows.
        form: PNG at 300 pixels per inch, or SVG.

    Raises:
        MissingExtraError: The extra `report` is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("the report", "report") from None
    match form:
        case FigureFormat.PNG:
            return vl_convert.vegalite_to_png(spec, scale=1, ppi=PIXELS_PER_INCH, allowed_base_urls=[])
        case FigureFormat.SVG:
            return vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
        case _:
            assert_never(form)
