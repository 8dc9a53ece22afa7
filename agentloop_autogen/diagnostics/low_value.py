"""Low-value execution risk of completed requests: Algorithm 2 of the paper, and the repetition it rests on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from agentloop_autogen.core.normalise import normalise_text, similarity_tokens

__all__ = ["Risk", "RiskRecord", "answer_repeats_itself", "low_value_risk", "neighbours_repeat"]

_SENTENCE_END: Final = re.compile(r"[.!?。！？;；]+(?:\s+|$)|[。！？]|\n+")
_REPEATED_WORDS: Final = 4
"""A sentence of at least so many words that comes twice is repetition; a shorter one may be a label."""
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")
_BULLETS: Final = frozenset("-*•|·+")
_COMPARED_CHARS: Final = 20_000


class RiskRecord(NamedTuple):
    """What Algorithm 2 needs to know of one request."""

    tool_calls: int
    """u_i."""
    correct: bool
    """c_i."""
    inter_repeat: bool
    """Two adjacent answer rounds say the same."""
    intra_repeat: bool
    """The final answer says something twice."""


@dataclass(frozen=True)
class Risk:
    """What Algorithm 2 returns, with the counts its two ratios rest on."""

    flags: tuple[bool, ...]
    """z_i, in the order of the requests (eq. 10)."""
    flagged: int
    """Σ z_i."""
    flagged_calls: int
    """Σ u_i z_i."""
    calls: int
    """Σ u_i."""

    @property
    def lgr(self) -> float:
        """Share of the requests that are flagged (eq. 11); 0 for none at all."""
        return self.flagged / max(1, len(self.flags))

    @property
    def lgts(self) -> float:
        """Share of the tool calls that belong to flagged requests (eq. 12); 0 where no tool was called."""
        return self.flagged_calls / max(1, self.calls)


def low_value_risk(records: Iterable[RiskRecord]) -> Risk:
    """Flag the requests that used tools and still failed, or that repeat themselves (Algorithm 2, eq. 8 to 12).

    Args:
        records: One for each completed request.

    Returns:
        The flags with LGR and LGTS.
    """
    flags: list[bool] = []
    flagged_calls = calls = 0
    for record in records:
        failed_after_tools = record.tool_calls > 0 and not record.correct
        flag = failed_after_tools or record.inter_repeat or record.intra_repeat
        flags.append(flag)
        flagged_calls += record.tool_calls * flag
        calls += record.tool_calls
    return Risk(tuple(flags), sum(flags), flagged_calls, calls)


def neighbours_repeat(answers: Iterable[tuple[int | None, str]]) -> bool:
    """Return whether two adjacent answers say the same, spelling of white space and case aside.

    Args:
        answers: The answer rounds in order, each with its user turn; answers of two turns are not compared. Without
            turns on record they are: whoever answered in between, the agent said the same again.
    """
    said = [(turn, normalise_text(answer).casefold()) for turn, answer in answers if answer.strip()]
    return any(old == new for old, new in pairwise(said))


def answer_repeats_itself(answer: str) -> bool:
    """Return whether an answer says something twice.

    That is: a sentence of at least four words (or characters of a script without spaces) comes again, or the whole
    answer is one shorter sentence over and over. Items of a list may be alike.
    """
    sentences = [normalise_text(part).strip().casefold() for part in _SENTENCE_END.split(answer[:_COMPARED_CHARS])]
    counts = Counter(sentence for sentence in sentences if similarity_tokens(sentence))
    if len(counts) == 1 and counts.total() > 1:
        return True
    return any(count > 1 and _is_long(sentence) for sentence, count in counts.items())


def _is_long(sentence: str) -> bool:
    return sentence[0] not in _BULLETS and len(_WORD.findall(sentence)) >= _REPEATED_WORDS
