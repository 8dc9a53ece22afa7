"""An attempt as a trace, so that the diagnostics of recorded runs apply to it as they stand."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence

from agentloop_autogen.bench.records import Attempt, CountedModelCall, CountedToolCall
from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["first_token_of_answer", "planning_calls", "trace_of"]

_OK = 200


def planning_calls(attempt: Attempt) -> list[CountedModelCall]:
    """Return the calls that planned: the model was offered tools and replied. Verifiers and orchestrators get none.

    Args:
        attempt: The attempt.
    """
    return [call for call in attempt.model_calls if call.offers_tools and call.status == _OK]


def first_token_of_answer(attempt: Attempt) -> float | None:
    """Return when the first token of the answer came, in seconds: of the last reply without tool calls.

    Args:
        attempt: The attempt.

    Returns:
        None where no reply was without tool calls, or that one was not streamed.
    """
    answers = [call for call in attempt.model_calls if call.status == _OK and not call.tool_calls]
    return max(answers, key=lambda call: call.ended_s).first_token_s if answers else None


def trace_of(attempt: Attempt) -> Trace:
    """Return an attempt as a trace whose source is the family and whose model is the system.

    Args:
        attempt: The attempt.
    """
    calls = attempt.model_calls
    return Trace(
        id=attempt.task,
        source=attempt.family,
        model=attempt.system,
        request=attempt.request,
        rounds=_rounds(planning_calls(attempt), attempt.tool_calls),
        final=attempt.answer,
        correct=attempt.correct,
        completed=attempt.error is None,
        outcome=attempt.outcome,
        usage=RequestUsage(
            prompt_tokens=sum(call.prompt_tokens for call in calls),
            completion_tokens=sum(call.completion_tokens for call in calls),
        ),
        elapsed_s=attempt.elapsed_s,
        first_token_s=first_token_of_answer(attempt),
    )


def _rounds(planned: Sequence[CountedModelCall], ran: Sequence[CountedToolCall]) -> tuple[TraceRound, ...]:
    """Each planning call with the tools that began to run after it and before the next had ended."""
    ends = [call.ended_s for call in planned]
    results: list[list[ToolResult]] = [[] for _ in planned or ran[:1]]
    for tool in sorted(ran, key=lambda tool: tool.began_s):
        results[max(0, bisect_right(ends, tool.began_s) - 1)].append(_result(tool))
    if not planned:
        return tuple(_round("", found, RequestUsage()) for found in results)
    return tuple(
        # Text beside calls that were asked for and never ran is no answer either.
        _round("" if call.tool_calls and not found else call.content, found, _usage(call))
        for call, found in zip(planned, results, strict=True)
    )


def _round(text: str, results: Sequence[ToolResult], usage: RequestUsage) -> TraceRound:
    calls = tuple(result.call for result in results)
    return TraceRound(text=text, calls=calls, results=tuple(results), turn=0, usage=usage)


def _result(tool: CountedToolCall) -> ToolResult:
    call = ToolCall(tool.name, json.dumps(tool.arguments, sort_keys=True))
    return ToolResult(call, tool.result, is_error=tool.is_error)


def _usage(call: CountedModelCall) -> RequestUsage:
    return RequestUsage(prompt_tokens=call.prompt_tokens, completion_tokens=call.completion_tokens)
