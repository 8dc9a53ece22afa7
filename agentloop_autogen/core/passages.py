"""What to keep of a long result: its head, its tail, and the passages that speak of what was asked for.

Cutting the middle out of a table or a log loses the one line that mattered; the words of the request say which it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from agentloop_autogen.core.normalise import bounded_text, raw_words
from agentloop_autogen.core.novelty import is_salient

__all__ = ["MOST_TERMS", "SCANNED_CHARS", "key_passages", "query_terms"]

SCANNED_CHARS: Final = 64_000
"""Characters of a result that are searched, head and tail: bounds the work on results of megabytes."""
MOST_TERMS: Final = 12
_COMMON: Final = 12
"""A term found more often than this tells no passage from another."""
_REACH: Final = 120
"""Characters to either side of a hit, where no line ends sooner."""
_LEFT_OUT: Final = " [...] "


def query_terms(*texts: str) -> tuple[str, ...]:
    """Return what to look for: neighbouring content words first ("pump 3"), then single ones; at most 12."""
    pairs: list[str] = []
    singles: list[str] = []
    for text in texts:
        found = raw_words(text)
        pairs += [f"{a} {b}" for a, b in pairwise(found) if is_salient(a) and is_salient(b)]
        singles += [word for word in found if len(word) > 2 and is_salient(word)]
    return tuple(dict.fromkeys([*pairs, *singles]))[:MOST_TERMS]


def key_passages(text: str, limit: int, terms: Sequence[str]) -> str:
    """Return about `limit` characters of `text`: a quarter from its head, an eighth from its tail, the rest passages.

    Args:
        text: A tool result.
        limit: Characters to keep; a text within it comes back verbatim.
        terms: From `query_terms`. A passage counts by the terms in it, rare ones more.

    Returns:
        Head, passages in their order and tail; head and tail alone where no term tells a passage from the others.
    """
    if len(text) <= limit:
        return text
    text = bounded_text(text, SCANNED_CHARS)
    lowered = text.lower()
    scores = _scored_passages(lowered, terms) if len(lowered) == len(text) else {}
    if not scores:
        return bounded_text(text, limit)
    head, tail = limit // 4, len(text) - limit // 8
    room = limit - limit // 4 - limit // 8
    kept: list[tuple[int, int]] = [(0, head), (tail, len(text))]
    for (start, end), _ in sorted(scores.items(), key=lambda entry: (-entry[1], entry[0])):
        # A line that head or tail cut through is completed.
        added = min(end, tail) - max(start, head)
        if added <= 0:
            continue
        if added > room:
            break
        kept.append((start, end))
        room -= added
    return _LEFT_OUT.join(text[start:end].strip() for start, end in _merged(kept))


def _scored_passages(lowered: str, terms: Sequence[str]) -> dict[tuple[int, int], float]:
    scores: dict[tuple[int, int], float] = {}
    for term in terms:
        count = lowered.count(term)
        if not 0 < count <= _COMMON:
            continue
        # A pair of words names a thing more surely than one word does.
        weight = (2.0 if " " in term else 1.0) / count
        for passage in {_passage_at(lowered, position, len(term)) for position in _positions(lowered, term)}:
            scores[passage] = scores.get(passage, 0.0) + weight
    return scores


def _positions(lowered: str, term: str) -> Iterable[int]:
    position = lowered.find(term)
    while position >= 0:
        yield position
        position = lowered.find(term, position + len(term))


def _passage_at(lowered: str, position: int, length: int) -> tuple[int, int]:
    """Return the line around a hit, cut to `_REACH` on either side."""
    start = lowered.rfind("\n", max(0, position - _REACH), position) + 1 or max(0, position - _REACH)
    end = lowered.find("\n", position + length, position + length + _REACH)
    return start, end if end >= 0 else min(len(lowered), position + length + _REACH)


def _merged(passages: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(passages):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
