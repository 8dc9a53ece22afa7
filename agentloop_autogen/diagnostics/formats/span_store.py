"""Spans put aside until their file is read: those of one trace may be scattered over the whole of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from agentloop_autogen.diagnostics.formats.place import Place
from agentloop_autogen.diagnostics.formats.spans import Span

__all__ = ["SpanStore"]

_PAGES = 4_000
"""Pages of 4 KiB kept in memory; the rest lies on disk."""


class SpanStore:
    """A database in a temporary file without a name, which is gone when it is closed, however the process ends."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        for statement in (
            "PRAGMA temp_store = FILE",
            f"PRAGMA cache_size = {_PAGES}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE traces (number INTEGER PRIMARY KEY, id TEXT UNIQUE, file TEXT, line INTEGER, bytes INTEGER)",
            "CREATE TABLE spans (trace INTEGER, start INTEGER, body TEXT)",
        ):
            self._database.execute(statement)

    def add(self, span: Span, place: Place) -> None:
        """Put a span aside.

        Args:
            span: The span.
            place: Where it stands; the first of a trace gives its place.
        """
        body = span.dumped()
        self._database.execute(
            "INSERT INTO traces (id, file, line, bytes) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET bytes = bytes + excluded.bytes",
            (span.trace_id, place.file, place.line, len(body)),
        )
        self._database.execute(
            "INSERT INTO spans SELECT number, ?, ? FROM traces WHERE id = ?", (span.start_ns, body, span.trace_id)
        )

    def traces(self) -> Iterator[tuple[str, Place, Iterator[Span]]]:
        """Yield each trace in the order of its first span: its id, its place and size, and its spans by their start."""
        self._database.execute("CREATE INDEX by_start ON spans (trace, start)")
        found = self._database.execute("SELECT number, id, file, line, bytes FROM traces ORDER BY number")
        for number, trace_id, file, line, size in found:
            yield trace_id, Place(file, line, size=size), self._spans(number)

    def _spans(self, number: int) -> Iterator[Span]:
        rows = self._database.execute("SELECT body FROM spans WHERE trace = ? ORDER BY start, rowid", (number,))
        return (Span.loaded(body) for (body,) in rows)

    def close(self) -> None:
        """Remove everything; more than once does no harm."""
        self._database.close()
