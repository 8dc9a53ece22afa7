"""Which call of a round each of its results belongs to, and the ids that say so in other forms."""

from __future__ import annotations

from collections.abc import Iterator

from agentloop_autogen.core.rounds import ToolCall
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["UNKNOWN_CALL", "call_id", "ends_with_final", "result_ids", "rounds_by_turn"]

UNKNOWN_CALL = "call_unknown"
"""Id of a result whose call nobody knows."""


def call_id(round_number: int, index: int) -> str:
    """Return the id under which a call is written; both count from 1."""
    return f"call_{round_number}_{index}"


def result_ids(round_: TraceRound, round_number: int) -> list[str]:
    """Return for each result the id of its call.

    Args:
        round_: The round.
        round_number: Its number, from 1.

    Returns:
        Ids as `call_id` makes them; `UNKNOWN_CALL` for a result whose call is not in the round.
    """
    waiting: dict[ToolCall, list[int]] = {}
    for index, call in enumerate(round_.calls, start=1):
        waiting.setdefault(call, []).append(index)
    ids: list[str] = []
    for result in round_.results:
        indexes = waiting.get(result.call)
        ids.append(call_id(round_number, indexes[0]) if indexes else UNKNOWN_CALL)
        if indexes and len(indexes) > 1:
            indexes.pop(0)
    return ids


def rounds_by_turn(trace: Trace) -> Iterator[tuple[int, int, TraceRound]]:
    """Yield the rounds with the number of their turn, from 0, and their own number, from 1."""
    number = 0
    for turn, rounds in enumerate(trace.turns):
        for round_ in rounds:
            number += 1
            yield turn, number, round_


def ends_with_final(trace: Trace) -> bool:
    """Return whether the last round is the final answer itself, or there is none to add to it."""
    last = trace.rounds[-1] if trace.rounds else None
    is_text = last is not None and not last.calls and not last.results
    return not trace.final or (is_text and last is not None and last.text == trace.final)
