"""Model clients around a tape: one writes down every reply of a real run, the other plays them back without a model.

All clients of a run share one tape, so that the replies keep their order across roles.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelCapabilities,  # pyright: ignore[reportDeprecated] - the interface still demands it
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from agentloop_autogen.console.tape import RecordedCall, RecordedReply, Role, TapePlayer, TapeRecorder

__all__ = ["RecordedClient", "RecordingClient"]

_ToolChoice = Tool | Literal["auto", "required", "none"]
_CONTEXT_TOKENS = 32_768


class _TapeClient(ChatCompletionClient):
    """What both clients share: one of them per model client of the run, the answer call told by its missing tools."""

    component_type = "model"

    def __init__(self, *, verifier: bool) -> None:
        self._verifier = verifier

    @abstractmethod
    async def _reply(self, role: Role, messages: Sequence[LLMMessage], options: dict[str, Any]) -> CreateResult: ...

    def _role(self, tools: Sequence[Tool | ToolSchema]) -> Role:
        if self._verifier:
            return Role.VERIFIER
        return Role.PLANNING if tools else Role.SYNTHESIS

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: _ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Give one reply.

        Args:
            messages: The prompt.
            tools: Tools on offer.
            tool_choice: Which of them the model may or must use.
            json_output: Whether the reply is to be JSON.
            extra_create_args: Passed on as they are.
            cancellation_token: Cancels the call.

        Returns:
            The reply.
        """
        options: dict[str, Any] = {
            "tools": tools,
            "tool_choice": tool_choice,
            "json_output": json_output,
            "extra_create_args": extra_create_args or {},
            "cancellation_token": cancellation_token,
        }
        return await self._reply(self._role(tools), messages, options)

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: _ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Give one reply as a stream: its text in one piece, then the result.

        Args:
            messages: The prompt.
            tools: Tools on offer.
            tool_choice: Which of them the model may or must use.
            json_output: Whether the reply is to be JSON.
            extra_create_args: Passed on as they are.
            cancellation_token: Cancels the call.

        Yields:
            The text, then the result.
        """
        result = await self.create(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            json_output=json_output,
            extra_create_args=extra_create_args,
            cancellation_token=cancellation_token,
        )
        if isinstance(result.content, str):
            yield result.content
        yield result

    @property
    def capabilities(self) -> ModelCapabilities:  # pyright: ignore[reportDeprecated] - the interface still demands it
        """The same as `model_info`."""
        warnings.warn("capabilities is deprecated, use model_info instead", DeprecationWarning, stacklevel=2)
        return self.model_info


class RecordingClient(_TapeClient):
    """A model client that passes every call on and writes the reply down.

    Args:
        inner: The client that does the work; it is closed with this one.
        recorder: Where the replies go.
        verifier: Whether this client serves the verifier.
    """

    def __init__(self, inner: ChatCompletionClient, recorder: TapeRecorder, *, verifier: bool = False) -> None:
        super().__init__(verifier=verifier)
        self._inner = inner
        self._recorder = recorder

    async def _reply(self, role: Role, messages: Sequence[LLMMessage], options: dict[str, Any]) -> CreateResult:
        place = self._recorder.open()
        result = await self._inner.create(messages, **options)
        self._recorder.fill(place, _recorded(role, result))
        return result

    async def close(self) -> None:
        """Close the inner client."""
        await self._inner.close()

    def actual_usage(self) -> RequestUsage:
        """Tokens the inner client used."""
        return self._inner.actual_usage()

    def total_usage(self) -> RequestUsage:
        """Tokens the inner client used in all."""
        return self._inner.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Count the tokens of a prompt as the inner client does."""
        return self._inner.count_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens left for a reply, as the inner client counts."""
        return self._inner.remaining_tokens(messages, tools=tools)

    @property
    def model_info(self) -> ModelInfo:
        """What the inner client's model can do."""
        return self._inner.model_info


class RecordedClient(_TapeClient):
    """A model client that plays a tape back.

    Args:
        player: Hands out the replies; shared by all clients of the run.
        verifier: Whether this client serves the verifier.
    """

    def __init__(self, player: TapePlayer, *, verifier: bool = False) -> None:
        super().__init__(verifier=verifier)
        self._player = player
        self._used = RequestUsage(prompt_tokens=0, completion_tokens=0)

    async def _reply(self, role: Role, messages: Sequence[LLMMessage], options: dict[str, Any]) -> CreateResult:
        reply = self._player.take(role)
        self._used = RequestUsage(
            prompt_tokens=self._used.prompt_tokens + reply.prompt_tokens,
            completion_tokens=self._used.completion_tokens + reply.completion_tokens,
        )
        return _played(reply)

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """Tokens the replies so far cost when they were recorded."""
        return self._used

    def total_usage(self) -> RequestUsage:
        """Tokens the replies so far cost when they were recorded."""
        return self._used

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimate the tokens of a prompt: no tokenizer is at hand."""
        return sum(len(str(message.content)) for message in messages) // 4

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimate the tokens left for a reply."""
        return max(0, _CONTEXT_TOKENS - self.count_tokens(messages, tools=tools))

    @property
    def model_info(self) -> ModelInfo:
        """A model that can do all that was recorded."""
        return ModelInfo(
            vision=False,
            function_calling=True,
            json_output=True,
            structured_output=True,
            family=ModelFamily.UNKNOWN,
        )


def _recorded(role: Role, result: CreateResult) -> RecordedReply:
    content = result.content
    calls = () if isinstance(content, str) else content
    return RecordedReply(
        role=role,
        text=content if isinstance(content, str) else None,
        calls=tuple(RecordedCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls),
        thought=result.thought,
        finish_reason=result.finish_reason,
        prompt_tokens=result.usage.prompt_tokens,
        completion_tokens=result.usage.completion_tokens,
    )


def _played(reply: RecordedReply) -> CreateResult:
    calls = [FunctionCall(id=call.id, name=call.name, arguments=call.arguments) for call in reply.calls]
    return CreateResult(
        finish_reason=reply.finish_reason,
        content=calls if reply.text is None else reply.text,
        usage=RequestUsage(prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens),
        cached=False,
        thought=reply.thought,
    )
