"""The tool half of a round: the calls run, and both they and their results enter the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, LLMMessage

from agentloop_autogen.agent.bounded import unbroken
from agentloop_autogen.agent.tools import CancelledRound, ExecutedCall
from agentloop_autogen.core.config import Policy
from agentloop_autogen.core.patterns import MAX_IDENTICAL_CALLS
from agentloop_autogen.core.rounds import Round, ToolCall, ToolResult
from agentloop_autogen.slots.summary import ToolUse

if TYPE_CHECKING:
    from agentloop_autogen.agent.planning import Planned
    from agentloop_autogen.agent.run import Run

__all__ = ["execute_tools", "round_of"]


async def execute_tools(run: Run, planned: Planned) -> list[ExecutedCall]:
    """Run the calls of a round and keep them, with their results, in the conversation."""
    parts, calls = run.parts, planned.reply.calls
    if not calls:
        run.round_messages = ()
        return []
    await run.clock.running()
    shown = [planned_call.call for planned_call in calls]
    await run.emit(ToolCallRequestEvent(content=shown, source=parts.name, models_usage=run.take_usage()))
    capped = parts.config.policy is Policy.EXTENDED and parts.config.patterns
    try:
        results = await run.tools.run(
            calls,
            allowed=run.budget.tool_calls_left(),
            identical=MAX_IDENTICAL_CALLS if capped else None,
            remaining_s=run.search_s,
        )
    except CancelledRound as cancelled:
        # What ran has had its effect: the history says so, and no call in it is left without a result.
        await _keep(run, planned, cancelled.results)
        raise
    ran = [result for result in results if result.executed and result.planned.call.name not in parts.handoffs]
    run.budget.tool_calls += len(ran)
    run.past.uses += [
        ToolUse.of(result.planned.call.name, result.result.content, is_error=bool(result.result.is_error))
        for result in ran
    ]
    run.executed += [(result.planned.call, result.result) for result in results]
    await _keep(run, planned, results)
    await run.emit(ToolCallExecutionEvent(content=[result.result for result in results], source=parts.name))
    return results


async def _keep(run: Run, planned: Planned, results: Sequence[ExecutedCall]) -> None:
    limit = run.parts.config.max_result_chars
    calls = AssistantMessage(
        content=[result.planned.kept for result in results], source=run.parts.name, thought=planned.reply.thought
    )
    kept = [
        result.result.model_copy(
            update={
                "content": run.controller.shortened(_as_result(result), limit),
                "name": result.planned.kept.name,
            }
        )
        for result in results
    ]
    answered = FunctionExecutionResultMessage(content=kept)
    # Both or neither: a cancellation between the two would leave calls without results.
    await unbroken(_store(run.parts.model_context, calls, answered))
    run.round_messages = (calls, answered)


async def _store(context: ChatCompletionContext, *messages: LLMMessage) -> None:
    for message in messages:
        await context.add_message(message)


def round_of(run: Run, planned: Planned, results: Sequence[ExecutedCall]) -> Round:
    """Return the round as the core sees it."""
    return Round(planned.reply.draft, tuple(map(_as_result, results)), tools_offered=bool(run.tools.names))


def _as_result(result: ExecutedCall) -> ToolResult:
    return ToolResult(
        ToolCall(result.planned.call.name, result.planned.call.arguments),
        result.result.content,
        is_error=bool(result.result.is_error),
        executed=result.executed,
    )
