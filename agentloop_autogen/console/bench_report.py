"""The subcommand `agentloop bench report`: its arguments, and what it does with them."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from agentloop_autogen.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from agentloop_autogen.bench.report.collect import BenchReport
    from agentloop_autogen.bench.report.sections import Section

__all__ = ["REPORT", "add_report_command", "run_report_command"]

REPORT: Final = "report"
_DONE: Final = 0
_HALVES: Final = ("held_out", "development", "both")
_FORMS: Final = ("svg", "png")
_INDENT: Final = "    "


class _Add(Protocol):
    def __call__(self, name: str, *, help: str, description: str) -> argparse.ArgumentParser: ...


def add_report_command(add: _Add) -> None:
    """Add `report`.

    Args:
        add: Adds a subcommand to `bench`.
    """
    words = "compare systems by result files: tables, figures, targets, and where AgentLoop does worse"
    parser = add(REPORT, help=words, description=f"{words[0].upper()}{words[1:]}.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="result files (.jsonl, .jsonl.gz)")
    parser.add_argument("--half", choices=_HALVES, default=_HALVES[0], help="half of the tasks (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write Markdown")
    parser.add_argument("--into", type=Path, metavar="FILE", help="renew the generated parts of a Markdown document")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the figures into a folder")
    parser.add_argument("--format", choices=_FORMS, default=_FORMS[0], help="of the figures (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run_report_command(args: argparse.Namespace) -> int:
    """Report on result files.

    Args:
        args: The arguments as parsed.

    Returns:
        The exit status.

    Raises:
        UsageError: A file cannot be read or written.
        MissingExtraError: The extra `bench` is not installed.
    """
    try:
        from agentloop_autogen.bench.report.collect import collect_bench_report
        from agentloop_autogen.bench.report.data import report_data
        from agentloop_autogen.bench.report.reading import read_results
        from agentloop_autogen.bench.tasks.task import Half
        from agentloop_autogen.console.output import write_json
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agentloop_autogen"):
            raise
        raise MissingExtraError("the benchmark's report", "bench") from error
    half = None if args.half == "both" else Half(args.half)
    report = collect_bench_report(read_results(args.files, half=half), files=[path.name for path in args.files])
    written = _write(args, report)
    if args.json:
        write_json(report_data(report))
    elif written:
        _print([f"wrote {path}" for path in written])
    else:
        _print(_lines(report))
    return _DONE


def _write(args: argparse.Namespace, report: BenchReport) -> list[Path]:
    from agentloop_autogen.bench.report.markdown import filled_in, markdown_of, markdown_parts
    from agentloop_autogen.bench.report.page import bench_html, write_bench_figures
    from agentloop_autogen.diagnostics.report.figures import FigureFormat

    texts: dict[Path, str] = {}
    try:
        if args.output is not None:
            texts[args.output] = markdown_of(report)
        if args.into is not None:
            texts[args.into] = filled_in(args.into.read_text(encoding="utf-8"), markdown_parts(report))
        if args.html is not None:
            texts[args.html] = bench_html(report)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8", errors="replace")
        form = FigureFormat(args.format)
        figures = [] if args.figures is None else write_bench_figures(report, args.figures, form=form)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be used ({error.strerror}): name another place") from error
    return [*texts, *figures]


def _print(lines: list[str]) -> None:
    from agentloop_autogen.console.output import write_line

    for line in lines:
        write_line(line)


def _lines(report: BenchReport) -> list[str]:
    """Return the report as lines no wider than the terminal: what is worse, the targets, then the tables."""
    from agentloop_autogen.bench.report.sections import summary_sections, table_sections

    width = max(20, shutil.get_terminal_size().columns)
    sections = [*summary_sections(report), *(table_sections(report) if report.groups else ())]
    return [line for section in sections for line in _section_lines(section, width)]


def _section_lines(section: Section, width: int) -> Iterator[str]:
    title = _wrapped(section.title, width)
    rule = ("=" if section.level == 2 else "-") * max(map(len, title))
    yield from (*title, rule, "")
    for text in section.text:
        yield from _wrapped(text, width)
        yield ""
    for point in section.points:
        yield from _wrapped(f"- {point}", width, indent="  ")
    if section.points:
        yield ""
    for table in section.tables:
        if table.title:
            yield from _wrapped(f"{table.title}. {table.note}", width)
        for row in table.rows:
            # A block for each row: a table of many columns fits no terminal.
            told = (f"{name} {cell}" for name, cell in zip(table.columns[1:], row[1:], strict=True))
            yield from _wrapped(f"  {row[0]}: {'; '.join(told)}", width, indent=_INDENT)
        yield ""


def _wrapped(text: str, width: int, *, indent: str = "") -> list[str]:
    from agentloop_autogen.console.text import clean

    return textwrap.wrap(clean(text), width, subsequent_indent=indent) or [""]
