"""What a team hands its condition, in short hand: the task, and the deltas of speaker turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult, RequestUsage

from agentloop_autogen import AgentLoopTermination

__all__ = ["Message", "feed", "handoff", "said", "started", "summary", "task", "tool_round"]

Message = BaseAgentEvent | BaseChatMessage


def task(text: str = "How many people live in Vennholm?", *, source: str = "user") -> list[Message]:
    """The first delta of a run."""
    return [TextMessage(content=text, source=source)]


def said(text: str, *, source: str = "a", tokens: int = 0, **fields: Any) -> list[Message]:
    """A turn that is only text."""
    usage = RequestUsage(tokens, 0) if tokens else None
    return [TextMessage(content=text, source=source, models_usage=usage, **fields)]


def tool_round(content: str, *, source: str = "a", name: str = "look", error: bool = False) -> list[Message]:
    """The two events of one tool round."""
    return [
        ToolCallRequestEvent(content=[FunctionCall(id="c0", name=name, arguments="{}")], source=source),
        ToolCallExecutionEvent(
            content=[FunctionExecutionResult(call_id="c0", name=name, content=content, is_error=error)], source=source
        ),
    ]


def summary(content: str, *, source: str = "a", name: str = "look", **fields: Any) -> list[Message]:
    """The message that ends a turn of one tool round."""
    return [
        ToolCallSummaryMessage(
            content=content,
            source=source,
            tool_calls=[FunctionCall(id="c0", name=name, arguments="{}")],
            results=[FunctionExecutionResult(call_id="c0", name=name, content=content, is_error=False)],
            **fields,
        )
    ]


def handoff(target: str, *, source: str = "a", **fields: Any) -> list[Message]:
    """A turn that hands over, events and all."""
    text = f"Transferred to {target}, adopting the role of {target} immediately."
    events = tool_round(text, source=source, name=f"transfer_to_{target}")
    return [*events, HandoffMessage(content=text, source=source, target=target, **fields)]


async def started(termination: AgentLoopTermination, text: str = "How many people live in Vennholm?") -> None:
    """Give the task."""
    assert await termination(task(text)) is None


async def feed(termination: AgentLoopTermination, turns: Sequence[Sequence[Message]]) -> list[str]:
    """Hand over turns until one stops; return the stop reason of each, empty where the team goes on."""
    reasons: list[str] = []
    for turn in turns:
        stop = await termination(turn)
        reasons.append(stop.metadata["agentloop.stop_reason"] if stop else "")
        if stop is not None:
            break
    return reasons
