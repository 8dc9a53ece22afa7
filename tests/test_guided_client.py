"""The guided client on a scripted model client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool, Tool, ToolSchema
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from agentloop_autogen.errors import UsageError
from agentloop_autogen.models import GuidedToolCallingClient

TOOL: ToolSchema = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ASK: list[LLMMessage] = [SystemMessage(content="Be kind."), UserMessage(content="Weather in Köln?", source="anna")]
CALL = '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Köln"}}]}'
ANSWER = '{"final_answer": "It is warm."}'


class Refused(Exception):
    """An HTTP refusal as the OpenAI client raises it."""

    def __init__(self, status: int, message: str = "bad response_format") -> None:
        self.status_code = status
        super().__init__(message)


class Inner(ChatCompletionClient):
    """Plays replies in order and keeps what it was asked with."""

    component_type = "model"

    def __init__(self, *replies: str | Exception | CreateResult) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []
        self.closed = False

    def _next(self, messages: Sequence[LLMMessage], options: Mapping[str, Any]) -> CreateResult:
        self.asked.append({"messages": list(messages), **options})
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, CreateResult):
            return reply
        usage = RequestUsage(prompt_tokens=7, completion_tokens=3)
        return CreateResult(finish_reason="stop", content=reply, usage=usage, cached=False)

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """Play one reply."""
        return self._next(messages, options)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Play one reply in pieces of four characters."""
        result = self._next(messages, options)
        text = str(result.content)
        for start in range(0, len(text), 4):
            yield text[start : start + 4]
        yield result

    async def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def actual_usage(self) -> RequestUsage:
        """A made-up figure."""
        return RequestUsage(prompt_tokens=1, completion_tokens=2)

    def total_usage(self) -> RequestUsage:
        """A made-up figure."""
        return RequestUsage(prompt_tokens=3, completion_tokens=4)

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Characters stand for tokens."""
        assert not tools
        return sum(len(str(message.content)) for message in messages)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """What is left of a made-up context."""
        return 10_000 - self.count_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> Any:
        """The same as `model_info`."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """A model without tool calling."""
        return {
            "vision": False,
            "function_calling": False,
            "json_output": True,
            "structured_output": True,
            "family": "unknown",
        }


def format_of(asked: Mapping[str, Any]) -> str | None:
    """The kind of response format a call went out with."""
    extra = cast("Mapping[str, Any]", asked["extra_create_args"])
    return extra["response_format"]["type"] if "response_format" in extra else None


async def test_a_reply_becomes_tool_calls() -> None:
    """The wrapped client sees no tools, and the caller gets calls with an id and the usage."""
    inner = Inner(CALL)
    token = CancellationToken()
    result = await GuidedToolCallingClient(inner).create(ASK, tools=[TOOL], cancellation_token=token)
    assert result.finish_reason == "function_calls"
    assert isinstance(result.content, list)
    assert (result.content[0].name, json.loads(result.content[0].arguments)) == ("get_weather", {"city": "Köln"})
    assert result.content[0].id.startswith("call_")
    assert result.usage == RequestUsage(prompt_tokens=7, completion_tokens=3)
    asked = inner.asked[0]
    assert asked["cancellation_token"] is token
    assert "tools" not in asked
    assert asked["json_output"] is None
    assert format_of(asked) == "json_schema"
    assert [message.type for message in asked["messages"]] == ["SystemMessage", "UserMessage"]


async def test_an_answer_becomes_text() -> None:
    """An answer loses its envelope and keeps its finish reason."""
    result = await GuidedToolCallingClient(Inner(ANSWER)).create(ASK, tools=[TOOL])
    assert (result.content, result.finish_reason) == ("It is warm.", "stop")


async def test_history_is_translated() -> None:
    """Earlier calls and results reach the wrapped client as assistant and user text."""
    inner = Inner(ANSWER)
    call = FunctionCall(id="1", name="get_weather", arguments='{"city": "Köln"}')
    done = FunctionExecutionResult(call_id="1", name="get_weather", content="18 °C")
    history: list[LLMMessage] = [
        *ASK,
        AssistantMessage(content="Let me see.", source="bot"),
        AssistantMessage(content=[call], source="bot"),
        FunctionExecutionResultMessage(content=[done]),
    ]
    await GuidedToolCallingClient(inner).create(history, tools=[TOOL])
    written, result = inner.asked[0]["messages"][-2:]
    assert json.loads(written.content)["tool_calls"][0]["name"] == "get_weather"
    assert result.content == 'Result of get_weather({"city": "Köln"}): 18 °C'


async def test_without_tools_a_call_passes_untouched() -> None:
    """Messages, JSON output and extra arguments go through as they are."""
    inner = Inner("plain", "plain")
    client = GuidedToolCallingClient(inner)
    await client.create(ASK, json_output=True, extra_create_args={"seed": 1}, tool_choice="none")
    assert inner.asked[0]["messages"] == ASK
    assert inner.asked[0]["json_output"] is True
    assert inner.asked[0]["extra_create_args"] == {"seed": 1}
    pieces = [piece async for piece in client.create_stream(ASK)]
    assert pieces[:-1] == ["plai", "n"]


async def test_the_ladder_steps_down_once_and_is_remembered() -> None:
    """A refused schema leads to any JSON object, then to the prompt alone, and later calls start there."""
    inner = Inner(Refused(400), Refused(422), CALL, ANSWER)
    client = GuidedToolCallingClient(inner)
    assert isinstance((await client.create(ASK, tools=[TOOL])).content, list)
    await client.create(ASK, tools=[TOOL])
    assert [format_of(asked) for asked in inner.asked] == ["json_schema", "json_object", None, None]


@pytest.mark.parametrize(
    "failure",
    [
        Refused(401),
        Refused(429),
        Refused(500),
        Refused(400, "maximum context length exceeded"),
        RuntimeError("broken"),
        ValueError("other"),
    ],
)
async def test_other_failures_are_not_mistaken_for_a_refusal(failure: Exception) -> None:
    """A failure that no format would mend is raised at once and not remembered."""
    inner = Inner(failure, CALL)
    client = GuidedToolCallingClient(inner)
    with pytest.raises(type(failure)):
        await client.create(ASK, tools=[TOOL])
    await client.create(ASK, tools=[TOOL])
    assert [format_of(asked) for asked in inner.asked] == ["json_schema", "json_schema"]


async def test_the_first_refusal_is_reported_when_all_rungs_fail() -> None:
    """If nothing helps, the caller sees the refusal of the schema, and the next call tries it again."""
    inner = Inner(Refused(400, "first"), TypeError("no response_format here"), Refused(400, "third"), CALL)
    client = GuidedToolCallingClient(inner)
    with pytest.raises(Refused, match="first"):
        await client.create(ASK, tools=[TOOL])
    await client.create(ASK, tools=[TOOL])
    assert format_of(inner.asked[-1]) == "json_schema"


async def test_a_stream_shows_the_answer_and_ends_with_the_result() -> None:
    """Text comes in pieces without its envelope, a refusal before it is stepped over, the result comes last."""
    inner = Inner(Refused(400), ANSWER)
    pieces = [piece async for piece in GuidedToolCallingClient(inner).create_stream(ASK, tools=[TOOL])]
    result = pieces.pop()
    assert isinstance(result, CreateResult)
    assert len(pieces) > 1
    assert "".join(str(piece) for piece in pieces) == result.content == "It is warm."


async def test_a_stream_of_calls_shows_no_text() -> None:
    """Calls come whole in the result alone."""
    pieces = [piece async for piece in GuidedToolCallingClient(Inner(CALL)).create_stream(ASK, tools=[TOOL])]
    assert len(pieces) == 1
    assert isinstance(pieces[0], CreateResult)
    assert isinstance(pieces[0].content, list)


async def test_a_broken_stream_raises() -> None:
    """A failure that is no refusal ends the stream with that failure."""
    with pytest.raises(Refused):
        _ = [piece async for piece in GuidedToolCallingClient(Inner(Refused(500))).create_stream(ASK, tools=[TOOL])]


class City(BaseModel):
    """A structured answer."""

    name: str


async def test_structured_output_applies_to_the_answer_only() -> None:
    """With tools and a model class, the answer has the class's schema and comes back as its JSON."""
    inner = Inner('{"final_answer": {"name": "Köln"}}')
    result = await GuidedToolCallingClient(inner).create(ASK, tools=[TOOL], json_output=City)
    assert result.content == '{"name": "Köln"}'
    assert inner.asked[0]["json_output"] is None


async def test_structured_output_after_tool_use_is_left_to_the_client() -> None:
    """Without tools the wrapped client's own structured output is used, on a translated history."""
    inner = Inner('{"name": "Köln"}')
    call = FunctionCall(id="1", name="get_weather", arguments="{}")
    history: list[LLMMessage] = [*ASK, AssistantMessage(content=[call], source="bot")]
    result = await GuidedToolCallingClient(inner).create(history, json_output=City, tool_choice="none")
    assert result.content == '{"name": "Köln"}'
    assert inner.asked[0]["json_output"] is City
    assert "response_format" not in inner.asked[0]["extra_create_args"]


async def test_a_tool_named_by_the_choice_is_demanded() -> None:
    """A tool object as choice leaves only that tool, and an unknown one is refused."""

    def clock() -> str:
        """The time."""
        return "noon"

    tool = FunctionTool(clock, description="The time.")
    inner = Inner('{"tool_calls": [{"name": "clock", "arguments": {}}]}')
    client = GuidedToolCallingClient(inner)
    result = await client.create(ASK, tools=[TOOL, tool], tool_choice=tool)
    assert isinstance(result.content, list)
    assert "get_weather" not in json.dumps(inner.asked[0]["extra_create_args"])
    with pytest.raises(UsageError):
        await client.create(ASK, tools=[TOOL], tool_choice=tool)


async def test_calls_are_dropped_when_the_choice_is_none() -> None:
    """A model that calls although it may not gives an empty text, never markup."""
    result = await GuidedToolCallingClient(Inner(CALL)).create(ASK, tools=[TOOL], tool_choice="none")
    assert result.content == ""


async def test_a_client_that_calls_by_itself_is_left_alone() -> None:
    """Native calls of the wrapped client keep their ids."""
    native = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="own", name="get_weather", arguments="{}")],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )
    result = await GuidedToolCallingClient(Inner(native)).create(ASK, tools=[TOOL])
    assert result.content == native.content


async def test_the_rest_of_the_interface_goes_to_the_wrapped_client() -> None:
    """Usage, counting and closing are the wrapped client's, with the tools counted as text."""
    inner = Inner()
    client = GuidedToolCallingClient(inner)
    assert client.actual_usage().completion_tokens == 2
    assert client.total_usage().completion_tokens == 4
    assert client.count_tokens(ASK) < client.count_tokens(ASK, tools=[TOOL])
    assert client.remaining_tokens(ASK, tools=[TOOL]) == 10_000 - client.count_tokens(ASK, tools=[TOOL])
    assert client.model_info["function_calling"] is True
    assert client.capabilities == client.model_info
    await client.close()
    assert inner.closed


def test_it_survives_dump_and_load() -> None:
    """The client dumps under its public path, with the wrapped client inside, and loads as itself."""
    client = GuidedToolCallingClient(ReplayChatCompletionClient(["hi"]), max_calls=3)
    dumped = client.dump_component()
    assert dumped.provider == "agentloop_autogen.models.GuidedToolCallingClient"
    loaded = ChatCompletionClient.load_component(dumped)
    assert type(loaded) is GuidedToolCallingClient
    assert loaded.dump_component() == dumped
    with pytest.raises(UsageError):
        GuidedToolCallingClient(Inner(), max_calls=0)


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_plain_agent_works_on_it(streaming: bool) -> None:
    """AutoGen's own agent calls tools and answers through it, streaming or not."""

    async def get_weather(city: str) -> str:
        """Current weather of a city."""
        return f"18 °C in {city}"

    inner = Inner(CALL, ANSWER)
    agent = AssistantAgent(
        "helper",
        GuidedToolCallingClient(inner),
        tools=[get_weather],
        max_tool_iterations=3,
        model_client_stream=streaming,
    )
    messages = [message async for message in agent.run_stream(task="Weather in Köln?")]
    texts = [message for message in messages if isinstance(message, TextMessage)]
    assert texts[-1].content == "It is warm."
    assert any(isinstance(message, ModelClientStreamingChunkEvent) for message in messages) is streaming
    assert "18 °C in Köln" in inner.asked[1]["messages"][-1].content
