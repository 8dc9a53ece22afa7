"""How far a run is, and who is told."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from agentloop_autogen.bench.records import Attempt

__all__ = ["RunProgress", "RunWatcher"]


class RunProgress:
    """Counts of a run while it goes on.

    Args:
        held: Attempts of the plan that were there before.
        total: Attempts of the whole plan.
    """

    def __init__(self, held: Iterable[Attempt], *, total: int) -> None:
        self.total = total
        self.tokens = 0
        """Tokens read and written by all attempts so far."""
        self.failed = 0
        """Attempts that failed as such."""
        self.unreachable = 0
        """Attempts of this run that found no model, and are still to be made."""
        self.tried: Counter[str] = Counter()
        """Attempts by system."""
        self.solved: Counter[str] = Counter()
        """Solved tasks by system."""
        for attempt in held:
            self._count(attempt)
        self._held = self.done
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """Attempts that are in the file."""
        return sum(self.tried.values())

    @property
    def left_s(self) -> float | None:
        """Seconds the rest will take at the pace so far; None before anything was finished."""
        finished = self.done - self._held
        if finished == 0:
            return None
        return (time.monotonic() - self._began) / finished * (self.total - self.done)

    def add(self, attempt: Attempt) -> None:
        """Count a finished attempt."""
        self._count(attempt)

    def _count(self, attempt: Attempt) -> None:
        self.tried[attempt.system] += 1
        self.solved[attempt.system] += attempt.correct
        self.failed += attempt.error is not None
        self.tokens += sum(call.prompt_tokens + call.completion_tokens for call in attempt.model_calls)


class RunWatcher(Protocol):
    """Is told how a run goes."""

    def begun(self, progress: RunProgress) -> None:
        """Take note that the run begins."""
        ...

    def finished(self, attempt: Attempt, progress: RunProgress) -> None:
        """Take note of a finished attempt."""
        ...
