"""The benchmark's systems: each answers through the counted endpoint, and what it costs is counted the same way."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentloop_autogen.bench.endpoint import CountedEndpoint, Upstream
from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.runner import PlannedAttempt, RunSettings, execute_attempt
from agentloop_autogen.bench.systems.registry import SYSTEMS, make_systems
from agentloop_autogen.bench.systems.system import Limits
from agentloop_autogen.core.records import StopReason
from agentloop_autogen.errors import MissingExtraError, UsageError

from .bench_tasks import CODE, code_task
from .fake_openai import FakeOpenAI, Reply, Script, tool_call

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

MAIN = [name for name in SYSTEMS if "-with" not in name]
"""The systems that differ by more than one switch."""
SETTINGS = RunSettings(model="m", limits=Limits(timeout_s=30.0, rounds=4))
USAGE = (100, 10)
VERDICT = {
    "slots": [
        {"name": "code", "quote": "code of the blue door is 4711", "evidence": ["e1"], "state": "supported"},
    ],
    "missing": [],
    "failure": "ok",
    "need_tool": False,
    "answer_complete": True,
    "confidence": 0.9,
}


def ledger(*, satisfied: bool) -> str:
    def entry(answer: object) -> dict[str, object]:
        return {"reason": "so", "answer": answer}

    entries = {
        "is_request_satisfied": entry(satisfied),
        "is_in_loop": entry(False),
        "is_progress_being_made": entry(True),
        "next_speaker": entry("assistant"),
        "instruction_or_question": entry("Find the code."),
    }
    return json.dumps(entries)


def sensible(body: dict[str, Any]) -> Reply:
    """Call the tool once, then say what it said; give the verdicts and ledgers that go with it."""
    told = json.dumps(body["messages"])
    if "response_format" in body:
        if "is_request_satisfied" in json.dumps(body["response_format"]):
            return Reply(content=ledger(satisfied=CODE in told), usage=USAGE)
        return Reply(content=json.dumps(VERDICT), usage=USAGE)
    if CODE in told:
        return Reply(content=f"The code is {CODE}. TERMINATE ACCEPT", usage=USAGE)
    if body.get("tools"):
        return Reply(tool_calls=[tool_call("look_up", {"door": "blue"})], usage=USAGE)
    return Reply(content="Facts and a plan.", usage=USAGE)


def endless(body: dict[str, Any]) -> Reply:
    """Call the tool with the wrong door whenever there are tools; never satisfied."""
    if "response_format" in body:
        if "is_request_satisfied" in json.dumps(body["response_format"]):
            return Reply(content=ledger(satisfied=False), usage=USAGE)
        return Reply(content=json.dumps({**VERDICT, "slots": [], "missing": ["code"], "need_tool": True}), usage=USAGE)
    if body.get("tools"):
        return Reply(tool_calls=[tool_call("look_up", {"door": "red"})], usage=USAGE)
    return Reply(content="I could not find it.", usage=USAGE)


async def attempted(name: str, script: Script, settings: RunSettings = SETTINGS) -> tuple[Attempt, FakeOpenAI]:
    one = PlannedAttempt(system=make_systems([name])[0], task=code_task(), seed=11)
    server = FakeOpenAI(script, served="m")
    with server, CountedEndpoint([Upstream(base_url=server.base_url)]) as endpoint:
        return (await execute_attempt(one, endpoint, settings)).attempt, server


@pytest.mark.parametrize(("name", "stream"), [*((name, False) for name in SYSTEMS), *((name, True) for name in MAIN)])
async def test_every_system_solves_a_task_and_every_request_of_it_is_counted(name: str, stream: bool) -> None:
    """Each system finds the answer with the tool; the record holds each request the server got, with its tokens."""
    settings = replace(SETTINGS, limits=replace(SETTINGS.limits, stream=stream))
    found, server = await attempted(name, [sensible], settings)
    assert found.error is None
    assert found.correct
    assert (found.system, found.answer.strip()) == (name, found.answer)
    assert "TERMINATE" not in found.answer or name != "autogen-team"
    assert [call.name for call in found.tool_calls] == ["look_up"]
    assert len(found.model_calls) == len(server.bodies) >= 2
    assert {(call.prompt_tokens, call.completion_tokens, call.status) for call in found.model_calls} == {(*USAGE, 200)}
    assert [call.offers_tools for call in found.model_calls] == ["tools" in body for body in server.bodies]
    assert server.refusals == []
    assert (found.outcome is not None) == name.startswith("agentloop")


@pytest.mark.parametrize("name", MAIN)
async def test_every_system_gets_the_same_decoding_tools_and_instructions(name: str) -> None:
    """Whatever the system, the model gets the same cap, temperature and seed, and the task's own words and tools."""
    _, server = await attempted(name, [sensible])
    for body in server.bodies:
        cap = body.get("max_tokens") or body["max_completion_tokens"]
        assert cap <= SETTINGS.limits.max_completion_tokens or "response_format" in body
        assert (body["temperature"], body["seed"], body["model"]) == (0.0, 11, "m")
    offered = next(body for body in server.bodies if "tools" in body)
    task = code_task()
    assert task.instructions in offered["messages"][0]["content"]
    assert task.request in json.dumps([body["messages"] for body in server.bodies])
    function = offered["tools"][0]["function"]
    assert (function["name"], function["description"]) == ("look_up", "Tells the code of a door.")
    assert function["parameters"]["properties"] == {"door": {"type": "string"}}


@pytest.mark.parametrize("name", MAIN)
async def test_no_system_calls_tools_beyond_its_rounds(name: str) -> None:
    """A model that would call tools for ever gets as many chances as every other system's, and the run ends."""
    found, _ = await attempted(name, [endless])
    assert found.error is None
    assert not found.correct
    assert 1 <= sum(call.offers_tools for call in found.model_calls) <= SETTINGS.limits.rounds
    assert all(call.is_error for call in found.tool_calls)
    assert 1 <= len(found.tool_calls) <= SETTINGS.limits.rounds


@pytest.mark.parametrize("name", [name for name in SYSTEMS if not name.startswith("agentloop")])
async def test_no_system_repeats_a_failed_request_on_its_own(name: str) -> None:
    """A server error fails the attempt of a system without loop control at once: no client tries again in secret."""
    found, server = await attempted(name, [Reply(status=500, message="out of order")])
    assert found.error is not None
    assert "out of order" in found.error
    assert "Traceback" not in found.error
    assert len(server.bodies) == len(found.model_calls) == 1
    assert found.model_calls[0].status == 500


@pytest.mark.parametrize("name", ["autogen", "autogen-team", "magentic-one", "fc-reflection", "langgraph", "agentloop"])
async def test_a_system_that_hangs_ends_at_its_time_limit(name: str) -> None:
    """A model that never answers ends the attempt at the limit; the open request is cut off and counted."""
    settings = replace(SETTINGS, limits=Limits(timeout_s=1.0))
    began = asyncio.get_running_loop().time()
    found, server = await attempted(name, [Reply(hang=True)], settings)
    assert asyncio.get_running_loop().time() - began < 6
    assert not found.correct
    assert [call.status for call in found.model_calls] == [499] * len(server.bodies)
    assert all(call.estimated for call in found.model_calls)


async def test_the_controlled_agent_tells_how_its_run_ended() -> None:
    """The outcome of loop control stands in the record, with its decisions."""
    found, _ = await attempted("agentloop", [sensible])
    assert found.outcome is not None
    assert found.outcome.stop_reason in (StopReason.ANSWERED, StopReason.SYNTHESISED)
    assert found.outcome.decisions
    assert found.stop_reason == found.outcome.stop_reason.value


async def test_an_ablation_switches_exactly_its_addition_off() -> None:
    """Each ablation is named after what it leaves out, and differs from the full system in that alone."""
    names = [name for name in SYSTEMS if name.startswith("agentloop-without-")]
    assert [name.removeprefix("agentloop-without-").replace("-", "_") for name in names] == [
        "typed_slots",
        "grounding",
        "novelty",
        "patterns",
        "two_strikes",
        "cheap_first",
    ]
    lying = {**VERDICT, "slots": [{**VERDICT["slots"][0], "quote": "the code is 9999"}]}  # type: ignore[index]

    def liar(body: dict[str, Any]) -> Reply:
        return Reply(content=json.dumps(lying), usage=USAGE) if "response_format" in body else sensible(body)

    grounded, _ = await attempted("agentloop", [liar])
    trusting, _ = await attempted("agentloop-without-grounding", [liar])
    assert len(trusting.model_calls) < len(grounded.model_calls)


async def test_reflection_sends_an_answer_back_that_the_model_itself_rejects() -> None:
    """FC-Reflection goes on after its own judgement, at most twice, and answers with the last text."""
    script = ["first", "That is no code.", "second", "Still no code.", "third"]
    found, server = await attempted("fc-reflection", script)
    assert (found.answer, found.stop_reason) == ("third", "no reflections left")
    assert ["tools" in body for body in server.bodies] == [True, False, True, False, True]
    assert "That is no code." in json.dumps(server.bodies[2]["messages"])


async def test_langgraph_at_its_limit_has_no_answer() -> None:
    """At its recursion limit the library gives no answer, and none is made up for it."""
    found, _ = await attempted("langgraph", [endless])
    assert (found.answer, found.stop_reason, found.error) == ("", "recursion limit", None)
    assert len(found.model_calls) == SETTINGS.limits.rounds


@pytest.mark.parametrize("name", ["autogen", "langgraph", "fc-reflection", "agentloop"])
async def test_odd_calls_are_error_results_for_the_model(name: str) -> None:
    """A tool that does not exist, or arguments that are no object, end no attempt: the model is told and goes on."""

    def odd(body: dict[str, Any]) -> Reply:
        asked = sum(message["role"] == "assistant" for message in body["messages"])
        if body.get("tools") and asked < 1:
            return Reply(tool_calls=[tool_call("open_door", {"door": "blue"})], usage=USAGE)
        return sensible(body)

    found, _ = await attempted(name, [odd])
    assert found.error is None
    assert found.correct
    assert [call.name for call in found.tool_calls] == ["look_up"]


def test_an_unknown_system_is_refused_before_anything_runs() -> None:
    """A wrong name is told with the right ones; naming one twice makes it once."""
    with pytest.raises(UsageError, match=r"no system 'autogem'.*autogen, autogen-team"):
        make_systems(["autogen", "autogem"])
    with pytest.raises(UsageError, match="no system was named"):
        make_systems([])
    assert [system.name for system in make_systems(["autogen", "agentloop", "autogen"])] == ["autogen", "agentloop"]


def test_a_missing_library_is_told_for_its_system_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without LangGraph only its own system cannot be made, and the error names the extra."""
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> object:
        if name.split(".")[0] in ("langchain", "langchain_openai", "langgraph"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtraError, match=r"LangGraph needs the extra `bench`"):
        make_systems(["langgraph"])
    others: Mapping[str, object] = {name: make_systems([name]) for name in SYSTEMS if name != "langgraph"}
    assert len(others) == len(SYSTEMS) - 1
