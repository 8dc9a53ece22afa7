"""Reading the questions of Spider, from the set cut for this benchmark or from Spider's own files."""

from __future__ import annotations

import hashlib
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from agentloop_autogen.bench.tasks.data_place import data_folder, find_file, read_json, read_lines, read_text
from agentloop_autogen.bench.tasks.halves import half_of
from agentloop_autogen.bench.tasks.spider import dump, grading
from agentloop_autogen.bench.tasks.spider.database import DatabaseSession, read_only_copy, run_bounded
from agentloop_autogen.bench.tasks.task import BenchTask
from agentloop_autogen.errors import TaskDataError

__all__ = ["FAMILY", "load"]

FAMILY: Final = "spider"
INSTRUCTIONS: Final = (
    "Answer the user's question from the database. Use the tools to look up tables and run SQL. "
    "Give the final answer in one or two sentences with the exact values from the database."
)
MISSING: Final = (
    "no Spider data: name a folder (--data or AGENTLOOP_DATA) with Spider's own `dev.json` and `database/`, or with "
    "`tasks/spider_sql.jsonl.gz` and `tasks/ic_spider_dbs.sql.gz`"
)
_CUT_QUESTIONS: Final = ("tasks/spider_sql.jsonl.gz", "spider_sql.jsonl.gz")
_CUT_DATABASES: Final = ("tasks/ic_spider_dbs.sql.gz", "ic_spider_dbs.sql.gz", "spider_dev.sql")
_OWN_QUESTIONS: Final = ("dev.json", "spider/dev.json", "spider_data/dev.json")
_ID_DIGITS: Final = 10


class Question(NamedTuple):
    """A question as either source has it."""

    database: str
    text: str
    gold_sql: str


class Database:
    """A database that is built once and copied for each attempt.

    Args:
        name: Its name.
        make: Builds it in memory.
    """

    def __init__(self, name: str, make: Callable[[], sqlite3.Connection]) -> None:
        self.name = name
        self._make = make

    @cached_property
    def source(self) -> sqlite3.Connection:
        """The database, never handed to a model; closed with the last task over it."""
        connection = self._make()
        weakref.finalize(self, connection.close)
        return connection

    @cached_property
    def texts(self) -> grading.Vocabulary:
        """Its texts that can be told from ordinary words, and where they stand."""
        with closing(read_only_copy(self.source)) as copy:
            return grading.vocabulary(copy)

    def gold(self, queries: Sequence[str]) -> dict[str, tuple[str | int | float, ...] | None]:
        """Return what each gold query yields; None where an answer cannot state it.

        Raises:
            TaskDataError: A gold query fails.
        """
        found: dict[str, tuple[str | int | float, ...] | None] = {}
        with closing(read_only_copy(self.source)) as copy:
            for query in dict.fromkeys(queries):
                try:
                    # One row more than can be stated is enough to see that there are too many, unless rows repeat.
                    _, rows, more = run_bounded(copy, query, most=100_000)
                except (sqlite3.Error, TimeoutError) as error:
                    message = f"the gold query {query!r} fails on {self.name!r} ({error}): fetch the databases again"
                    raise TaskDataError(message) from error
                found[query] = None if more else grading.gold_values(rows)
        return found


def load(data: Path | None = None) -> Sequence[BenchTask]:
    """Load the questions whose gold values an answer can state, in the order of the file.

    Args:
        data: The data folder: Spider's own `dev.json` with `database/NAME/NAME.sqlite`, or the cut set. None: the one
            `AGENTLOOP_DATA` names.

    Raises:
        TaskDataError: There are no data, or they are damaged.
    """
    folder = data_folder(data)
    found = _cut_set(folder) or _own_set(folder)
    if found is None:
        raise TaskDataError(MISSING)
    questions, databases = found
    absent = sorted({question.database for question in questions} - databases.keys())
    if absent:
        raise TaskDataError(f"the Spider databases {', '.join(absent)} are missing: fetch the databases again")
    gold = {
        (name, query): values
        for name, database in databases.items()
        for query, values in database.gold([each.gold_sql for each in questions if each.database == name]).items()
    }
    return [
        _task(question, databases[question.database], values)
        for question in dict.fromkeys(questions)
        if (values := gold[question.database, question.gold_sql]) and grading.statable(question.text, values)
    ]


def _task(question: Question, database: Database, gold: tuple[str | int | float, ...]) -> BenchTask:
    def grade(answer: str) -> grading.Grade:
        return grading.grade(answer, question=question.text, gold=gold, texts=database.texts)

    # Spider asks most things twice in other words: both belong to the same half.
    same_question = f"{question.database}/{' '.join(question.gold_sql.casefold().split())}"
    return BenchTask(
        family=FAMILY,
        id=_task_id(question),
        half=half_of(FAMILY, same_question),
        instructions=INSTRUCTIONS,
        request=question.text,
        group=question.database,
        open=lambda: DatabaseSession(database.source, grade),
    )


def _task_id(question: Question) -> str:
    """Make the id of the contents: the cut set and Spider's own files number the same questions differently."""
    contents = "\n".join((question.database, " ".join(question.text.split())))
    return f"{question.database}-{hashlib.sha256(contents.encode()).hexdigest()[:_ID_DIGITS]}"


def _cut_set(folder: Path | None) -> tuple[list[Question], Mapping[str, Database]] | None:
    path, databases = find_file(folder, _CUT_QUESTIONS), find_file(folder, _CUT_DATABASES)
    if path is None or databases is None:
        return None
    questions = [_question(record, path, text="question", sql="gold_sql", database="db") for record in read_lines(path)]
    dumped = dump.read_dump(read_text(databases))
    return questions, {name: Database(name, partial(dump.build, tables)) for name, tables in dumped.items()}


def _own_set(folder: Path | None) -> tuple[list[Question], Mapping[str, Database]] | None:
    path = find_file(folder, _OWN_QUESTIONS)
    if path is None:
        return None
    questions = [
        _question(record, path, text="question", sql="query", database="db_id") for record in _records(read_json(path))
    ]
    files = {file.stem: file for file in _database_files(path.parent / "database")}
    names = {question.database for question in questions} & files.keys()
    return questions, {name: Database(name, partial(_opened, files[name])) for name in sorted(names)}


def _records(document: object) -> list[Any]:
    return cast("list[Any]", document) if isinstance(document, list) else []


def _database_files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.glob("*/*.sqlite") if file.stem == file.parent.name)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            file.backup(connection)
    except sqlite3.Error as error:
        connection.close()
        raise TaskDataError(f"{str(path)!r} is no SQLite database ({error}): fetch it again") from error
    return connection


def _question(record: Mapping[str, Any], path: Path, *, database: str, text: str, sql: str) -> Question:
    try:
        return Question(str(record[database]), str(record[text]).strip(), str(record[sql]).strip().rstrip(";"))
    except (KeyError, TypeError) as error:
        raise TaskDataError(f"{str(path)!r} holds a record without {error}: it is not Spider's file") from error
