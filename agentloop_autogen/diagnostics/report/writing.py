"""Puts a report where it was asked for: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agentloop_autogen.diagnostics.report.data import ReportData
from agentloop_autogen.diagnostics.report.figures import FigureFormat, render_figures
from agentloop_autogen.diagnostics.report.page import render_html
from agentloop_autogen.errors import UsageError

__all__ = ["check_output", "write_report"]

_PAGE = "html"


def check_output(output: Path, *, form: str) -> None:
    """See that a report can be written, before the work of making it.

    Args:
        output: The page, or the folder of figures.
        form: `html`, `png` or `svg`.

    Raises:
        UsageError: It cannot.
    """
    folder = output.parent if form == _PAGE else output
    if form == _PAGE and output.is_dir():
        raise UsageError(f"{output} is a folder: name the page, such as {output / 'report.html'}")
    if form != _PAGE and output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file: {form} figures go into a folder, name one with -o")
    if form == _PAGE and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: make it, or name another with -o")


def write_report(data: ReportData, output: Path, *, form: str) -> list[Path]:
    """Write a report.

    Args:
        data: What it shows.
        output: The page, or the folder of figures.
        form: `html`, `png` or `svg`.

    Returns:
        The files written.

    Raises:
        UsageError: A file cannot be written.
        MissingExtraError: The extra `report` is not installed.
    """
    try:
        if form != _PAGE:
            output.mkdir(parents=True, exist_ok=True)
            return render_figures(data, output, form=FigureFormat(form))
        _replace(output, render_html(data))
    except OSError as error:
        raise UsageError(f"{output} cannot be written ({error.strerror}): name another place with -o") from error
    return [output]


def _replace(path: Path, text: str) -> None:
    """Write a file beside its place and move it there, so that nobody sees half a page."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:  # Ctrl-C, too, must leave no part of a page behind.
        Path(name).unlink(missing_ok=True)
        raise
