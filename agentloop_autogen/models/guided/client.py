"""A model client that gives any AutoGen model client tool calls by schema-guided decoding."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from autogen_core import CancellationToken, Component, ComponentModel, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel
from typing_extensions import Self

from agentloop_autogen.errors import ModelError, UsageError
from agentloop_autogen.models.guided.autogen import (
    ToolChoiceInput,
    answer_schema,
    messages_of,
    tool_choice_of,
    tool_spec,
    turns_of,
)
from agentloop_autogen.models.guided.parse import AnswerStream, parse_reply
from agentloop_autogen.models.guided.plan import has_tool_turns, plan_call
from agentloop_autogen.models.guided.records import ChoiceKind, GuidedCall, GuidedPlan, GuidedReply, GuidedRung, Turn
from agentloop_autogen.models.guided.schema import MAX_CALLS, response_format
from agentloop_autogen.models.guided.wire import call_id

__all__ = ["GuidedToolCallingClient", "GuidedToolCallingClientConfig"]

_NO_REFUSAL = frozenset({401, 403, 404, 408, 409, 413, 429})
"""Client errors that say nothing about the response format."""

_TOO_LONG = re.compile(r"context|too long|maximum.{0,20}length|max_tokens", re.IGNORECASE)
_FORMAT_ERROR = re.compile(r"response_format|create args", re.IGNORECASE)


class GuidedToolCallingClientConfig(BaseModel):
    """Configuration of `GuidedToolCallingClient`."""

    client: ComponentModel
    """The wrapped model client."""
    max_calls: int = MAX_CALLS
    """Most tool calls in one reply."""


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One planned call: what goes to the wrapped client and how its reply is to be read."""

    messages: list[LLMMessage]
    plan: GuidedPlan
    extra: dict[str, Any]
    names: frozenset[str]
    allow_calls: bool
    json_output: bool | type[BaseModel] | None


class GuidedToolCallingClient(ChatCompletionClient, Component[GuidedToolCallingClientConfig]):
    """Gives a model client without tool calling working tool calls, by holding its replies to a JSON schema.

    The schema goes out as `response_format`. A server that refuses it is asked for any JSON object instead, and
    then for nothing but what the prompt says; the instance remembers how far it had to step down. Calls without
    tools, and without tool calls in their history, are passed through untouched.

    Args:
        client: The model client to wrap.
        max_calls: Most tool calls in one reply. Default: 8.

    Raises:
        UsageError: `max_calls` is below 1.
    """

    component_type = "model"
    component_config_schema = GuidedToolCallingClientConfig
    component_provider_override = "agentloop_autogen.models.GuidedToolCallingClient"

    def __init__(self, client: ChatCompletionClient, *, max_calls: int = MAX_CALLS) -> None:
        if max_calls < 1:
            raise UsageError(f"max_calls must be at least 1, not {max_calls}")
        self._client = client
        self._max_calls = max_calls
        self._rung = GuidedRung.SCHEMA

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoiceInput = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Ask the model once.

        Args:
            messages: The conversation.
            tools: Tools on offer.
            tool_choice: What the model may do with them.
            json_output: Format of the final answer, not of tool calls.
            extra_create_args: Passed on to the wrapped client.
            cancellation_token: Passed on to the wrapped client.

        Returns:
            A result whose content is tool calls or text.

        Raises:
            UsageError: `tool_choice` names a tool that is not among `tools`.
        """
        turns = turns_of(messages)
        extra = dict(extra_create_args or {})
        if not tools and not has_tool_turns(turns):
            return await self._client.create(
                messages,
                json_output=json_output,
                extra_create_args=extra,
                cancellation_token=cancellation_token,
            )
        call = self._planned(turns, tools, tool_choice, json_output, extra)
        return await self._create(call, cancellation_token)

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoiceInput = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Ask the model once and yield the text of its answer as it comes; tool calls come whole, at the end.

        Args:
            messages: The conversation.
            tools: Tools on offer.
            tool_choice: What the model may do with them.
            json_output: Format of the final answer, not of tool calls.
            extra_create_args: Passed on to the wrapped client.
            cancellation_token: Passed on to the wrapped client.

        Yields:
            Pieces of text, and last a result.

        Raises:
            UsageError: `tool_choice` names a tool that is not among `tools`.
        """
        turns = turns_of(messages)
        extra = dict(extra_create_args or {})
        if not tools and not has_tool_turns(turns):
            pieces = self._client.create_stream(
                messages, json_output=json_output, extra_create_args=extra, cancellation_token=cancellation_token
            )
        else:
            pieces = self._stream(self._planned(turns, tools, tool_choice, json_output, extra), cancellation_token)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Close the wrapped client."""
        await self._client.close()

    def actual_usage(self) -> RequestUsage:
        """Tokens used, as the wrapped client counts them."""
        return self._client.actual_usage()

    def total_usage(self) -> RequestUsage:
        """Tokens used in total, as the wrapped client counts them."""
        return self._client.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Count the tokens of a conversation as it is really sent, with the tools in its system message."""
        return self._client.count_tokens(_translated(messages, tools))

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Count the tokens left beside a conversation as it is really sent."""
        return self._client.remaining_tokens(_translated(messages, tools))

    @property
    def capabilities(self) -> ModelInfo:  # pyright: ignore[reportIncompatibleMethodOverride] - AutoGen's own type here is deprecated
        """The same as `model_info`, under AutoGen's older name."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """The wrapped client's model info, with function calling."""
        info = dict(self._client.model_info)
        info["function_calling"] = True
        return cast("ModelInfo", info)

    def _to_config(self) -> GuidedToolCallingClientConfig:
        return GuidedToolCallingClientConfig(client=self._client.dump_component(), max_calls=self._max_calls)

    @classmethod
    def _from_config(cls, config: GuidedToolCallingClientConfig) -> Self:
        return cls(ChatCompletionClient.load_component(config.client), max_calls=config.max_calls)

    async def _create(self, call: _Call, cancellation_token: CancellationToken | None) -> CreateResult:
        refusal: Exception | None = None
        for rung in _rungs_from(self._rung):
            try:
                result = await self._client.create(
                    call.messages,
                    json_output=call.json_output,
                    extra_create_args=_with_format(call, rung),
                    cancellation_token=cancellation_token,
                )
            except Exception as error:  # Each client refuses a response format in its own way.
                if call.plan.schema is None or not _refuses_format(error):
                    raise
                refusal = refusal or error
            else:
                self._remember(call, rung)
                return _finished(result, _read(call, result))
        raise refusal or ModelError("the model was not asked")

    async def _stream(
        self, call: _Call, cancellation_token: CancellationToken | None
    ) -> AsyncGenerator[str | CreateResult, None]:
        refusal: Exception | None = None
        for rung in _rungs_from(self._rung):
            answer = AnswerStream()
            pieces = self._client.create_stream(
                call.messages,
                json_output=call.json_output,
                extra_create_args=_with_format(call, rung),
                cancellation_token=cancellation_token,
            )
            try:
                async with aclosing(pieces):
                    async for piece in pieces:
                        if isinstance(piece, CreateResult):
                            self._remember(call, rung)
                            reply = _read(call, piece)
                            if not reply.calls and (rest := answer.finish(reply.text)):
                                yield rest
                            yield _finished(piece, reply)
                            return
                        if new := answer.feed(piece):
                            yield new
            except Exception as error:  # Each client refuses a response format in its own way.
                if answer.reply or call.plan.schema is None or not _refuses_format(error):
                    raise
                refusal = refusal or error
        raise refusal or ModelError("the model's stream ended without a result")

    def _planned(
        self,
        turns: Sequence[Turn],
        tools: Sequence[Tool | ToolSchema],
        tool_choice: ToolChoiceInput,
        json_output: bool | type[BaseModel] | None,
        extra: dict[str, Any],
    ) -> _Call:
        own_format = not tools and (json_output is not None or "response_format" in extra)
        wanted_format = extra.get("response_format")
        max_calls = 1 if extra.pop("parallel_tool_calls", None) is False else self._max_calls
        extra.pop("tool_choice", None)
        choice = tool_choice_of(tool_choice)
        specs = [tool_spec(tool) for tool in tools]
        plan = plan_call(
            turns,
            tools=specs,
            choice=choice,
            answer_schema=None if own_format else answer_schema(json_output, wanted_format),
            constrain=not own_format,
            max_calls=max_calls,
        )
        return _Call(
            messages=messages_of(plan),
            plan=plan,
            extra=extra,
            names=frozenset(spec.name for spec in specs),
            allow_calls=bool(specs) and choice.kind is not ChoiceKind.NONE,
            json_output=json_output if own_format else None,
        )

    def _remember(self, call: _Call, rung: GuidedRung) -> None:
        if call.plan.schema is not None:
            self._rung = rung


def _rungs_from(rung: GuidedRung) -> list[GuidedRung]:
    rungs = list(GuidedRung)
    return rungs[rungs.index(rung) :]


def _with_format(call: _Call, rung: GuidedRung) -> dict[str, Any]:
    if call.plan.schema is None:
        return call.extra
    extra = {key: value for key, value in call.extra.items() if key != "response_format"}
    wanted = response_format(call.plan.schema, rung)
    return {**extra, "response_format": wanted} if wanted else extra


def _refuses_format(error: Exception) -> bool:
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in _NO_REFUSAL and _TOO_LONG.search(str(error)) is None
    return isinstance(error, TypeError | ValueError) and _FORMAT_ERROR.search(str(error)) is not None


def _read(call: _Call, result: CreateResult) -> GuidedReply:
    if isinstance(result.content, list):
        calls = [GuidedCall(name=item.name, arguments=item.arguments, id=item.id) for item in result.content]
        return GuidedReply(calls=calls if call.allow_calls else (), thought=result.thought or "")
    if call.plan.schema is None:
        return GuidedReply(text=result.content, thought=result.thought or "")
    reply = parse_reply(
        result.content,
        tool_names=call.names,
        allow_calls=call.allow_calls,
        truncated=result.finish_reason == "length",
    )
    return reply if reply.thought else GuidedReply(calls=reply.calls, text=reply.text, thought=result.thought or "")


def _finished(result: CreateResult, reply: GuidedReply) -> CreateResult:
    update: dict[str, Any] = {"content": reply.text, "thought": reply.thought or None}
    if reply.calls:
        update["content"] = [
            FunctionCall(id=call.id or call_id(), name=call.name, arguments=call.arguments) for call in reply.calls
        ]
        update["finish_reason"] = "function_calls"
    return result.model_copy(update=update)


def _translated(messages: Sequence[LLMMessage], tools: Sequence[Tool | ToolSchema]) -> Sequence[LLMMessage]:
    turns = turns_of(messages)
    if not tools and not has_tool_turns(turns):
        return messages
    return messages_of(plan_call(turns, tools=[tool_spec(tool) for tool in tools]))
