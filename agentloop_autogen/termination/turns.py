"""Reading what a team hands its condition: the task at the start, then one delta per speaker turn.

A delta holds everything of a turn: tool rounds as events, the message the turn ends with, and, where a tool is itself
an agent or a team, everything that happened in there, down to a "user" giving it its task. Such nested messages stand
between the request of a call and its execution, and nothing in there counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    HandoffMessage,
    StopMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from agentloop_autogen.agent.calls import is_call_markup
from agentloop_autogen.conversation import is_user, tool_results
from agentloop_autogen.core.normalise import bounded_text, without_thinking
from agentloop_autogen.core.reconcile import as_written
from agentloop_autogen.core.records import ControlAction, Decision, RequestUsage, UnavailableVerdict, Verdict
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.messages import ControlEvent
from agentloop_autogen.metadata import carried_verdict

__all__ = ["MAX_TEXT_CHARS", "Guard", "Turn", "read_task", "read_turn"]

MAX_TEXT_CHARS: Final = 8_000
"""Characters of a request, and of a draft, that are looked at."""
_HANDOFF_TOOL: Final = "transfer_to_"
_CODE: Final = "code"

Message = BaseAgentEvent | BaseChatMessage


class Guard:
    """Whose words and tool results count.

    Args:
        sources: Names of the agents. None: every agent except those named as users are: `user`, `user_proxy`,
            `UserProxyAgent`, `human` and the like.
    """

    def __init__(self, sources: Sequence[str] | None) -> None:
        self._sources = None if sources is None else frozenset(sources)

    def names(self, source: str) -> bool:
        """Return whether `source` was named outright."""
        return self._sources is not None and source in self._sources

    def counts(self, source: str) -> bool:
        """Return whether what `source` says and finds counts."""
        return self.names(source) if self._sources is not None else not is_user(source)

    def is_user(self, source: str) -> bool:
        """Return whether `source` is a person who may add to the request."""
        return not self.names(source) and is_user(source)


@dataclass(frozen=True)
class Turn:
    """What one delta comes down to."""

    counts: bool = False
    """Whether a guarded agent had the turn."""
    draft: str = ""
    """The text the turn ended with; empty for a summary of tool results, a handoff, or nothing sayable."""
    results: tuple[ToolResult, ...] = ()
    tool_rounds: int = 0
    verdict: Verdict | None = None
    """What the agent's own loop ended with, if it says so."""
    said_by_user: str = ""
    tokens: RequestUsage = field(default_factory=RequestUsage)
    """Of everybody in the delta: nested agents cost too."""


def read_task(messages: Sequence[Message], guard: Guard, *, known: bool) -> str | None:
    """Return the request a first delta states; None where it is no task but already a turn.

    Args:
        messages: The delta.
        guard: Whose words count as an agent's.
        known: Whether the request is known already; then only a user's words are taken for a task.
    """
    spoken = [message for message in messages if isinstance(message, BaseChatMessage)]
    if not spoken or len(spoken) < len(messages):
        return None
    if not any(guard.is_user(message.source) for message in spoken) and (
        known or any(_by_agent(m, guard) for m in spoken)
    ):
        return None
    told = [message for message in spoken if not _is_hollow(message, guard)] or spoken
    alone = all(guard.is_user(message.source) for message in told) or len(told) == 1
    lines = [text_of(message) if alone else f"{message.source}: {text_of(message)}" for message in told]
    return bounded_text("\n".join(lines), MAX_TEXT_CHARS)


def _by_agent(message: BaseChatMessage, guard: Guard) -> bool:
    reply = message.models_usage is not None or any(key.startswith("agentloop.") for key in message.metadata)
    return reply or guard.names(message.source) or isinstance(message, ToolCallSummaryMessage)


def _is_hollow(message: BaseChatMessage, guard: Guard) -> bool:
    # A society of mind hands its team what was said before as a handoff to nobody.
    return isinstance(message, HandoffMessage) and not guard.is_user(message.source)


def text_of(message: BaseChatMessage) -> str:
    """Return what a message says, bounded and without the thinking some models leave in their text."""
    return bounded_text(without_thinking(message.to_model_text()), MAX_TEXT_CHARS)


def read_turn(messages: Sequence[Message], guard: Guard) -> Turn:
    """Return what the delta of one speaker turn comes down to.

    Args:
        messages: The delta; they are shared with the team and only read.
        guard: Whose words and results count.
    """
    reader = _Reader(guard)
    for message in messages:
        reader.take(message)
    return reader.turn()


class _Reader:
    """Goes through one delta."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._asked: ToolCallRequestEvent | None = None
        self._results: list[ToolResult] = []
        self._rounds = 0
        self._executed: set[str] = set()
        self._ran_code: set[str] = set()
        self._decided: dict[str, Decision] = {}
        self._last: BaseChatMessage | None = None
        self._user: list[str] = []
        self._tokens = RequestUsage()

    def take(self, message: Message) -> None:
        """Take in the next message."""
        if message.models_usage is not None:
            usage = message.models_usage
            self._tokens += RequestUsage(
                prompt_tokens=max(0, usage.prompt_tokens), completion_tokens=max(0, usage.completion_tokens)
            )
        if self._asked is not None and message.source != self._asked.source:
            return  # nested: a tool of the speaker is itself an agent
        if isinstance(message, ToolCallRequestEvent):
            self._asked = message
        elif isinstance(message, ToolCallExecutionEvent):
            self._execution(message)
        elif isinstance(message, CodeExecutionEvent):
            self._code(message)
        elif isinstance(message, ControlEvent):
            self._decided[message.source] = message.decision
        elif isinstance(message, BaseChatMessage):
            self._asked = None
            self._spoken(message)

    def _execution(self, message: ToolCallExecutionEvent) -> None:
        calls = self._asked.content if self._asked is not None else []
        self._asked = None
        if self._guard.counts(message.source):
            self._executed.add(message.source)
            self._round(calls, message.content)

    def _code(self, message: CodeExecutionEvent) -> None:
        if self._guard.counts(message.source):
            self._ran_code.add(message.source)
            self._rounds += 1
            failed = message.result.exit_code != 0
            self._results.append(ToolResult(ToolCall(_CODE, ""), message.result.output, is_error=failed))

    def _spoken(self, message: BaseChatMessage) -> None:
        if self._guard.is_user(message.source):
            self._user.append(text_of(message))
        elif self._guard.counts(message.source):
            if isinstance(message, ToolCallSummaryMessage) and message.source not in self._executed:
                self._round(message.tool_calls, message.results)
            self._last = message

    def _round(self, calls: Sequence[FunctionCall], results: Sequence[FunctionExecutionResult]) -> None:
        self._rounds += 1
        self._results += tool_results(calls, results)

    def turn(self) -> Turn:
        """Return what was read."""
        last = self._last
        draft = self._draft(last) if last is not None else ""
        return Turn(
            counts=last is not None or bool(self._results),
            draft=draft,
            results=tuple(result for result in self._results if not _hands_over(result, last)),
            tool_rounds=self._rounds,
            verdict=self._verdict(last, draft) if last is not None else None,
            said_by_user="\n".join(text for text in self._user if text),
            tokens=self._tokens,
        )

    def _draft(self, last: BaseChatMessage) -> str:
        if isinstance(last, (ToolCallSummaryMessage, HandoffMessage, StopMessage)):
            return ""
        if last.source in self._ran_code and last.models_usage is None:
            return ""  # no model wrote it: it is the output of the code
        text = text_of(last)
        return "" if is_call_markup(text, {result.call.name for result in self._results}) else text

    def _verdict(self, last: BaseChatMessage, draft: str) -> Verdict | None:
        carried = carried_verdict(last.metadata)
        decision = self._decided.get(last.source)
        if carried is not None or decision is None or isinstance(decision.verdict, UnavailableVerdict):
            return carried
        wrote = decision.action is ControlAction.ANSWER_SYNTHESIS and draft and decision.verdict is not None
        return as_written(decision.verdict) if wrote and decision.verdict is not None else decision.verdict


def _hands_over(result: ToolResult, last: BaseChatMessage | None) -> bool:
    """Return whether a result is but the acknowledgement of a handoff, which is no evidence of anything."""
    if not isinstance(last, HandoffMessage):
        return False
    return result.call.name.startswith(_HANDOFF_TOOL) or result.content == last.content
