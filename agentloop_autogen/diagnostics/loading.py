"""Reading traces out of files of any known form, one after the other, in bounded memory."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import BinaryIO, Final

from typing_extensions import Self

from agentloop_autogen.diagnostics.byte_source import ByteSource
from agentloop_autogen.diagnostics.formats.assembly import Assembler
from agentloop_autogen.diagnostics.formats.place import STANDARD_INPUT, Place, trace_file
from agentloop_autogen.diagnostics.json_values import JsonValues
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.errors import TraceError

__all__ = ["Skipped", "TraceReader", "load_traces"]

_KEPT: Final = 100
_LOGGED: Final = 20
_SHOWN_CHARS: Final = 400

_log = logging.getLogger("agentloop_autogen.diagnostics")


@dataclass(frozen=True)
class Skipped:
    """Something in a file that was not read as a trace."""

    file: str
    """Path of the file as given, or `-`; of any characters."""
    line: int | None
    """Line it begins on, from 1; None: the file as a whole."""
    reason: str
    """What was expected and what was found, in one line of printable characters."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{_printable(where)}: {self.reason}"


class TraceReader(Iterator[Trace]):
    """The traces of a path, one after the other; see `load_traces`.

    It closes its files at the end; as a context manager, or by `close`, sooner.
    """

    def __init__(self, files: Sequence[str], on_skip: Callable[[Skipped], None] | None) -> None:
        self.read = 0
        """Traces read so far."""
        self.skipped_count = 0
        """Things skipped so far."""
        self.skipped: list[Skipped] = []
        """The first 100 of them."""
        self._on_skip = on_skip
        self._first = _opened(files[0]) if len(files) == 1 else None
        self._traces = self._all(files)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Trace:
        trace = next(self._traces)
        self.read += 1
        return trace

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open; no trace comes any more."""
        self._traces.close()
        if self._first is not None and self._first is not sys.stdin.buffer:
            self._first.close()

    def _all(self, files: Sequence[str]) -> Generator[Trace]:
        for file in files:
            try:
                stream = self._first or _opened(file)
            except TraceError as error:
                self._skip(file, None, str(error))
                continue
            with ExitStack() as stack:
                if file != STANDARD_INPUT:
                    stack.enter_context(stream)
                yield from self._of_file(stream, file)

    def _of_file(self, stream: BinaryIO, file: str) -> Iterator[Trace]:
        def fail(line: int, reason: str) -> None:
            self._skip(file, line, reason)

        def refuse(place: Place, reason: str) -> None:
            where = "" if place.element is None else f"element {place.element} of the array: "
            self._skip(file, place.line, f"{where}{reason}")

        with closing(Assembler(refuse)) as assembler:
            for document in JsonValues(ByteSource(stream), file, fail):
                yield from assembler.feed(document)
            yield from assembler.finish()

    def _skip(self, file: str, line: int | None, reason: str) -> None:
        skipped = Skipped(file, line, _printable(reason))
        self.skipped_count += 1
        if len(self.skipped) < _KEPT:
            self.skipped.append(skipped)
        if self._on_skip is not None:
            self._on_skip(skipped)
        elif self.skipped_count <= _LOGGED:
            _log.warning("skipped %s", skipped)
        elif self.skipped_count == _LOGGED + 1:
            _log.warning("more was skipped and is only counted from here on")


def load_traces(path: str | PathLike[str], *, on_skip: Callable[[Skipped], None] | None = None) -> TraceReader:
    """Read the traces of a file or of all files under a directory, in any of the forms this package knows.

    The form is told by the content, document by document. Memory stays bounded however large the files are: a document
    of more than 64 MiB is skipped. What cannot be read is skipped with a reason and never raises.

    Args:
        path: A file; a directory, searched to the bottom for names that end in `.jsonl`, `.ndjson` or `.json`, each
            with or without `.gz`, in the order of their names; or `-` for standard input.
        on_skip: Is called with everything that was skipped. None: the first 20 are logged as warnings on
            `agentloop_autogen.diagnostics`.

    Returns:
        An iterator over the traces, which counts what it read and what it skipped.

    Raises:
        TraceError: The path is not there, or cannot be opened.
    """
    return TraceReader(_files_of(os.fspath(path)), on_skip)


def _files_of(path: str) -> list[str]:
    if path == STANDARD_INPUT or not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for folder, _, names in os.walk(path, onerror=_unreadable):
        found += (os.path.join(folder, name) for name in names if trace_file(name))
    return sorted(found)


def _unreadable(error: OSError) -> None:
    raise TraceError(
        f"the directory {_printable(str(error.filename))} cannot be read ({error.strerror}): mend its permissions"
    )


def _opened(file: str) -> BinaryIO:
    if file == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return open(file, "rb")
    except FileNotFoundError:
        raise TraceError(f"there is no file or directory {_printable(file)}: give the path of traces") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise TraceError(f"{_printable(file)} cannot be opened ({why}): give a file that can be read") from error


def _printable(text: str) -> str:
    """One line of printable characters, bounded: what it is made of comes from files."""
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    return "".join(char if char.isprintable() else "\ufffd" for char in shown)
