"""The HTTP front of the local model: an OpenAI API with tool calls, before a server that has none.

Imported only when a server is built, because it needs Starlette and httpx.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agentloop_autogen.models.guided.chunks import GuidedChunks
from agentloop_autogen.models.guided.records import GuidedRung
from agentloop_autogen.models.guided.wire import (
    calls_allowed,
    from_guided_response,
    needs_guiding,
    to_guided_request,
    tool_names,
)
from agentloop_autogen.models.local.collect import collected
from agentloop_autogen.models.local.hang_up import ClientGoneError, unless_gone
from agentloop_autogen.models.local.requests import (
    ApiError,
    ToGrammar,
    checked_body,
    upstream_error,
    upstream_fields,
    with_grammar,
)

__all__ = ["build_front"]

_GONE_STATUS = 499
_DATA = "data: "
_DONE = "[DONE]"


def build_front(
    upstream_base_url: str, model_id: str, max_model_len: int, to_grammar: ToGrammar | None = None
) -> Starlette:
    """Build the application; see `server.build_app`."""
    front = _Front(upstream_base_url.rstrip("/"), model_id, max_model_len, to_grammar)
    return Starlette(
        routes=[
            Route("/health", front.health, methods=["GET"]),
            Route("/v1/models", front.models, methods=["GET"]),
            Route("/v1/chat/completions", front.chat, methods=["POST"]),
        ],
        exception_handlers={ApiError: _refused, ClientGoneError: _gone, 404: _no_route, 405: _no_route},
        lifespan=front.lifespan,
    )


class _Front:
    def __init__(self, upstream: str, model_id: str, max_model_len: int, to_grammar: ToGrammar | None) -> None:
        self._upstream = upstream
        self._to_grammar = to_grammar
        self._model_id = model_id
        self._max_model_len = max_model_len
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncGenerator[None, None]:
        # A proxy named in the environment must not see, or break, traffic on loopback.
        timeout = httpx.Timeout(None, connect=5)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as client:
            self._client = client
            yield

    async def health(self, _: Request) -> Response:
        try:
            reply = await self._http().get(f"{self._upstream}/health", timeout=5)
        except httpx.HTTPError:
            return JSONResponse({"status": "unavailable"}, status_code=503)
        return JSONResponse({"status": "ok" if reply.is_success else "loading"}, 200 if reply.is_success else 503)

    async def models(self, _: Request) -> Response:
        model = {"id": self._model_id, "object": "model", "created": 0, "owned_by": "agentloop"}
        return JSONResponse({"object": "list", "data": [{**model, "max_model_len": self._max_model_len}]})

    async def chat(self, request: Request) -> Response:
        body = checked_body(await request.body(), model_id=self._model_id)
        guided = needs_guiding(body)
        reply = await self._ask(request, body, guided=guided)
        allowed = calls_allowed(body)
        if body.get("stream"):
            chunks = GuidedChunks(names=tool_names(body), allow_calls=allowed) if guided else None
            events = _events(request, reply, chunks)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        completion = collected(await self._chunks(request, reply))
        if guided:
            completion = from_guided_response(completion, names=tool_names(body), allow_calls=allowed)
        return JSONResponse(completion)

    async def _chunks(self, request: Request, reply: httpx.Response) -> list[dict[str, Any]]:
        chunks: list[dict[str, Any]] = []
        try:
            async for data in _data_of(request, reply):
                if data.strip() != _DONE:
                    chunks.append(json.loads(data))
        except httpx.HTTPError as error:
            raise _lost(error) from error
        finally:
            await reply.aclose()
        for chunk in chunks:
            if "error" in chunk:
                raise upstream_error(500, json.dumps(chunk).encode(), max_model_len=self._max_model_len)
        return chunks

    async def _ask(self, request: Request, body: Mapping[str, Any], *, guided: bool) -> httpx.Response:
        """Send a request on, stepping down when the grammar of a tool's schema is refused; raise for a refusal."""
        first: ApiError | None = None
        for rung in GuidedRung if guided else (GuidedRung.SCHEMA,):
            wanted = upstream_fields(to_guided_request(body, rung=rung), model_id=self._model_id)
            if self._to_grammar is not None:
                wanted = with_grammar(wanted, self._to_grammar)
            reply = await self._post(request, wanted)
            if reply.is_success:
                return reply
            error = upstream_error(reply.status_code, await _read_and_close(reply), max_model_len=self._max_model_len)
            first = first or error
            if error.status != 400 or error.code == "context_length_exceeded":
                break
        raise first or ApiError(500, "the model was not asked", code="model_error", kind="server_error")

    async def _post(self, request: Request, body: Mapping[str, Any]) -> httpx.Response:
        client = self._http()
        wanted = client.build_request("POST", f"{self._upstream}/v1/chat/completions", json=body)
        try:
            return await unless_gone(request, client.send(wanted, stream=True))
        except httpx.HTTPError as error:
            raise _lost(error) from error

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            raise ApiError(503, "the server is not running yet", code="model_error", kind="server_error")
        return self._client


async def _events(request: Request, reply: httpx.Response, chunks: GuidedChunks | None) -> AsyncIterator[str]:
    """Relay server-sent events, translated where tools are in play, until the client hangs up."""
    try:
        async with aclosing(_data_of(request, reply)) as events:
            async for data in events:
                for event in _translated(data, chunks):
                    yield f"{_DATA}{event}\n\n"
    except ClientGoneError:
        return
    except httpx.HTTPError as error:
        yield f"{_DATA}{json.dumps(_lost(error).to_dict())}\n\n"
    finally:
        # Closing the connection is what tells the inner server to stop generating.
        await reply.aclose()


async def _data_of(request: Request, reply: httpx.Response) -> AsyncGenerator[str, None]:
    """The data of a reply's events; raises when the client hangs up."""
    lines = reply.aiter_lines()
    while True:
        try:
            line = await unless_gone(request, anext(lines))
        except StopAsyncIteration:
            return
        if line.startswith(_DATA):
            yield line.removeprefix(_DATA)


def _translated(data: str, chunks: GuidedChunks | None) -> list[str]:
    if chunks is None:
        return [data]
    if data.strip() == _DONE:
        return [*(json.dumps(chunk, ensure_ascii=False) for chunk in chunks.finish()), _DONE]
    return [json.dumps(chunk, ensure_ascii=False) for chunk in chunks.feed(json.loads(data))]


async def _read_and_close(reply: httpx.Response) -> bytes:
    try:
        return await reply.aread()
    except httpx.HTTPError:
        return b""
    finally:
        await reply.aclose()


def _lost(error: httpx.HTTPError) -> ApiError:
    message = f"the model went away ({type(error).__name__}): start the server again"
    return ApiError(502, message, code="model_gone", kind="server_error")


async def _refused(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):  # pragma: no cover - Starlette calls this for ApiError alone
        raise error
    return JSONResponse(error.to_dict(), status_code=error.status)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_GONE_STATUS)


async def _no_route(request: Request, _: Exception) -> Response:
    error = ApiError(404, f"there is no {request.method} {request.url.path} here", code="not_found")
    return JSONResponse(error.to_dict(), status_code=error.status)
