"""Handing the task to another agent: it wins over everything else, and keeps AutoGen's contract to the letter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff, TaskResult
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.messages import HandoffMessage
from autogen_agentchat.teams import Swarm
from autogen_core import FunctionCall

from agentloop_autogen import LoopConfig, StopReason, Verdict
from agentloop_autogen.testing import ScriptedVerifier

from .scripted_model import (
    CLOSED,
    Item,
    ScriptedModel,
    agent_of,
    call,
    dangling,
    open_verdict,
    outcome_of,
    result,
)


def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


def reply_of(done: TaskResult) -> HandoffMessage:
    """The handoff a run ended with."""
    message = done.messages[-1]
    assert isinstance(message, HandoffMessage)
    return message


@pytest.mark.parametrize("verdict", [open_verdict(), CLOSED])
async def test_a_handoff_wins_over_every_verdict(verdict: Verdict) -> None:
    """A handoff ends the run at once, whatever a verifier would say: it is not even asked."""
    verifier = ScriptedVerifier([verdict])
    agent = agent_of(ScriptedModel([call("transfer_to_b")]), verifier, tools=[add], handoffs=["b"])
    message = reply_of(await agent.run(task="go"))
    assert message.target == "b"
    assert message.content == "Transferred to b, adopting the role of b immediately."
    assert message.metadata["agentloop.stop_reason"] == "handoff"
    assert message.metadata["agentloop.branch"] == "handoff_break"
    assert verifier.calls == []
    outcome = outcome_of(agent)
    assert outcome.stop_reason is StopReason.HANDOFF
    assert (outcome.rounds, outcome.tool_calls) == (1, 0)
    assert await dangling(agent.model_context) == []


async def test_a_handoff_wins_over_a_spent_budget() -> None:
    """Tool calls beyond the budget are refused, the handoff in the same reply is not."""
    calls = [call("add", {"a": 1}, call_id="1"), call("transfer_to_b", call_id="2")]
    model = ScriptedModel([calls])
    agent = agent_of(model, tools=[add], handoffs=["b"], loop=LoopConfig(max_tool_calls=0, max_rounds=1))
    assert reply_of(await agent.run(task="go")).target == "b"


_SCRIPTS: list[list[FunctionCall]] = [
    [call("transfer_to_b", call_id="h")],
    [call("add", '{"a":1,  "b":2}', call_id="n"), call("transfer_to_b", call_id="h")],
    [
        call("add", {"a": 1}, call_id="n"),
        call("transfer_to_b", call_id="h"),
        call("transfer_to_user", call_id="u"),
        call("add", {"a": 5, "b": 5}, call_id="m"),
    ],
    [call("transfer_to_user", call_id="u"), call("transfer_to_b", call_id="h")],
    [call("nope", {"a": 1}, call_id="n"), call("transfer_to_b", call_id="h")],
]


@pytest.mark.parametrize("thought", [None, "it is for b"])
@pytest.mark.parametrize("calls", _SCRIPTS)
@pytest.mark.filterwarnings("ignore:Multiple handoffs detected:UserWarning")  # AutoGen's, and part of its contract
async def test_handoffs_are_what_autogen_makes_of_them(calls: list[FunctionCall], thought: str | None) -> None:
    """Target, text and context pair of a handoff are AutoGen's bit for bit; the first handoff wins."""
    script = [result(list(calls), thought=thought)]
    options: dict[str, Any] = {"tools": [add], "handoffs": ["b", "user"]}
    theirs = AssistantAgent("agent", ScriptedModel(script), **options)
    ours = agent_of(ScriptedModel(script), **options)
    expected = reply_of(await theirs.run(task="go"))
    given = reply_of(await ours.run(task="go"))
    volatile = {"id", "created_at", "metadata", "models_usage"}
    wanted = expected.model_dump(exclude=volatile)
    if any(item.name == "nope" for item in calls):
        # Both say that there is no such tool, each in its own words.
        for message in (wanted, made := given.model_dump(exclude=volatile)):
            assert message["context"][1]["content"][0].pop("content")
        assert made == wanted
        return
    assert given.model_dump(exclude=volatile) == wanted


@pytest.mark.parametrize("arguments", ["null", "[1]", "", "7", '"x"', "{", '{"reason": "because"}'])
async def test_odd_handoff_arguments_hand_over_all_the_same(arguments: str) -> None:
    """Arguments that are no object neither hang the run nor become the text of the handoff."""
    agent = agent_of(ScriptedModel([call("transfer_to_b", arguments)]), handoffs=["b"])
    message = reply_of(await asyncio.wait_for(agent.run(task="go"), 3))
    assert message.content == "Transferred to b, adopting the role of b immediately."
    assert await dangling(agent.model_context) == []


@pytest.mark.parametrize("handoff", ["客服", "b" * 80, Handoff(target="b", name="übergabe", message="take it")])
async def test_unusual_handoff_names_hand_over(handoff: Any) -> None:
    """A handoff whose name is not ASCII, or very long, is recognised."""
    wanted = handoff if isinstance(handoff, Handoff) else Handoff(target=handoff)
    agent = agent_of(ScriptedModel([call(wanted.name)]), handoffs=[handoff])
    message = reply_of(await agent.run(task="go"))
    assert (message.target, message.content) == (wanted.target, wanted.message)


async def test_a_handoff_to_the_user_ends_the_swarm_and_resumes() -> None:
    """A Swarm stops at a handoff to the user, and goes on with the user's handoff message and a fresh run."""
    script: Sequence[Item] = [call("transfer_to_user"), call("add", {"a": 20, "b": 22}), "42"]
    verifier = ScriptedVerifier([open_verdict(), CLOSED])
    agent = agent_of(ScriptedModel(script), verifier, tools=[add], handoffs=["user"])
    team = Swarm([agent], termination_condition=HandoffTermination("user") | TextMentionTermination("42"))
    first = await team.run(task="add my numbers")
    assert reply_of(first).target == "user"
    answer = HandoffMessage(source="user", target="agent", content="they are 20 and 22")
    await team.run(task=answer)
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED
    assert outcome_of(agent).tool_calls == 1
    assert "they are 20 and 22" in verifier.calls[0].request


async def test_a_handoff_passes_the_work_on_to_the_next_agent() -> None:
    """The agent that takes over sees the results of the round that handed over, and the task it is about."""
    calls = [call("add", {"a": 3, "b": 4}, call_id="n"), call("transfer_to_b", call_id="h")]
    first = agent_of(ScriptedModel([calls]), name="a", tools=[add], handoffs=["b"])
    verifier = ScriptedVerifier([CLOSED])
    model = ScriptedModel(["it is 7"])
    second = agent_of(model, verifier, name="b", handoffs=["a"])
    await Swarm([first, second], max_turns=2).run(task="add 3 and 4")
    assert "add 3 and 4" in verifier.calls[0].request
    assert model.requests[0].text.splitlines()[-2] == "7"
