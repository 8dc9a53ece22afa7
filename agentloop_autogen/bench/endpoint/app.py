"""The HTTP side of the counted endpoint: passes requests on, replies back, and counts both.

Imported only when a server is built, because it needs Starlette and httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from agentloop_autogen.bench.endpoint.reading import ReplyReader, SentRequest, read_request
from agentloop_autogen.bench.endpoint.traffic import AttemptTraffic
from agentloop_autogen.bench.endpoint.upstream import UpstreamQueue, least_busy
from agentloop_autogen.bench.records import CountedModelCall
from agentloop_autogen.models.local.hang_up import ClientGoneError, unless_gone

__all__ = ["CountingProxy"]

_GONE_STATUS: Final = 499
_UNREACHABLE_STATUS: Final = 502
_OUT_OF_SERVICE: Final = frozenset({429, 502, 503, 504})
"""What a server, or a proxy before it, answers while there is no model to ask, or too many are asking."""
_CONNECT_S: Final = 5.0
_EVENTS: Final = "text/event-stream"


class CountingProxy:
    """Passes on the requests of all open attempts; it sets no limits and repeats nothing.

    Args:
        upstreams: The real endpoints.
    """

    def __init__(self, upstreams: list[UpstreamQueue]) -> None:
        self._upstreams = upstreams
        self._client: httpx.AsyncClient | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it runs; None: nowhere yet."""
        self.open_attempts: dict[str, AttemptTraffic] = {}
        """The attempts by their token."""
        chat = Route("/chat/completions", _Application(self._chat), methods=["POST"])
        api = [Route("/models", self._models, methods=["GET"]), chat]
        self.app = Starlette(routes=[Mount("/attempts/{token}/v1", routes=api)], lifespan=self._lifespan)

    async def settle(self, token: str) -> None:
        """Close an attempt: end what it still has under way, and answer no further request."""
        traffic = self.open_attempts.pop(token)
        under_way = set(traffic.requests)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        if traffic.upstream is not None:
            traffic.upstream.attempts -= 1

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None, None]:
        self.loop = asyncio.get_running_loop()
        # A proxy named in the environment must not see, or break, traffic on loopback.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        timeout = httpx.Timeout(None, connect=_CONNECT_S)
        async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as client:
            self._client = client
            yield

    async def _models(self, request: Request) -> Response:
        traffic = self._traffic(request)
        if traffic is None:
            return _closed()
        queue = self._queue(traffic)
        try:
            reply = await self._http().get(f"{queue.base_url}/models", headers=queue.headers, timeout=_CONNECT_S)
        except httpx.HTTPError as error:
            return _unreachable(error)
        return Response(reply.content, reply.status_code, media_type=reply.headers.get("content-type"))

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        traffic = self._traffic(request)
        if traffic is None:
            await _closed()(scope, receive, send)
            return
        task = asyncio.current_task()
        if task is not None:
            traffic.requests.add(task)
            task.add_done_callback(traffic.requests.discard)
        sent = read_request(await request.body(), traffic.decoding)
        try:
            async with self._turn(request, traffic) as queue:
                await self._pass_on(_Call(traffic, sent), queue, request, send)
        except ClientGoneError:
            return

    async def _pass_on(self, call: _Call, queue: UpstreamQueue, request: Request, send: Send) -> None:
        url = f"{queue.base_url}/chat/completions"
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **queue.headers}
        wanted = self._http().build_request("POST", url, content=call.sent.body, headers=headers)
        try:
            reply = await unless_gone(request, self._http().send(wanted, stream=True))
            try:
                await call.relay(reply, request, send)
            finally:
                # Closing the connection is what tells the endpoint to stop generating.
                await reply.aclose()
        except httpx.HTTPError as error:
            call.lose()
            if call.answered:
                raise
            await _unreachable(error)(request.scope, request.receive, send)
        finally:
            queue.note(reachable=not call.unreachable)
            call.close()

    @asynccontextmanager
    async def _turn(self, request: Request, traffic: AttemptTraffic) -> AsyncGenerator[UpstreamQueue, None]:
        queue = self._queue(traffic)
        queue.outstanding += 1
        began = traffic.now()
        turn = asyncio.ensure_future(queue.wait_turn())
        try:
            try:
                await unless_gone(request, turn)
            finally:
                traffic.waited_s += traffic.now() - began
            yield queue
        finally:
            queue.outstanding -= 1
            if turn.done() and not turn.cancelled():
                queue.give_back()

    def _queue(self, traffic: AttemptTraffic) -> UpstreamQueue:
        if traffic.upstream is None:
            traffic.upstream = least_busy(self._upstreams)
            traffic.upstream.attempts += 1
        return traffic.upstream

    def _traffic(self, request: Request) -> AttemptTraffic | None:
        return self.open_attempts.get(request.path_params["token"])

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:  # pragma: no cover - the server takes no request before its lifespan has begun
            raise RuntimeError("the counted endpoint is not running")
        return self._client


class _Application:
    """A route that writes its reply itself: what happens to it on the way is known to the end."""

    def __init__(self, serve: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)


class _Call:
    """One request from the moment it is sent on."""

    def __init__(self, traffic: AttemptTraffic, sent: SentRequest) -> None:
        self.sent = sent
        self.answered = False
        """Whether the system has got the beginning of a streamed reply."""
        self.unreachable = False
        """Whether the endpoint was down, still loading or overrun."""
        self._traffic = traffic
        self._reader = ReplyReader()
        self._began_s = traffic.now()
        self._first_token_s: float | None = None
        # What it stays at unless the reply comes to its end.
        self._status = _GONE_STATUS

    async def relay(self, reply: httpx.Response, request: Request, send: Send) -> None:
        """Hand the reply to the system as it comes."""
        kind = reply.headers.get("content-type", "application/json")
        if not kind.startswith(_EVENTS):
            raw = await unless_gone(request, reply.aread())
            self._reader.read_whole(raw)
            self._end(reply.status_code)
            await _start(send, reply.status_code, kind, length=len(raw))
            await send({"type": "http.response.body", "body": raw})
            return
        await _start(send, reply.status_code, kind)
        self.answered = True
        async for event in _events(reply, request):
            if self._read(event) and self.sent.hides_usage:
                continue
            await send({"type": "http.response.body", "body": event, "more_body": True})
        self._end(reply.status_code)
        await send({"type": "http.response.body", "body": b""})

    def lose(self) -> None:
        """Note that the endpoint went away."""
        self._status = _UNREACHABLE_STATUS
        self.unreachable = True

    def close(self) -> None:
        """Count the request, however it ended."""
        reader, broken_off = self._reader, self._status in (_GONE_STATUS, _UNREACHABLE_STATUS)
        guessed = broken_off and not reader.has_usage and not (self.unreachable and not self.answered)
        call = CountedModelCall(
            began_s=self._began_s,
            first_token_s=self._first_token_s,
            ended_s=self._traffic.now(),
            prompt_tokens=self.sent.prompt_estimate if guessed else reader.prompt_tokens,
            completion_tokens=reader.pieces if guessed else reader.completion_tokens,
            cached_tokens=reader.cached_tokens,
            estimated=guessed,
            status=self._status,
            offers_tools=self.sent.offers_tools,
            content=reader.content,
            tool_calls=reader.tool_calls,
        )
        self._traffic.add(call, unreachable=self.unreachable)

    def _read(self, event: bytes) -> bool:
        """Read the lines of one event; True where it holds the usage alone."""
        usage_only = False
        for line in event.splitlines():
            if line.startswith(b"data:"):
                usage_only = self._reader.read_event(line.removeprefix(b"data:").strip())
        if self._first_token_s is None and self._reader.pieces:
            self._first_token_s = self._traffic.now()
        return usage_only

    def _end(self, status: int) -> None:
        self._status = status
        self.unreachable = status in _OUT_OF_SERVICE


async def _events(reply: httpx.Response, request: Request) -> AsyncGenerator[bytes, None]:
    """The events of a stream, byte by byte as they came, each with the empty line that ends it."""
    pieces = reply.aiter_bytes()
    held = b""
    while True:
        try:
            held += await unless_gone(request, anext(pieces))
        except StopAsyncIteration:
            break
        while (end := _event_end(held)) is not None:
            yield held[:end]
            held = held[end:]
    if held:
        yield held


def _event_end(held: bytes) -> int | None:
    ends = [place + len(mark) for mark in (b"\n\n", b"\r\n\r\n") if (place := held.find(mark)) >= 0]
    return min(ends, default=None)


async def _start(send: Send, status: int, kind: str, *, length: int | None = None) -> None:
    headers = [(b"content-type", kind.encode("latin-1"))]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})


def _unreachable(error: httpx.HTTPError) -> Response:
    message = f"the model endpoint cannot be reached ({type(error).__name__}): start it again"
    return _refusal(_UNREACHABLE_STATUS, message, "endpoint_unreachable")


def _closed() -> Response:
    return _refusal(410, "this attempt is over: its endpoint takes no further requests", "attempt_closed")


def _refusal(status: int, message: str, code: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "server_error", "code": code}}, status_code=status)
