"""The world of a question: a private copy of a database that can be read and nothing else, and the tools for it."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from agentloop_autogen.bench.tasks.arguments import object_schema, text_argument
from agentloop_autogen.bench.tasks.task import BenchTool, Grade

__all__ = ["QUERY_TIMEOUT_S", "DatabaseSession", "read_only_copy", "run_bounded"]

QUERY_TIMEOUT_S: Final = 5.0
"""Seconds after which a query is stopped."""
_MAX_ROWS: Final = 30
_MAX_CHARS: Final = 4_000
_MAX_CELL: Final = 200
_MAX_BYTES: Final = 1_000_000
"""Bytes of a single value or query, where Python lets SQLite be told so (3.11 and later)."""
_STEPS: Final = 20_000
"""Steps of SQLite between two looks at the clock."""
_READING: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
)
_PRAGMAS: Final = frozenset({"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"})
_TABLES: Final = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~' "
    "ORDER BY rowid"
)
"""All but SQLite's own tables."""
_FORBIDDEN: Final = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})


def read_only_copy(source: sqlite3.Connection) -> sqlite3.Connection:
    """Return a private in-memory copy of a database that can only be read.

    Writing, attaching, files, extensions and every pragma but those that describe tables are refused by SQLite itself.
    """
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    source.backup(connection)
    # Some published databases hold texts that are not UTF-8.
    connection.text_factory = _decoded
    # Large sorts would otherwise go to files.
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA query_only = ON")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_authorise)
    return connection


def run_bounded(
    connection: sqlite3.Connection, query: str, *, most: int, timeout_s: float = QUERY_TIMEOUT_S
) -> tuple[list[str], list[tuple[object, ...]], bool]:
    """Run one query within a time limit.

    Args:
        connection: A copy as `read_only_copy` gives it.
        query: One statement.
        most: Rows that are read at most.
        timeout_s: Seconds after which it is stopped.

    Returns:
        The names of the columns, the rows, and whether there were more.

    Raises:
        sqlite3.Error: SQLite's own error.
        TimeoutError: The query took too long.
    """
    with _stopped_after(connection, timeout_s) as late:
        try:
            cursor = connection.execute(query)
            rows = cursor.fetchmany(most + 1)
        except sqlite3.OperationalError as error:
            if late():
                raise TimeoutError(f"the query was stopped after {timeout_s:g} seconds") from error
            raise
        columns = [column[0] for column in cursor.description or ()]
        cursor.close()
    return columns, rows[:most], len(rows) > most


class DatabaseSession:
    """One attempt at a question over a database.

    Args:
        source: The database, which stays as it is.
        grader: Grades an answer.
        timeout_s: Seconds after which a query is stopped.
    """

    def __init__(
        self, source: sqlite3.Connection, grader: Callable[[str], Grade], *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> None:
        self._connection = read_only_copy(source)
        self._grader = grader
        self._timeout_s = timeout_s
        # Queries run in threads, and a copy serves one at a time.
        self._lock = threading.Lock()

    @property
    def tools(self) -> Sequence[BenchTool]:
        """The tools over this copy."""
        return (
            BenchTool(
                name="list_tables",
                description="List the tables of the database.",
                parameters=object_schema({}),
                run=self._list_tables,
            ),
            BenchTool(
                name="describe_table",
                description="Show the columns of a table with their types and keys.",
                parameters=object_schema({"table": {"type": "string", "description": "Name of the table."}}),
                run=self._describe_table,
            ),
            BenchTool(
                name="run_sql",
                description="Run one read-only SQLite query and return its rows.",
                parameters=object_schema({"query": {"type": "string", "description": "The query, in SQLite's SQL."}}),
                run=self._run_sql,
            ),
        )

    def grade(self, answer: str) -> Grade:
        """Grade the answer by the values it states."""
        return self._grader(answer)

    def close(self) -> None:
        """Stop what runs and drop the copy."""
        self._connection.interrupt()
        with self._lock:
            self._connection.close()

    async def _list_tables(self, arguments: Mapping[str, Any]) -> str:
        return ", ".join(await asyncio.to_thread(self._table_names))

    async def _describe_table(self, arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(self._describe, text_argument(arguments, "table"))

    async def _run_sql(self, arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(self._query, text_argument(arguments, "query"))

    def _table_names(self) -> list[str]:
        with self._lock:
            return [name for (name,) in self._connection.execute(_TABLES)]

    def _describe(self, table: str) -> str:
        named = {name.casefold(): name for name in self._table_names()}.get(table.strip("\"'`[]").casefold())
        if named is None:
            raise sqlite3.OperationalError(f"no such table: {table}")
        doubled = named.replace('"', '""')
        with self._lock:
            columns = self._connection.execute(f'PRAGMA table_info("{doubled}")').fetchall()
            keys = self._connection.execute(f'PRAGMA foreign_key_list("{doubled}")').fetchall()
        # A key may leave out the column it points at; it is then the other table's primary key.
        targets = {source: f"{other}.{column}" if column else other for _, _, other, source, column, *_ in keys}
        lines = [f"{named}:"]
        for _, name, kind, _, _, primary in columns:
            key = " primary key" if primary else ""
            target = f" references {targets[name]}" if name in targets else ""
            lines.append(f"{name} {kind}{key}{target}")
        return "\n".join(lines)

    def _query(self, query: str) -> str:
        with self._lock:
            columns, rows, more = run_bounded(self._connection, query, most=_MAX_ROWS, timeout_s=self._timeout_s)
        if not rows:
            return f"{' | '.join(columns)}\n(no rows)".strip()
        return _shown(columns, rows, more=more)


def _shown(columns: Sequence[str], rows: Sequence[tuple[object, ...]], *, more: bool) -> str:
    lines = [" | ".join(columns)]
    room = _MAX_CHARS - len(lines[0])
    for row in rows:
        line = " | ".join(_cell(value) for value in row)
        room -= len(line) + 1
        if room < 0:
            more = True
            break
        lines.append(line)
    if more:
        lines.append(f"(only the first {len(lines) - 1} rows are shown)")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}..."


def _decoded(data: bytes) -> str:
    return data.decode(errors="replace")


def _authorise(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").casefold() in _FORBIDDEN else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if (first or "").casefold() in _PRAGMAS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


@contextmanager
def _stopped_after(connection: sqlite3.Connection, timeout_s: float) -> Generator[Callable[[], bool]]:
    deadline = time.monotonic() + timeout_s

    def late() -> bool:
        return time.monotonic() >= deadline

    connection.set_progress_handler(late, _STEPS)
    try:
        yield late
    finally:
        connection.set_progress_handler(None, 0)
