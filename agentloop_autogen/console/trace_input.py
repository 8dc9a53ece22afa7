"""Traces as the command line takes them: several paths, a count while they are read, what was skipped said."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.status import Status

from agentloop_autogen.console.text import clean
from agentloop_autogen.diagnostics import Skipped, Trace, TraceReader, load_traces
from agentloop_autogen.errors import TraceError

__all__ = ["TraceInput", "reading"]

_SAID = 10
"""Skipped inputs named one by one; the rest are counted."""
_STEP = 200


class TraceInput(Iterator[Trace]):
    """The traces of several paths in a row, with what was skipped on the way."""

    def __init__(self, paths: Sequence[str], status: Status | None) -> None:
        self.read = 0
        self.skipped = 0
        self._paths = paths
        self._status = status
        # All are opened before the first is read, so that a wrong name costs no time.
        self._readers: list[TraceReader] = []
        for path in paths:
            self._readers.append(load_traces(path, on_skip=self._skip))
        self._traces = (trace for reader in self._readers for trace in reader)

    def __next__(self) -> Trace:
        try:
            trace = next(self._traces)
        except StopIteration:
            # Before anything is made of nothing.
            self.check_read()
            raise
        self.read += 1
        if self._status is not None and self.read % _STEP == 0:
            self._status.update(f"{self.read:,} traces read")
        return trace

    def check_read(self) -> None:
        """See that there was a trace.

        Raises:
            TraceError: There was none.
        """
        if not self.read:
            found = self.skipped_words() or "what was given is empty, or no form of trace known here"
            raise TraceError(f"no trace in {', '.join(self._paths)}: {found}")

    def close(self) -> None:
        """Close all files."""
        for reader in self._readers:
            reader.close()

    def _skip(self, skipped: Skipped) -> None:
        self.skipped += 1
        if self.skipped <= _SAID:
            _say(f"skipped {skipped}")

    def skipped_words(self) -> str:
        """Say how much was skipped; nothing where nothing was."""
        if not self.skipped:
            return ""
        if self.skipped == 1:
            return "1 piece of the input could not be read and is left out"
        return f"{self.skipped:,} pieces of the input could not be read and are left out"


@contextmanager
def reading(paths: Sequence[str]) -> Generator[TraceInput, None, None]:
    """Read traces while the block runs, then say how much was skipped.

    Args:
        paths: Files, folders, or `-` for standard input.

    Yields:
        The traces.

    Raises:
        TraceError: A path cannot be opened, or none held a trace.
    """
    if list(paths).count("-") > 1:
        raise TraceError("standard input can be read only once: give `-` once")
    _stay_interruptible()
    console = Console(stderr=True)
    with console.status("reading") if sys.stderr.isatty() else _no_status() as status:
        source = TraceInput(paths, status)
        try:
            yield source
        finally:
            source.close()
    if source.skipped > _SAID:
        _say(f"{source.skipped - _SAID:,} more were skipped")


def _stay_interruptible() -> None:
    """Let Ctrl-C end a read that waits for a pipe: Polars handles the signal so that such a read would go on."""
    with suppress(ModuleNotFoundError):
        importlib.import_module("polars")
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(signal.SIGINT, True)


@contextmanager
def _no_status() -> Generator[None, None, None]:
    yield None


def _say(message: str) -> None:
    sys.stderr.write(f"agentloop: {' '.join(clean(message).split())}\n")
