"""What one round consisted of, and its form ready for comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from agentloop_autogen.core.normalise import (
    bounded_text,
    normalise_arguments,
    normalise_text,
    plain_text,
    words,
)
from agentloop_autogen.core.similarity import CallKey, ResultKey

__all__ = ["Round", "RoundKey", "ToolCall", "ToolResult"]

COMPARED_CHARS: Final = 1_200
"""Characters of a result, and of arguments, that enter ρ: bounds the local work of a round."""
_MASKED_CHARS: Final = 256
"""Characters of a result in which volatile fields are masked for comparison."""


@dataclass(frozen=True)
class ToolCall:
    """One call as the model asked for it."""

    name: str
    arguments: str

    @property
    def key(self) -> CallKey:
        """The call in normalised, bounded form."""
        arguments = normalise_arguments(self.arguments)
        return CallKey(self.name, bounded_text(arguments, COMPARED_CHARS), hash(arguments))


@dataclass(frozen=True)
class ToolResult:
    """What one call returned; `call` says which."""

    call: ToolCall
    content: str
    is_error: bool = False
    executed: bool = True
    """False where nothing was run: such a result is no evidence."""

    @cached_property
    def plain(self) -> str:
        """The content in plain Unicode, layout kept."""
        return plain_text(self.content)

    @cached_property
    def signature(self) -> int:
        """A hash of the whole normalised content, good within this process."""
        return hash(self._normalised)

    @cached_property
    def _normalised(self) -> str:
        return normalise_text(self.plain)

    @property
    def key(self) -> ResultKey:
        """The result in normalised, bounded form."""
        text = bounded_text(self._normalised, COMPARED_CHARS)
        return ResultKey(self.call.name, self.call.key.arguments, self.is_error, text, self.signature)


@dataclass(frozen=True)
class Round:
    """One planning call with the tools it ran: a draft, calls with their results, or both."""

    draft: str = ""
    results: tuple[ToolResult, ...] = ()
    tools_offered: bool = False
    """Whether the model had tools to call; False where that is not known."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the round, in the order asked for (Call_t)."""
        return tuple(result.call for result in self.results)

    @cached_property
    def key(self) -> RoundKey:
        """The round in normalised form."""
        return RoundKey.of(self)


@dataclass(frozen=True)
class RoundKey:
    """A round in normalised form: what similarity, gate and patterns look at. Bounded in size."""

    draft: str
    calls: tuple[CallKey, ...]
    results: tuple[ResultKey, ...]

    @classmethod
    def of(cls, round_: Round) -> RoundKey:
        """Return the normalised form of `round_`, calls and results in canonical order."""
        results = tuple(sorted((result.key for result in round_.results), key=lambda key: key.order))
        calls = tuple(sorted((result.call.key for result in round_.results), key=lambda key: key.order))
        return cls(" ".join(round_.draft.split()), calls, results)

    @cached_property
    def result_signatures(self) -> tuple[tuple[str, bool, int], ...]:
        """Normalised signatures of the results (ExactResult_t, eq. 6)."""
        return tuple(sorted((r.tool, r.is_error, r.signature) for r in self.results))

    @cached_property
    def masked_results(self) -> tuple[tuple[str, bool, tuple[str, ...]], ...]:
        """The words of the results, volatile ones masked."""
        return tuple((r.tool, r.is_error, tuple(words(bounded_text(r.text, _MASKED_CHARS)))) for r in self.results)

    def repeats(self, other: RoundKey, *, masked: bool) -> bool:
        """Return whether both rounds asked the same, got the same and said the same."""
        return self.calls == other.calls and self.draft == other.draft and same_results(self, other, masked=masked)


def same_results(left: RoundKey, right: RoundKey, *, masked: bool) -> bool:
    """Return whether both rounds got exactly equal results; `masked` disregards volatile fields."""
    if left.result_signatures == right.result_signatures:
        return True
    return masked and len(left.results) == len(right.results) and left.masked_results == right.masked_results


def largest_multiplicity(keys: Sequence[CallKey]) -> int:
    """Return how often the most frequent call occurs in one round; 0 for none."""
    return max(Counter((key.tool, key.arguments) for key in keys).values(), default=0)
