"""The record: this package's own form of a trace, one JSON object each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from agentloop_autogen.core.records import Decision, LoopOutcome, RequestUsage
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics.formats.fields import (
    FormatError,
    as_text,
    completed_of,
    flag,
    kind,
    name_of,
    number,
    objects,
    record_of,
    text,
    usage_of,
)
from agentloop_autogen.diagnostics.formats.place import Place
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["identity", "read_record", "record_from"]

_TIMES = ("elapsed_s", "first_token_s", "verifier_s")


def identity(source: Mapping[str, object], place: Place) -> str:
    """Return the `id` of a document, or a name made of where it stands."""
    value = source.get("id")
    if value is None or value == "":
        return place.id
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise FormatError(f"`id` is {kind(value)}, expected a text")


def read_record(record: Mapping[str, object], place: Place) -> Trace:
    """Read one record.

    Args:
        record: The JSON object.
        place: Where it stands; gives the id and the source where the record has none.

    Returns:
        The trace.

    Raises:
        FormatError: A field is not what it must be.
    """
    outcome = record_of(LoopOutcome, record, "outcome")
    completed = flag(record, "completed")
    return Trace(
        id=identity(record, place),
        source=text(record, "source") or place.source,
        model=text(record, "model"),
        request=text(record, "request"),
        rounds=tuple(
            _read_round(item, f"round {index}") for index, item in enumerate(objects(record, "rounds"), start=1)
        ),
        final=text(record, "final"),
        correct=flag(record, "correct"),
        completed=completed_of(outcome) if completed is None else completed,
        outcome=outcome,
        usage=usage_of(record, "usage"),
        elapsed_s=number(record, "elapsed_s"),
        first_token_s=number(record, "first_token_s"),
        verifier_s=number(record, "verifier_s"),
        verdict_label=flag(record, "verdict_label"),
    )


def _read_round(source: Mapping[str, object], of: str) -> TraceRound:
    calls = tuple(_read_call(item, f"a call of {of}") for item in objects(source, "calls", of=of))
    return TraceRound(
        text=text(source, "text", of=of),
        calls=calls,
        results=_read_results(objects(source, "results", of=of), calls, f"a result of {of}"),
        reward=_reward(source, of),
        turn=_turn(source, of),
        decision=record_of(Decision, source, "decision", of=of),
        usage=usage_of(source, "usage", of=of),
    )


def _read_call(source: Mapping[str, object], of: str) -> ToolCall:
    return ToolCall(name_of(source, "name", of=of), as_text(source.get("arguments")))


def _read_results(
    sources: Sequence[Mapping[str, object]], calls: Sequence[ToolCall], of: str
) -> tuple[ToolResult, ...]:
    """Pair results with calls by position; a surplus result belongs to a call nobody knows."""
    found: list[ToolResult] = []
    for source, at_its_place in zip_longest(sources, calls[: len(sources)], fillvalue=None):
        if source is None:
            break
        given = source.get("call")
        call = _read_call(objects({"call": [given]}, "call", of=of)[0], of) if given is not None else at_its_place
        found.append(
            ToolResult(
                call or ToolCall("", ""),
                as_text(source.get("content")),
                bool(flag(source, "is_error", of=of)),
                flag(source, "executed", of=of) is not False,
            )
        )
    return tuple(found)


def _reward(source: Mapping[str, object], of: str) -> float | None:
    """Return a reward; a penalty is the worst there is on a scale from 0, but above 1 the scale is another one."""
    value = number(source, "reward", of=of, lower=-math.inf, upper=1.0)
    return None if value is None else max(0.0, value)


def _turn(source: Mapping[str, object], of: str) -> int | None:
    value = source.get("turn")
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise FormatError(f"`turn` of {of} is {kind(value)}, expected a whole number from 0")


def record_from(trace: Trace) -> dict[str, object]:
    """Put a trace into the form of a record; what it does not know is left out.

    Args:
        trace: Any trace.

    Returns:
        Plain data, ready for JSON.
    """
    record: dict[str, object] = {
        "id": trace.id,
        "source": trace.source,
        "model": trace.model,
        "request": trace.request,
        "rounds": [_round_from(round_) for round_ in trace.rounds],
        "final": trace.final,
        "correct": trace.correct,
        "completed": trace.completed,
    }
    if trace.outcome is not None:
        record["outcome"] = trace.outcome.model_dump(mode="json")
    if trace.usage is not None:
        record["usage"] = _usage_from(trace.usage)
    record.update({key: getattr(trace, key) for key in _TIMES if getattr(trace, key) is not None})
    if trace.verdict_label is not None:
        record["verdict_label"] = trace.verdict_label
    return record


def _round_from(round_: TraceRound) -> dict[str, object]:
    record: dict[str, object] = {
        "text": round_.text,
        "calls": [_call_from(call) for call in round_.calls],
        "results": [
            _result_from(result, call)
            for result, call in zip_longest(round_.results, round_.calls[: len(round_.results)], fillvalue=None)
            if result is not None
        ],
    }
    if round_.reward is not None:
        record["reward"] = round_.reward
    if round_.turn is not None:
        record["turn"] = round_.turn
    if round_.decision is not None:
        record["decision"] = round_.decision.model_dump(mode="json")
    if round_.usage is not None:
        record["usage"] = _usage_from(round_.usage)
    return record


def _call_from(call: ToolCall) -> dict[str, object]:
    return {"name": call.name, "arguments": call.arguments}


def _result_from(result: ToolResult, at_its_place: ToolCall | None) -> dict[str, object]:
    record: dict[str, object] = {"content": result.content, "is_error": result.is_error}
    if not result.executed:
        record["executed"] = False
    if result.call != (at_its_place or ToolCall("", "")):
        record["call"] = _call_from(result.call)
    return record


def _usage_from(usage: RequestUsage) -> dict[str, object]:
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
