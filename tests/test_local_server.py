"""The HTTP front of the local model, over real sockets before a fake inner server, and once on the real model."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import uvicorn
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage, ToolCallRequestEvent
from autogen_core import CancellationToken
from autogen_core.models import UserMessage

from agentloop_autogen.errors import LocalServerError, MissingExtraError, UsageError, WeightsError
from agentloop_autogen.models import LocalModelServer, local_chat_client, resolve_weights
from agentloop_autogen.models.local import server as local_server
from agentloop_autogen.models.local.engine import Engine, EngineOptions, one_line_grammar
from agentloop_autogen.models.local.one_line import can_be_bound
from agentloop_autogen.models.local.server import MODEL_ID

from .fake_upstream import HANG, Upstream

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}},
}
CALLS = '{"tool_calls": [{"name": "clock", "arguments": {"zone": "CET"}}, {"name": "clock", "arguments": {}}]}'
ANSWER = '{"final_answer": "It is noon."}'
TOO_LONG = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "too long", "n_prompt_tokens": 9000}}


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    """Serve a fake inner server on loopback and make the local server use it instead of a model."""
    fake = Upstream()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(fake.app(), loop="asyncio", ws="none", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()

    class FakeEngine:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def __init__(self, options: EngineOptions) -> None:
            assert options.model_id == MODEL_ID

        def close(self) -> None:
            pass

    monkeypatch.setattr(local_server, "Engine", FakeEngine)
    monkeypatch.setattr(local_server, "one_line_grammar", fake.to_grammar)
    yield fake
    server.should_exit = True
    thread.join(5)
    listener.close()


@pytest.fixture
def server(upstream: Upstream) -> Iterator[LocalModelServer]:
    """A running local server before the fake."""
    with LocalModelServer("weights.gguf") as running:
        yield running


def post(server: LocalModelServer, **fields: Any) -> httpx.Response:
    """Send one chat completion request."""
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    return httpx.post(f"{server.base_url}/chat/completions", json=body, timeout=10, trust_env=False)


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The chunks of a streamed reply, which must end properly."""
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


def test_health_and_models_are_answered(server: LocalModelServer, upstream: Upstream) -> None:
    """Health follows the inner server, and the model is listed with its context length."""
    root = server.base_url.removesuffix("/v1")
    assert root.startswith("http://127.0.0.1:")
    assert httpx.get(f"{root}/health").json() == {"status": "ok"}
    model = httpx.get(f"{server.base_url}/models").json()["data"][0]
    assert (model["id"], model["max_model_len"]) == (MODEL_ID, 8192)
    upstream.healthy = False
    assert httpx.get(f"{root}/health").status_code == 503
    assert httpx.get(f"{root}/nothing").json()["error"]["code"] == "not_found"


def test_a_plain_request_passes_with_the_defaults(server: LocalModelServer, upstream: Upstream) -> None:
    """Without tools the fields go through, with temperature 0 and an output cap where the client names none."""
    upstream.replies = ["Hello", "Hello"]
    wanted = {"type": "json_object"}
    reply = post(server, response_format=wanted, seed=3, stream_options={"include_usage": False}).json()
    assert reply["choices"] == [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}
    ]
    assert (reply["object"], reply["usage"]["total_tokens"]) == ("chat.completion", 5)
    asked = upstream.asked[0]
    assert (asked["temperature"], asked["max_tokens"], asked["seed"]) == (0, 1024, 3)
    assert asked["response_format"] == wanted
    assert asked["stream"] is True
    post(server, temperature=0.7, max_completion_tokens=5, model=MODEL_ID)
    assert (upstream.asked[1]["temperature"], upstream.asked[1]["max_tokens"]) == (0.7, 5)


def test_tools_become_tool_calls(server: LocalModelServer, upstream: Upstream) -> None:
    """Parallel calls come back in OpenAI's form, and the inner server sees a schema instead of tools."""
    upstream.replies = [CALLS]
    choice = post(server, tools=[TOOL], tool_choice="auto").json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == ['{"zone": "CET"}', "{}"]
    assert "tools" not in upstream.asked[0]
    assert upstream.asked[0]["response_format"]["type"] == "json_schema"


def test_a_plain_stream_is_relayed(server: LocalModelServer, upstream: Upstream) -> None:
    """Without tools the inner server's chunks pass as they are, usage included."""
    upstream.replies = ["Hello there"]
    chunks = chunks_of(post(server, stream=True, stream_options={"include_usage": True}).text)
    texts = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]]
    assert "".join(texts) == "Hello there"
    assert chunks[-1]["usage"]["total_tokens"] == 5


def test_a_stream_with_tools_gives_text_or_calls(server: LocalModelServer, upstream: Upstream) -> None:
    """An answer is streamed in pieces without its envelope, calls come as one chunk each."""
    upstream.replies = [ANSWER, CALLS]
    chunks = chunks_of(post(server, tools=[TOOL], stream=True).text)
    texts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
    assert len([text for text in texts if text]) > 1
    assert "".join(text for text in texts if text) == "It is noon."
    chunks = chunks_of(post(server, tools=[TOOL], stream=True).text)
    deltas = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    calls = [call for delta in deltas for call in delta["delta"].get("tool_calls", [])]
    assert [(call["index"], call["function"]["name"]) for call in calls] == [(0, "clock"), (1, "clock")]
    assert deltas[-1]["finish_reason"] == "tool_calls"
    assert not any(delta["delta"].get("content") for delta in deltas)
    assert chunks[-1]["usage"]["total_tokens"] == 5


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"tools": []}, 400, "invalid_tools"),
    ({"tool_choice": "auto"}, 400, "invalid_tool_choice"),
    ({"tools": [TOOL], "tool_choice": "perhaps"}, 400, "invalid_request"),
    ({"tools": [{}]}, 400, "invalid_request"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, 400, "invalid_request"),
    ({"messages": []}, 400, "invalid_request"),
    ({"model": "gpt-4o"}, 404, "model_not_found"),
    ({"n": 2}, 400, "invalid_value"),
]


@pytest.mark.parametrize(("fields", "status", "code"), WRONG)
def test_wrong_requests_are_refused_the_way_openai_does(
    server: LocalModelServer, upstream: Upstream, fields: dict[str, Any], status: int, code: str
) -> None:
    """Each mistake has its status and code, and never reaches the model."""
    reply = post(server, **fields)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    assert error["message"]
    assert not upstream.asked


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(server: LocalModelServer, content: bytes) -> None:
    """Anything but a JSON object is an invalid request."""
    reply = httpx.post(f"{server.base_url}/chat/completions", content=content)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_says_by_how_much(server: LocalModelServer, upstream: Upstream, stream: bool) -> None:
    """The inner server's refusal becomes OpenAI's own code, without trying a looser format."""
    upstream.replies = [(400, TOO_LONG)]
    reply = post(server, tools=[TOOL], stream=stream)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "8192" in error["message"]
    assert "9000" in error["message"]


def test_a_grammar_that_is_refused_is_stepped_over(server: LocalModelServer, upstream: Upstream) -> None:
    """When the inner server cannot build a grammar, looser formats are tried before giving up."""
    refusal = (400, {"error": {"message": "failed to parse grammar", "type": "invalid_request_error"}})
    upstream.replies = [refusal, refusal, CALLS, refusal, refusal, refusal]
    assert post(server, tools=[TOOL]).json()["choices"][0]["finish_reason"] == "tool_calls"
    formats = [asked.get("response_format", {}).get("type") for asked in upstream.asked]
    assert formats == ["json_schema", "json_object", None]
    reply = post(server, tools=[TOOL])
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, "failed to parse grammar")


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
def test_json_is_asked_for_on_one_line(server: LocalModelServer, upstream: Upstream, kind: str) -> None:
    """Where the inner server takes grammars, JSON is bound by one, which alone can forbid line breaks."""
    schema: dict[str, Any] = {"type": "object"}
    upstream.grammar = lambda found: f"one line of {json.dumps(found)}"
    wanted = {
        "json_schema": {"type": kind, "json_schema": {"name": "x", "schema": schema}},
        "json_object": {"type": kind},
    }
    upstream.replies = ["{}"]
    assert post(server, response_format=wanted[kind]).is_success
    assert upstream.asked[0]["grammar"] == 'one line of {"type": "object"}'
    assert "response_format" not in upstream.asked[0]


def test_a_failing_model_is_a_server_error(server: LocalModelServer, upstream: Upstream) -> None:
    """A failure inside the model is not the client's fault."""
    upstream.replies = [(500, {"error": {"message": "no memory"}})]
    reply = post(server)
    assert (reply.status_code, reply.json()["error"]["type"]) == (500, "server_error")


def test_a_model_that_went_away_is_a_bad_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing behind the front, health says so and requests fail in words."""

    class Nothing:
        url = "http://127.0.0.1:9"

        def __init__(self, options: EngineOptions) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(local_server, "Engine", Nothing)
    with LocalModelServer("weights.gguf") as server:
        assert httpx.get(f"{server.base_url.removesuffix('/v1')}/health").status_code == 503
        reply = post(server)
        assert (reply.status_code, reply.json()["error"]["code"]) == (502, "model_gone")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [None, [TOOL]])
async def test_hanging_up_stops_the_model(
    server: LocalModelServer, upstream: Upstream, stream: bool, tools: list[Any] | None
) -> None:
    """When the client goes away, streaming or not, the connection to the inner server is closed at once."""
    upstream.replies = [HANG]
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream, "tools": tools}
    with pytest.raises(httpx.ReadTimeout):
        async with httpx.AsyncClient(timeout=0.5) as client:
            await client.post(f"{server.base_url}/chat/completions", json=body)
    assert await asyncio.to_thread(upstream.gone.wait, 3)


async def test_cancelling_an_autogen_call_stops_the_model(server: LocalModelServer, upstream: Upstream) -> None:
    """AutoGen's cancellation token reaches the model through the front."""
    upstream.replies = [HANG]
    client = local_chat_client(server)
    token = CancellationToken()
    asking = asyncio.ensure_future(client.create([UserMessage(content="Hi", source="u")], cancellation_token=token))
    assert await asyncio.to_thread(upstream.reached.wait, 3)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await asyncio.to_thread(upstream.gone.wait, 3)
    await client.close()


async def clock(zone: str = "UTC") -> str:
    """The time in a zone."""
    return f"noon in {zone}"


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_plain_agent_works_on_the_front(server: LocalModelServer, upstream: Upstream, streaming: bool) -> None:
    """AutoGen's own agent and client call tools in parallel and answer, streaming or not, and count tokens."""
    upstream.replies = [CALLS, ANSWER]
    client = local_chat_client(server)
    agent = AssistantAgent("helper", client, tools=[clock], max_tool_iterations=3, model_client_stream=streaming)
    messages = [message async for message in agent.run_stream(task="What time is it?")]
    texts = [message for message in messages if isinstance(message, TextMessage)]
    assert texts[-1].content == "It is noon."
    assert any(isinstance(message, ModelClientStreamingChunkEvent) for message in messages) is streaming
    assert "noon in CET" in upstream.asked[1]["messages"][-1]["content"]
    usage = texts[-1].models_usage
    assert usage is not None
    assert usage.completion_tokens > 0
    await client.close()


async def test_it_starts_and_stops_again(upstream: Upstream) -> None:
    """A server can be started twice, has an address only while it runs, and stops without an error when idle."""
    server = LocalModelServer("weights.gguf")
    server.stop()
    async with server:
        assert server.running
        port = server.port
        assert server.start().port == port
    assert not server.running
    with pytest.raises(LocalServerError, match="not running"):
        _ = server.base_url
    with server:
        server_thread = threading.Thread(target=server.wait)
        server_thread.start()
    server_thread.join(3)
    assert not server_thread.is_alive()


def test_stopping_cuts_off_a_running_request(upstream: Upstream) -> None:
    """A request in flight does not keep the server from stopping soon."""
    upstream.replies = [HANG]
    server = LocalModelServer("weights.gguf").start()
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(post(server).status_code)
        except httpx.HTTPError as error:
            outcome.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert upstream.reached.wait(3)
    began = time.monotonic()
    server.stop()
    asking.join(5)
    assert time.monotonic() - began < 5
    assert outcome
    assert outcome != [200]


def test_a_taken_port_is_named(upstream: Upstream) -> None:
    """A port that is in use is an error that says which and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LocalServerError, match=f"port {port}"):
            LocalModelServer("weights.gguf", port=port).start()


@pytest.mark.parametrize(
    "options", [{"port": -1}, {"port": 70000}, {"context_length": 0}, {"parallel": 0}, {"threads": 0}]
)
def test_numbers_out_of_range_are_refused(options: dict[str, int]) -> None:
    """Wrong numbers are noticed before anything starts."""
    with pytest.raises(UsageError):
        LocalModelServer("weights.gguf", **cast("dict[str, Any]", options))


@pytest.mark.parametrize("module", ["uvicorn", "xllamacpp", "starlette"])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str, tmp_path: Path) -> None:
    """Without one of the optional packages the error names the extra that brings it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"agentloop-autogen\[local\]"):
        LocalModelServer(tmp_path / "weights.gguf").start()


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A weights file that is not there is an error before llama.cpp sees it."""
    monkeypatch.setitem(sys.modules, "xllamacpp", cast("Any", object()))
    options = EngineOptions(
        weights=tmp_path / "nothing.gguf", model_id=MODEL_ID, context_length=64, parallel=1, threads=None
    )
    with pytest.raises(WeightsError, match="no weights file"):
        Engine(options)


def test_importing_the_package_loads_no_server() -> None:
    """Importing the models package brings in neither the server's libraries nor the OpenAI client."""
    heavy = ("xllamacpp", "starlette", "uvicorn", "httpx", "openai", "huggingface_hub")
    code = f"import sys, agentloop_autogen.models; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - fixed code
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("schema", "bound"),
    [
        (
            {"type": "object", "properties": {"pattern": {"type": "string", "maxLength": 9}}, "required": ["pattern"]},
            True,
        ),
        ({"$defs": {"S": {"enum": ["a"]}}, "type": "array", "items": {"$ref": "#/$defs/S"}, "maxItems": 3}, True),
        ({"anyOf": [{"const": {"not": 1}}, {"type": "null"}]}, True),
        ({"type": "object", "properties": {"n": {"type": "string", "pattern": "(?<=a)b"}}}, False),
        ({"anyOf": [{"type": "string"}, {"not": {"type": "null"}}]}, False),
        ({"$defs": {"S": {"oneOf": []}}}, False),
        ({"properties": []}, False),
    ],
)
def test_only_schemas_that_are_surely_followed_become_one_line_grammars(schema: dict[str, Any], bound: bool) -> None:
    """A keyword the grammar might drop in silence leaves the schema to the server; a property of that name does not."""
    assert can_be_bound(schema) is bound


def test_a_build_without_such_grammars_leaves_schemas_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binding that writes another kind of grammar, or fails, is left to convert schemas by itself."""

    class Other:
        def json_schema_to_grammar(self, schema: object) -> str:
            return 'root ::= "{" "}"'

    for binding in (Other(), object()):
        monkeypatch.setitem(sys.modules, "xllamacpp", cast("Any", binding))
        assert one_line_grammar({"type": "object"}) is None


@pytest.mark.local_model
@pytest.mark.timeout(600)
def test_the_real_model_writes_json_on_one_line_and_drops_no_schema() -> None:
    """JSON comes without line breaks by either format, and a schema that no one-line grammar follows still binds."""
    numbers = {
        "type": "object",
        "properties": {"n": {"type": "array", "items": {"type": "integer"}}},
        "required": ["n"],
    }
    odd = {"type": "object", "properties": {"n": {"type": "string", "pattern": "(?<=a)b"}}, "required": ["n"]}
    with LocalModelServer(os.environ.get("AGENTLOOP_WEIGHTS") or resolve_weights(), context_length=4096) as server:

        def ask(wanted: dict[str, Any]) -> httpx.Response:
            said = [{"role": "user", "content": 'Give the numbers 1, 2 and 3 as indented JSON, under the key "n".'}]
            body = {"messages": said, "response_format": wanted, "max_tokens": 100}
            return httpx.post(f"{server.base_url}/chat/completions", json=body, timeout=300, trust_env=False)

        def by_schema(schema: dict[str, Any]) -> dict[str, Any]:
            return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

        for wanted in (by_schema(numbers), {"type": "json_object"}):
            text = ask(wanted).json()["choices"][0]["message"]["content"]
            assert json.loads(text)["n"] == [1, 2, 3]
            assert "\n" not in text
        assert isinstance(json.loads(ask(by_schema(odd)).json()["choices"][0]["message"]["content"])["n"], str)


@pytest.mark.local_model
@pytest.mark.timeout(600)
async def test_the_real_model_calls_tools_in_parallel() -> None:
    """The real model, asked by AutoGen's own client, calls a tool for two cities at once and then answers."""

    async def get_weather(city: str) -> str:
        """Current weather of a city."""
        return {"Paris": "18 °C and rain", "Berlin": "12 °C and clear sky"}.get(city, "unknown city")

    weights = os.environ.get("AGENTLOOP_WEIGHTS") or resolve_weights()
    async with LocalModelServer(weights, context_length=4096) as server:
        client = local_chat_client(server)
        agent = AssistantAgent(
            "helper",
            client,
            tools=[get_weather],
            max_tool_iterations=3,
            system_message="You are a helpful assistant. Use the tools.",
        )
        done = await agent.run(task="What is the weather in Paris and in Berlin?")
        await client.close()
    requests = [message for message in done.messages if isinstance(message, ToolCallRequestEvent)]
    cities = [json.loads(call.arguments)["city"] for call in requests[0].content]
    assert sorted(cities) == ["Berlin", "Paris"]
    final = done.messages[-1]
    assert isinstance(final, TextMessage)
    assert "18" in final.content
    assert "12" in final.content
