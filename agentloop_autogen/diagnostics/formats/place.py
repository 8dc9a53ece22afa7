"""Where in a file a document stands, and the documents themselves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

__all__ = ["MAX_BYTES", "STANDARD_INPUT", "SUFFIXES", "Document", "Place", "trace_file"]

MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one document, and of all that makes up one trace; what is larger is skipped."""
STANDARD_INPUT: Final = "-"
"""The path that stands for standard input."""
SUFFIXES: Final = (".jsonl", ".ndjson", ".json")
"""How the names of trace files end, each with or without `.gz` behind it."""


def trace_file(name: str) -> bool:
    """Return whether a file of this name is looked at when a directory is read."""
    return name.removesuffix(".gz").endswith(SUFFIXES)


@dataclass(frozen=True)
class Place:
    """Where a document begins."""

    file: str
    """Path as given, or `-`."""
    line: int
    """Line, from 1."""
    element: int | None = None
    """Position within the array it is an element of, from 1; None: it stands alone."""
    array: int = 0
    """Number of that array within the file, so that neighbours in one can be told; 0: none."""
    size: int = 0
    """Bytes of the document."""

    @property
    def id(self) -> str:
        """A name for a trace that has none of its own."""
        element = "" if self.element is None else f"#{self.element}"
        return f"{_as_text(self.file)}:{self.line}{element}"

    @property
    def source(self) -> str:
        """The file's name without its suffixes."""
        if self.file == STANDARD_INPUT:
            return "stdin"
        name = PurePath(_as_text(self.file)).name
        bare = name.removesuffix(".gz")
        for suffix in SUFFIXES:
            bare = bare.removesuffix(suffix)
        return bare or name


def _as_text(file: str) -> str:
    """A file name as text that can be written anywhere: names need not be valid Unicode."""
    return os.fsencode(file).decode(errors="replace")


@dataclass(frozen=True)
class Document:
    """One JSON value of a file."""

    value: object
    place: Place
