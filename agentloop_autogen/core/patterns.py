"""Signs of a loop beyond neighbouring rounds: cycles, error streaks, monologues, repeats.

One tracker per run; it looks at a window of the last rounds, so its work does not grow with the run.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from agentloop_autogen.core.normalise import raw_words, words
from agentloop_autogen.core.records import Detector
from agentloop_autogen.core.rounds import RoundKey, largest_multiplicity

__all__ = ["MAX_IDENTICAL_CALLS", "PatternTracker"]

LONGEST_CYCLE: Final = 5
CYCLE_REPEATS: Final = 2
"""A cycle of two to five rounds counts when it has run through twice; one round repeated, when it came three times."""
SINGLE_REPEATS: Final = 3
ERROR_STREAK: Final = 2
"""Rounds in a row with the same kind of error, whatever the arguments; chosen with `bench/choose_defaults.py`."""
MAX_IDENTICAL_CALLS: Final = 3
"""Identical calls of one round beyond this are a pattern."""


class PatternTracker:
    """Watches the rounds of one run for work that goes in circles."""

    def __init__(self) -> None:
        self._window: deque[RoundKey] = deque(maxlen=max(LONGEST_CYCLE * CYCLE_REPEATS, SINGLE_REPEATS))
        self._error: frozenset[str] | None = None
        self._error_rounds = 0

    def observe(self, key: RoundKey, *, new_evidence: bool = False) -> Detector | None:
        """Take in one round and return the first pattern it completes, None if there is none.

        Args:
            key: The round.
            new_evidence: Whether it brought news; what does so completes no cycle.
        """
        self._window.append(key)
        self._count_errors(key)
        if self._is_monologue():
            return Detector.MONOLOGUE
        if not new_evidence and self._is_cycle():
            return Detector.CYCLE
        if self._error_rounds >= ERROR_STREAK:
            return Detector.SAME_ERROR
        if largest_multiplicity(key.calls) > MAX_IDENTICAL_CALLS:
            return Detector.REPEATED_IN_ROUND
        return None

    def _is_monologue(self) -> bool:
        if len(self._window) < 2 or self._window[-1].calls or self._window[-2].calls:
            return False
        return self._window[-1].draft == self._window[-2].draft

    def _is_cycle(self) -> bool:
        rounds = list(self._window)
        for length in range(1, LONGEST_CYCLE + 1):
            span = length * (SINGLE_REPEATS if length == 1 else CYCLE_REPEATS)
            if len(rounds) < span:
                break
            tail = rounds[-span:]
            if all(tail[i].repeats(tail[i - length], masked=True) for i in range(length, span)):
                return True
        return False

    def _count_errors(self, key: RoundKey) -> None:
        if not key.results or not all(result.is_error for result in key.results):
            self._error, self._error_rounds = None, 0
            return
        # The kind of an error is its wording without what merely repeats the arguments of the call.
        kind = frozenset(
            word
            for result in key.results
            for word in set(words(result.text)).difference(raw_words(result.arguments))
            if not any(map(str.isdigit, word))
        )
        self._error_rounds = self._error_rounds + 1 if kind == self._error else 1
        self._error = kind
