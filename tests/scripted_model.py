"""A model client that plays a script, and small helpers the tests of the agent share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken, FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from agentloop_autogen import AgentLoopAssistantAgent, Evidence, Failure, LoopConfig, LoopOutcome, SlotVerifier, Verdict
from agentloop_autogen.testing import ScriptedVerifier

__all__ = [
    "CLOSED",
    "HANG",
    "UNWRITTEN",
    "ClosedByDraft",
    "Item",
    "ModelRequest",
    "ScriptedModel",
    "Slow",
    "agent_of",
    "call",
    "chunks_of",
    "dangling",
    "open_verdict",
    "outcome_of",
    "result",
    "usage_sum",
]

CLOSED = Verdict(answer_complete=True, need_tool=False, confidence=0.95)
"""The draft answers the request."""
UNWRITTEN = Verdict(answer_complete=False, need_tool=False, confidence=0.9, failure=Failure.ANSWER_INCOMPLETE)
"""The evidence is in, the answer is not written."""


def open_verdict(*missing: str) -> Verdict:
    """A verdict that names what is still missing."""
    return Verdict(answer_complete=False, need_tool=True, confidence=0.9, missing=missing or ("population",))


@dataclass(frozen=True)
class ModelRequest:
    """What one call of the model was given."""

    messages: list[LLMMessage]
    tools: Sequence[Tool | ToolSchema]
    tool_choice: Any
    json_output: bool | type[BaseModel] | None
    extra: Mapping[str, Any]
    token: CancellationToken | None
    streamed: bool

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools offered."""
        return [tool["name"] if isinstance(tool, Mapping) else tool.name for tool in self.tools]

    @property
    def text(self) -> str:
        """All the text of the prompt, call arguments and results included."""
        return "\n".join(_text_of(message) for message in self.messages)


def _text_of(message: LLMMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    parts = [
        part.arguments
        if isinstance(part, FunctionCall)
        else part.content
        if isinstance(part, FunctionExecutionResult)
        else str(part)
        for part in message.content
    ]
    return "\n".join(parts)


@dataclass(frozen=True)
class Slow:
    """Wait before the item behind it; `deaf` waits through a cancellation as well."""

    seconds: float
    item: Item = "late"
    deaf: bool = False


Item = CreateResult | str | FunctionCall | Sequence[FunctionCall] | BaseException | Slow | Callable[[ModelRequest], Any]
"""One reply: a result, a text, calls, an exception, any of them late, or a function of the request that gives one."""

HANG = Slow(30.0)
"""A reply that does not come."""


def call(name: str, arguments: Mapping[str, Any] | str | None = None, *, call_id: str = "c1") -> FunctionCall:
    """A tool call; arguments that are a string go out as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return FunctionCall(id=call_id, name=name, arguments=text)


def result(content: str | list[FunctionCall], **fields: Any) -> CreateResult:
    """A model result with the fields a test cares about."""
    given: dict[str, Any] = {
        "finish_reason": "stop" if isinstance(content, str) else "function_calls",
        "usage": RequestUsage(10, 5),
        "cached": False,
    }
    return CreateResult(content=content, **{**given, **fields})


@dataclass
class ScriptedModel(ChatCompletionClient):
    """Plays its items in order and records every request; `repeat_last` serves the last one for ever."""

    items: Sequence[Item]
    repeat_last: bool = False
    vision: bool = False
    structured: bool = True
    chunk: int = 4
    requests: list[ModelRequest] = field(default_factory=list["ModelRequest"])
    active: int = 0
    """Calls under way."""

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] | None = None,
        tool_choice: Any = None,
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Give the next item."""
        request = ModelRequest(
            list(messages), tools or (), tool_choice, json_output, extra_create_args or {}, cancellation_token, False
        )
        self.requests.append(request)
        if tools is not None and not tools:
            raise ValueError("tools: [] is refused")
        return await self._play(self._next(), request)

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] | None = None,
        tool_choice: Any = None,
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Give the next item in pieces; an exception comes after the first piece."""
        request = ModelRequest(
            list(messages), tools or (), tool_choice, json_output, extra_create_args or {}, cancellation_token, True
        )
        self.requests.append(request)
        item = self._next()
        if isinstance(item, BaseException):
            yield "half of "
            raise item
        made = await self._play(item, request)
        if isinstance(made.content, str):
            for start in range(0, len(made.content), self.chunk):
                await asyncio.sleep(0)
                yield made.content[start : start + self.chunk]
        yield made

    def _next(self) -> Item:
        number = len(self.requests)
        if number > len(self.items) and not self.repeat_last:
            raise LookupError(f"the script has {len(self.items)} items and was asked {number} times")
        return self.items[min(number, len(self.items)) - 1]

    async def _play(self, item: Item, request: ModelRequest) -> CreateResult:
        self.active += 1
        try:
            await asyncio.sleep(0)
            return await self._made(item, request)
        finally:
            self.active -= 1

    async def _made(self, item: Item, request: ModelRequest) -> CreateResult:
        if isinstance(item, Slow):
            await _wait(item)
            return await self._made(item.item, request)
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, CreateResult):
            return item
        if isinstance(item, str):
            return result(item)
        if isinstance(item, FunctionCall):
            return result([item])
        if callable(item):
            return await self._made(item(request), request)
        return result(list(item))

    async def close(self) -> None:
        """Nothing to close."""

    def actual_usage(self) -> RequestUsage:
        """Not counted here."""
        return RequestUsage(0, 0)

    def total_usage(self) -> RequestUsage:
        """Not counted here."""
        return RequestUsage(0, 0)

    def count_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        """Unknown models cannot count."""
        raise KeyError("unknown model")

    def remaining_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        """Unknown models cannot count."""
        raise KeyError("unknown model")

    @property
    def capabilities(self) -> Any:
        """As `model_info`."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """What the model is said to be able to do."""
        return ModelInfo(
            vision=self.vision,
            function_calling=True,
            json_output=self.structured,
            structured_output=self.structured,
            family="unknown",
        )


async def _wait(item: Slow) -> None:
    end = asyncio.get_running_loop().time() + item.seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            if not item.deaf:
                raise


def agent_of(
    model: ChatCompletionClient,
    verdicts: Sequence[Verdict | BaseException | type[BaseException]] | SlotVerifier = (CLOSED,),
    *,
    loop: LoopConfig | None = None,
    **options: Any,
) -> AgentLoopAssistantAgent:
    """An agent named `agent` with a scripted verifier, which is the commonest subject of these tests."""
    verifier = verdicts if isinstance(verdicts, SlotVerifier) else ScriptedVerifier(verdicts)
    return AgentLoopAssistantAgent(options.pop("name", "agent"), model, verifier=verifier, loop=loop, **options)


class ClosedByDraft(SlotVerifier):
    """Says that something is missing until there is a draft."""

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Judge by the draft alone."""
        return CLOSED if draft else open_verdict()


def outcome_of(agent: AgentLoopAssistantAgent) -> LoopOutcome:
    """The outcome of the run that just ended."""
    assert agent.last_outcome is not None, "the run left no outcome behind"
    return agent.last_outcome


def usage_sum(done: TaskResult | Response) -> int:
    """Tokens of all messages of a run together."""
    messages: list[BaseAgentEvent | BaseChatMessage] = (
        list(done.messages) if isinstance(done, TaskResult) else [*(done.inner_messages or ()), done.chat_message]
    )
    return sum(m.models_usage.prompt_tokens + m.models_usage.completion_tokens for m in messages if m.models_usage)


async def dangling(context: ChatCompletionContext) -> list[str]:
    """Ids of calls without a result right behind them, and of results without their call."""
    found: list[str] = []
    waiting: list[str] = []
    for message in await context.get_messages():
        if isinstance(message, FunctionExecutionResultMessage):
            answered = [item.call_id for item in message.content]
            found += sorted(set(waiting) ^ set(answered))
            waiting = []
            continue
        found += waiting
        waiting = []
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            waiting = [item.id for item in message.content]
    return found + waiting


def chunks_of(messages: Sequence[Any]) -> list[Any]:
    """The streaming chunks among messages."""
    return [message for message in messages if type(message).__name__ == "ModelClientStreamingChunkEvent"]
