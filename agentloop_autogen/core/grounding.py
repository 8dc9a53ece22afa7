"""Mechanical checks of what a verifier or an answer claims against the evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rapidfuzz import fuzz

from agentloop_autogen.core.normalise import is_empty_result, plain_text, raw_words
from agentloop_autogen.core.novelty import is_salient
from agentloop_autogen.core.records import Evidence, Slot, SlotState
from agentloop_autogen.core.vocabulary import NEGATION

__all__ = ["carries", "figures_in", "ground_slots", "says_open", "supports", "ungrounded_figures"]

_MATCH: Final = 90.0
"""Lowest partial-match score, from 0 to 100, at which a quote counts as found."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s*(?=\D)|\n+")
_CJK_NEGATION: Final = frozenset("\u4e0d\u6ca1\u6c92\u7121\u65e0\u672a")
_FUZZY_CHARS: Final = 16
"""Shorter quotes must be found word for word."""
_NEGATING_PREFIXES: Final = frozenset({"de", "dis", "il", "im", "in", "ir", "mis", "non", "non-", "un"})
_WORD: Final = re.compile(r"[\w.,:%-]*\w%?")
_FIGURE: Final = re.compile(r"(?:(?<![\w.)])[-\u2212](?=\d))?\d+(?:[.,:]\d+)*")
_GROUPING: Final = re.compile(r"(?<=\d)[,\u202f\u00a0' ](?=\d{3}(?!\d))")


@lru_cache(maxsize=512)
def _comparable(text: str) -> str:
    plain = plain_text(text).replace('\\"', '"').replace("\\n", " ").lower()
    plain = plain.replace("\u2019", "'").replace("\u201c", '"').replace("\u201d", '"')
    return " ".join(_GROUPING.sub("", plain).split())


@lru_cache(maxsize=512)
def _spoken(text: str) -> str:
    return " ".join(raw_words(text))


@lru_cache(maxsize=1_024)
def _figures(text: str) -> frozenset[str]:
    return frozenset(_figure_value(figure) for figure in _FIGURE.findall(text))


def _figure_value(figure: str) -> str:
    figure = figure.replace("\u2212", "-")
    whole, point, fraction = figure.partition(".")
    if point and fraction.isdigit():
        return f"{whole.lstrip('0') or '0'}.{fraction.rstrip('0')}".rstrip(".")
    return figure if ":" in figure else figure.lstrip("0") or "0"


def carries(evidence: Evidence) -> bool:
    """Return whether a piece of evidence can support anything: errors and empty results cannot."""
    return not evidence.is_error and not is_empty_result(evidence.finding)


def supports(quote: str, evidence: Evidence) -> bool:
    """Return whether `quote` is found in `evidence`.

    Every figure of the quote must stand in the evidence as it is; the words may differ slightly (RapidFuzz partial
    match on normalised text). A quote of function words alone is no quote.
    """
    if not carries(evidence):
        return False
    wanted, text = _comparable(quote.strip().strip("\"'`.")), _comparable(evidence.finding)
    spoken = _WORD.findall(wanted)
    if not any(map(is_salient, spoken)):
        return False
    if not _figures(wanted) <= _figures(text):
        return False
    if re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) or (_is_cjk(wanted) and wanted in text):
        return True
    return len(wanted) >= _FUZZY_CHARS and _nearly_said(_spoken(wanted), _spoken(text))


def _nearly_said(wanted: str, text: str) -> bool:
    """Return whether `text` says `wanted` in nearly the same words, and not its opposite."""
    match = fuzz.partial_ratio_alignment(wanted, text, score_cutoff=_MATCH)
    if match is None:
        return False
    start = text.rfind(" ", 0, match.dest_start + 1) + 1
    end = text.find(" ", match.dest_end)
    asked, said = set(wanted.split()), set(text[start : end if end >= 0 else None].split())
    if asked & NEGATION != said & NEGATION:
        return False
    # "paid" is no near miss of "unpaid", nor "complete" of "incomplete".
    return not any(_opposite(one, other) or _opposite(other, one) for one in asked - said for other in said - asked)


def _opposite(word: str, negated: str) -> bool:
    return negated.endswith(word) and negated.removesuffix(word) in _NEGATING_PREFIXES


def _is_cjk(text: str) -> bool:
    return any("\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7af" for character in text)


def ground_slots(slots: Sequence[Slot], evidence: Sequence[Evidence], *, draft: str) -> tuple[Slot, ...]:
    """Return the slots with every claim the evidence does not bear out taken back.

    A slot claimed as supported or unsynthesised whose quote is not found becomes missing; without any evidence at all
    an empty quote stands, since a request may need none. A supported slot is unsynthesised while there is no draft. A
    conflict needs evidence to conflict; exhausted needs something to have been tried.
    """
    return tuple(_ground(slot, evidence, draft) for slot in slots)


def _ground(slot: Slot, evidence: Sequence[Evidence], draft: str) -> Slot:
    state = slot.state
    if state in (SlotState.SUPPORTED, SlotState.UNSYNTHESISED):
        if not _quote_holds(slot, evidence):
            state = SlotState.MISSING
        elif not draft:
            state = SlotState.UNSYNTHESISED
    elif not _arguable(state, evidence):
        state = SlotState.MISSING
    return slot if state is slot.state else slot.model_copy(update={"state": state})


def _arguable(state: SlotState, evidence: Sequence[Evidence]) -> bool:
    """Return whether a claim that there is no finding has anything to stand on."""
    if state is SlotState.CONFLICTING:
        return any(map(carries, evidence))
    return state is not SlotState.EXHAUSTED or bool(evidence)


def _quote_holds(slot: Slot, evidence: Sequence[Evidence]) -> bool:
    if not slot.quote.strip():
        return not evidence
    cited = [piece for piece in evidence if piece.id in slot.evidence]
    # Small models cite the wrong id more often than they misquote: the id narrows the search, it is no second test.
    return any(supports(slot.quote, piece) for piece in (*cited, *evidence))


def says_open(text: str, name: str) -> bool:
    """Return whether `text` says of the slot `name` that it stayed open: in one sentence with a word of negation."""
    wanted, said = (part.casefold().replace("_", " ") for part in (name, text))
    return any(wanted in sentence and _negates(sentence) for sentence in _SENTENCE_END.split(said))


def _negates(sentence: str) -> bool:
    spoken = raw_words(sentence.replace("\u2019", "'").replace("n't", " not"))
    return not NEGATION.isdisjoint(spoken) or not _CJK_NEGATION.isdisjoint(sentence)


def figures_in(text: str) -> frozenset[str]:
    """Return the figures of a text in one spelling each."""
    return _figures(_comparable(text))


def ungrounded_figures(answer: str, evidence: Sequence[Evidence], *, request: str) -> tuple[str, ...]:
    """Return the figures of `answer` that appear in no evidence and not in the request, in order and once each.

    They are not always wrong (a sum, a count of items), so they are reported, not removed.
    """
    known = figures_in(request).union(*(figures_in(e.finding) for e in evidence if carries(e)))
    figures = _FIGURE.findall(_comparable(answer))
    small = {str(number) for number in range(len(evidence) + 2)}
    return tuple(dict.fromkeys(f for f in figures if _figure_value(f) not in known and f not in small))
