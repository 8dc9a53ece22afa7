"""Grading an answer by the values it states.

An answer is right if it states every value of the gold query's result. Numbers may be written with separators of
thousands, with trailing zeros, as words up to twelve, or rounded to at least two decimals or four digits; texts are
compared without case and accents, between word boundaries, so that 1 is not found in 10.

Such a grader can be fooled, and what is done about it is this:

- An answer that quotes whole tables states every value there is. It is refused when it states too much that neither
  is gold nor stands in the question: values of the database (four, and two more for each gold value, may be there),
  texts of a column that holds a gold text (half as many as there are gold ones, rounded up), and where only numbers
  are asked for, numbers (two, and one more for each gold value).
- A query or a tool call is what a model wanted to do. It is cut out before grading, or `LIMIT 1` would state a 1.
- A question that holds its own gold values is answered by repeating it. Such tasks are dropped.
- A date or a time is one value: 17 is not found in 2009-01-17. A number with a leading zero is a code.
- Results that are empty, hold a missing value, or more than ten values cannot be stated in an answer; such tasks are
  dropped too.

What is left: among few values an answer may still name a wrong one beside the right one, the order of rows is not
looked at, and which value belongs to which is not either. The rate at which answers to other questions over the same
database are taken for right is measured in the tests.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agentloop_autogen.bench.tasks.stated import as_number, plain, prose, stated_numbers, states_number, states_text
from agentloop_autogen.bench.tasks.task import Grade

__all__ = ["MAX_VALUES", "Vocabulary", "gold_values", "grade", "statable", "vocabulary"]

Value = str | int | float


class Entry(NamedTuple):
    """A text of a database."""

    written: str
    """As it is written there."""
    columns: frozenset[str]
    """Where it stands."""


Vocabulary = Mapping[str, Entry]
"""The texts of a database, by how they look for comparing."""

MAX_VALUES: Final = 10
"""Distinct gold values an answer can be expected to state."""
_MAX_TEXT: Final = 200
"""Characters of the longest value an answer can be expected to state."""
_SPARE: Final = 4
"""Values beside the gold ones any answer may state."""
_SPARE_EACH: Final = 2
"""And how many more for each gold value."""
_SPARE_NUMBERS: Final = 2
"""Numbers beside the gold ones that may be stated, with one more for each gold value, where only numbers are gold."""
_SHORTEST: Final = 4
"""Letters from which on a text of the database is told from an ordinary word; shorter ones must be in capitals."""


def gold_values(rows: Sequence[Sequence[object]]) -> tuple[Value, ...] | None:
    """Return the distinct values of a result in order.

    Args:
        rows: The rows of the gold query.

    Returns:
        The values; None where an answer cannot state them: none, one missing, too many, or one too long.
    """
    values = list(dict.fromkeys(cell for row in rows for cell in row))
    if not 1 <= len(values) <= MAX_VALUES:
        return None
    kept: list[Value] = []
    for value in values:
        if not isinstance(value, str | int | float) or (isinstance(value, str) and not _fits(value)):
            return None
        kept.append(value)
    return tuple(kept)


def statable(question: str, gold: Sequence[Value]) -> bool:
    """Return whether the question leaves something to find out: it does not state all gold values itself."""
    return bool(_missing(question, gold))


def grade(answer: str, *, question: str, gold: Sequence[Value], texts: Vocabulary) -> Grade:
    """Grade an answer.

    Args:
        answer: What the system replied.
        question: The question of the task; values it holds are nobody's finding.
        gold: The values that must be stated.
        texts: The texts of the database, as `vocabulary` gives them.
    """
    said = prose(answer)
    if not said.strip():
        return Grade(correct=False, detail="no answer in words")
    if missing := _missing(said, gold):
        return Grade(correct=False, detail=f"{len(missing)} of {len(gold)} values are missing")
    if too_much := _too_much(said, question, gold, texts):
        return Grade(correct=False, detail=too_much)
    return Grade(correct=True)


def vocabulary(connection: sqlite3.Connection) -> Vocabulary:
    """Return the texts in a database that are no numbers, and the columns they stand in."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found: dict[str, set[str]] = {}
    for table in tables:
        doubled = table.replace('"', '""')
        # The name is the database's own, and quoted.
        cursor = connection.execute(f'SELECT * FROM "{doubled}"')  # noqa: S608
        columns = [f"{table}.{column[0]}" for column in cursor.description]
        for row in cursor:
            for column, cell in zip(columns, row, strict=True):
                if isinstance(cell, str) and 1 < len(cell) <= _MAX_TEXT:
                    found.setdefault(cell, set()).add(column)
    merged: dict[str, Entry] = {}
    for text, places in found.items():
        if as_number(text) is None and (bare := plain(text)):
            known = merged[bare].columns if bare in merged else frozenset[str]()
            merged[bare] = Entry(text, known | places)
    return merged


def _fits(text: str) -> bool:
    return 0 < len(text.strip()) <= _MAX_TEXT and any(letter.isalnum() for letter in text)


def _missing(said: str, gold: Sequence[Value]) -> list[Value]:
    text = plain(said)
    return [value for value in gold if not _states(text, value, cased=said)]


def _states(text: str, value: Value, *, cased: str) -> bool:
    number = as_number(value)
    if number is not None:
        return states_number(text, number)
    return states_text(text, str(value), cased=cased)


def _too_much(said: str, question: str, gold: Sequence[Value], texts: Vocabulary) -> str:
    """Say what an answer states too much of; empty: nothing."""
    numbers, words = _other_numbers(said, question, gold), _other_texts(said, question, gold, texts)
    golden = [plain(value) for value in gold if isinstance(value, str) and as_number(value) is None]
    columns = frozenset[str]().union(*(texts[value].columns for value in golden if value in texts))
    rivals = sum(not columns.isdisjoint(texts[word].columns) for word in words)
    if rivals > (len(golden) + 1) // 2:
        return f"states {rivals} values of the same column that were not asked for"
    if not golden and numbers > _SPARE_NUMBERS + len(gold):
        return f"states {numbers} numbers that were not asked for"
    if numbers + len(words) > _SPARE + _SPARE_EACH * len(gold):
        return f"states {numbers + len(words)} values that were not asked for"
    return ""


def _other_numbers(said: str, question: str, gold: Sequence[Value]) -> int:
    """Count the distinct numbers an answer states that are neither gold nor in the question."""
    text, known = plain(said), set(stated_numbers(plain(question)))
    for value in gold:
        known.update(stated_numbers(plain(str(value))))
    numbers = [number for value in gold if (number := as_number(value)) is not None]
    return sum(
        written not in known and not any(states_number(written, number) for number in numbers)
        for written in set(stated_numbers(text))
    )


def _other_texts(said: str, question: str, gold: Sequence[Value], texts: Vocabulary) -> list[str]:
    """Return the texts of the database an answer states that are neither part of a gold text nor in the question."""
    text = plain(said)
    # A space keeps the words of one text from running into the next.
    known = " | ".join((plain(question), *(plain(value) for value in gold if isinstance(value, str))))
    stated = [word for word in texts if word in text and word not in known and states_text(text, word)]
    return [word for word in stated if len(word) >= _SHORTEST or _as_code(texts[word].written, said)]


def _as_code(written: str, said: str) -> bool:
    return written.isupper() and re.search(rf"(?<!\w){re.escape(written)}(?!\w)", said) is not None
