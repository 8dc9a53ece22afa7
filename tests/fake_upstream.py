"""A stand-in for llama.cpp's HTTP server, for tests of the front."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agentloop_autogen.models.local.server import MODEL_ID

__all__ = ["HANG", "Upstream"]

HANG = "hang"


class Upstream:
    """A fake inner server: plays replies in order and keeps what it was asked."""

    def __init__(self) -> None:
        self.replies: list[str | tuple[int, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.reached = threading.Event()
        self.gone = threading.Event()
        self.healthy = True
        self.grammar: Callable[[Mapping[str, Any]], str | None] = lambda _: None
        """What a schema becomes; by default schemas are sent on as they are."""

    def to_grammar(self, schema: Mapping[str, Any]) -> str | None:
        """What a schema becomes, as the test has it by now."""
        return self.grammar(schema)

    def app(self) -> Starlette:
        """The application to serve."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        return JSONResponse({}, 200 if self.healthy else 503)

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.reached.set()
        reply = self.replies.pop(0)
        if isinstance(reply, tuple):
            return JSONResponse(reply[1], status_code=reply[0])
        return StreamingResponse(self._stream(request, reply), media_type="text/event-stream")

    async def _stream(self, request: Request, reply: str) -> AsyncIterator[str]:
        frame = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": MODEL_ID}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
        deltas += [{"content": reply[start : start + 5]} for start in range(0, len(reply), 5)]
        for delta in deltas:
            yield _event({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if reply == HANG:
            await self._until_gone(request)
        end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
        yield _event({**frame, "choices": [end]})
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        yield _event({**frame, "choices": [], "usage": usage})
        yield "data: [DONE]\n\n"

    async def _until_gone(self, request: Request) -> None:
        # A streamed reply is cancelled by Starlette instead, as soon as its client hangs up.
        try:
            while not await request.is_disconnected():  # noqa: ASYNC110 - there is no event for this
                await asyncio.sleep(0.02)
        finally:
            self.gone.set()


def _event(chunk: object) -> str:
    return f"data: {json.dumps(chunk)}\n\n"
