"""How a run ends: the reply it sends and the outcome it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, StructuredMessage, TextMessage, ThoughtEvent
from autogen_core.models import AssistantMessage, CreateResult, RequestUsage

from agentloop_autogen.agent import prompts
from agentloop_autogen.agent.answer import Answer, AnswerRequest, echoes_result
from agentloop_autogen.agent.context import system_text
from agentloop_autogen.agent.tools import ExecutedCall
from agentloop_autogen.core.endings import stop_reason
from agentloop_autogen.core.grounding import carries, says_open, ungrounded_figures
from agentloop_autogen.core.reconcile import as_written
from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    LoopOutcome,
    SlotState,
    StopReason,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.instrumentation import Scope, record_ending
from agentloop_autogen.metadata import ending_metadata, verdict_metadata

if TYPE_CHECKING:
    from agentloop_autogen.agent.planning import Planned
    from agentloop_autogen.agent.run import Run

__all__ = ["failed", "handed_off", "replied"]


async def handed_off(run: Run, planned: Planned, results: list[ExecutedCall]) -> Response | None:
    """Return the response of a round that hands the task over, None if it does not."""
    if not any(result.planned.call.name in run.parts.handoffs for result in results):
        return None
    pairs = [
        (
            result.planned.kept,
            # A handoff tool that fails still hands over; its message then is the one it was configured with.
            result.result.model_copy(update={"content": run.parts.handoffs[result.result.name].message})
            if result.result.is_error and result.result.name in run.parts.handoffs
            else result.result,
        )
        for result in results
    ]
    model_result = CreateResult(
        finish_reason="function_calls",
        content=[call for call, _ in pairs],
        usage=RequestUsage(0, 0),
        cached=False,
        thought=planned.reply.thought,
    )
    response = run.parts.check_handoff(model_result, pairs)
    if response is None or not isinstance(response.chat_message, HandoffMessage):
        return None
    reason = f"the model handed the task to {response.chat_message.target!r}"
    action = ControlAction.TERMINATE_ITERATION
    decision = await run.stop_early(ControlBranch.HANDOFF_BREAK, reason, action=action)
    return _finished(run, decision, response.chat_message)


async def replied(run: Run, decision: Decision) -> Response:
    """Return the reply of a run that ends with `decision`: its draft, or an answer written from the evidence."""
    draft = run.controller.draft
    planned = run.planned
    ends_with_draft = decision.action is ControlAction.TERMINATE_ITERATION and draft and not run.parts.output_type
    if ends_with_draft and not _unfit(run, decision, draft):
        text = _with_open_slots(run, decision, draft)
        message_id = planned.message_id if planned else None
        return await _send_text(run, decision, text, message_id=message_id)
    if run.parts.summarises and run.executed:
        return _finished(run, decision, run.parts.summarise(run.executed).chat_message)
    if draft:
        await run.show_draft(draft)
    await run.clock.running()
    answer = await run.answer_writer().write(await _answer_request(run, decision))
    run.pending_usage += answer.usage
    if answer.thought:
        await run.emit(ThoughtEvent(content=answer.thought, source=run.parts.name))
    if answer.structured is not None:
        return await _send_structured(run, decision, answer)
    text = answer.text if answer.fallback else _with_open_slots(run, decision, answer.text)
    return await _send_text(
        run, decision, text, message_id=answer.message_id, fallback=answer.fallback, error=answer.problem
    )


def _unfit(run: Run, decision: Decision, draft: str) -> bool:
    """Return whether a draft cannot be the reply: it was cut off, or is a tool result given back word for word."""
    if decision.branch is ControlBranch.MODEL_TEXT_BREAK:
        return False
    truncated = run.planned is not None and run.planned.reply.truncated
    return truncated or echoes_result(draft, run.controller.evidence)


async def failed(run: Run, problem: str, error: str) -> Response:
    """Return the reply of a run in which planning failed: what failed, and what is known all the same."""
    action = ControlAction.TERMINATE_ITERATION
    decision = await run.stop_early(ControlBranch.PLANNING_FAILED, problem, action=action)
    text = prompts.failure_text(problem, run.controller.evidence, _unresolved(decision), draft=run.controller.draft)
    return await _send_text(run, decision, text, message_id=None, fallback=True, error=error)


async def _answer_request(run: Run, decision: Decision) -> AnswerRequest:
    conversation = await run.parts.model_context.get_messages()
    return AnswerRequest(
        request=f"{run.about.earlier}{run.about.text}",
        images=run.about.images,
        system=system_text(run.parts.system_messages, conversation),
        evidence=run.controller.evidence,
        draft=run.controller.draft,
        standing=prompts.Standing(_settled(decision), _unresolved(decision)),
        tool_names=run.tools.names,
        output_type=run.parts.output_type,
    )


def _settled(decision: Decision) -> list[tuple[str, str]]:
    covered = (SlotState.SUPPORTED, SlotState.UNSYNTHESISED)
    slots = decision.verdict.slots if decision.verdict else ()
    return [(slot.name, slot.quote) for slot in slots if slot.state in covered and slot.quote]


def _unresolved(decision: Decision) -> tuple[str, ...]:
    if decision.verdict is None:
        return ()
    # A complete answer may still hold slots that are not to be had; what else the verifier missed, it then did not.
    answered = stop_reason(decision.branch) is StopReason.ANSWERED
    return decision.verdict.open_slots if answered else decision.verdict.unresolved


def _with_open_slots(run: Run, decision: Decision, text: str) -> str:
    unnamed = [name for name in _unresolved(decision) if not says_open(text, name)]
    return f"{text.rstrip()}\n\n{prompts.unresolved_note(unnamed)}" if unnamed else text.rstrip()


async def _send_text(
    run: Run, decision: Decision, text: str, *, message_id: str | None, fallback: bool = False, error: str = ""
) -> Response:
    await run.parts.model_context.add_message(AssistantMessage(content=text, source=run.parts.name))
    identity: dict[str, Any] = {"id": message_id} if message_id else {}
    message = TextMessage(content=text, source=run.parts.name, models_usage=run.take_usage(), **identity)
    return _finished(run, decision, message, text=text, fallback=fallback, error=error)


async def _send_structured(run: Run, decision: Decision, answer: Answer) -> Response:
    if answer.structured is None or run.parts.output_type is None:
        raise ValueError("a structured reply needs an output type and a value of it")
    text = answer.structured.model_dump_json()
    await run.parts.model_context.add_message(AssistantMessage(content=text, source=run.parts.name))
    message = StructuredMessage[run.parts.output_type](  # type: ignore[name-defined]  # the type is only known at run time
        content=answer.structured,
        source=run.parts.name,
        models_usage=run.take_usage(),
        format_string=run.parts.output_format,
        id=answer.message_id,
    )
    return _finished(run, decision, message, text=text)


def _finished(
    run: Run,
    decision: Decision,
    message: BaseChatMessage,
    *,
    text: str = "",
    fallback: bool = False,
    error: str = "",
) -> Response:
    """Put the reasons on the message, leave the outcome behind, and return the response."""
    if message.models_usage is None and run.pending_usage.total:
        message.models_usage = run.take_usage()
    message.metadata.update(
        ending_metadata(
            stop_reason(decision.branch), decision.branch, rounds=run.budget.rounds, unresolved=_unresolved(decision)
        )
    )
    verdict = _verdict_on_reply(decision, answered=bool(text) and not fallback)
    message.metadata.update(verdict_metadata(verdict, evidence=sum(map(carries, run.controller.evidence))))
    run.outcome = outcome = _outcome(run, decision, text=text, fallback=fallback, error=error)
    record_ending(
        outcome.stop_reason,
        decision.branch.value,
        source=run.parts.name,
        scope=Scope.AGENT,
        depth=outcome.rounds,
        tokens=sum(usage.total for usage in outcome.usage.values()),
        unresolved=len(outcome.unresolved),
        tool_calls=outcome.tool_calls,
        elapsed_s=outcome.elapsed_s,
    )
    return Response(chat_message=message, inner_messages=run.inner_messages)


def _verdict_on_reply(decision: Decision, *, answered: bool) -> Verdict | None:
    """Return the verdict as it stands now that the reply is written; None where there is none."""
    verdict = decision.verdict
    if verdict is not None and answered and decision.action is ControlAction.ANSWER_SYNTHESIS:
        return as_written(verdict)
    return verdict


def _outcome(run: Run, decision: Decision, *, text: str, fallback: bool, error: str) -> LoopOutcome:
    reason, verdict = stop_reason(decision.branch), decision.verdict
    unavailable = verdict.cause if isinstance(verdict, UnavailableVerdict) else ""
    return LoopOutcome(
        stop_reason=reason,
        slots=verdict.slots if verdict else (),
        unresolved=_unresolved(decision),
        rounds=run.budget.rounds,
        model_calls=run.budget.model_calls,
        dropped_calls=run.budget.dropped_calls,
        verifier_calls=run.budget.verifier_calls,
        synthesis_calls=run.budget.synthesis_calls,
        tool_calls=run.budget.tool_calls,
        usage=run.usage_by_role(),
        decisions=tuple(run.controller.decisions),
        elapsed_s=run.clock.elapsed_s,
        verifier_s=run.budget.verifier_s,
        fallback_answer=fallback,
        ungrounded_figures=ungrounded_figures(text, run.controller.evidence, request=run.about.text) if text else (),
        error=error or (unavailable if reason is StopReason.FAILED else ""),
    )
