"""Sends request bodies through the OpenAI SDK, cancellable at every step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Any, TypeVar, cast

from autogen_core import CancellationToken
from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk

from agentloop_autogen.errors import ModelServerError

__all__ = ["chunks_of", "complete", "open_stream"]

T = TypeVar("T")


async def complete(client: AsyncOpenAI, body: Mapping[str, Any], token: CancellationToken | None) -> dict[str, Any]:
    """Ask for a reply in one piece.

    Args:
        client: The SDK's client.
        body: The request; a `timeout` in it is the SDK's.
        token: Ends the request when it is cancelled.

    Returns:
        The response body.

    Raises:
        ModelServerError: What came back is no chat completion.
    """
    reply = await _cancellable(_create(client, body, stream=False), token)
    return _as_body(reply, client)


async def open_stream(
    client: AsyncOpenAI, body: Mapping[str, Any], token: CancellationToken | None
) -> AsyncStream[ChatCompletionChunk]:
    """Ask for a streamed reply and wait until the server has taken the request; whoever gets the stream closes it.

    Args:
        client: The SDK's client.
        body: The request; a `timeout` in it is the SDK's.
        token: Ends the request when it is cancelled.

    Raises:
        ModelServerError: What came back is no stream.
    """
    stream = await _cancellable(_create(client, body, stream=True), token)
    if not isinstance(stream, AsyncStream):
        raise _no_chat(client)
    return cast("AsyncStream[ChatCompletionChunk]", stream)


async def chunks_of(
    stream: AsyncStream[ChatCompletionChunk], client: AsyncOpenAI, token: CancellationToken | None
) -> AsyncGenerator[dict[str, Any], None]:
    """Give the chunks of a stream and close it in any case, which is what makes the server stop generating.

    Args:
        stream: An open stream.
        client: The SDK's client.
        token: Ends the stream when it is cancelled.

    Yields:
        Response bodies.
    """
    chunks = aiter(stream)
    try:
        while True:
            try:
                chunk = await _cancellable(anext(chunks), token)
            except StopAsyncIteration:
                return
            yield _as_body(chunk, client)
    finally:
        await stream.close()


async def _cancellable(work: Awaitable[T], token: CancellationToken | None) -> T:
    future = asyncio.ensure_future(work)
    if token is not None:
        token.link_future(future)
    return await future


async def _create(client: AsyncOpenAI, body: Mapping[str, Any], *, stream: bool) -> object:
    rest = {key: value for key, value in body.items() if key not in ("model", "messages", "timeout")}
    options: dict[str, Any] = {"timeout": body["timeout"]} if "timeout" in body else {}
    create: Any = client.chat.completions.create
    # The SDK's own parameters lack what only vLLM knows; whatever stands in `extra_body` goes out as it is.
    return await create(model=body["model"], messages=body["messages"], stream=stream, extra_body=rest, **options)


def _as_body(reply: object, client: AsyncOpenAI) -> dict[str, Any]:
    to_dict: Any = getattr(reply, "to_dict", None)
    if to_dict is None:
        # The SDK gives text back where a server sent no JSON.
        raise _no_chat(client)
    return cast("dict[str, Any]", to_dict(mode="json", warnings=False))


def _no_chat(client: AsyncOpenAI) -> ModelServerError:
    return ModelServerError(
        f"what answers at {client.base_url} is no chat completion API", setting="correct base_url; vLLM's ends in /v1"
    )
