"""A strict OpenAI-compatible server on loopback, for tests: scripted replies, recorded requests, real refusals.

::

    with FakeOpenAI(["hello", Reply(status=503), Reply(content="cut", finish_reason="length")]) as server:
        client = OpenAIChatCompletionClient(model="fake", base_url=server.base_url, api_key="key", max_retries=0, ...)
        ...
        assert server.bodies[0]["messages"][0]["role"] == "system"

Each request takes the next item of the script; the last one serves all further requests. What every server refuses is
always refused (`ALWAYS`); what only some refuse is turned on with `refuse`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from types import TracebackType
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from typing_extensions import Self

__all__ = ["ALWAYS", "FakeOpenAI", "Refuse", "Reply", "tool_call"]

_POLL_S = 0.02
_START_S = 10.0


class Refuse(Enum):
    """What a server answers with status 400."""

    JSON_SCHEMA = "response_format json_schema"
    JSON_OBJECT = "response_format json_object"
    SEVERAL_SYSTEM_MESSAGES = "more than one system message"
    SYSTEM_NOT_FIRST = "a system message that is not the first message"
    EMPTY_TOOLS = "an empty list of tools"
    TOOL_CHOICE_WITHOUT_TOOLS = "tool_choice without tools"
    NO_USER_MESSAGE = "no user message"
    ADJACENT_ROLES = "two messages in a row with the same role"
    NAME = "a name on a message"
    TOOLS_WITHOUT_PARSER = "tools with tool_choice auto"
    TEMPLATE_OPTIONS = "chat_template_kwargs"
    PRIORITY = "a priority"
    STREAM_OPTIONS_WITHOUT_STREAM = "stream_options without stream"
    DANGLING_TOOL_CALLS = "a tool call without its result, or a result without its call"


ALWAYS = frozenset(
    {
        Refuse.EMPTY_TOOLS,
        Refuse.TOOL_CHOICE_WITHOUT_TOOLS,
        Refuse.DANGLING_TOOL_CALLS,
        Refuse.STREAM_OPTIONS_WITHOUT_STREAM,
    }
)
"""What every server refuses."""

VLLM_WORDS = {
    Refuse.TOOLS_WITHOUT_PARSER: (
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    ),
    Refuse.TEMPLATE_OPTIONS: "chat_template is not supported for Mistral tokenizers. (parameter=chat_template)",
    Refuse.PRIORITY: "Got priority 3 but Priority scheduling is not enabled.",
    Refuse.ADJACENT_ROLES: "Conversation roles must alternate user/assistant/user/assistant/...",
}
"""Refusals in vLLM's own words; the others say what they refuse."""


def tool_call(name: str, arguments: str | Mapping[str, Any] = "{}", *, call_id: str = "c1") -> dict[str, Any]:
    """Build one tool call of a reply; arguments that are a string go out as they are, broken JSON too."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


@dataclass(frozen=True)
class Reply:
    """What the server does with one request."""

    content: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] | None = None
    finish_reason: str | None = None
    """None: `tool_calls` where there are some, else `stop`."""
    reasoning: str | None = None
    """Sent under the name newer vLLM uses."""
    reasoning_content: str | None = None
    """Sent under the older name."""
    usage: tuple[int, int] | None = (10, 5)
    """Prompt and completion tokens; None: the reply carries no usage."""
    status: int = 200
    message: str = "refused by script"
    """Text of the error where the status is not 200."""
    delay_s: float = 0.0
    hang: bool = False
    """Never answer; the request ends when the caller hangs up."""
    chunks: Sequence[Mapping[str, Any]] | None = None
    """Deltas of a streamed reply as they are; None: the content in pieces of five characters, then the tool calls."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Merged into the message of a reply that is not streamed."""
    cached: int | None = None
    """Prompt tokens from the prefix cache; None: not told."""
    logprobs: Sequence[Mapping[str, Any]] | None = None
    """Log probabilities of the tokens, one entry each; streamed, one comes with each chunk of content."""
    choices: Sequence[Mapping[str, Any]] | None = None
    """The choices as they are, in place of everything above; not for streams."""
    raw: str | None = None
    """The whole body as it is, in place of JSON."""
    break_off: bool = False
    """End a stream in the middle of its chunks, without a word."""

    @property
    def finish(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    @property
    def message_fields(self) -> dict[str, Any]:
        fields = {
            "tool_calls": self.tool_calls,
            "reasoning": self.reasoning,
            "reasoning_content": self.reasoning_content,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return {"role": "assistant", "content": self.content, **given, **self.extra}


Script = Iterable[Reply | str | Callable[[dict[str, Any]], Reply]]


class FakeOpenAI:
    """A server that runs in a thread of its own while its `with` block lasts."""

    def __init__(
        self,
        script: Script = ("ok",),
        *,
        refuse: Iterable[Refuse] = (),
        max_prompt_chars: int | None = None,
        api_key: str | None = None,
        served: str | None = None,
        max_model_len: int | None = 4096,
    ) -> None:
        """Prepare a server.

        Args:
            script: What it answers, one item a request; the last one serves all further requests.
            refuse: What it refuses beside what every server does.
            max_prompt_chars: Longer prompts are refused. None: any length is taken.
            api_key: The key it demands. None: none.
            served: The name of its one model, listed at `/v1/models`. None: any name is taken, and nothing is listed.
            max_model_len: The context length it lists.
        """
        self._served = served
        self._max_model_len = max_model_len
        self.looked_up = 0
        """How often its models were listed."""
        self._script = [Reply(content=item) if isinstance(item, str) else item for item in script]
        self._refuse = ALWAYS | frozenset(refuse)
        self._max_prompt_chars = max_prompt_chars
        self._api_key = api_key
        self._answered = 0
        self.bodies: list[dict[str, Any]] = []
        """Every request body, refused ones included, in the order they came."""
        self.refusals: list[str] = []
        """The text of every refusal that was no scripted one."""
        self.hung_up = 0
        """Requests whose caller hung up before the reply."""
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
            ]
        )
        config = uvicorn.Config(app, lifespan="off", ws="none", log_level="critical", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                message = "the fake server did not start"
                raise RuntimeError(message)
            time.sleep(_POLL_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=_START_S)
        self._socket.close()

    async def _models(self, request: Request) -> Response:
        self.looked_up += 1
        if self._served is None:
            return self._error(404, "Not Found")
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return self._error(401, "Unauthorized")
        model = {"id": self._served, "object": "model", "created": 1, "owned_by": "vllm", "root": f"org/{self._served}"}
        return JSONResponse({"object": "list", "data": [{**model, "max_model_len": self._max_model_len}]})

    async def _complete(self, request: Request) -> Response:
        body = cast("dict[str, Any]", json.loads(await request.body()))
        self.bodies.append(body)
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return self._error(401, f"Incorrect API key provided: {request.headers.get('authorization')}")
        if self._served not in (None, body.get("model")):
            return self._error(404, f"The model `{body.get('model')}` does not exist.")
        complaint = self._complaint(body)
        if complaint is not None:
            self.refusals.append(complaint)
            return self._error(400, complaint)
        item = self._script[min(self._answered, len(self._script) - 1)]
        self._answered += 1
        reply = item if isinstance(item, Reply) else item(body)
        if not await self._wait(request, reply):
            self.hung_up += 1
            return Response(status_code=499)
        if reply.status != 200:
            return self._error(reply.status, reply.message)
        if reply.raw is not None:
            return Response(reply.raw, media_type="text/html")
        if body.get("stream"):
            return StreamingResponse(_events(body, reply), media_type="text/event-stream")
        return JSONResponse(_completion(body, reply))

    async def _wait(self, request: Request, reply: Reply) -> bool:
        """Let the scripted time pass; False where the caller hung up meanwhile."""
        end = time.monotonic() + reply.delay_s
        while reply.hang or time.monotonic() < end:
            if self._server.should_exit or await request.is_disconnected():
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _complaint(self, body: dict[str, Any]) -> str | None:
        length = sum(len(str(message.get("content") or "")) for message in body["messages"])
        if self._max_prompt_chars is not None and length > self._max_prompt_chars:
            limit = self._max_prompt_chars
            return f"This model's maximum context length is {limit} tokens. However, you requested {length} tokens."
        return next(
            (
                VLLM_WORDS.get(rule, f"not supported: {rule.value}")
                for rule in Refuse
                if rule in self._refuse and _broken(rule, body)
            ),
            None,
        )

    @staticmethod
    def _error(status: int, message: str) -> JSONResponse:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": status}
        return JSONResponse({"error": error}, status_code=status)


def _broken(rule: Refuse, body: dict[str, Any]) -> bool:
    """Whether a request breaks a rule."""
    messages = cast("list[dict[str, Any]]", body["messages"])
    roles = [str(message["role"]) for message in messages]
    match rule:
        case Refuse.SEVERAL_SYSTEM_MESSAGES:
            return roles.count("system") > 1
        case Refuse.SYSTEM_NOT_FIRST:
            return "system" in roles[1:]
        case Refuse.NO_USER_MESSAGE:
            return "user" not in roles
        case Refuse.ADJACENT_ROLES:
            return any(one == two != "tool" for one, two in pairwise(roles))
        case Refuse.NAME:
            return any("name" in message for message in messages)
        case Refuse.DANGLING_TOOL_CALLS:
            return not _calls_paired(messages)
        case _:
            return _FIELD_RULES[rule](body)


_FIELD_RULES: dict[Refuse, Callable[[dict[str, Any]], bool]] = {
    Refuse.JSON_SCHEMA: lambda body: _section(body, "response_format").get("type") == "json_schema",
    Refuse.JSON_OBJECT: lambda body: _section(body, "response_format").get("type") == "json_object",
    Refuse.EMPTY_TOOLS: lambda body: body.get("tools") == [],
    Refuse.TOOL_CHOICE_WITHOUT_TOOLS: lambda body: "tool_choice" in body and "tools" not in body,
    Refuse.TOOLS_WITHOUT_PARSER: lambda body: "tools" in body and body.get("tool_choice", "auto") == "auto",
    Refuse.TEMPLATE_OPTIONS: lambda body: "chat_template_kwargs" in body,
    Refuse.PRIORITY: lambda body: "priority" in body,
    Refuse.STREAM_OPTIONS_WITHOUT_STREAM: lambda body: "stream_options" in body and not body.get("stream"),
}


def _section(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", body.get(name) or {})


def _calls_paired(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every block of tool calls is followed at once by exactly its results."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return False
        waiting = [str(call["id"]) for call in message.get("tool_calls") or ()]
    return not waiting


def _envelope(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": body.get("model", "fake")}


def _usage(reply: Reply) -> dict[str, Any] | None:
    if reply.usage is None:
        return None
    prompt, completion = reply.usage
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return counts if reply.cached is None else {**counts, "prompt_tokens_details": {"cached_tokens": reply.cached}}


def _completion(body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    logprobs = None if reply.logprobs is None else {"content": list(reply.logprobs)}
    choice = {"index": 0, "message": reply.message_fields, "finish_reason": reply.finish, "logprobs": logprobs}
    choices = [choice] if reply.choices is None else list(reply.choices)
    return {**_envelope(body, "chat.completion"), "choices": choices, "usage": _usage(reply)}


def _deltas(reply: Reply) -> list[Mapping[str, Any]]:
    if reply.chunks is not None:
        return list(reply.chunks)
    deltas: list[Mapping[str, Any]] = []
    for name, text in (("reasoning", reply.reasoning), ("reasoning_content", reply.reasoning_content)):
        deltas += [{name: text}] if text else []
    content = reply.content or ""
    deltas += [{"content": content[start : start + 5]} for start in range(0, len(content), 5)]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(reply.tool_calls or ())]
    return deltas


async def _events(body: Mapping[str, Any], reply: Reply) -> AsyncIterator[str]:
    envelope = _envelope(body, "chat.completion.chunk")
    opening: dict[str, Any] = {"role": "assistant", "content": ""}
    ends: list[tuple[Mapping[str, Any], str | None]] = [(opening, None), *((delta, None) for delta in _deltas(reply))]
    ends.append(({}, reply.finish))
    logprobs = iter(reply.logprobs or ())
    for number, (delta, finish) in enumerate(ends):
        if reply.break_off and number == 2:
            raise ConnectionResetError("broken off by script")
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
        if delta.get("content") and (token := next(logprobs, None)):
            choice["logprobs"] = {"content": [token]}
        yield f"data: {json.dumps({**envelope, 'choices': [choice]})}\n\n"
    if _section(body, "stream_options").get("include_usage"):
        yield f"data: {json.dumps({**envelope, 'choices': [], 'usage': _usage(reply)})}\n\n"
    yield "data: [DONE]\n\n"
