"""Shows how a benchmark run goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.runner.progress import RunProgress, RunWatcher
from agentloop_autogen.console.output import write_line
from agentloop_autogen.console.text import clean

__all__ = ["BarWatcher", "LineWatcher", "open_watcher"]

_ERROR_CHARS: Final = 100


@contextmanager
def open_watcher(*, as_json: bool) -> Generator[RunWatcher]:
    """Open what shows a run, fit for where it is shown.

    Args:
        as_json: Whether standard out is kept free; a run is then shown on a terminal's standard error alone.

    Yields:
        Who is told how the run goes.
    """
    stream = sys.stderr if as_json else sys.stdout
    if not stream.isatty():
        yield LineWatcher(None if as_json else stream)
        return
    watcher = BarWatcher(Console(file=stream, highlight=False))
    with watcher.bar:
        yield watcher


class LineWatcher:
    """Writes a line per attempt.

    Args:
        stream: Where to. None: nowhere.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def begun(self, progress: RunProgress) -> None:
        """Say how much there is to do."""
        self._write(f"{progress.total} attempts, {progress.done} of them done before")

    def finished(self, attempt: Attempt, progress: RunProgress) -> None:
        """Say how an attempt ended."""
        self._write(f"{progress.done}/{progress.total} {words_of(attempt)}; {summary_of(progress)}")

    def _write(self, line: str) -> None:
        if self._stream is not None:
            write_line(line, stream=self._stream)


class BarWatcher:
    """Moves a bar, and keeps a line for each attempt that failed as such.

    Args:
        console: Where to draw it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self.bar = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        """The bar; it is drawn within its `with` block."""
        self._task = self.bar.add_task("", total=None)

    def begun(self, progress: RunProgress) -> None:
        """Draw the bar where the run begins."""
        self.bar.update(self._task, total=progress.total, completed=progress.done, description=summary_of(progress))

    def finished(self, attempt: Attempt, progress: RunProgress) -> None:
        """Move the bar."""
        self.bar.update(self._task, completed=progress.done, description=summary_of(progress))
        if attempt.error is not None:
            self._console.print(words_of(attempt), markup=False)


def words_of(attempt: Attempt) -> str:
    """Return how an attempt ended, in one line.

    Args:
        attempt: The attempt.
    """
    where = f"{attempt.system} {attempt.family}/{attempt.task}"
    if attempt.error is not None:
        return clean(f"{where} failed: {attempt.error[:_ERROR_CHARS]}")
    tokens = sum(call.prompt_tokens + call.completion_tokens for call in attempt.model_calls)
    verdict = "solved" if attempt.correct else "not solved"
    return clean(f"{where} {verdict} in {attempt.elapsed_s:.1f} s with {tokens:,} tokens")


def summary_of(progress: RunProgress) -> str:
    """Return what a run has come to so far, in one line.

    Args:
        progress: How far it is.
    """
    solved = ", ".join(f"{name} {progress.solved[name]}/{tried}" for name, tried in progress.tried.items())
    left = "" if progress.left_s is None else f"{timedelta(seconds=round(progress.left_s))} left, "
    failed = f", {progress.failed} failed" if progress.failed else ""
    return clean(f"{left}{progress.tokens:,} tokens{failed}; solved: {solved or 'none yet'}")
