"""The vLLM client on a strict server: what it sends, what it reads, and what it remembers."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from autogen_core import EVENT_LOGGER_NAME, CancellationToken, ComponentModel, FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from PIL import Image as Pictures
from pydantic import BaseModel, ValidationError

from agentloop_autogen import VLLMChatCompletionClient
from agentloop_autogen.errors import ServerUnreachableError, UsageError
from agentloop_autogen.models.vllm import VLLMRequestUsage

from .fake_openai import FakeOpenAI, Refuse, Reply, tool_call

ASK: list[LLMMessage] = [UserMessage(content="How many lamps?", source="user")]
SECRET = "s3cret-key-of-this-server"  # noqa: S105 - a made-up key


def count(what: str) -> str:
    """Count things in the warehouse."""
    return f"37 {what}"


TOOL = FunctionTool(count, description="Count things in the warehouse.")
CALL = tool_call("count", {"what": "lamps"})


class Lamps(BaseModel):
    """A structured answer."""

    number: int


@asynccontextmanager
async def client_of(server: FakeOpenAI, **options: Any) -> AsyncGenerator[VLLMChatCompletionClient]:
    """Open a client of a fake server that does not repeat failed requests."""
    settings: dict[str, Any] = {"max_retries": 0, **options}
    client = VLLMChatCompletionClient("m", server.base_url, **settings)
    try:
        yield client
    finally:
        await client.close()


async def ask(client: ChatCompletionClient, *, stream: bool, **options: Any) -> tuple[list[str], CreateResult]:
    """Ask once, streamed or not, and return the pieces shown and the result."""
    messages = options.pop("messages", ASK)
    if not stream:
        return [], await client.create(messages, **options)
    pieces = [piece async for piece in client.create_stream(messages, **options)]
    result = pieces.pop()
    assert isinstance(result, CreateResult)
    return [str(piece) for piece in pieces], result


both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both_ways
async def test_text_and_tokens_are_read(stream: bool) -> None:
    """A text reply comes back with its tokens, also when streamed, and with the prompt tokens that were cached."""
    with FakeOpenAI([Reply(content="There are 37.", usage=(10, 5), cached=8)]) as server:
        async with client_of(server) as client:
            pieces, result = await ask(client, stream=stream)
            assert (result.content, result.finish_reason, result.thought) == ("There are 37.", "stop", None)
            assert "".join(pieces) == (result.content if stream else "")
            assert result.usage == RequestUsage(10, 5)
            assert isinstance(result.usage, VLLMRequestUsage)
            assert result.usage.cached_prompt_tokens == client.cached_prompt_tokens == 8
            assert client.total_usage() == client.actual_usage() == RequestUsage(10, 5)
    (body,) = server.bodies
    assert body.get("stream_options") == ({"include_usage": True} if stream else None)
    assert not {"tools", "tool_choice", "response_format"} & body.keys()


@both_ways
async def test_a_server_that_counts_nothing_is_no_fault(stream: bool) -> None:
    """Without counts the tokens are 0 and the cached ones unknown."""
    with FakeOpenAI([Reply(content="ok", usage=None)]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream)
    assert result.usage == VLLMRequestUsage(0, 0, None)


@both_ways
async def test_native_calls_are_read(stream: bool) -> None:
    """Calls come back with id, name and arguments; the tools and the choice go out as OpenAI has them."""
    with FakeOpenAI([Reply(tool_calls=[CALL])]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream, tools=[TOOL])
    assert result.content == [FunctionCall(id="c1", name="count", arguments='{"what": "lamps"}')]
    assert result.finish_reason == "function_calls"
    (body,) = server.bodies
    assert body["tool_choice"] == "auto"
    assert body["tools"][0]["function"]["name"] == "count"
    assert body["tools"][0]["function"]["parameters"]["required"] == ["what"]


@both_ways
async def test_guided_calls_are_read(stream: bool) -> None:
    """In guided mode no tools go out: the reply is held to a schema, and its JSON comes back as calls."""
    reply = Reply(
        content='{"tool_calls": [{"name": "count", "arguments": {"what": "lamps"}}]}', reasoning="Let me see."
    )
    with FakeOpenAI([reply]) as server:
        async with client_of(server, tool_mode="guided") as client:
            pieces, result = await ask(client, stream=stream, tools=[TOOL])
    assert isinstance(result.content, list)
    assert (result.content[0].name, json.loads(result.content[0].arguments)) == ("count", {"what": "lamps"})
    assert (result.finish_reason, result.thought) == ("function_calls", "Let me see.")
    assert "".join(pieces) == ("<think>Let me see.</think>" if stream else "")
    (body,) = server.bodies
    assert not {"tools", "tool_choice"} & body.keys()
    assert body["response_format"]["type"] == "json_schema"
    assert body["messages"][0]["role"] == "system"
    assert "count" in body["messages"][0]["content"]


@both_ways
async def test_a_guided_answer_loses_its_envelope(stream: bool) -> None:
    """The text of a guided answer is shown as it comes, without the JSON around it."""
    with FakeOpenAI([Reply(content='{"final_answer": "There are 37."}')]) as server:
        async with client_of(server, tool_mode="guided") as client:
            pieces, result = await ask(client, stream=stream, tools=[TOOL])
    assert result.content == "There are 37."
    assert "".join(pieces) == (result.content if stream else "")


async def test_guided_history_goes_back_as_text() -> None:
    """Without tools, a history of calls is still translated, and no schema of tools is sent."""
    history: list[LLMMessage] = [
        *ASK,
        AssistantMessage(content=[FunctionCall(id="1", name="count", arguments="{}")], source="bot"),
        FunctionExecutionResultMessage(content=[FunctionExecutionResult(call_id="1", name="count", content="37")]),
    ]
    with FakeOpenAI([Reply(content='{"number": 37}')]) as server:
        async with client_of(server, tool_mode="guided") as client:
            await client.create(history, json_output=Lamps)
    (body,) = server.bodies
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["response_format"]["json_schema"]["name"] == "Lamps"


@both_ways
async def test_calls_and_json_together_are_guided(stream: bool) -> None:
    """Tools beside an output format go the guided way, because on the server the format would forbid every call."""
    with FakeOpenAI([Reply(content='{"final_answer": {"number": 37}}')]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream, tools=[TOOL], json_output=Lamps)
    assert json.loads(str(result.content)) == {"number": 37}
    assert "tools" not in server.bodies[0]


@both_ways
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_reasoning_is_read_under_both_names(stream: bool, name: str) -> None:
    """Reasoning becomes the thought, whichever name the server gives it, and is shown between think tags."""
    thought: dict[str, Any] = {name: "think hint kit"}
    with FakeOpenAI([Reply(content="37", **thought)]) as server:
        async with client_of(server) as client:
            pieces, result = await ask(client, stream=stream)
    assert (result.content, result.thought) == ("37", "think hint kit")
    assert "".join(pieces) == ("<think>think hint kit</think>37" if stream else "")


@both_ways
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_reasoning_beside_calls_goes_back_where_it_came_from(stream: bool, name: str) -> None:
    """The thought of a calling reply is kept, and the next request carries it as reasoning, not as content."""
    thought: dict[str, Any] = {name: "I must count."}
    with FakeOpenAI([Reply(tool_calls=[CALL], **thought), "37"]) as server:
        async with client_of(server) as client:
            _, first = await ask(client, stream=stream, tools=[TOOL])
            assert first.thought == "I must count."
            assert isinstance(first.content, list)
            done = FunctionExecutionResult(call_id="c1", name="count", content="37 lamps")
            history: list[LLMMessage] = [
                *ASK,
                AssistantMessage(content=first.content, thought=first.thought, source="bot"),
                FunctionExecutionResultMessage(content=[done]),
            ]
            await client.create(history, tools=[TOOL])
    assistant = server.bodies[1]["messages"][1]
    assert (assistant[name], assistant["content"]) == ("I must count.", None)


@both_ways
async def test_text_beside_calls_is_the_thought(stream: bool) -> None:
    """Text in the same chunk as a call loses neither: the text is the thought and goes back as content."""
    chunk = {"content": "I will count.", "tool_calls": [{"index": 0, **CALL}]}
    reply = Reply(content="I will count.", tool_calls=[CALL], chunks=[chunk])
    with FakeOpenAI([reply, "37"]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream, tools=[TOOL])
            assert (result.thought, len(result.content)) == ("I will count.", 1)
            assert isinstance(result.content, list)
            said = AssistantMessage(content=result.content, thought=result.thought, source="bot")
            done = FunctionExecutionResult(call_id="c1", name="count", content="37")
            await client.create([*ASK, said, FunctionExecutionResultMessage(content=[done])])
    assert server.bodies[1]["messages"][1]["content"] == "I will count."


@both_ways
@pytest.mark.parametrize("text", ["<think>TERMINATE</think>37", "thinking TERMINATE</think>37"])
async def test_thinking_in_the_text_becomes_the_thought(stream: bool, text: str) -> None:
    """Without a reasoning parser the thinking stands in the content; it is no part of the answer, whatever it says."""
    with FakeOpenAI([text]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream)
    assert result.content == "37"
    assert "TERMINATE" in str(result.thought)


async def test_json_keeps_its_think_tags() -> None:
    """A think tag quoted in JSON that was asked for is data."""
    quoted = '{"number": 37, "quote": "a</think>b"}'
    with FakeOpenAI([quoted]) as server:
        async with client_of(server) as client:
            result = await client.create(ASK, json_output=True)
    assert result.content == quoted


ODD_CHUNKS: list[tuple[list[Mapping[str, Any]], list[FunctionCall]]] = [
    (
        [
            {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "count", "arguments": '{"what":'}}]},
            {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "count", "arguments": ' "lamps"}'}}]},
        ],
        [FunctionCall(id="c1", name="count", arguments='{"what": "lamps"}')],
    ),
    (
        [
            {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "two words", "arguments": {"a": 1}}}]},
            {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "count", "arguments": None}}]},
        ],
        [
            FunctionCall(id="c1", name="count", arguments=""),
            FunctionCall(id="c2", name="two_words", arguments='{"a": 1}'),
        ],
    ),
    ([{"tool_calls": [{"id": "c1", "function": {}}]}], [FunctionCall(id="c1", name="", arguments="")]),
]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    ODD_CHUNKS,
    ids=["repeated id and name", "out of order, odd name, object", "nothing but an id"],
)
async def test_odd_chunks_of_calls_are_put_together(
    chunks: list[Mapping[str, Any]], expected: list[FunctionCall]
) -> None:
    """Repeated ids and names, missing fields and objects in place of text do not garble a call."""
    with FakeOpenAI([Reply(chunks=chunks, finish_reason="tool_calls")]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=True, tools=[TOOL])
    assert result.content == expected


@both_ways
@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
async def test_an_empty_list_of_calls_is_text(stream: bool, finish: str) -> None:
    """`tool_calls: []` is a text reply, whatever the finish reason says."""
    with FakeOpenAI([Reply(content="37", tool_calls=[], finish_reason=finish)]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream, tools=[TOOL])
    assert (result.content, result.finish_reason) == ("37", "stop")


@both_ways
async def test_a_truncated_call_says_so(stream: bool) -> None:
    """A call that was cut off keeps the finish reason `length`."""
    cut = tool_call("count", '{"what": "la')
    with FakeOpenAI([Reply(tool_calls=[cut], finish_reason="length")]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream, tools=[TOOL])
    assert (result.finish_reason, len(result.content)) == ("length", 1)


@pytest.mark.parametrize("choices", [[], [{"index": 0, "message": None, "finish_reason": None}], None])
async def test_a_reply_without_a_choice_is_empty(choices: list[Mapping[str, Any]] | None) -> None:
    """No choice, or one without a message, is an empty reply and no crash."""
    with FakeOpenAI([Reply(content=None, choices=choices)]) as server:
        async with client_of(server) as client:
            result = await client.create(ASK)
    assert result.content == ""


@both_ways
async def test_calls_that_were_not_allowed_are_dropped(stream: bool) -> None:
    """A parser that finds calls in a reply to a request without tools yields no call."""
    with FakeOpenAI([Reply(content="37", tool_calls=[CALL])]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream)
    assert (result.content, result.finish_reason) == ("37", "stop")


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("required", "required"), ("none", "none"), (TOOL, {"type": "function", "function": {"name": "count"}})],
)
async def test_the_tool_choice_is_sent_with_tools_only(choice: Any, sent: object) -> None:
    """A choice goes out beside tools, and neither without them: not `tools: []`, not a lone choice."""
    refuse = [Refuse.EMPTY_TOOLS, Refuse.TOOL_CHOICE_WITHOUT_TOOLS]
    with FakeOpenAI(["37"], refuse=refuse) as server:
        async with client_of(server) as client:
            await client.create(ASK, tools=[TOOL], tool_choice=choice)
            await client.create(ASK, tools=[], tool_choice="none" if choice is TOOL else choice)
    assert server.bodies[0]["tool_choice"] == sent
    assert not {"tools", "tool_choice"} & server.bodies[1].keys()
    assert server.refusals == []


@pytest.mark.parametrize("tools", [[], [TOOL]])
async def test_a_choice_of_an_unknown_tool_is_refused_at_once(tools: list[FunctionTool]) -> None:
    """Naming a tool that is not on offer raises before anything is sent."""
    other = FunctionTool(count, description="x", name="other")
    with FakeOpenAI() as server:
        async with client_of(server) as client:
            with pytest.raises(UsageError, match="other"):
                await client.create(ASK, tools=tools, tool_choice=other)
    assert server.bodies == []


async def test_one_system_message_goes_first() -> None:
    """System messages are joined at the start, wherever they stand, and names are left out."""
    messages: list[LLMMessage] = [
        UserMessage(content="How many?", source="user"),
        SystemMessage(content="Be brief."),
        AssistantMessage(content="Of what?", source="bot"),
        UserMessage(content="Lamps.", source="user"),
        SystemMessage(content="Memory: blue ones."),
    ]
    refuse = [Refuse.SYSTEM_NOT_FIRST, Refuse.SEVERAL_SYSTEM_MESSAGES, Refuse.NAME]
    with FakeOpenAI(["37"], refuse=refuse) as server:
        async with client_of(server) as client:
            await client.create(messages)
    assert server.bodies[0]["messages"] == [
        {"role": "system", "content": "Be brief.\n\nMemory: blue ones."},
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": "Of what?"},
        {"role": "user", "content": "Lamps."},
    ]


async def test_names_are_sent_when_asked_for() -> None:
    """Senders are named by field or by prefix, each only when asked for, and never by a name servers refuse."""
    messages: list[LLMMessage] = [UserMessage(content="Hi", source="ann"), UserMessage(content="Ho", source="ann b")]
    with FakeOpenAI() as server:
        async with client_of(server, include_name_in_message=True, add_name_prefixes=True) as client:
            await client.create(messages)
    assert server.bodies[0]["messages"] == [
        {"role": "user", "content": "ann said:\nHi", "name": "ann"},
        {"role": "user", "content": "ann b said:\nHo"},
    ]


async def test_roles_alternate_when_asked_for() -> None:
    """For strict templates neighbours of one role are merged, calls among them, and tool results stay apart."""
    picture = Image(Pictures.new("RGB", (2, 2)))
    call = FunctionCall(id="1", name="count", arguments="{}")
    other = FunctionCall(id="2", name="count", arguments="{}")
    done = [FunctionExecutionResult(call_id=number, name="count", content="37") for number in ("1", "2")]
    messages: list[LLMMessage] = [
        UserMessage(content="How many?", source="user"),
        UserMessage(content=["Lamps.", picture], source="user"),
        AssistantMessage(content="I will count.", source="bot"),
        AssistantMessage(content=[call, other], source="bot"),
        FunctionExecutionResultMessage(content=done),
        UserMessage(content="So?", source="user"),
        UserMessage(content="Well?", source="user"),
    ]
    with FakeOpenAI(["37"], refuse=[Refuse.ADJACENT_ROLES]) as server:
        async with client_of(server, alternate_roles=True, model_info={"vision": True}) as client:
            await client.create(messages)
    sent = server.bodies[0]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert [part["type"] for part in sent[0]["content"]] == ["text", "text", "image_url"]
    assert sent[1]["content"] == "I will count."
    assert [one["id"] for one in sent[1]["tool_calls"]] == ["1", "2"]
    assert sent[4]["content"] == "So?\n\nWell?"


def formats(server: FakeOpenAI) -> list[str | None]:
    """Return the output format of each request."""
    return [body["response_format"]["type"] if "response_format" in body else None for body in server.bodies]


@both_ways
async def test_the_output_format_steps_down_once_and_is_remembered(stream: bool) -> None:
    """A refused schema is asked for as any object, then in words; later calls begin where the server agreed."""
    refuse = [Refuse.JSON_SCHEMA, Refuse.JSON_OBJECT]
    with FakeOpenAI(['{"number": 37}'], refuse=refuse) as server:
        async with client_of(server) as client:
            _, first = await ask(client, stream=stream, json_output=Lamps)
            await ask(client, stream=stream, json_output=Lamps)
            await ask(client, stream=stream)
    assert first.content == '{"number": 37}'
    assert formats(server) == ["json_schema", "json_object", None, None, None]
    assert server.bodies[0]["response_format"]["json_schema"] == {"name": "Lamps", "schema": Lamps.model_json_schema()}
    for body in server.bodies[1:4]:
        assert '"number"' in body["messages"][0]["content"]
        assert body["messages"][0]["role"] == "system"
    assert [message["role"] for message in server.bodies[4]["messages"]] == ["user"]


async def test_a_plain_object_steps_down_to_the_prompt() -> None:
    """A server without json_object is asked in words for one object."""
    with FakeOpenAI(["{}"], refuse=[Refuse.JSON_OBJECT]) as server:
        async with client_of(server) as client:
            await client.create(ASK, json_output=True)
    assert formats(server) == ["json_object", None]
    assert "JSON object" in server.bodies[1]["messages"][0]["content"]


async def test_guided_calls_step_down_apart_from_answers() -> None:
    """A refused schema of tools is stepped down and remembered for calls alone."""
    call = '{"tool_calls": [{"name": "count", "arguments": {"what": "lamps"}}]}'

    def only_small(body: dict[str, Any]) -> Reply:
        large = "tool_calls" in json.dumps(body.get("response_format", {}))
        return Reply(status=400, message="grammar too complex") if large else Reply(content=call)

    with FakeOpenAI([only_small]) as server:
        async with client_of(server, tool_mode="guided") as client:
            result = await client.create(ASK, tools=[TOOL])
            await client.create(ASK, tools=[TOOL])
            await client.create(ASK, json_output=Lamps)
    assert isinstance(result.content, list)
    assert formats(server) == ["json_schema", "json_object", "json_object", "json_schema"]


@both_ways
async def test_structured_output_never_raises_for_its_content(stream: bool) -> None:
    """Prose, a broken object and a cut-off one come back as text for the caller to judge."""
    replies = [Reply(content="I cannot."), Reply(content='{"number":', finish_reason="length"), Reply(content=None)]
    with FakeOpenAI(replies) as server:
        async with client_of(server) as client:
            results = [(await ask(client, stream=stream, json_output=Lamps))[1] for _ in replies]
    assert [result.content for result in results] == ["I cannot.", '{"number":', ""]
    assert [result.finish_reason for result in results] == ["stop", "length", "stop"]


async def test_vllm_fields_pass_through() -> None:
    """Priority, cache salt, template options and anything in `extra_body` reach the body; a call's own values win."""
    with FakeOpenAI() as server:
        async with client_of(
            server,
            priority=5,
            cache_salt="tenant-1",
            chat_template_kwargs={"enable_thinking": True, "depth": 2},
            extra_body={"top_k": 20},
            temperature=0.5,
            max_tokens=64,
        ) as client:
            extra = {"priority": 1, "min_p": 0.1, "chat_template_kwargs": {"enable_thinking": False}, "seed": 7}
            await client.create(ASK, extra_create_args={**extra, "extra_body": {"future_field": True}})
            await client.create(ASK)
    first, second = server.bodies
    assert first["chat_template_kwargs"] == {"enable_thinking": False, "depth": 2}
    wanted = {"priority": 1, "cache_salt": "tenant-1", "top_k": 20, "min_p": 0.1, "seed": 7, "future_field": True}
    assert wanted.items() <= first.items()
    assert {"temperature": 0.5, "max_tokens": 64, "priority": 5}.items() <= second.items()
    assert "seed" not in second


@pytest.mark.parametrize("name", ["tools", "n", "top_kk"])
async def test_arguments_that_cannot_be_sent_are_refused(name: str) -> None:
    """A misspelt field, or one only the client sets, raises before anything is sent."""
    with FakeOpenAI() as server:
        async with client_of(server) as client:
            with pytest.raises(UsageError, match=name):
                await client.create(ASK, extra_create_args={name: 1})
    assert server.bodies == []


@both_ways
async def test_log_probabilities_are_read(stream: bool) -> None:
    """Every token's log probability comes back, with its alternatives, streamed or not."""
    tokens = [
        {"token": text, "logprob": -0.5, "bytes": [1], "top_logprobs": [{"token": "x", "logprob": -2.0, "bytes": [2]}]}
        for text in ("There", " are")
    ]
    with FakeOpenAI([Reply(content="There are", logprobs=tokens)]) as server:
        async with client_of(server) as client:
            _, result = await ask(client, stream=stream, extra_create_args={"logprobs": True, "top_logprobs": 1})
    assert result.logprobs is not None
    assert [token.token for token in result.logprobs] == ["There", " are"]
    assert result.logprobs[1].top_logprobs is not None
    assert result.logprobs[1].top_logprobs[0].logprob == -2.0
    assert (server.bodies[0]["logprobs"], server.bodies[0]["top_logprobs"]) == (True, 1)


@pytest.mark.parametrize(
    ("options", "include_usage", "sent"),
    [({}, None, True), ({}, False, False), ({"stream_options": {"include_usage": False}}, None, False)],
)
async def test_usage_is_asked_for_unless_told_otherwise(
    options: dict[str, Any], include_usage: bool | None, sent: bool
) -> None:
    """A stream asks for token counts by itself; the caller can say no, and only streams carry the option."""
    with FakeOpenAI() as server:
        async with client_of(server, **options) as client:
            _ = [piece async for piece in client.create_stream(ASK, include_usage=include_usage)]
            await client.create(ASK)
    assert server.bodies[0]["stream_options"] == {"include_usage": sent}
    assert "stream_options" not in server.bodies[1]


async def test_the_model_is_looked_up_once() -> None:
    """The context length comes from the server's list, asked once, and never at construction."""
    with FakeOpenAI(served="m", max_model_len=2048) as server:
        async with client_of(server) as client:
            assert server.looked_up == 0
            assert client.model_info["function_calling"] is True
            await asyncio.gather(*(client.create(ASK) for _ in range(5)))
            assert client.context_length == 2048
            assert client.remaining_tokens(ASK) == 2048 - client.count_tokens(ASK)
            assert client.count_tokens(ASK, tools=[TOOL]) > client.count_tokens(ASK) > 0
    assert server.looked_up == 1


async def test_the_context_length_can_be_asked_for_first() -> None:
    """Before any request the length is looked up on the spot, with the key."""
    with FakeOpenAI(served="m", api_key=SECRET) as server:
        async with client_of(server, api_key=SECRET) as client:
            assert await asyncio.to_thread(lambda: client.context_length) == 4096
        async with client_of(server, api_key=SECRET, max_model_len=100) as client:
            assert client.context_length == 100
    assert server.looked_up == 1


async def test_a_server_that_is_down_stops_nothing_but_calls() -> None:
    """Built while the server is down, the client says what it can do; only what needs the server raises, quickly."""
    client = VLLMChatCompletionClient("m", "http://127.0.0.1:9/v1", max_retries=0)
    assert client.model_info["structured_output"] is True
    assert client.context_length is None
    with pytest.raises(ServerUnreachableError, match="max_model_len"):
        client.remaining_tokens(ASK)
    with pytest.raises(ServerUnreachableError, match="vllm serve m"):
        await asyncio.wait_for(client.create(ASK), 5)
    await client.close()


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", {}, {"vision": True}),
        ("Qwen/Qwen3-8B", {}, {"vision": False, "family": ModelFamily.UNKNOWN}),
        ("Qwen/Qwen3-8B", {"vision": True, "family": "qwen"}, {"vision": True, "family": "qwen"}),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", {}, {"family": ModelFamily.R1, "vision": False}),
        ("meta-llama/Llama-3.1-8B-Instruct", {}, {"vision": False, "json_output": True, "function_calling": True}),
    ],
)
def test_the_name_tells_what_the_server_does_not(name: str, given: Any, expected: Mapping[str, object]) -> None:
    """Vision and family are read from the name, and the user's own entries win."""
    info = VLLMChatCompletionClient(name, model_info=given or None).model_info
    assert expected.items() <= info.items()


def keeps_the_secret(text: str) -> bool:
    return SECRET not in text


async def test_the_key_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """The server gets the key; dumps, `repr`, logs and errors do not hold it, nor that of a header or a salt."""
    with FakeOpenAI(api_key=SECRET) as server, caplog.at_level(logging.DEBUG, logger=EVENT_LOGGER_NAME):
        async with client_of(server, api_key=SECRET, default_headers={"X-Token": SECRET}, cache_salt=SECRET) as client:
            assert (await client.create(ASK)).content == "ok"
            dumped = client.dump_component()
            assert keeps_the_secret(dumped.model_dump_json())
            assert keeps_the_secret(repr(client) + repr(dumped) + str(dumped))
            again = ChatCompletionClient.load_component(dumped)
            assert (await again.create(ASK)).content == "ok"
            await again.close()
        assert server.bodies[0]["cache_salt"] == SECRET
        async with client_of(server, api_key=f"{SECRET}-wrong") as client:
            with pytest.raises(Exception, match="401") as caught:
                await client.create(ASK)
    assert keeps_the_secret(str(caught.value) + repr(caught.value))
    assert caught.value.__cause__ is None
    assert keeps_the_secret(caplog.text)


def test_it_survives_dump_and_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client dumps under its public path and loads as itself; a masked key falls back to the variable."""
    client = VLLMChatCompletionClient(
        "m",
        api_key=SECRET,
        tool_mode="guided",
        alternate_roles=True,
        temperature=0.0,
        cache_salt="salt",
        default_headers={"X-A": "b"},
        verdict_template_kwargs={"thinking": False},
    )
    dumped = client.dump_component()
    assert dumped.provider == "agentloop_autogen.VLLMChatCompletionClient"
    assert type(ChatCompletionClient.load_component(dumped)) is VLLMChatCompletionClient
    assert VLLMChatCompletionClient.load_component(dumped).dump_component() == dumped
    monkeypatch.setenv("VLLM_API_KEY", "from-the-environment")
    loaded = VLLMChatCompletionClient.load_component(ComponentModel.model_validate_json(dumped.model_dump_json()))
    assert loaded._client.api_key == "from-the-environment"  # pyright: ignore[reportPrivateUsage] - what is sent
    assert loaded.verdict_create_args == {"chat_template_kwargs": {"thinking": False}}


def test_the_key_of_another_service_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key of its own the client does not fall back to the one meant for OpenAI."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    assert VLLMChatCompletionClient("m")._client.api_key == "EMPTY"  # pyright: ignore[reportPrivateUsage] - what is sent


@pytest.mark.parametrize(
    "options", [{"tool_mode": "magic"}, {"max_model_len": 0}, {"timeout": -1.0}, {"temprature": 0.1}, {"model": ""}]
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    """A setting that is unknown or out of range is refused at construction."""
    settings: dict[str, Any] = {"model": "m", **options}
    with pytest.raises(ValidationError):
        VLLMChatCompletionClient(**settings)


async def test_it_can_be_pickled() -> None:
    """A copy made by pickling works like the original."""
    with FakeOpenAI(served="m") as server:
        copy: VLLMChatCompletionClient = pickle.loads(pickle.dumps(VLLMChatCompletionClient("m", server.base_url)))  # noqa: S301 - our own bytes
        assert (await copy.create(ASK)).content == "ok"
        await copy.close()


@both_ways
async def test_cancelling_ends_the_request(stream: bool) -> None:
    """A cancelled token hangs up at once, so that the server can stop generating."""
    with FakeOpenAI([Reply(hang=True)]) as server:
        async with client_of(server) as client:
            token = CancellationToken()
            task = asyncio.ensure_future(ask(client, stream=stream, cancellation_token=token))
            await until(lambda: bool(server.bodies))
            token.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 5)
            await until(lambda: server.hung_up == 1)
    assert len(server.bodies) == 1


async def test_leaving_a_stream_early_is_clean() -> None:
    """A stream that is left after its first piece can be closed, and the client goes on working."""
    with FakeOpenAI(["a long answer that comes in pieces"]) as server:
        async with client_of(server) as client:
            stream = client.create_stream(ASK)
            assert await anext(stream) == "a lon"
            await stream.aclose()
            assert (await client.create(ASK)).finish_reason == "stop"


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is true, five seconds at most."""

    async def polled() -> None:
        while not true():  # noqa: ASYNC110 - the server counts in another thread
            await asyncio.sleep(0.01)

    await asyncio.wait_for(polled(), 5)
