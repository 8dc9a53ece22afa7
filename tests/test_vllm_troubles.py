"""Whole runs over the vLLM client against what servers and templates are known to do, request bodies included."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import StructuredMessage, TextMessage
from autogen_core.model_context import BufferedChatCompletionContext
from pydantic import BaseModel

from agentloop_autogen import (
    AgentLoopAssistantAgent,
    LoopConfig,
    ModelSlotVerifier,
    Slot,
    SlotState,
    StopReason,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.testing import ScriptedVerifier

from .fake_openai import FakeOpenAI, Refuse, Reply, tool_call
from .test_vllm_client import both_ways, client_of

QUESTION = "How many lamps are there?"
CALL = tool_call("count", {"what": "lamps"})
OPEN = Verdict(
    answer_complete=False, need_tool=True, confidence=0.9, slots=(Slot(name="lamps", state=SlotState.MISSING),)
)
UNWRITTEN = Verdict(
    answer_complete=False,
    need_tool=False,
    confidence=0.95,
    slots=(Slot(name="lamps", state=SlotState.UNSYNTHESISED, quote="37 lamps"),),
)
WRITTEN = UNWRITTEN.model_copy(
    update={"answer_complete": True, "slots": (Slot(name="lamps", state=SlotState.SUPPORTED, quote="37 lamps"),)}
)
VERDICT = json.dumps(
    {
        "slots": [{"name": "lamps", "evidence": ["e1"], "quote": "37 lamps", "state": "unsynthesised"}],
        "missing": [],
        "failure": "answer_incomplete",
        "need_tool": False,
        "answer_complete": False,
        "confidence": 0.95,
    }
)


class Lamps(BaseModel):
    """A structured answer."""

    number: int


def count(what: str) -> str:
    """Count things in the warehouse."""
    return f"37 {what}"


def text_of(result: TaskResult) -> str:
    message = result.messages[-1]
    assert isinstance(message, TextMessage)
    return message.content


def asks_for_tools(body: Mapping[str, Any]) -> bool:
    return "tools" in body


def is_verdict_call(body: Mapping[str, Any]) -> bool:
    return "WireVerdict" in json.dumps(body.get("response_format", {}))


def scripted(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {"tools": [count], "verifier": ScriptedVerifier(verdicts)}


@both_ways
async def test_strict_templates_take_every_call_of_a_run(stream: bool) -> None:
    """Planning, verdict and answer calls alternate roles, begin with the one system message and hold a user message."""

    def answer(body: dict[str, Any]) -> Reply:
        if is_verdict_call(body):
            return Reply(content=VERDICT)
        rounds = sum(message["role"] == "tool" for message in body["messages"])
        return Reply(tool_calls=[CALL]) if asks_for_tools(body) and rounds < 1 else Reply(content="There are 37 lamps.")

    refuse = {
        Refuse.ADJACENT_ROLES,
        Refuse.SYSTEM_NOT_FIRST,
        Refuse.SEVERAL_SYSTEM_MESSAGES,
        Refuse.NAME,
        Refuse.NO_USER_MESSAGE,
    }
    with FakeOpenAI([answer], refuse=refuse) as server:
        async with client_of(server, alternate_roles=True) as client:
            agent = AgentLoopAssistantAgent(
                "bot",
                client,
                tools=[count],
                verifier=ModelSlotVerifier(client),
                model_context=BufferedChatCompletionContext(3),
                model_client_stream=stream,
            )
            result = await agent.run(task=QUESTION)
    assert server.refusals == []
    assert "37" in text_of(result)
    assert agent.last_outcome is not None
    assert agent.last_outcome.stop_reason is not StopReason.FAILED
    assert any(is_verdict_call(body) for body in server.bodies)


async def test_the_question_stays_when_the_context_forgets_it() -> None:
    """With a context of three messages every request, the answer call included, still holds the question."""
    calls = [Reply(tool_calls=[tool_call("count", {"what": f"lamps {number}"})]) for number in range(4)]
    with FakeOpenAI([*calls, "There are 37."], refuse=[Refuse.NO_USER_MESSAGE]) as server:
        async with client_of(server) as client:
            agent = AgentLoopAssistantAgent(
                "bot",
                client,
                model_context=BufferedChatCompletionContext(3),
                loop=LoopConfig(max_rounds=4),
                **scripted([OPEN]),
            )
            await agent.run(task=QUESTION)
    assert len(server.bodies) == 5
    assert all(QUESTION in json.dumps(body["messages"]) for body in server.bodies)
    assert not {"tools", "tool_choice"} & server.bodies[-1].keys()


@both_ways
async def test_the_output_format_is_for_the_answer_alone(stream: bool) -> None:
    """Tool rounds carry no response format, the answer call carries the schema and no tools."""
    with FakeOpenAI([Reply(tool_calls=[CALL]), '{"number": 37}']) as server:
        async with client_of(server) as client:
            agent = AgentLoopAssistantAgent(
                "bot", client, output_content_type=Lamps, model_client_stream=stream, **scripted([UNWRITTEN, WRITTEN])
            )
            result = await agent.run(task=QUESTION)
    message = result.messages[-1]
    assert isinstance(message, StructuredMessage)
    assert message.content == Lamps(number=37)  # pyright: ignore[reportUnknownMemberType] - its type parameter is not known here
    planning, answer = server.bodies
    assert "response_format" not in planning
    assert answer["response_format"]["json_schema"]["name"] == "Lamps"
    assert "tools" not in answer


@both_ways
@pytest.mark.parametrize(
    "bad",
    [
        Reply(content="There are", finish_reason="length"),
        Reply(content=""),
        Reply(content='<tool_call>{"name": "count", "arguments": {}}</tool_call>'),
        Reply(content="thinking about TERMINATE</think>"),
    ],
    ids=["cut off", "blank", "markup", "thinking alone"],
)
async def test_a_bad_answer_is_asked_for_again(bad: Reply, stream: bool) -> None:
    """An answer that is cut off, blank, markup or nothing but thinking is not sent; one more request mends it."""
    with FakeOpenAI([Reply(tool_calls=[CALL]), bad, "There are 37 lamps."]) as server:
        async with client_of(server) as client:
            agent = AgentLoopAssistantAgent("bot", client, model_client_stream=stream, **scripted([UNWRITTEN, WRITTEN]))
            result = await agent.run(task=QUESTION)
    assert text_of(result) == "There are 37 lamps."
    assert len(server.bodies) == 3


@both_ways
async def test_a_server_that_only_sends_blanks_still_gets_an_answer_out(stream: bool) -> None:
    """After blank replies the answer is written from the evidence; it is never empty."""
    with FakeOpenAI([Reply(tool_calls=[CALL]), Reply(content="")]) as server:
        async with client_of(server) as client:
            agent = AgentLoopAssistantAgent("bot", client, model_client_stream=stream, **scripted([UNWRITTEN]))
            result = await agent.run(task=QUESTION)
    assert "37 lamps" in text_of(result)
    assert len(server.bodies) <= 4


async def test_calls_written_as_text_are_no_answer() -> None:
    """With the wrong parser on the server the call stays text; it is not shown as the answer, and the run ends."""
    markup = '<tool_call>{"name": "count", "arguments": {"what": "lamps"}}</tool_call>'
    with FakeOpenAI([markup]) as server:
        async with client_of(server) as client:
            agent = AgentLoopAssistantAgent("bot", client, loop=LoopConfig(max_rounds=4), **scripted([OPEN]))
            result = await agent.run(task=QUESTION)
    assert "tool_call" not in text_of(result)
    assert len(server.bodies) < 9


@pytest.mark.parametrize("finish", ["length", "stop"])
async def test_a_verdict_that_is_no_json_does_not_raise(finish: str) -> None:
    """Prose and a broken object in place of the verdict make it unavailable after one repair, whole or cut off."""
    with FakeOpenAI([Reply(content="I would say yes {", finish_reason=finish)]) as server:
        async with client_of(server) as client:
            verdict = await ModelSlotVerifier(client).verify(QUESTION, "37", [])
    assert isinstance(verdict, UnavailableVerdict)
    assert len(server.bodies) == 2


async def test_a_verdict_in_the_reasoning_is_read() -> None:
    """A server that puts the whole reply into its reasoning still gives a verdict."""
    with FakeOpenAI([Reply(content=None, reasoning=VERDICT)]) as server:
        async with client_of(server) as client:
            verdict = await ModelSlotVerifier(client).verify(QUESTION, "", [])
    assert verdict.slots[0].quote == "37 lamps"


@both_ways
async def test_autogens_own_agent_works_on_it(stream: bool) -> None:
    """A plain AssistantAgent calls tools and answers over the client, and its messages carry the tokens."""
    with FakeOpenAI([Reply(tool_calls=[CALL], reasoning="Count."), "There are 37 lamps."]) as server:
        async with client_of(server) as client:
            agent = AssistantAgent("bot", client, tools=[count], max_tool_iterations=3, model_client_stream=stream)
            result = await agent.run(task=QUESTION)
    assert text_of(result) == "There are 37 lamps."
    used = [message.models_usage for message in result.messages if message.models_usage]
    assert [(usage.prompt_tokens, usage.completion_tokens) for usage in used] == [(10, 5), (10, 5)]
    assert server.bodies[1]["messages"][-1]["content"] == "37 lamps"


async def test_autogens_own_agent_gets_structured_answers_beside_tools() -> None:
    """AutoGen sends the format with every call; the client makes calls possible all the same."""
    replies = [
        '{"tool_calls": [{"name": "count", "arguments": {"what": "lamps"}}]}',
        '{"final_answer": {"number": 37}}',
        '{"number": 37}',
    ]
    with FakeOpenAI(replies) as server:
        async with client_of(server) as client:
            agent = AssistantAgent("bot", client, tools=[count], output_content_type=Lamps, max_tool_iterations=3)
            result = await agent.run(task=QUESTION)
    message = result.messages[-1]
    assert isinstance(message, StructuredMessage)
    assert message.content == Lamps(number=37)  # pyright: ignore[reportUnknownMemberType] - its type parameter is not known here
    assert "37 lamps" in json.dumps(server.bodies[1]["messages"])
