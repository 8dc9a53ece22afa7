"""Finds the local model's weights while a bar on standard error shows how far that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["WeightsBar", "find_weights"]

_WORDS = {
    "verifying": "checking the weights",
    "assembling": "putting the weights together",
    "downloading": "downloading the weights",
}


def find_weights(wanted: Path | None) -> Path:
    """Find the weights, showing progress where standard error is a terminal.

    Args:
        wanted: The file to use; None: wherever they are found.

    Returns:
        The file.

    Raises:
        UsageError: There is no such file.
        WeightsError: There are none, or not the right ones.
    """
    from agentloop_autogen.models.weights import resolve_weights

    console = Console(stderr=True)
    if not console.is_terminal or not sys.stderr.isatty():
        return resolve_weights(wanted)
    bar = WeightsBar(console)
    with bar.progress:
        return resolve_weights(wanted, progress=bar)


class WeightsBar:
    """A bar that takes reports on weights; it is gone once they are found.

    Args:
        console: Where to draw it.
    """

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take one report.

        Args:
            stage: What is going on.
            done: Bytes so far.
            total: Bytes in all; 0: not known.
        """
        if stage not in self._tasks:
            self._tasks[stage] = self.progress.add_task(_WORDS.get(stage, stage), total=total or None)
        self.progress.update(self._tasks[stage], completed=done)
