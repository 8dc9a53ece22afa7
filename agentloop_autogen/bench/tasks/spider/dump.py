"""Building SQLite databases from a dump of MySQL.

The dump is read, never run: table definitions are parsed and written anew, and values are bound as parameters.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agentloop_autogen.errors import TaskDataError

__all__ = ["DumpedDatabase", "build", "read_dump"]

_USE: Final = re.compile(r"USE `([^`]+)`;\Z")
_CREATE: Final = re.compile(r"CREATE TABLE `([^`]+)` \(\Z")
_COLUMN: Final = re.compile(r"`([^`]+)` (\w+)(.*)\Z")
_PRIMARY: Final = re.compile(r"PRIMARY KEY \((.+)\)\Z")
_UNIQUE: Final = re.compile(r"UNIQUE KEY `[^`]+` \((.+)\)\Z")
_FOREIGN: Final = re.compile(r"CONSTRAINT `[^`]+` FOREIGN KEY \((.+)\) REFERENCES `([^`]+)` \((.+?)\)")
_INDEX: Final = re.compile(r"(?:FULLTEXT |SPATIAL )?KEY `")
_NAME: Final = re.compile(r"`([^`]+)`")
_INSERT: Final = re.compile(r"INSERT INTO `([^`]+)` VALUES ")
_TOKEN: Final = re.compile(r"'((?:[^'\\]|\\.|'')*)'|(NULL)\b|(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|([(),;])", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}

_AFFINITY: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "INTEGER"),
    **dict.fromkeys(("float", "double"), "REAL"),
    **dict.fromkeys(("decimal", "numeric"), "NUMERIC"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum"), "TEXT"),
    **dict.fromkeys(("date", "datetime", "timestamp", "time", "year"), "TEXT"),
}

Value = str | int | float | None


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: str
    """Its type in SQLite."""
    required: bool


class Reference(NamedTuple):
    """A foreign key."""

    columns: tuple[str, ...]
    table: str
    targets: tuple[str, ...]


@dataclass
class DumpedTable:
    """A table as the dump has it."""

    name: str
    columns: list[Column] = field(default_factory=list[Column])
    primary: tuple[str, ...] = ()
    unique: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    references: list[Reference] = field(default_factory=list[Reference])
    rows: list[tuple[Value, ...]] = field(default_factory=list[tuple[Value, ...]])

    def definition(self) -> str:
        """Return the statement that makes the table in SQLite."""
        parts = [f"{_quoted(name)} {kind}{' NOT NULL' if required else ''}" for name, kind, required in self.columns]
        if self.primary:
            parts.append(f"PRIMARY KEY ({_listed(self.primary)})")
        parts += [f"UNIQUE ({_listed(names)})" for names in self.unique]
        parts += [
            f"FOREIGN KEY ({_listed(key.columns)}) REFERENCES {_quoted(key.table)} ({_listed(key.targets)})"
            for key in self.references
        ]
        return f"CREATE TABLE {_quoted(self.name)} ({', '.join(parts)})"


DumpedDatabase = dict[str, DumpedTable]
"""The tables of a database by name, in the order of the dump."""


def read_dump(text: str) -> dict[str, DumpedDatabase]:
    """Read the databases of a dump written by `mysqldump`.

    Args:
        text: The whole dump.

    Returns:
        The databases by name.

    Raises:
        TaskDataError: Something in a table's definition or rows is not understood.
    """
    databases: dict[str, DumpedDatabase] = {}
    current: DumpedDatabase | None = None
    table: DumpedTable | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            if table is not None:
                table = None if line.startswith(")") else _read_part(table, line.strip().rstrip(","))
            elif match := _USE.match(line):
                current = databases.setdefault(match[1], {})
            elif match := _CREATE.match(line):
                table = _owner(current)[match[1]] = DumpedTable(match[1])
            elif match := _INSERT.match(line):
                _owner(current)[match[1]].rows.extend(_read_rows(line, match.end()))
        except (ValueError, KeyError) as error:
            raise TaskDataError(f"line {number} of the dump is not understood ({error}): fetch it again") from error
    return databases


def build(tables: DumpedDatabase) -> sqlite3.Connection:
    """Build a database in memory.

    Args:
        tables: The tables and their rows.

    Raises:
        TaskDataError: Rows do not fit their table.
    """
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        for table in tables.values():
            connection.execute(table.definition())
            slots = ", ".join("?" * len(table.columns))
            # Names are quoted, values are bound.
            connection.executemany(f"INSERT INTO {_quoted(table.name)} VALUES ({slots})", table.rows)  # noqa: S608
        connection.commit()
    except sqlite3.Error as error:
        connection.close()
        raise TaskDataError(f"the dump does not make a database ({error}): fetch it again") from error
    return connection


def _owner(database: DumpedDatabase | None) -> DumpedDatabase:
    if database is None:
        raise ValueError("a table outside of any database")
    return database


def _read_part(table: DumpedTable, part: str) -> DumpedTable:
    if match := _COLUMN.match(part):
        name, kind, rest = match.groups()
        if kind.lower() not in _AFFINITY:
            raise ValueError(f"unknown column type {kind!r}")
        table.columns.append(Column(name, _AFFINITY[kind.lower()], "NOT NULL" in rest))
    elif match := _PRIMARY.match(part):
        table.primary = _names(match[1])
    elif match := _UNIQUE.match(part):
        table.unique.append(_names(match[1]))
    elif match := _FOREIGN.match(part):
        table.references.append(Reference(_names(match[1]), match[2], _names(match[3])))
    elif not _INDEX.match(part):
        raise ValueError(f"unknown part of a table {part[:60]!r}")
    return table


def _names(text: str) -> tuple[str, ...]:
    return tuple(_NAME.findall(text))


def _read_rows(line: str, position: int) -> Iterator[tuple[Value, ...]]:
    row: list[Value] = []
    while match := _TOKEN.match(line, position):
        position = match.end()
        text, null, number, mark = match.groups()
        if text is not None:
            row.append(_ESCAPE.sub(_unescaped, text))
        elif null or number:
            row.append(None if null else _number(number))
        elif mark == ")":
            yield tuple(row)
            row = []
        elif mark == ";":
            return
    raise ValueError(f"unknown value at character {position}")


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[1]) if match[1] else "'"


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, names))
