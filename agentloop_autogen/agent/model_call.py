"""One call of the agent's model, streamed or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.utils import content_to_str, remove_images
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage
from autogen_core.tools import BaseTool, ToolSchema
from pydantic import BaseModel

__all__ = ["ModelCall", "characters_of", "prompt_characters"]


def prompt_characters(messages: Sequence[LLMMessage]) -> int:
    """Return the length of a prompt, what its tools take not counted."""
    return sum(len(content_to_str(message.content)) for message in messages)


def characters_of(messages: Sequence[LLMMessage], result: CreateResult) -> int:
    """Return the length of a prompt and its reply: the measure of a call whose tokens the server did not count."""
    reply = result.content if isinstance(result.content, str) else str(result.content)
    return prompt_characters(messages) + len(reply)


class ModelCall:
    """Calls one model client on behalf of one agent.

    Args:
        client: The model client.
        source: The agent's name, for the chunks.
        stream: Whether to stream.
        emit: Takes the chunks of a streamed reply.
        token: The run's token, passed on as it is.
    """

    def __init__(
        self,
        client: ChatCompletionClient,
        *,
        source: str,
        stream: bool,
        emit: Callable[[ModelClientStreamingChunkEvent], Awaitable[None]],
        token: CancellationToken,
    ) -> None:
        self._client = client
        self._source = source
        self._stream = stream
        self._emit = emit
        self._token = token

    async def __call__(
        self,
        messages: Sequence[LLMMessage],
        *,
        message_id: str,
        tools: Sequence[BaseTool[Any, Any] | ToolSchema] = (),
        json_output: bool | type[BaseModel] | None = None,
    ) -> CreateResult:
        """Make the call and return its result; chunks carry `message_id`. Neither an empty `tools` nor None is sent."""
        if not self._client.model_info.get("vision", False):
            messages = remove_images(list(messages))
        arguments: dict[str, Any] = {"cancellation_token": self._token}
        if tools:
            arguments["tools"] = tools
        if json_output is not None:
            arguments["json_output"] = json_output
        if not self._stream:
            return await self._client.create(messages, **arguments)
        result: CreateResult | None = None
        async with aclosing(self._client.create_stream(messages, **arguments)) as chunks:  # pyright: ignore[reportArgumentType, reportUnknownVariableType] - every client's stream is a generator
            async for chunk in chunks:  # pyright: ignore[reportUnknownVariableType] - see above
                if isinstance(chunk, CreateResult):
                    result = chunk
                elif chunk:
                    event = ModelClientStreamingChunkEvent(
                        content=chunk, source=self._source, full_message_id=message_id
                    )
                    await self._emit(event)
        if result is None:
            raise RuntimeError("the model's stream ended without a result")
        return result
