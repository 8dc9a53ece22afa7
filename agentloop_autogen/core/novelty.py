"""Whether a result brings anything that no earlier result brought.

New means a new salient token (number, name, identifier, content word) or a new row of known ones; times, ids, durations
and addresses never count, nor what merely echoes the call. Work per result is bounded by `VIEW_CHARS`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from agentloop_autogen.core.normalise import (
    MASK,
    bounded_text,
    is_empty_result,
    is_volatile,
    mask_words,
    normalise_arguments,
    raw_words,
    words,
)
from agentloop_autogen.core.rounds import ToolResult
from agentloop_autogen.core.vocabulary import ACKNOWLEDGEMENT, NEGATION, UNINFORMATIVE

__all__ = ["Novelty", "NoveltyTracker", "is_salient"]

VIEW_CHARS: Final = 400
"""Characters of one result that are searched for news."""
_BACKLOG: Final = 64
_SHORT_ACKNOWLEDGEMENT: Final = 8
_ROW_MARK: Final = "~~"
_ROW_ENDS: Final = tuple((end, f"{end} {_ROW_MARK} ") for end in ("\n", "}, ", "},", "), ", "], "))


def is_salient(word: str) -> bool:
    """Return whether a lower-cased word could carry a finding: a number, an identifier or a content word."""
    if word == MASK or word in UNINFORMATIVE:
        return False
    return len(word) > 2 or not word.isascii() or any(map(str.isdigit, word))


class Novelty(NamedTuple):
    """What a result brings, relative to all before it."""

    news: bool
    """New evidence: a new salient token, a new row, or a first acknowledgement of a call."""
    changed: bool
    """Another text than any before, volatile fields aside: something a verifier has not seen."""
    new_failure: bool = False
    """An error that no earlier call met, volatile fields aside: no progress, but no running in circles either."""


class NoveltyTracker:
    """Remembers what the evidence of one run has said so far."""

    def __init__(self) -> None:
        self._signatures: set[int] = set()
        self._calls: set[tuple[str, int]] = set()
        self._words: set[str] = set()
        self._rows: set[tuple[str, ...]] = set()
        self._views: set[int] = set()
        self._failures: set[int] = set()
        self._last_text: dict[str, str] = {}
        self._unread: deque[str] = deque(maxlen=_BACKLOG)

    def observe(self, result: ToolResult) -> Novelty:
        """Take in one result and return whether it is new; errors and empty results never are news."""
        if result.is_error:
            return self._fail(result)
        if is_empty_result(result.content):
            return Novelty(news=False, changed=False)
        arguments = normalise_arguments(result.call.arguments)
        call = (result.call.name, hash(arguments))
        acknowledges = call not in self._calls and _is_acknowledgement(result.plain)
        self._calls.add(call)
        if result.signature in self._signatures:
            return Novelty(news=acknowledges, changed=acknowledges)
        self._signatures.add(result.signature)
        text = result.plain
        view = _changed_view(self._last_text.get(result.call.name, ""), text)
        self._last_text[result.call.name] = text[: 2 * VIEW_CHARS]
        novelty = self._compare(view, frozenset(raw_words(bounded_text(arguments, VIEW_CHARS))))
        return Novelty(news=True, changed=True) if acknowledges else novelty

    def _fail(self, result: ToolResult) -> Novelty:
        failure = hash((result.call.name, *words(bounded_text(result.plain, VIEW_CHARS))))
        if failure in self._failures:
            return Novelty(news=False, changed=False)
        self._failures.add(failure)
        return Novelty(news=False, changed=False, new_failure=True)

    def _compare(self, view: str, echo: frozenset[str]) -> Novelty:
        found = raw_words(_with_row_marks(view))
        said = set(found)
        fresh = said - self._words - echo
        self._words |= said
        if any(is_salient(word) and not is_volatile(found, found.index(word)) for word in fresh):
            # Its rows are read only if a later result brings nothing but known words.
            self._unread.append(view)
            return Novelty(news=True, changed=True)
        while self._unread:
            self._read_rows(raw_words(_with_row_marks(self._unread.popleft())), frozenset())
        return self._read_rows(found, echo)

    def _read_rows(self, found: list[str], echo: frozenset[str]) -> Novelty:
        mask_words(found)
        masked = hash(tuple(found))
        if masked in self._views:
            return Novelty(news=False, changed=False)
        self._views.add(masked)
        fresh = _data_rows(found, echo) - self._rows
        self._rows |= fresh
        return Novelty(news=bool(fresh) or _is_terse(found), changed=True)


def _is_terse(found: list[str]) -> bool:
    # "A", "no" and "found a value" hold no word to go by, so a new one of them is taken as a whole; "nothing was found"
    # is one too, but says that there is none.
    return not any(map(is_salient, found)) and (len(found) == 1 or NEGATION.isdisjoint(found))


def _is_acknowledgement(text: str) -> bool:
    said = raw_words(text[:200])
    return (
        0 < len(said) <= _SHORT_ACKNOWLEDGEMENT and not ACKNOWLEDGEMENT.isdisjoint(said) and NEGATION.isdisjoint(said)
    )


def _with_row_marks(view: str) -> str:
    for end, marked in _ROW_ENDS:
        view = view.replace(end, marked)
    return view


def _data_rows(found: list[str], echo: frozenset[str]) -> set[tuple[str, ...]]:
    # The same numbers in a new combination are news; the same row reordered or reworded is not.
    rows: set[tuple[str, ...]] = set()
    row: set[str] = set()
    for word in (*found, _ROW_MARK):
        if word == _ROW_MARK:
            if any(any(map(str.isdigit, part)) for part in row):
                rows.add(tuple(sorted(row)))
            row = set()
        elif is_salient(word) and word not in echo:
            row.add(word)
    return rows


def _changed_view(previous: str, text: str) -> str:
    """Return at most `VIEW_CHARS` of `text`: all of it, or the parts around the first and last change."""
    if len(text) <= VIEW_CHARS:
        return text
    first = _common_prefix(previous, text)
    half = VIEW_CHARS // 2
    start = max(0, min(first - 40, len(text) - half))
    tail_start = max(start + half, len(text) - half)
    return f"{text[start : start + half]} {text[tail_start:]}"


def _common_prefix(left: str, right: str) -> int:
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
