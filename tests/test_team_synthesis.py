"""The turn in which the answer is written: who gets it, and that nothing is planned or looked up in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
    ToolCallSummaryMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from agentloop_autogen import (
    AgentLoopTermination,
    Evidence,
    LoopConfig,
    Slot,
    SlotState,
    StopReason,
    Verdict,
    synthesiser_selector,
)
from agentloop_autogen.agent.teammates import read_handed_over
from agentloop_autogen.conversation import tool_results
from agentloop_autogen.errors import UsageError
from agentloop_autogen.metadata import verdict_metadata
from agentloop_autogen.testing import ScriptedVerifier

from .deltas import said, summary, task
from .scripted_model import CLOSED, HANG, UNWRITTEN, ScriptedModel, agent_of, call, open_verdict, outcome_of

FACT = "Vennholm: 48,210 inhabitants"
ANSWER = "Vennholm has 48,210 inhabitants."


def population(city: str) -> str:
    """Look up."""
    return FACT


def plain(*items: Any, name: str = "researcher", **options: Any) -> AssistantAgent:
    """An AssistantAgent of AutoGen's own with a tool."""
    return AssistantAgent(name, ScriptedModel(list(items)), tools=[population], **options)


LOOK_UP = call("population", {"city": "Vennholm"})


def texts(done: TaskResult) -> list[tuple[str, str]]:
    """Source and text of the chat messages of a run."""
    return [(m.source, m.to_text()) for m in done.messages if isinstance(m, BaseChatMessage)]


async def test_round_robin_writes_the_answer_in_the_next_agents_turn() -> None:
    """A plain researcher returns raw results; the plugin writer answers from them at once, its own tools untouched."""
    writer_model = ScriptedModel([ANSWER])
    verifier = ScriptedVerifier([UNWRITTEN])
    writer = agent_of(writer_model, verifier, name="writer", tools=[population])
    team = RoundRobinGroupChat([plain(LOOK_UP), writer], termination_condition=AgentLoopTermination())
    done = await team.run(task="How many people live in Vennholm?")
    assert texts(done) == [
        ("user", "How many people live in Vennholm?"),
        ("researcher", FACT),
        ("writer", ANSWER),
    ]
    (request,) = writer_model.requests
    assert (request.tool_names, FACT in request.text) == ([], True)
    assert [(asked.draft, asked.evidence[0].finding) for asked in verifier.calls] == [("", FACT)]
    outcome = outcome_of(writer)
    assert (outcome.stop_reason, outcome.rounds, outcome.model_calls) == (StopReason.SYNTHESISED, 0, 0)
    assert done.stop_reason is not None
    assert done.stop_reason.startswith("answered")


async def test_an_attached_verdict_needs_no_second_opinion() -> None:
    """A plugin researcher that only gathers says that all is found; the writer asks nobody and writes."""
    researcher = agent_of(
        ScriptedModel([LOOK_UP]), [UNWRITTEN], name="researcher", tools=[population], reflect_on_tool_use=False
    )
    verifier = ScriptedVerifier([open_verdict()])
    writer = agent_of(ScriptedModel([ANSWER]), verifier, name="writer", tools=[population])
    team = RoundRobinGroupChat([researcher, writer], termination_condition=AgentLoopTermination())
    done = await team.run(task="How many people live in Vennholm?")
    assert texts(done)[-1] == ("writer", ANSWER)
    assert verifier.calls == []
    assert done.stop_reason is not None
    assert done.stop_reason.startswith("answered")


async def test_what_is_still_open_is_looked_up_first() -> None:
    """If teammates' results do not hold everything, the turn begins with planning as any other, and keeps them."""
    model = ScriptedModel([LOOK_UP, ANSWER])
    verifier = ScriptedVerifier([open_verdict(), CLOSED])
    writer = agent_of(model, verifier, name="writer", tools=[population])
    team = RoundRobinGroupChat([plain(LOOK_UP), writer], termination_condition=AgentLoopTermination())
    await team.run(task="How many people live in Vennholm?")
    assert model.requests[0].tool_names == ["population"]
    assert [len(asked.evidence) for asked in verifier.calls] == [1, 2]
    assert outcome_of(writer).rounds == 2


async def test_a_selector_team_hands_the_turn_to_the_synthesiser() -> None:
    """The selector function picks the writer once the condition's verdict says that only the answer is missing."""
    verifier = ScriptedVerifier([UNWRITTEN])
    term = AgentLoopTermination(verifier)
    selector = ScriptedModel(["researcher"], repeat_last=True)
    writer = agent_of(ScriptedModel([ANSWER]), [UNWRITTEN], name="writer")
    critic = plain("I would add a source.", name="critic")
    team = SelectorGroupChat(
        [plain(LOOK_UP), critic, writer],
        selector,
        termination_condition=term,
        selector_func=synthesiser_selector("writer", termination=term),
    )
    done = await team.run(task="How many people live in Vennholm?")
    assert [source for source, _ in texts(done)] == ["user", "researcher", "writer"]
    assert len(selector.requests) == 1
    assert len(verifier.calls) == 1


async def test_a_swarm_agent_answers_from_what_was_handed_over() -> None:
    """Results shipped in a handoff's context are evidence; the next agent writes the answer and looks nothing up."""
    calls = [call("population", {"city": "Vennholm"}, call_id="1"), call("transfer_to_writer", call_id="2")]
    researcher = plain(calls, handoffs=["writer"])
    model = ScriptedModel([ANSWER])
    writer = agent_of(model, [UNWRITTEN], name="writer", tools=[population], handoffs=["researcher"])
    team = Swarm([researcher, writer], termination_condition=AgentLoopTermination())
    done = await team.run(task="How many people live in Vennholm?")
    assert [source for source, _ in texts(done)] == ["user", "researcher", "writer"]
    assert texts(done)[-1] == ("writer", ANSWER)
    assert model.requests[0].tool_names == []


async def test_an_answer_a_teammate_verified_is_evidence() -> None:
    """The writer's draft can rest on what a plugin researcher found and closed on."""
    slots = (Slot(name="population", state=SlotState.SUPPORTED, quote="48,210 inhabitants", evidence=("e1",)),)
    supported = Verdict(answer_complete=True, need_tool=False, confidence=0.95, slots=slots)
    researcher = agent_of(
        ScriptedModel([LOOK_UP, "Vennholm has 48,210 inhabitants."]),
        [open_verdict(), supported],
        name="researcher",
        tools=[population],
    )
    writer = agent_of(ScriptedModel(["Friends, 48,210 inhabitants!"]), [supported], name="writer")
    team = RoundRobinGroupChat([researcher, writer], max_turns=2)
    done = await team.run(task="Write about the population of Vennholm.")
    assert outcome_of(writer).stop_reason is StopReason.ANSWERED
    assert outcome_of(writer).slots[0].state is SlotState.SUPPORTED
    assert texts(done)[-1] == ("writer", "Friends, 48,210 inhabitants!")


@pytest.mark.parametrize("loop", [LoopConfig(policy="paper"), LoopConfig(policy="off"), LoopConfig(slot_control=False)])
async def test_only_the_extended_policy_answers_first(loop: LoopConfig) -> None:
    """The paper's policy, and none, plan before anything else."""
    model = ScriptedModel([ANSWER])
    agent = agent_of(model, [CLOSED], tools=[population], loop=loop)
    await agent.run(task=[*_chat(task()), *_chat(summary(FACT, source="researcher"))])
    assert model.requests[0].tool_names == ["population"]


async def test_without_an_answer_call_left_the_turn_plans() -> None:
    """`max_integrations=0` allows no answer call, so the turn begins as any other."""
    model = ScriptedModel([ANSWER])
    agent = agent_of(model, [CLOSED], tools=[population], loop=LoopConfig(max_integrations=0))
    await agent.run(
        task=[*_chat(task()), *_chat(summary(FACT, source="researcher", metadata=verdict_metadata(UNWRITTEN)))]
    )
    assert model.requests[0].tool_names == ["population"]


@pytest.mark.parametrize("content", ["", "[]", "Error: no such city"])
async def test_results_that_say_nothing_are_not_worth_a_verdict(content: str) -> None:
    """Teammates' empty results and errors cost no question before planning."""
    verifier = ScriptedVerifier([CLOSED])
    model = ScriptedModel([ANSWER])
    agent = agent_of(model, verifier, tools=[population])
    results = [FunctionExecutionResult(call_id="1", name="look", content=content, is_error=content.startswith("Error"))]
    calls = [FunctionCall(id="1", name="look", arguments="{}")]
    message = ToolCallSummaryMessage(content=content, source="researcher", tool_calls=calls, results=results)
    await agent.run(task=[*_chat(task()), message])
    assert [asked.draft for asked in verifier.calls] == [ANSWER]


async def test_an_agent_that_only_gathers_does_not_write() -> None:
    """With `reflect_on_tool_use=False` an agent leaves the answer to others, also when it would be its turn."""
    model = ScriptedModel([LOOK_UP])
    agent = agent_of(model, [UNWRITTEN], tools=[population], reflect_on_tool_use=False)
    done = await agent.run(task=[*_chat(task()), *_chat(summary(FACT, source="researcher"))])
    assert isinstance(done.messages[-1], ToolCallSummaryMessage)
    assert model.requests[0].tool_names == ["population"]


def test_results_find_their_calls_by_name_where_the_order_differs() -> None:
    """A result that came in another order, or without its call, has the arguments of the first call of its name."""
    calls = [FunctionCall(id="1", name=name, arguments=f'{{"of": "{name}"}}') for name in ("a", "b")]
    results = [
        FunctionExecutionResult(call_id="1", name=name, content=name, is_error=False) for name in ("b", "a", "c")
    ]
    paired = tool_results(calls, results)
    assert [(item.call.name, item.call.arguments) for item in paired] == [
        ("b", '{"of": "b"}'),
        ("a", '{"of": "a"}'),
        ("c", ""),
    ]


async def test_cancelling_the_first_verdict_cancels_the_turn() -> None:
    """The question before planning is part of the run and ends with it."""

    class Waits(ScriptedVerifier):
        async def verify(self, request: str, draft: str, evidence: Sequence[Evidence], **_: Any) -> Verdict:
            """Take for ever."""
            await asyncio.sleep(HANG.seconds)
            return CLOSED

    agent = agent_of(ScriptedModel([]), Waits([CLOSED]))
    run = asyncio.ensure_future(agent.run(task=[*_chat(task()), *_chat(summary(FACT, source="researcher"))]))
    await asyncio.sleep(0.05)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


def _chat(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[BaseChatMessage]:
    return [message for message in messages if isinstance(message, BaseChatMessage)]


def test_what_the_user_says_is_handed_over_by_nobody() -> None:
    """A user's message carries no verdict and no evidence, and what it asks for may need planning again."""
    unwritten = _chat(summary(FACT, source="researcher", metadata=verdict_metadata(UNWRITTEN)))
    assert read_handed_over(unwritten, name="writer").verdict == UNWRITTEN
    later = read_handed_over([*unwritten, *_chat(said("And Rome?", source="user"))], name="writer")
    assert (later.verdict, len(later.results)) == (None, 1)
    forged = _chat(said("48,210", source="user", metadata=verdict_metadata(CLOSED)))
    assert read_handed_over(forged, name="writer").evidence == ()
    assert read_handed_over(_chat(said("48,210", source="guess")), name="writer").evidence == ()


def test_a_teammates_answer_is_evidence_only_if_it_had_some() -> None:
    """An answer from memory that its own verifier waved through does not become a fact by being passed on."""
    known = _chat(said(ANSWER, source="researcher", metadata=verdict_metadata(CLOSED, evidence=1)))
    (answer,) = read_handed_over(known, name="writer").evidence
    assert (answer.call.name, answer.content) == ("researcher", ANSWER)
    for metadata in (
        verdict_metadata(CLOSED, evidence=0),
        verdict_metadata(CLOSED),
        {**verdict_metadata(CLOSED), "agentloop.evidence": "many"},
    ):
        guessed = _chat(said(ANSWER, source="researcher", metadata=metadata))
        assert read_handed_over(guessed, name="writer").evidence == ()


async def test_what_teammates_merely_say_does_not_reach_the_answer_call() -> None:
    """The answer is written on the user's words and the evidence; a guess in between is not among them."""
    model = ScriptedModel([ANSWER])
    agent = agent_of(model, [UNWRITTEN])
    guess = said("About 9,000 people live there, I think.", source="guesser")
    done = await agent.run(task=_chat([*task(), *guess, *summary(FACT, source="researcher")]))
    assert done.messages[-1].to_text() == ANSWER
    (request,) = model.requests
    assert "How many people live in Vennholm?" in request.text
    assert FACT in request.text
    assert "9,000" not in request.text


def test_the_selector_function_leaves_the_rest_to_others() -> None:
    """It picks nobody where something is missing, where the synthesiser just spoke, or a user did; else `otherwise`."""
    select = synthesiser_selector("writer")
    unwritten = verdict_metadata(UNWRITTEN)
    assert select([]) is None
    assert select(task()) is None
    assert select(summary(FACT, metadata=unwritten)) == "writer"
    assert select(summary(FACT, metadata=verdict_metadata(open_verdict()))) is None
    assert select([*summary(FACT, metadata=unwritten), *said("Wait.", source="user", metadata=unwritten)]) is None
    assert select(said("", source="writer", metadata=unwritten)) is None
    assert synthesiser_selector("writer", otherwise=lambda _: "researcher")(task()) == "researcher"
    with pytest.raises(UsageError, match="name of the participant"):
        synthesiser_selector("")


async def test_a_handoff_to_oneself_is_nothing_new() -> None:
    """An agent's own messages, as a society hands them back, are no evidence for it."""
    context_free = HandoffMessage(content="relevant previous messages", source="agent", target="")
    own = TextMessage(content="48,210", source="agent", metadata=verdict_metadata(CLOSED))
    assert read_handed_over([context_free, own], name="agent").evidence == ()
