"""The report as Markdown, and its place in a document: between two markers for each part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from agentloop_autogen.bench.report.collect import BenchReport
from agentloop_autogen.bench.report.sections import Section, summary_sections, table_sections
from agentloop_autogen.bench.report.tables import Table
from agentloop_autogen.diagnostics.report.escaping import visible
from agentloop_autogen.errors import UsageError

__all__ = ["filled_in", "markdown_of", "markdown_parts"]

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>&|#~])")
_BLANK: Final = re.compile(r"\s+")
_BEGIN, _END = "<!-- bench report: {} -->", "<!-- end of {} -->"


def markdown_of(report: BenchReport) -> str:
    """Return a whole report as one Markdown document.

    Args:
        report: The report.
    """
    parts = "\n\n".join(markdown_parts(report).values())
    return f"# Benchmark\n\n{parts}\n"


def markdown_parts(report: BenchReport) -> dict[str, str]:
    """Return the parts of a report by the names of their markers: `summary`, then `tables`.

    Args:
        report: The report.
    """
    parts = {"summary": summary_sections(report), "tables": table_sections(report)}
    return {name: "\n\n".join(_blocks(sections)) for name, sections in parts.items()}


def filled_in(document: str, parts: Mapping[str, str]) -> str:
    """Return a document with each part between its markers.

    Args:
        document: Markdown that holds lines such as `<!-- bench report: tables -->` and `<!-- end of tables -->`.
        parts: The parts by name.

    Raises:
        UsageError: A part's markers are missing, or stand there twice.
    """
    for name, text in parts.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
            raise UsageError(f"the document has no place for {name}: put {begin} and {end} on lines of their own, once")
        head, _, rest = document.partition(begin)
        tail = rest.partition(end)[2]
        document = f"{head}{begin}\n\n{text}\n\n{end}{tail}"
    return document


def _blocks(sections: Iterable[Section]) -> Iterator[str]:
    for section in sections:
        yield f"{'#' * section.level} {_escaped(section.title)}"
        yield from map(_escaped, section.text)
        if section.points:
            yield "\n".join(f"- {_escaped(point)}" for point in section.points)
        for table in section.tables:
            yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"**{_escaped(table.title)}.** {_escaped(table.note)}".strip()
    kinds = ["---" if place < table.text_columns else "---:" for place in range(len(table.columns))]
    lines = [map(_escaped, table.columns), kinds, *(map(_escaped, row) for row in table.rows)]
    yield "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _escaped(text: str) -> str:
    """Return a text on one line that Markdown shows as it is, whatever it holds."""
    return _SPECIAL.sub(r"\\\1", _BLANK.sub(" ", visible(text)).strip())
