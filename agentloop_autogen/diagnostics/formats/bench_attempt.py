"""A line of a benchmark's result file: one system at one task, once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from agentloop_autogen.bench.records import Attempt, CountedModelCall, CountedToolCall
from agentloop_autogen.core.records import Decision, RequestUsage
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics.formats.fields import completed_of, record_of
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["read_attempt", "trace_of_attempt"]

_SUCCESS = 200


def read_attempt(document: Mapping[str, object]) -> Trace:
    """Read one attempt.

    Args:
        document: The JSON object.

    Returns:
        The trace; its source is the system and the task family.

    Raises:
        FormatError: A field is not what it must be.
    """
    attempt = record_of(Attempt, {"attempt": document}, "attempt")
    if attempt is None:  # pragma: no cover - the document is there
        raise ValueError("no attempt was given")
    return trace_of_attempt(attempt)


def trace_of_attempt(attempt: Attempt) -> Trace:
    """Return an attempt as a trace.

    A round is a reply of the model with the tools that ran between it and the next one. Under loop control only replies
    to requests with tools are rounds, since verdicts and the answer call are none; other systems do not tell what a
    reply was for, so each of theirs is one.

    Args:
        attempt: The attempt.
    """
    outcome = attempt.outcome
    replies = [call for call in attempt.model_calls if call.status == _SUCCESS]
    planning = [call for call in replies if call.offers_tools] if outcome is not None else replies
    return Trace(
        id=f"{attempt.system}/{attempt.family}/{attempt.task}/{attempt.seed}",
        source=f"{attempt.system} on {attempt.family}",
        model=attempt.model,
        request=attempt.request,
        rounds=_rounds(planning, attempt.tool_calls, _decisions(attempt, len(planning))),
        final=attempt.answer,
        correct=attempt.correct,
        completed=attempt.error is None and completed_of(outcome),
        outcome=outcome,
        usage=sum((_usage(call) for call in attempt.model_calls), RequestUsage()),
        elapsed_s=attempt.elapsed_s,
        first_token_s=_first_token_s(replies),
        verifier_s=outcome.verifier_s if outcome is not None else None,
    )


def _rounds(
    planning: Sequence[CountedModelCall], executed: Sequence[CountedToolCall], decisions: Sequence[Decision | None]
) -> tuple[TraceRound, ...]:
    rounds: list[TraceRound] = []
    for place, call in enumerate(planning):
        end = planning[place + 1].began_s if place + 1 < len(planning) else float("inf")
        ran = [tool for tool in executed if call.began_s <= tool.began_s < end]
        calls = tuple(ToolCall(str(asked.get("name")), str(asked.get("arguments"))) for asked in call.tool_calls)
        rounds.append(
            TraceRound(
                text=call.content,
                calls=calls,
                results=tuple(_result(tool, calls) for tool in ran),
                # One request, one turn: a text among the rounds went back to the model and to no user.
                turn=0,
                decision=decisions[place],
                usage=_usage(call),
            )
        )
    return tuple(rounds)


def _result(ran: CountedToolCall, asked: Sequence[ToolCall]) -> ToolResult:
    """A result with the call as the model wrote it, or as the tool saw it where the two cannot be matched."""
    call = next((one for one in asked if one.name == ran.name and _arguments(one) == ran.arguments), None)
    return ToolResult(
        call=call or ToolCall(ran.name, json.dumps(ran.arguments, ensure_ascii=False)),
        content=ran.result,
        is_error=ran.is_error,
    )


def _arguments(call: ToolCall) -> object:
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None


def _decisions(attempt: Attempt, rounds: int) -> list[Decision | None]:
    """The decision after each round; none at all where rounds were lost or repeated, so that nothing is guessed."""
    found = {} if attempt.outcome is None else {decision.round: decision for decision in attempt.outcome.decisions}
    if attempt.outcome is None or attempt.outcome.rounds != rounds:
        found = {}
    return [found.get(number) for number in range(1, rounds + 1)]


def _usage(call: CountedModelCall) -> RequestUsage:
    return RequestUsage(prompt_tokens=call.prompt_tokens, completion_tokens=call.completion_tokens)


def _first_token_s(replies: Sequence[CountedModelCall]) -> float | None:
    """When the answer began: the last text that was streamed."""
    texts = [call.first_token_s for call in replies if call.first_token_s is not None and not call.tool_calls]
    return texts[-1] if texts else None
