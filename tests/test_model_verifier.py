"""The verifier that asks a model: what it sends, how it steps down, and what it makes of every kind of reply."""

from __future__ import annotations

import json
from typing import cast

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage, SystemMessage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, TypeAdapter, ValidationError

from agentloop_autogen.core.records import Evidence, UnavailableVerdict
from agentloop_autogen.verify import ModelSlotVerifier, collect_usage

from .fake_openai import Refuse, Reply, tool_call
from .verifier_clients import (
    ASKED,
    BOTH_TEXT,
    CLOSED,
    CLOSED_TEXT,
    OPEN_TEXT,
    SAID,
    Refused,
    raising,
    replay,
    serving,
    verdict_from,
)

# What is sent


async def test_one_system_message_and_one_user_message_are_sent() -> None:
    """Strict templates take the prompt: system first, one user turn from a valid name, no tools, the caller's token."""
    client, token = raising(), CancellationToken()
    verdict = await ModelSlotVerifier(client).verify(*ASKED, cancellation_token=token)
    assert verdict.closed
    (call,) = client.calls
    system, user = call["messages"]
    assert isinstance(system, SystemMessage)
    assert isinstance(user, UserMessage)
    assert user.source == "user"
    assert call["cancellation_token"] is token
    assert set(call) == {"messages", "cancellation_token", "json_output"}


async def test_extra_arguments_reach_the_client() -> None:
    """Settings such as the temperature are passed on as they are."""
    client = raising()
    await verdict_from(client, extra_create_args={"temperature": 0})
    assert client.calls[0]["extra_create_args"] == {"temperature": 0}


async def test_strict_servers_accept_every_request() -> None:
    """Neither the verdict call nor its repair trips a server that refuses what real templates refuse."""
    refuse = set(Refuse) - {Refuse.JSON_SCHEMA, Refuse.JSON_OBJECT, Refuse.NAME}
    async with serving(["nonsense", CLOSED_TEXT], refuse=refuse) as (server, client):
        assert (await verdict_from(client)).closed
    assert server.refusals == []
    assert [body["response_format"]["type"] for body in server.bodies] == ["json_schema"] * 2
    first, second = (body["messages"] for body in server.bodies)
    assert second[0] == first[0]
    assert second[1]["content"].startswith(first[1]["content"])


async def test_a_client_that_sends_no_names_is_honoured() -> None:
    """Where the client drops names from messages the verifier adds none."""
    async with serving([CLOSED_TEXT], refuse=[Refuse.NAME], named=False) as (_, client):
        assert (await verdict_from(client)).closed


async def test_key_differs_between_instances() -> None:
    """The word in the tags cannot be known from another verifier."""
    client = raising()
    for _ in range(2):
        await verdict_from(client)
    keys = {call["messages"][1].content.split()[1] for call in client.calls}
    assert len(keys) == 2


# Output formats


@pytest.mark.parametrize(
    ("claims", "expected"),
    [({}, "schema"), ({"structured": False}, True), ({"structured": False, "json_output": False}, None)],
)
async def test_the_strongest_claimed_format_is_asked_for(claims: dict[str, bool], expected: object) -> None:
    """A JSON schema where the model claims it, else JSON mode, else the prompt alone."""
    client = raising(**claims)
    await verdict_from(client)
    asked = client.calls[0].get("json_output")
    assert asked is expected or (expected == "schema" and issubclass(cast("type", asked), BaseModel))


@pytest.mark.parametrize(
    "refusal",
    [Refused(400), Refused(404), Refused(422), Refused(501), ValueError("no"), NotImplementedError(), KeyError("x"),
     TypeError("unexpected keyword argument 'json_output'")],
)  # fmt: skip  # one value to a line would hide that this is one table
async def test_a_refused_format_is_stepped_down_from_and_remembered(refusal: Exception) -> None:
    """Each refusal leads to the next weaker format, and the next call starts there."""
    client = raising(refusal, refusal)
    verifier = ModelSlotVerifier(client)
    assert (await verifier.verify(*ASKED)).closed
    assert (await verifier.verify(*ASKED)).closed
    schema, json_mode, prompt, later = (call.get("json_output") for call in client.calls)
    assert isinstance(schema, type)
    assert json_mode is True
    assert prompt is None
    assert later is None


@pytest.mark.parametrize(
    "error",
    [Refused(401), Refused(403), Refused(429), Refused(500), Refused(503), ConnectionError(), TimeoutError("slow")],
)
async def test_other_errors_neither_step_down_nor_are_asked_again(error: Exception) -> None:
    """Credentials, load and connections are not mended by another format."""
    client = raising(error)
    verifier = ModelSlotVerifier(client)
    assert isinstance(await verifier.verify(*ASKED), UnavailableVerdict)
    assert len(client.calls) == 1
    await verifier.verify(*ASKED)
    assert isinstance(client.calls[1]["json_output"], type)


async def test_a_server_that_refuses_everything_teaches_nothing() -> None:
    """A format is only remembered once it worked: a wrong model name must not weaken later verdicts."""
    client = raising(*[Refused(404)] * 3)
    verifier = ModelSlotVerifier(client)
    assert isinstance(await verifier.verify(*ASKED), UnavailableVerdict)
    assert (await verifier.verify(*ASKED)).closed
    assert isinstance(client.calls[3]["json_output"], type)


async def test_a_real_refusal_of_json_schema_steps_down() -> None:
    """A server that answers json_schema with 400 gets json_object, once and from then on."""
    async with serving([CLOSED_TEXT], refuse=[Refuse.JSON_SCHEMA]) as (server, client):
        verifier = ModelSlotVerifier(client)
        assert (await verifier.verify(*ASKED)).closed
        assert (await verifier.verify(*ASKED)).closed
    formats = [body["response_format"]["type"] for body in server.bodies]
    assert formats == ["json_schema", "json_object", "json_object"]


async def test_a_client_without_model_info_is_asked_in_words() -> None:
    """A client that cannot say what its model does still gives verdicts."""

    class Odd(ReplayChatCompletionClient):
        @property
        def model_info(self) -> ModelInfo:
            raise KeyError("model")

    assert (await verdict_from(Odd([CLOSED_TEXT]))).closed


async def test_too_long_a_prompt_is_halved_once() -> None:
    """A context-length refusal shortens the evidence and keeps the format."""
    long = tuple(
        Evidence(
            id=f"e{number}", tool="t", is_error=False, finding=f"The tower is 324 m high {number}. " + "x y " * 250
        )
        for number in range(10)
    )
    async with serving([CLOSED_TEXT], max_prompt_chars=10_000) as (server, client):
        assert (await ModelSlotVerifier(client).verify(ASKED[0], ASKED[1], long)).closed
    assert [body["response_format"]["type"] for body in server.bodies] == ["json_schema"] * 2
    first, second = (len(body["messages"][1]["content"]) for body in server.bodies)
    assert second < 0.7 * first


@pytest.mark.parametrize(
    ("request_text", "draft", "finding"),
    [
        ("How high is it? " * 60, "", "324 m"),
        ("How high?", "It is high. " * 60, "324 m"),
        ("How high?", "", "x y " * 90),
    ],
)
async def test_halving_goes_by_what_is_there(request_text: str, draft: str, finding: str) -> None:
    """A part that is long, though shorter than its limit, is what gets shorter, and the short parts stay whole."""
    evidence = (Evidence(id="e1", tool="t", is_error=False, finding=finding),)
    client = raising(Refused(400, "maximum context length exceeded"))
    await ModelSlotVerifier(client).verify(request_text, draft, evidence)
    first, second = (str(call["messages"][1].content) for call in client.calls)
    assert len(second) < len(first) - 100
    for text in (request_text, draft, finding):
        if len(text) < 80:
            assert text in second


async def test_a_prompt_that_stays_too_long_gives_no_verdict() -> None:
    """Halving is tried once; after that the verdict is unavailable and says why."""
    client = raising(*[Refused(400, "maximum context length exceeded")] * 9)
    verdict = await ModelSlotVerifier(client).verify("How high is it? " * 60, *ASKED[1:])
    assert isinstance(verdict, UnavailableVerdict)
    assert "context length" in verdict.cause
    assert len(client.calls) == 2


async def test_a_short_prompt_is_not_sent_again() -> None:
    """Where nothing is left to shorten, the refusal stands and the same prompt is not sent twice."""
    client = raising(*[Refused(400, "maximum context length exceeded")] * 9)
    assert isinstance(await verdict_from(client), UnavailableVerdict)
    assert len(client.calls) == 1


# Replies


@pytest.mark.parametrize(
    "reply",
    [
        SAID.model_copy(update={"content": "", "thought": CLOSED_TEXT}),
        SAID.model_copy(update={"content": [FunctionCall(id="1", name="verdict", arguments=CLOSED_TEXT)]}),
        SAID.model_copy(update={"content": f"<think>hm</think>```json\n{CLOSED_TEXT}\n```"}),
    ],
)
async def test_a_verdict_is_found_wherever_the_client_puts_it(reply: CreateResult) -> None:
    """Thoughts, tool calls and fenced text are all read, without a second call."""
    client = replay(reply)
    assert (await verdict_from(client)).closed
    assert len(client.create_calls) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(reasoning_content=CLOSED_TEXT),
        Reply(content=f"prose under a schema: {CLOSED_TEXT}"),
        Reply(content=CLOSED_TEXT, finish_reason="length"),
        Reply(content=CLOSED_TEXT.replace("0.9", "95")),
        Reply(content=CLOSED_TEXT, reasoning="thinking aloud"),
    ],
)
async def test_replies_that_clients_stumble_over_are_salvaged(reply: Reply) -> None:
    """What the SDK would refuse, for its length, form or values, is read all the same, tokens included."""
    async with serving([reply]) as (_, client):
        with collect_usage() as meter:
            assert (await verdict_from(client)).closed
    assert (meter.calls, meter.total) == (1, RequestUsage(prompt_tokens=10, completion_tokens=5))


async def test_a_tool_call_of_the_server_is_read() -> None:
    """Some servers answer a schema with a tool call that holds the object."""
    async with serving([Reply(tool_calls=[tool_call("verdict", CLOSED_TEXT)])]) as (_, client):
        assert (await verdict_from(client)).closed


async def test_a_validation_error_gives_its_text_back() -> None:
    """A client that validates replies itself and fails loses no verdict."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, int]).validate_json(f"Sure: {CLOSED_TEXT}")
    assert (await verdict_from(raising(caught.value))).closed


async def test_a_cut_off_reply_is_asked_for_again() -> None:
    """A verdict that broke off before it said anything open is repaired, not believed."""
    cut = Reply(content=CLOSED_TEXT[:-30], finish_reason="length")
    async with serving([cut, OPEN_TEXT]) as (server, client):
        assert (await verdict_from(client)).missing == ("height",)
    assert "broke off" in server.bodies[1]["messages"][1]["content"]


async def test_an_unreadable_reply_is_asked_for_again_once() -> None:
    """One repair mends prose; a second unreadable reply means that there is no verdict."""
    assert (await verdict_from(replay("I think so", CLOSED_TEXT))).closed
    client = replay("I think so", "Yes", CLOSED_TEXT)
    verdict = await verdict_from(client)
    assert isinstance(verdict, UnavailableVerdict)
    assert "no readable verdict" in verdict.cause
    assert len(client.create_calls) == 2


async def test_a_contradictory_reply_is_asked_for_again_once() -> None:
    """The repair says what contradicts what, and its answer counts."""
    client = replay(BOTH_TEXT, CLOSED_TEXT)
    assert (await verdict_from(client)).closed
    repair = client.create_calls[1]["messages"][1].content
    assert "answer_complete and need_tool are both true" in repair


async def test_a_reply_that_stays_contradictory_goes_on() -> None:
    """Twice contradictory is read as not done, by its flags and by its slots."""
    verdict = await verdict_from(replay(BOTH_TEXT, BOTH_TEXT))
    assert not isinstance(verdict, UnavailableVerdict)
    assert (verdict.answer_complete, verdict.need_tool, verdict.slots) == (False, True, ())


@pytest.mark.parametrize("second", ["nonsense", None])
async def test_a_failed_repair_leaves_the_first_reading(second: str | None) -> None:
    """A contradictory verdict, read conservatively, is better than none."""
    client = replay(BOTH_TEXT) if second is None else replay(BOTH_TEXT, second)
    verdict = await verdict_from(client)
    assert not isinstance(verdict, UnavailableVerdict)
    assert verdict.need_tool


async def test_made_up_evidence_ids_are_dropped() -> None:
    """A slot that points at evidence nobody gathered is left to be sought in all evidence."""
    slots = [{**CLOSED["slots"][0], "evidence": ["e1", "e77"]}]
    assert (await verdict_from(replay(json.dumps({**CLOSED, "slots": slots})))).slots[0].evidence == ("e1",)


async def test_cjk_travels_verbatim() -> None:
    """Chinese request, evidence and quote come through the wire unescaped and unharmed."""
    evidence = (Evidence(id="e1", tool="搜索", is_error=False, finding="东京塔高333米。"),)
    slots = [{"name": "高度", "evidence": ["e1"], "quote": "高333米", "state": "supported"}]
    async with serving([json.dumps({**CLOSED, "slots": slots})]) as (server, client):
        verdict = await ModelSlotVerifier(client).verify("东京塔多高？", "东京塔高333米。", evidence)
    assert "东京塔高333米。" in server.bodies[0]["messages"][1]["content"]
    assert (verdict.slots[0].name, verdict.slots[0].quote) == ("高度", "高333米")
