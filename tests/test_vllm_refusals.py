"""What the vLLM client raises when a server refuses or is not there: one type each, naming what mends it."""

from __future__ import annotations

import asyncio
import pickle
import socket
from typing import Any

import pytest
from autogen_core.models import LLMMessage, UserMessage
from openai import BadRequestError, InternalServerError

from agentloop_autogen.agent import AgentLoopAssistantAgent
from agentloop_autogen.core.records import StopReason
from agentloop_autogen.errors import (
    ContextTooLongError,
    ModelServerError,
    ServerUnreachableError,
    ToolParserMissingError,
    UnknownModelError,
)
from agentloop_autogen.models.vllm import VLLMChatCompletionClient
from agentloop_autogen.testing import ScriptedVerifier

from .fake_openai import FakeOpenAI, Refuse, Reply
from .test_vllm_client import ASK, TOOL, ask, both_ways, client_of, count

REFUSALS = [
    (
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        400,
        ToolParserMissingError,
        "--enable-auto-tool-choice --tool-call-parser",
    ),
    ('tool_choice="required" requires --tool-call-parser to be set', 400, ToolParserMissingError, 'tool_mode="guided"'),
    (
        "This model's maximum context length is 8192 tokens. However, your prompt contains 9000 input tokens.",
        400,
        ContextTooLongError,
        "--max-model-len",
    ),
    (
        "Input length (9000) exceeds model's maximum context length (8192).",
        400,
        ContextTooLongError,
        "shorten the messages",
    ),
    ("max_tokens=9000 cannot be greater than max_model_len=8192.", 400, ContextTooLongError, "lower max_tokens"),
    ("The decoder prompt (length 9) is longer than the maximum model length of 8", 422, ContextTooLongError, "shorten"),
    ("The model `m` does not exist.", 404, UnknownModelError, "--served-model-name m"),
    ("Not Found", 404, ModelServerError, "ends in /v1"),
    ("upstream", 503, ServerUnreachableError, "/health"),
    ("Conversation roles must alternate user/assistant", 400, ModelServerError, "alternate_roles=True"),
    ("Got priority 3 but Priority scheduling is not enabled.", 400, ModelServerError, "--scheduling-policy priority"),
    (
        "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template",
        400,
        ModelServerError,
        "--chat-template FILE",
    ),
    ("At most 0 image(s) may be provided in one prompt.", 400, ModelServerError, "--limit-mm-per-prompt"),
    ("Requested sample logprobs of 30, which is greater than max allowed: 20", 400, ModelServerError, "--max-logprobs"),
]


@both_ways
@pytest.mark.parametrize(("message", "status", "kind", "mend"), REFUSALS, ids=[row[0][:40] for row in REFUSALS])
async def test_each_refusal_has_its_type_and_its_mend(
    message: str, status: int, kind: type[ModelServerError], mend: str, stream: bool
) -> None:
    """A refusal in vLLM's words becomes one error, on one line, that names the flag or setting that mends it."""
    with FakeOpenAI([Reply(status=status, message=message)]) as server:
        async with client_of(server) as client:
            with pytest.raises(ModelServerError) as caught:
                await ask(client, stream=stream, tools=[TOOL])
    assert type(caught.value) is kind
    assert mend in caught.value.setting
    assert mend in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.status_code == status
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(400, BadRequestError), (500, InternalServerError)], ids=["refused", "failed"]
)
async def test_what_is_not_known_is_raised_as_it_is(status: int, kind: type[Exception]) -> None:
    """A failure of another kind keeps its own type and message."""
    with FakeOpenAI([Reply(status=status, message="something else")]) as server:
        async with client_of(server) as client:
            with pytest.raises(kind, match="something else"):
                await client.create(ASK)


@pytest.mark.parametrize("row", [0, 2, 6, 8], ids=["parser", "context", "model", "not ready"])
async def test_a_known_refusal_is_not_taken_for_one_of_the_format(row: int) -> None:
    """With an output format, too, a refusal that has another reason is raised at once and not remembered."""
    message, status, kind, _ = REFUSALS[row]
    with FakeOpenAI([Reply(status=status, message=message), "{}"]) as server:
        async with client_of(server) as client:
            with pytest.raises(kind):
                await client.create(ASK, json_output=True)
            await client.create(ASK, json_output=True)
    assert [body["response_format"]["type"] for body in server.bodies] == ["json_object", "json_object"]


async def test_the_first_refusal_is_told_when_nothing_helps() -> None:
    """A server that refuses every format and even none is quoted with its first words."""
    replies = [Reply(status=400, message=f"schema refused {number}") for number in (1, 2, 3)]
    with FakeOpenAI(replies) as server:
        async with client_of(server, tool_mode="guided") as client:
            with pytest.raises(BadRequestError, match="refused 1"):
                await client.create(ASK, tools=[TOOL])
    assert len(server.bodies) == 3


async def test_an_unknown_model_names_those_there_are() -> None:
    """The error lists the models the server has."""
    with FakeOpenAI(served="qwen3") as server:
        async with client_of(server) as client:
            with pytest.raises(UnknownModelError, match="it has qwen3"):
                await client.create(ASK)


async def test_refused_template_options_are_left_out_and_remembered() -> None:
    """A server whose tokenizer takes no template options is asked without them, once and for all."""
    options = {"chat_template_kwargs": {"enable_thinking": False}}
    with FakeOpenAI(["{}"], refuse=[Refuse.TEMPLATE_OPTIONS]) as server:
        async with client_of(server) as client:
            for _ in range(2):
                await client.create(ASK, json_output=True, extra_create_args=options)
    sent = [("chat_template_kwargs" in body, body["response_format"]["type"]) for body in server.bodies]
    assert sent == [(True, "json_object"), (False, "json_object"), (False, "json_object")]


@both_ways
@pytest.mark.parametrize("raw", ["<html>welcome</html>", ""])
async def test_a_server_that_is_no_model_server_is_named(stream: bool, raw: str) -> None:
    """A page in place of a chat completion is an error about base_url, or an empty reply, never a crash."""
    with FakeOpenAI([Reply(raw=raw)]) as server:
        async with client_of(server) as client:
            answered = (await asyncio.gather(ask(client, stream=stream), return_exceptions=True))[0]
    if isinstance(answered, BaseException):
        assert isinstance(answered, ModelServerError)
        assert "base_url" in answered.setting
    else:
        assert answered[1].content == ""


async def test_a_server_that_goes_away_during_a_reply_is_told() -> None:
    """A stream that breaks off raises, after what had come was shown."""
    with FakeOpenAI([Reply(content="a long answer", break_off=True)]) as server:
        async with client_of(server) as client:
            stream = client.create_stream(ASK)
            assert await anext(stream) == "a lon"
            with pytest.raises(ServerUnreachableError, match="went away"):
                await anext(stream)


@both_ways
async def test_a_server_that_is_too_slow_is_told(stream: bool) -> None:
    """A request that takes longer than the client's timeout raises and hangs up."""
    with FakeOpenAI([Reply(hang=True)]) as server:
        async with client_of(server, timeout=0.3) as client:
            with pytest.raises(ServerUnreachableError, match="in time"):
                await ask(client, stream=stream)


async def test_a_silent_server_delays_the_look_up_for_two_seconds_at_most() -> None:
    """A port that takes connections and says nothing does not hold up the question for the context length."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = VLLMChatCompletionClient("m", f"http://127.0.0.1:{silent.getsockname()[1]}/v1", max_retries=0)
        length = await asyncio.wait_for(asyncio.to_thread(lambda: client.context_length), 4)
    assert length is None
    await client.close()


def test_errors_survive_pickling() -> None:
    """An error that crosses a process boundary keeps its words and its parts."""
    error = UnknownModelError("no such model", setting="name another", status_code=404)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), str(copy)) == (UnknownModelError, "no such model: name another")
    assert (copy.setting, copy.status_code) == ("name another", 404)


@pytest.mark.parametrize(
    ("refuse", "options", "told"),
    [
        ([Refuse.TOOLS_WITHOUT_PARSER], {}, "--tool-call-parser"),
        ([Refuse.ADJACENT_ROLES], {}, None),
        ([Refuse.PRIORITY], {"priority": 3}, "--scheduling-policy priority"),
    ],
)
async def test_an_agent_passes_the_mend_on(refuse: list[Refuse], options: dict[str, Any], told: str | None) -> None:
    """A run that ends because the server lacks a flag says so in its reply, and is not taken for lack of progress."""
    with FakeOpenAI(["There are 37."], refuse=refuse) as server:
        async with client_of(server, **options) as client:
            agent = AgentLoopAssistantAgent(
                "bot", client, tools=[count], verifier=ScriptedVerifier([RuntimeError("x")])
            )
            result = await agent.run(task="How many lamps?")
    text = str(getattr(result.messages[-1], "content", ""))
    assert agent.last_outcome is not None
    if told is None:
        assert "37" in text
    else:
        assert agent.last_outcome.stop_reason is StopReason.FAILED
        assert told in text


async def test_too_long_a_prompt_is_shortened_by_the_verifier_alone() -> None:
    """The error says what is too long in words the verifier understands, so that it shortens its prompt."""
    from agentloop_autogen import Evidence, ModelSlotVerifier

    verdict = '{"slots": [], "need_tool": false, "answer_complete": true, "confidence": 0.9, "failure": "ok"}'
    with FakeOpenAI([verdict], max_prompt_chars=9_000) as server:
        async with client_of(server) as client:
            evidence = [Evidence(id="e1", tool="count", is_error=False, finding="lamps, " * 1500)]
            got = await ModelSlotVerifier(client).verify("How many?", "37", evidence)
    assert got.answer_complete
    assert len(server.refusals) == 1
    assert [body["response_format"]["type"] for body in server.bodies] == ["json_schema", "json_schema"]


async def test_a_verifier_call_asks_for_no_thinking() -> None:
    """The verifier's calls, and only they, switch thinking off; the user's own arguments win over that."""
    from agentloop_autogen import ModelSlotVerifier

    verdict = '{"slots": [], "need_tool": false, "answer_complete": true, "confidence": 0.9, "failure": "ok"}'
    given = {"temperature": 0, "chat_template_kwargs": {"enable_thinking": True}}
    with FakeOpenAI([verdict]) as server:
        async with client_of(server) as client:
            await ModelSlotVerifier(client).verify("How many?", "37", [])
            await ModelSlotVerifier(client, extra_create_args=given).verify("How many?", "37", [])
            messages: list[LLMMessage] = [UserMessage(content="Hi", source="user")]
            await client.create(messages)
    first, second, plain = server.bodies
    assert first["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert second["chat_template_kwargs"] == {"enable_thinking": True, "thinking": False}
    assert second["temperature"] == 0
    assert "chat_template_kwargs" not in plain
