"""The answer call: what counts as an answer, what is tried when none comes, and what is said when none can be had."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from autogen_agentchat.messages import StructuredMessage, TextMessage, ThoughtEvent, ToolCallSummaryMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from agentloop_autogen import AgentLoopAssistantAgent, LoopConfig, SlotState, StopReason, Verdict

from .fake_openai import FakeOpenAI, Refuse, Reply, tool_call
from .scripted_model import (
    CLOSED,
    UNWRITTEN,
    Item,
    ScriptedModel,
    agent_of,
    call,
    chunks_of,
    open_verdict,
    outcome_of,
    result,
)


class City(BaseModel):
    """A structured reply."""

    name: str
    population: int


PARIS = '{"name": "Paris", "population": 2102650}'
RAW = '{"city": "Paris", "population": 2102650, "source": "census 2023", "area_km2": 105.4}'


def census(city: str = "Paris") -> str:
    """Census."""
    return RAW


def find(number: int) -> str:
    """Find."""
    return f"finding {number}: word{number * 31}"


def city_of(message: object) -> City:
    """The content of a structured reply."""
    assert isinstance(message, StructuredMessage)
    return cast("StructuredMessage[City]", message).content


async def answered(*script: Item, **options: Any) -> tuple[AgentLoopAssistantAgent, ScriptedModel, TextMessage]:
    """Run one tool round whose evidence has to be written up, with these items as what the answer calls bring."""
    model = ScriptedModel([call("census"), *script])
    agent = agent_of(model, [UNWRITTEN], tools=[census], **options)
    done = await agent.run(task="How many people live in Paris?")
    message = done.messages[-1]
    assert isinstance(message, TextMessage)
    assert message.content.strip() == message.content != ""
    return agent, model, message


_NO_ANSWERS: list[Item] = [
    "",
    "  \n ",
    "<think>hm, TERMINATE</think>",
    "half a thought</think>  ",
    call("census"),
    result([]),
    '<tool_call>{"name": "census", "arguments": {"city": "Paris"}}</tool_call>',
    '{"name": "census", "arguments": {"city": "Paris"}}',
    "```json\n" + '{"name": "census", "arguments": {}}' + "\n```",
    RAW,
    f"```json\n{RAW}\n```",
    json.dumps(json.loads(RAW), indent=2),
    ValueError("server said no"),
    result("It is about two mil", finish_reason="length"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("first", _NO_ANSWERS)
async def test_what_is_no_answer_is_asked_again_in_another_shape(first: Item, stream: bool) -> None:
    """Blank, thoughts, calls, markup, raw output, faults and cut-off text lead to one differently worded attempt."""
    agent, model, message = await answered(first, "2.1 million", model_client_stream=stream)
    assert message.content == "2.1 million"
    assert outcome_of(agent).synthesis_calls == 2
    assert outcome_of(agent).stop_reason is StopReason.SYNTHESISED
    assert not outcome_of(agent).fallback_answer
    second, third = model.requests[1], model.requests[2]
    assert second.text != third.text
    assert not second.tools
    assert not third.tools
    for request in (second, third):
        assert "How many people live in Paris?" in request.text
        assert "2102650" in request.text
        assert isinstance(request.messages[-1], UserMessage)


@pytest.mark.parametrize("first", _NO_ANSWERS[:10])
async def test_two_attempts_without_an_answer_end_in_what_is_known(first: Item) -> None:
    """When the second attempt brings none either, the reply states the findings instead of being empty."""
    agent, model, message = await answered(first, "" if first == RAW else first)
    assert len(model.requests) == 3
    assert "2102650" in message.content
    assert outcome_of(agent).fallback_answer
    assert outcome_of(agent).error
    assert "<tool_call>" not in message.content


async def test_an_answer_in_json_that_is_no_result_is_taken() -> None:
    """Only word-for-word tool output is refused; a JSON answer of the model's own is an answer."""
    text = '{"answer": "Paris has 2102650 inhabitants", "checked": true}'
    agent, _, message = await answered(text)
    assert message.content == text
    assert outcome_of(agent).synthesis_calls == 1


async def test_an_answer_cut_off_twice_is_better_than_none() -> None:
    """Text that was truncated in both attempts is the reply, since it is more than the bare findings."""
    agent, _, message = await answered(
        result("It is about two mil", finish_reason="length"), result("About 2.1 mil ", finish_reason="length")
    )
    assert message.content in {"It is about two mil", "About 2.1 mil"}
    assert outcome_of(agent).error == "it was cut off for its length"


async def test_the_thinking_of_an_answer_is_not_part_of_it() -> None:
    """Everything up to the last closing think tag is dropped, and a separate thought is an event before the reply."""
    script = result("plan TERMINATE</think>2.1 million\n\n", thought="let me see")
    model = ScriptedModel([call("census"), script])
    agent = agent_of(model, [UNWRITTEN], tools=[census])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "2.1 million"
    assert isinstance(done.messages[-2], ThoughtEvent)
    assert done.messages[-2].content == "let me see"


async def test_the_text_built_from_evidence_mentions_every_round() -> None:
    """When no answer call works the reply names the result of each round, and stays bounded."""
    script: list[Item] = [call("find", {"number": n}) for n in range(1, 4)]
    model = ScriptedModel([*script, ValueError("down"), ValueError("down")])
    agent = agent_of(model, [open_verdict("total")], tools=[find], max_tool_iterations=3)
    done = await agent.run(task="go")
    text = done.messages[-1].to_text()
    assert all(f"word{n * 31}" in text for n in (1, 2, 3))
    assert "total" in text
    assert "down" in text
    assert outcome_of(agent).stop_reason is StopReason.BUDGET


async def test_the_text_built_from_large_evidence_is_bounded_and_complete() -> None:
    """Forty huge results are each mentioned, shortened, in a reply of a few thousand characters."""

    def dump(number: int) -> str:
        """Dump."""
        return f"head{number} " + "x y z " * 1000

    calls = [call("dump", {"number": n}, call_id=f"c{n}") for n in range(40)]
    model = ScriptedModel([calls, ValueError("down"), ValueError("down")])
    agent = agent_of(model, [UNWRITTEN], tools=[dump])
    done = await agent.run(task="go")
    text = done.messages[-1].to_text()
    assert len(text) < 6_000
    assert [n for n in range(40) if f"head{n} " not in text] == []


async def test_a_draft_is_not_lost_when_the_answer_call_fails() -> None:
    """If the answer cannot be written after a partial draft, the reply still holds the draft."""
    model = ScriptedModel([call("census"), "Paris has 2102650 people; the area", ValueError("no"), ValueError("no")])
    agent = agent_of(model, [open_verdict(), UNWRITTEN], tools=[census])
    done = await agent.run(task="go")
    assert "Paris has 2102650 people; the area" in done.messages[-1].to_text()
    assert outcome_of(agent).fallback_answer


async def test_a_truncated_draft_is_finished_by_an_answer_call() -> None:
    """A draft that the verifier accepts but the server cut off is not the reply; it is written anew."""
    model = ScriptedModel([result("Paris has two mil", finish_reason="length"), "Paris has 2.1 million people"])
    agent = agent_of(model, [CLOSED])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "Paris has 2.1 million people"
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED


async def test_no_answer_call_is_made_where_none_is_allowed() -> None:
    """`max_integrations=0` replies with the findings and makes no answer call."""
    model = ScriptedModel([call("census")])
    agent = agent_of(model, [UNWRITTEN], tools=[census], loop=LoopConfig(max_integrations=0))
    done = await agent.run(task="go")
    assert len(model.requests) == 1
    assert "2102650" in done.messages[-1].to_text()
    assert outcome_of(agent).synthesis_calls == 0


async def test_one_answer_call_is_one_attempt() -> None:
    """`max_integrations` counts retries too: with 1 a blank answer is not asked again."""
    model = ScriptedModel([call("census"), "", "never asked for"])
    agent = agent_of(model, [UNWRITTEN], tools=[census], loop=LoopConfig(max_integrations=1))
    await agent.run(task="go")
    assert len(model.requests) == 2
    assert outcome_of(agent).synthesis_calls == 1


@pytest.mark.parametrize("answer", ["It has 2102650 people.", "It has 2102650 people; the mayor is not known."])
async def test_open_slots_are_named_in_the_reply(answer: str) -> None:
    """A reply that does not name an open slot itself gets one sentence that does, and only then."""
    slots = [
        {"name": "population", "state": "supported", "quote": "2102650", "evidence": ["e1"]},
        {"name": "mayor", "state": "missing"},
    ]
    verdict = Verdict.model_validate(
        {"answer_complete": False, "need_tool": True, "confidence": 0.9, "slots": slots, "missing": ["mayor"]}
    )
    model = ScriptedModel([lambda r: call("census") if r.tools else answer], repeat_last=True)
    agent = agent_of(model, [verdict], tools=[census])
    done = await agent.run(task="population and mayor of Paris")
    text = done.messages[-1].to_text()
    assert text.count("mayor") == 1
    assert json.loads(done.messages[-1].metadata["agentloop.unresolved"]) == ["mayor"]
    outcome = outcome_of(agent)
    assert outcome.stop_reason is StopReason.EXHAUSTED
    assert {slot.name: slot.state for slot in outcome.slots}["mayor"] is SlotState.EXHAUSTED
    assert "mayor" in model.requests[-1].text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "script", [[call("census"), PARIS], ["Paris, 2102650", PARIS], [call("census"), f"Here: ```json\n{PARIS}\n```"]]
)
async def test_a_structured_reply_is_written_by_the_answer_call(script: list[Item], stream: bool) -> None:
    """With `output_content_type` the reply is a StructuredMessage of that type, whether a draft existed or not."""
    model = ScriptedModel(script)
    agent = agent_of(
        model,
        [CLOSED],
        tools=[census],
        output_content_type=City,
        output_content_type_format="{name}: {population}",
        model_client_stream=stream,
    )
    done = await agent.run(task="go")
    message = done.messages[-1]
    assert city_of(message) == City(name="Paris", population=2102650)
    assert message.to_text() == "Paris: 2102650"
    assert [request.json_output for request in model.requests] == [None, City]
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED
    assert type(message) in agent.produced_message_types


async def test_a_structured_reply_is_tried_again_without_guidance() -> None:
    """Where structured output is refused or does not fit, the second attempt asks in words."""
    model = ScriptedModel([call("census"), ValueError("response_format is not supported"), f"Sure: {PARIS}"])
    agent = agent_of(model, [CLOSED], tools=[census], output_content_type=City)
    done = await agent.run(task="go")
    assert isinstance(done.messages[-1], StructuredMessage)
    assert [request.json_output for request in model.requests] == [None, City, None]
    assert "population" in model.requests[2].text


async def test_a_structured_reply_that_cannot_be_had_ends_in_text() -> None:
    """Two replies that do not fit the type end in a text of what is known, not in an exception."""
    model = ScriptedModel([call("census"), '{"name": "Paris"}', "no idea"])
    agent = agent_of(model, [CLOSED], tools=[census], output_content_type=City)
    done = await agent.run(task="go")
    assert isinstance(done.messages[-1], TextMessage)
    assert "2102650" in done.messages[-1].content
    assert outcome_of(agent).fallback_answer


async def test_a_model_without_structured_output_is_asked_in_words() -> None:
    """A client whose model knows neither schema nor JSON mode is sent no format, and the schema in the prompt."""
    model = ScriptedModel([call("census"), PARIS], structured=False)
    agent = agent_of(model, [CLOSED], tools=[census], output_content_type=City)
    done = await agent.run(task="go")
    assert isinstance(done.messages[-1], StructuredMessage)
    assert [request.json_output for request in model.requests] == [None, None]
    assert '"population"' in model.requests[1].text


async def test_structured_replies_need_no_registration_in_a_team() -> None:
    """Two agents with the same output type work, save and load in a RoundRobinGroupChat as it is."""

    def team() -> RoundRobinGroupChat:
        agents = [
            agent_of(ScriptedModel([PARIS, PARIS]), [CLOSED], name=name, output_content_type=City)
            for name in ("a", "b")
        ]
        return RoundRobinGroupChat(list(agents), max_turns=2)

    first = team()
    done = await first.run(task="go")
    assert city_of(done.messages[-1]).name == "Paris"
    assert [type(message).__name__ for message in done.messages].count("StructuredMessage[City]") == 2
    state = json.loads(json.dumps(await first.save_state()))
    second = team()
    await second.load_state(state)
    again = await second.run(task="again")
    assert [type(message).__name__ for message in again.messages].count("StructuredMessage[City]") == 2


async def test_a_summary_covers_every_round() -> None:
    """`reflect_on_tool_use=False` replies with the results of all rounds, not of the last one only."""
    model = ScriptedModel([call("find", {"number": n}) for n in (1, 2, 3)])
    agent = agent_of(
        model,
        [open_verdict()],
        tools=[find],
        max_tool_iterations=3,
        reflect_on_tool_use=False,
        tool_call_summary_format="{tool_name}({arguments}) = {result}",
    )
    done = await agent.run(task="go")
    message = done.messages[-1]
    assert isinstance(message, ToolCallSummaryMessage)
    assert message.content.splitlines() == [f'find({{"number": {n}}}) = finding {n}: word{n * 31}' for n in (1, 2, 3)]
    assert [item.id for item in message.tool_calls] == ["c1"] * 3
    assert len(message.results) == 3
    assert len(model.requests) == 3
    assert message.metadata["agentloop.stop_reason"] == "budget"
    assert outcome_of(agent).synthesis_calls == 0


async def test_a_summary_agent_still_replies_with_its_own_text() -> None:
    """`reflect_on_tool_use=False` concerns tool results only: a complete draft is the reply."""
    model = ScriptedModel([call("find", {"number": 1}), "it is word31"])
    agent = agent_of(model, [open_verdict(), CLOSED], tools=[find], reflect_on_tool_use=False)
    done = await agent.run(task="go")
    assert isinstance(done.messages[-1], TextMessage)
    assert done.messages[-1].content == "it is word31"


async def test_a_huge_result_is_not_echoed_by_a_summary_either() -> None:
    """Five megabytes of output do not become the reply of an agent that summarises."""

    def dump() -> str:
        """Dump."""
        return "x y z " * 900_000

    agent = agent_of(ScriptedModel([call("dump")]), [UNWRITTEN], tools=[dump], reflect_on_tool_use=False)
    done = await agent.run(task="go")
    assert len(done.messages[-1].to_text()) < 2_000


async def test_words_others_route_on_survive_in_the_answer() -> None:
    """The text of the answer call is sent as it is, by the agent itself, so that keyword edges still match."""
    agent, _, message = await answered("Checked twice. APPROVE")
    assert message.content == "Checked twice. APPROVE"
    assert message.source == agent.name


async def test_chunks_of_an_answer_carry_the_id_of_the_reply() -> None:
    """Streamed chunks of the answer call join up with the message they belong to."""
    model = ScriptedModel([call("census"), "2.1 million people"])
    agent = agent_of(model, [UNWRITTEN], tools=[census], model_client_stream=True)
    messages = [message async for message in agent.run_stream(task="go")]
    reply = messages[-2]
    assert isinstance(reply, TextMessage)
    chunks = [chunk for chunk in chunks_of(messages) if chunk.full_message_id == reply.id]
    assert "".join(chunk.content for chunk in chunks) == "2.1 million people"


async def test_chunks_of_a_draft_sent_back_carry_the_id_of_its_thought() -> None:
    """Streamed chunks of a draft that was not good enough join up with the thought it became."""
    agent = agent_of(ScriptedModel(["a first draft", "done"]), [open_verdict(), CLOSED], model_client_stream=True)
    messages = [message async for message in agent.run_stream(task="go")]
    (thought,) = [message for message in messages if isinstance(message, ThoughtEvent)]
    chunks = [chunk for chunk in chunks_of(messages) if chunk.full_message_id == thought.id]
    assert "".join(chunk.content for chunk in chunks) == "a first draft"


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")  # AutoGen's client logs what it parsed
@pytest.mark.parametrize("stream", [False, True])
async def test_request_bodies_satisfy_a_strict_server(stream: bool) -> None:
    """On the wire: one system message first, tools while planning only, the schema in the answer call only."""
    script = [Reply(tool_calls=[tool_call("census", {"city": "Paris"})]), "a draft", Reply(content=PARIS)]
    refuse = {Refuse.SEVERAL_SYSTEM_MESSAGES, Refuse.SYSTEM_NOT_FIRST, Refuse.NO_USER_MESSAGE, Refuse.ADJACENT_ROLES}
    with FakeOpenAI(script, refuse=refuse) as server:
        client = OpenAIChatCompletionClient(
            model="fake",
            base_url=server.base_url,
            api_key="key",
            max_retries=0,
            model_info={
                "vision": False,
                "function_calling": True,
                "json_output": True,
                "structured_output": True,
                "family": "unknown",
            },
        )
        agent = agent_of(
            client, [open_verdict(), CLOSED], tools=[census], output_content_type=City, model_client_stream=stream
        )
        done = await agent.run(task="go")
        await client.close()
    assert server.refusals == []
    assert isinstance(done.messages[-1], StructuredMessage)
    assert ["tools" in body for body in server.bodies] == [True, True, False]
    assert ["response_format" in body for body in server.bodies] == [False, False, True]
    assert server.bodies[2]["response_format"]["type"] == "json_schema"
    assert not any("tool_choice" in body and "tools" not in body for body in server.bodies)
    assert not any(
        "name" in message for body in server.bodies for message in body["messages"] if message["role"] != "user"
    )


async def test_a_server_without_tool_support_is_not_mistaken_for_a_finished_run() -> None:
    """A 400 about automatic tool choice ends as `failed` with the server's own hint in the reply."""
    hint = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    with FakeOpenAI([Reply(status=400, message=hint)]) as server:
        client = OpenAIChatCompletionClient(
            model="fake",
            base_url=server.base_url,
            api_key="key",
            max_retries=0,
            model_info={
                "vision": False,
                "function_calling": True,
                "json_output": True,
                "structured_output": True,
                "family": "unknown",
            },
        )
        agent = agent_of(client, tools=[census])
        done = await agent.run(task="go")
        await client.close()
    assert "--enable-auto-tool-choice" in done.messages[-1].to_text()
    assert outcome_of(agent).stop_reason is StopReason.FAILED


async def test_a_draft_that_is_a_raw_tool_result_is_written_up() -> None:
    """A draft that gives a structured result back word for word is no reply; an answer is written instead."""

    def record() -> str:
        """Look up a record."""
        return '{"town": "Vennholm", "population": 48210, "mayor": "Ilse Brandtner"}'

    model = ScriptedModel([call("record"), record(), "Vennholm has 48,210 inhabitants."])
    agent = agent_of(model, [open_verdict(), CLOSED], tools=[record])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "Vennholm has 48,210 inhabitants."
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED
