"""How alike two rounds are: ρ, S_call and S_result (eq. 4 and 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from rapidfuzz.distance import Indel

from agentloop_autogen.core.normalise import similarity_tokens

__all__ = [
    "CallKey",
    "ResultKey",
    "call_similarity",
    "jaccard",
    "mixed_similarity",
    "result_similarity",
    "text_similarity",
]

LEXICAL_WEIGHT: Final = 0.55
TOKEN_WEIGHT: Final = 0.45


@dataclass(frozen=True)
class CallKey:
    """One tool call, ready for comparison."""

    tool: str
    arguments: str
    """Normalised arguments, bounded."""
    signature: int = 0
    """Hash of the whole normalised arguments: what must agree for calls to be exactly equal."""

    @property
    def order(self) -> tuple[str, str]:
        """What calls are aligned by."""
        return self.tool, self.arguments

    @cached_property
    def tokens(self) -> frozenset[str]:
        """Token set of the arguments."""
        return similarity_tokens(self.arguments)


@dataclass(frozen=True)
class ResultKey:
    """One tool result, ready for comparison."""

    tool: str
    arguments: str
    """Normalised arguments of its call: results are aligned as their calls are."""
    is_error: bool
    text: str
    """Normalised and bounded text."""
    signature: int = 0
    """Hash of the whole normalised text: what must agree for results to be exactly equal."""

    @property
    def order(self) -> tuple[str, str, str]:
        """What results are aligned by: the call they belong to, then their text."""
        return self.tool, self.arguments, self.text

    @cached_property
    def tokens(self) -> frozenset[str]:
        """Token set of the text."""
        return similarity_tokens(self.text)


def _order(key: CallKey | ResultKey) -> tuple[str, ...]:
    return key.order


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Return |left ∩ right| / |left ∪ right|, from 0 to 1; 1 for two empty sets."""
    if not left and not right:
        return 1.0
    common = len(left & right)
    return common / (len(left) + len(right) - common)


def text_similarity(left: str, right: str) -> float:
    """Return ρ(left, right) = 0.55 Lex + 0.45 Jaccard of the token sets, from 0 to 1 (eq. 4).

    Lex is the normalised Indel similarity of RapidFuzz.
    """
    return mixed_similarity(left, similarity_tokens(left), right, similarity_tokens(right))


def mixed_similarity(left: str, left_tokens: frozenset[str], right: str, right_tokens: frozenset[str]) -> float:
    """Return ρ(left, right) as `text_similarity` does, of texts whose token sets are known already."""
    if left == right:
        return 1.0
    return LEXICAL_WEIGHT * Indel.normalized_similarity(left, right) + TOKEN_WEIGHT * jaccard(left_tokens, right_tokens)


def call_similarity(previous: Sequence[CallKey], current: Sequence[CallKey]) -> float:
    """Return S_call of two rounds, from 0 to 1 (eq. 4).

    Both empty: 1. Tool-name multisets differ, or one empty: 0. Else the mean of ρ over calls aligned by tool name and
    normalised arguments.
    """
    if not previous and not current:
        return 1.0
    if not same_tools(previous, current):
        return 0.0
    pairs = zip(sorted(previous, key=_order), sorted(current, key=_order), strict=True)
    found = (mixed_similarity(old.arguments, old.tokens, new.arguments, new.tokens) for old, new in pairs)
    return sum(found) / len(current)


def result_similarity(previous: Sequence[ResultKey], current: Sequence[ResultKey]) -> float:
    """Return S_result of two rounds, from 0 to 1 (eq. 5).

    Both empty: 1. One empty, tools or their multiplicity differ, or an error flag differs: 0. Else the mean of ρ over
    the aligned result texts.
    """
    if not previous and not current:
        return 1.0
    if not same_tools(previous, current):
        return 0.0
    pairs = list(zip(sorted(previous, key=_order), sorted(current, key=_order), strict=True))
    if any(old.is_error != new.is_error for old, new in pairs):
        return 0.0
    return sum(mixed_similarity(old.text, old.tokens, new.text, new.tokens) for old, new in pairs) / len(pairs)


def same_tools(previous: Sequence[CallKey | ResultKey], current: Sequence[CallKey | ResultKey]) -> bool:
    """Return whether both rounds use the same tools equally often (NM_t, eq. 4)."""
    return len(previous) == len(current) and Counter(k.tool for k in previous) == Counter(k.tool for k in current)
