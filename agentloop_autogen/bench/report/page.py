"""The benchmark report as one HTML page without a script, and its figures as files."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from agentloop_autogen.bench.report.collect import BenchReport
from agentloop_autogen.bench.report.drawing import family_figures
from agentloop_autogen.bench.report.sections import Section, summary_sections, table_sections
from agentloop_autogen.diagnostics.report.escaping import visible
from agentloop_autogen.diagnostics.report.figures import FigureFormat, draw
from agentloop_autogen.errors import MissingExtraError

__all__ = ["bench_html", "write_bench_figures"]

_STYLE: Final = ("agentloop_autogen.diagnostics.report", "page.css")
_OWN_STYLE: Final = ("agentloop_autogen.bench.report", "page.css")
_PAGE: Final = ("agentloop_autogen.bench.report", "page.html.j2")


def bench_html(report: BenchReport) -> str:
    """Return a report as one HTML document that needs nothing else and runs nothing.

    Args:
        report: The report.

    Returns:
        The document; its figures are SVG images within it.

    Raises:
        MissingExtraError: The extra `bench` is not installed.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("the benchmark's report", "bench") from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    style = f"{_asset(*_STYLE)}{_asset(*_OWN_STYLE)}"
    digest = base64.b64encode(hashlib.sha256(f"\n{style}\n".encode()).digest()).decode()
    return environment.from_string(_asset(*_PAGE)).render(
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'",
        style=Markup(style),  # noqa: S704 -- files of this package
        files=report.files,
        sections=[
            {"section": section, "figures": _figures(report, section)}
            for section in (*summary_sections(report), *table_sections(report))
        ],
    )


def write_bench_figures(report: BenchReport, folder: Path, *, form: FigureFormat) -> list[Path]:
    """Write every figure of a report into a file of its own, on white.

    Args:
        report: The report.
        folder: Where to write; made if it is not there. Files of the same names are replaced.
        form: PNG at 300 pixels per inch, or SVG.

    Returns:
        The files, group by group and family by family.

    Raises:
        MissingExtraError: The extra `report` is not installed.
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for place, group in enumerate(report.groups):
        prefix = f"{place + 1}-" if len(report.groups) > 1 else ""
        for family in group.families:
            for name, _, spec in family_figures(group.cells_of(family)):
                path = folder / f"{prefix}{_file_name(family)}-{name}.{form.value}"
                path.write_bytes(draw(spec, form))
                paths.append(path)
    return paths


def _asset(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _figures(report: BenchReport, section: Section) -> list[dict[str, Any]]:
    if not section.family:
        return []
    cells = report.groups[section.group].cells_of(section.family)
    return [
        {"title": title, "source": _data_url(draw(spec, FigureFormat.SVG))} for _, title, spec in family_figures(cells)
    ]


def _data_url(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _file_name(family: str) -> str:
    """A family's name as a part of a file's: whatever could lead elsewhere is left out."""
    return "".join(char if char.isalnum() or char in "-_" else "-" for char in family)[:60] or "family"
