"""Result files read for a report: attempts that may be held against each other, in groups that are never mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.results import AttemptKey, attempts_in, key_of
from agentloop_autogen.bench.tasks.task import Half

__all__ = ["Results", "ResultsGroup", "read_results"]


@dataclass(frozen=True, kw_only=True)
class ResultsGroup:
    """Attempts with one model under one set of settings."""

    model: str
    settings: str
    attempts: tuple[Attempt, ...]
    """Each system, family, task and seed at most once, in the order of these names."""
    notes: tuple[str, ...]
    """What the reader must know about them, a sentence each."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """What result files hold."""

    groups: tuple[ResultsGroup, ...]
    """In the order of their models; empty: no attempts."""


def read_results(paths: Sequence[Path], *, half: Half | None = None) -> Results:
    """Read result files.

    Args:
        paths: The files, plain or compressed with gzip. Of several attempts at the same thing the last one counts,
            files in this order.
        half: Only tasks of this half. None: both.

    Raises:
        ResultFileError: A file cannot be read, or a line of it is no attempt.
    """
    found: dict[tuple[str, str], dict[AttemptKey, Attempt]] = {}
    replaced: dict[tuple[str, str], int] = {}
    for path in paths:
        for attempt in attempts_in(path):
            group = (attempt.model, attempt.settings)
            members, key = found.setdefault(group, {}), key_of(attempt)
            replaced[group] = replaced.get(group, 0) + (key in members)
            members[key] = attempt
    groups = [
        _group(model, settings, members, half=half, replaced=replaced[model, settings])
        for (model, settings), members in sorted(found.items())
    ]
    return Results(groups=tuple(groups))


def _group(
    model: str, settings: str, members: dict[AttemptKey, Attempt], *, half: Half | None, replaced: int
) -> ResultsGroup:
    attempts = [members[key] for key in sorted(members)]
    kept = tuple(attempt for attempt in attempts if half is None or attempt.half is half)
    notes: list[str] = []
    if half is not None:
        left = len(attempts) - len(kept)
        without = f"; {_counted(left)} at other tasks left out" if left else ""
        notes.append(f"Only tasks of the {_words(half)} half count here{without}.")
    if replaced:
        notes.append(f"{_counted(replaced)} replaced by a later one at the same system, task and seed.")
    guessed = sum(any(call.estimated for call in attempt.model_calls) for attempt in kept)
    if guessed:
        notes.append(f"In {_counted(guessed)} some tokens are estimates, because a request was broken off.")
    if len({attempt.seed for attempt in kept}) > 1:
        notes.append(
            "Attempts of one task with several seeds count as so many tasks; intervals are too narrow by that."
        )
    return ResultsGroup(model=model, settings=settings, attempts=kept, notes=tuple(notes))


def _words(half: Half) -> str:
    return half.value.replace("_", "-")


def _counted(number: int) -> str:
    return f"{number:,} attempt{'' if number == 1 else 's'}"
