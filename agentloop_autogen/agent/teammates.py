"""What the other agents of a team hand to an agent with its turn: results, answers they verified, and a verdict.

A participant of a team is given chat messages only, so that is all this reads: the results in summaries and in the
context of handoffs. What another agent says in text is evidence only if that agent's own loop has closed on it, and had
evidence itself: a guess does not become a fact by being repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, ToolCallSummaryMessage
from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage

from agentloop_autogen.conversation import is_user, tool_results
from agentloop_autogen.core.normalise import is_empty_result
from agentloop_autogen.core.records import Verdict
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.metadata import carried_verdict, rests_on_evidence

__all__ = ["HandedOver", "read_handed_over"]


@dataclass(frozen=True)
class HandedOver:
    """What came with the turn."""

    results: tuple[ToolResult, ...] = ()
    """Tool results of teammates."""
    answers: tuple[ToolResult, ...] = ()
    """Answers whose agents verified them, each as if a tool of the agent's name had returned it."""
    verdict: Verdict | None = None
    """What the last message, if an agent's, says of where the request stands."""

    @property
    def worth_judging(self) -> bool:
        """Whether there is a tool result that could answer anything: errors and empty results cannot."""
        return any(not result.is_error and not is_empty_result(result.content) for result in self.results)

    @property
    def evidence(self) -> tuple[ToolResult, ...]:
        """All of it that can support an answer."""
        return (*self.results, *self.answers)


def read_handed_over(messages: Sequence[BaseChatMessage], *, name: str) -> HandedOver:
    """Return what teammates hand over with `messages`.

    Args:
        messages: The new messages of the turn.
        name: The agent whose turn it is; its own messages are nothing new to it.
    """
    results: list[ToolResult] = []
    answers: list[ToolResult] = []
    verdict: Verdict | None = None
    for message in messages:
        verdict = None
        if is_user(message.source) or message.source == name:
            continue
        verdict = carried_verdict(message.metadata)
        if isinstance(message, ToolCallSummaryMessage):
            results += tool_results(message.tool_calls, message.results)
        elif isinstance(message, HandoffMessage):
            results += _in_context(message)
        elif verdict is not None and verdict.closed and rests_on_evidence(message.metadata):
            answers.append(ToolResult(ToolCall(message.source, ""), message.to_model_text()))
    return HandedOver(tuple(results), tuple(answers), verdict)


def _in_context(handoff: HandoffMessage) -> list[ToolResult]:
    found: list[ToolResult] = []
    calls: list[FunctionCall] = []
    for message in handoff.context:
        if isinstance(message, FunctionExecutionResultMessage):
            found += tool_results(calls, message.content)
        calls = (
            list(message.content)
            if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
            else []
        )
    return found
