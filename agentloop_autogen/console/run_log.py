"""Turns the messages of a running agent into rounds to read: calls, results, draft, decision, tokens so far."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.messages import (
    HandoffMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)

from agentloop_autogen.console.text import one_line
from agentloop_autogen.console.view import CallView, RoundView
from agentloop_autogen.core.records import ControlAction, Decision
from agentloop_autogen.messages import ControlEvent

if TYPE_CHECKING:
    from autogen_core import FunctionCall
    from autogen_core.models import FunctionExecutionResult

__all__ = ["RunLog"]

_CALL_WIDTH = 200
_RESULT_WIDTH = 400


@dataclass(kw_only=True)
class RunLog:
    """Collects one run; feed it every message in order."""

    names_speakers: bool = False
    """Whether rounds say whose they are, as those of a team must."""
    rounds: list[RoundView] = field(default_factory=list[RoundView])
    """Finished rounds."""
    tools: Counter[str] = field(default_factory=Counter[str])
    """How often each tool ran."""
    answer: str = ""
    """Text of the last reply."""
    doing: str = "round 1: asking the model"
    """What is running now, in words."""
    _calls: dict[str, CallView] = field(default_factory=dict[str, CallView])
    _thought: str = ""
    _tokens_before: int = 0
    """Of turns that are over: every agent counts its own."""
    _tokens: int = 0
    _held: RoundView | None = None
    """A decided round that may still get its draft: the agent sends a draft once it is rejected."""

    def feed(self, message: object) -> tuple[RoundView, ...]:
        """Take one message of the stream.

        Args:
            message: Anything the agent's stream yields.

        Returns:
            The rounds that can be shown now, in order.
        """
        held = self._held
        if held is not None and isinstance(message, ThoughtEvent) and message.models_usage is not None:
            self._held = None
            return (self._finished(held, draft=one_line(message.content, _RESULT_WIDTH)),)
        ready = self.flush()
        match message:
            case ToolCallRequestEvent():
                self._requested(message.content)
            case ToolCallExecutionEvent():
                self._executed(message.content)
            case ThoughtEvent():
                self._thought = one_line(message.content, _RESULT_WIDTH)
            case ControlEvent():
                usage = sum(used.prompt_tokens + used.completion_tokens for used in message.usage.values())
                return (*ready, *self._decided(message.decision, usage, message.source))
            case TextMessage() | HandoffMessage() if message.source != "user":
                self.answer = message.content
            case _:
                pass
        return ready

    def flush(self) -> tuple[RoundView, ...]:
        """Give up waiting for the draft of a round.

        Returns:
            The round that was waiting, if one was.
        """
        held, self._held = self._held, None
        return () if held is None else (self._finished(held),)

    def pending(self) -> tuple[RoundView, ...]:
        """Show the round that was under way when the run ended.

        Returns:
            The round with its calls and results so far; none if it had none.
        """
        if not self._calls:
            return ()
        return (RoundView(number=len(self.rounds) + 1, calls=tuple(self._calls.values()), thought=self._thought),)

    def _requested(self, calls: list[FunctionCall]) -> None:
        for call in calls:
            self._calls[call.id] = CallView(name=call.name, arguments=_arguments(call.arguments))
        names = ", ".join(dict.fromkeys(call.name for call in calls))
        self.doing = f"round {len(self.rounds) + 1}: running {one_line(names, _CALL_WIDTH)}"

    def _executed(self, results: list[FunctionExecutionResult]) -> None:
        for result in results:
            self.tools[result.name] += 1
            asked = self._calls.get(result.call_id)
            self._calls[result.call_id] = CallView(
                name=result.name,
                arguments=asked.arguments if asked else "",
                result=one_line(result.content, _RESULT_WIDTH),
                failed=bool(result.is_error),
            )
        self.doing = f"round {len(self.rounds) + 1}: checking what the request still needs"

    def _decided(self, decision: Decision, tokens: int, source: str) -> tuple[RoundView, ...]:
        goes_on = decision.action is ControlAction.CONTINUE_INVOCATION
        if decision.round == 1:
            self._tokens_before += self._tokens
        self._tokens = tokens
        number = len(self.rounds) + 1
        shown = RoundView(
            number=number,
            speaker=source if self.names_speakers else "",
            calls=tuple(self._calls.values()),
            thought=self._thought,
            decision=decision,
            tokens=self._tokens_before + tokens,
        )
        self._calls, self._thought = {}, ""
        self.doing = f"round {number + 1}: asking the model" if goes_on else "writing the answer"
        if goes_on and not shown.calls:
            self._held = shown
            return ()
        return (self._finished(shown),)

    def _finished(self, shown: RoundView, *, draft: str = "") -> RoundView:
        whole = replace(shown, draft=draft)
        self.rounds.append(whole)
        return whole


def _arguments(text: str) -> str:
    try:
        data: object = json.loads(text)
    except ValueError:
        return one_line(text, _CALL_WIDTH)
    if not isinstance(data, dict):
        return one_line(text, _CALL_WIDTH)
    pairs = cast("dict[str, Any]", data).items()
    return one_line(", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in pairs), _CALL_WIDTH)
