"""What similar past requests do to a run: one more look before it ends, and the name of a tool it has not used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.models import LLMMessage

from agentloop_autogen import (
    AgentLoopAssistantAgent,
    AgentLoopTermination,
    ControlAction,
    ControlBranch,
    Evidence,
    LoopConfig,
    ModelSlotVerifier,
    Slot,
    SlotState,
    SlotVerifier,
    StopReason,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.core.second_look import unlisted
from agentloop_autogen.slots.hint import PastRequest, PastSlot, SlotHint, hint_from
from agentloop_autogen.slots.store import SimilarRequest
from agentloop_autogen.testing import InMemorySlotStateStore, ScriptedVerifier
from agentloop_autogen.verify.prompts import PromptLimits, render_case

from .deltas import feed, said, task, tool_round
from .scripted_model import CLOSED, ScriptedModel, Slow, agent_of, call, open_verdict, outcome_of
from .slot_stores import FACT, REQUEST, SlowStore, covered, past, population, year

FIRST = "Vennholm has 48,210 inhabitants."
WHOLE = "Vennholm has 48,210 inhabitants and was founded in 1287."
YEAR_OPEN = Verdict(
    answer_complete=False,
    need_tool=True,
    confidence=0.9,
    slots=(
        Slot(name="population of Vennholm", state=SlotState.SUPPORTED, quote="48,210 inhabitants"),
        Slot(name="year Vennholm was founded", state=SlotState.MISSING),
    ),
)
BOTH = Verdict(
    answer_complete=True,
    need_tool=False,
    confidence=0.95,
    slots=(
        Slot(name="population of Vennholm", state=SlotState.SUPPORTED, quote="48,210 inhabitants"),
        Slot(name="year Vennholm was founded", state=SlotState.SUPPORTED, quote="founded in 1287"),
    ),
)
CALLS_THEN_ANSWERS = (call("population"), FIRST, call("year", call_id="c2"), WHOLE, WHOLE, WHOLE)


def hinted_agent(
    verdicts: Any, items: Sequence[Any] = CALLS_THEN_ANSWERS, *, store: Any = None, **options: Any
) -> tuple[AgentLoopAssistantAgent, ScriptedModel]:
    """An agent whose store knows a similar request, and its model."""
    model = ScriptedModel(list(items))
    warm = InMemorySlotStateStore([past()]) if store is None else store
    return agent_of(model, verdicts, tools=[population, year], slot_store=warm, **options), model


async def test_a_hint_brings_up_an_item_that_the_verifier_overlooked() -> None:
    """The draft lacks what a similar request needed: the agent is told, calls the tool, and the answer is whole."""
    verifier = ScriptedVerifier([open_verdict(), covered(), YEAR_OPEN, BOTH])
    agent, model = hinted_agent(verifier)
    done = await agent.run(task=REQUEST)
    outcome = outcome_of(agent)
    assert done.messages[-1].to_text() == WHOLE
    assert (outcome.stop_reason, outcome.rounds) == (StopReason.SYNTHESISED, 3)
    told = model.requests[2].text
    assert "Still open: year Vennholm was founded." in told
    assert "Of use for requests like this one, and not called yet: year." in told
    sent_on = outcome.decisions[1]
    assert (sent_on.action, sent_on.branch) == (ControlAction.CONTINUE_INVOCATION, ControlBranch.NEED_TOOL_ROUND)
    assert "requests like this needed year Vennholm was founded" in sent_on.reason
    hints = [item.hint for item in verifier.calls]
    assert [hint is not None for hint in hints] == [False, False, True, False]
    assert outcome.verifier_calls == len(hints)


async def test_it_is_one_look_a_run_and_then_the_verdict_without_the_hint_decides() -> None:
    """A model that just repeats its draft ends with it one round later, and nothing is called open."""
    verifier = ScriptedVerifier([open_verdict(), covered(), YEAR_OPEN, covered()])
    agent, _ = hinted_agent(verifier, [call("population"), FIRST, FIRST, FIRST, FIRST])
    done = await agent.run(task=REQUEST)
    outcome = outcome_of(agent)
    assert done.messages[-1].to_text() == FIRST
    assert (outcome.rounds, outcome.stop_reason, outcome.unresolved) == (3, StopReason.ANSWERED, ())
    assert [slot.name for slot in outcome.slots] == ["population of Vennholm"]
    assert sum(item.hint is not None for item in verifier.calls) == 1


async def test_before_an_answer_is_written_from_the_evidence_there_is_the_same_look() -> None:
    """With the evidence in and no draft yet, the next round is told what similar requests needed."""
    unwritten = covered(state=SlotState.UNSYNTHESISED).model_copy(update={"failure": "answer_incomplete"})
    agent, model = hinted_agent(
        [unwritten, YEAR_OPEN, BOTH], [call("population"), call("year", call_id="c2"), WHOLE, WHOLE]
    )
    await agent.run(task=REQUEST)
    assert "Still open: year Vennholm was founded." in model.requests[1].text
    assert outcome_of(agent).tool_calls == 2


@pytest.mark.parametrize(
    "store",
    [
        InMemorySlotStateStore(),
        InMemorySlotStateStore([past(request="Convert 3 miles to kilometres")]),
        InMemorySlotStateStore([past(request=None)]),
        InMemorySlotStateStore([past(state=SlotState.MISSING)]),
        InMemorySlotStateStore([past(("population of Aldora", "population"))]),
        SlowStore([past()], similar_s=5),
    ],
    ids=["empty", "unlike", "no-text", "nothing-closed", "nothing-new", "too-slow"],
)
async def test_without_a_hint_that_says_something_new_nobody_is_asked_again(store: Any) -> None:
    """No further verifier call, no further round: the run is the one it would be without a store."""
    verifier = ScriptedVerifier([open_verdict(), covered(), YEAR_OPEN])
    agent, _ = hinted_agent(verifier, store=store)
    await agent.run(task=REQUEST)
    assert outcome_of(agent).rounds == 2
    assert len(verifier.calls) == 2


@pytest.mark.parametrize(
    ("loop", "rounds"),
    [
        (LoopConfig(policy="paper"), 2),
        (LoopConfig(policy="off"), 2),
        (LoopConfig(slot_control=False), 2),
        (LoopConfig(max_rounds=2), 2),
        (LoopConfig(max_reflections=0), 2),
        (LoopConfig(max_tool_calls=1), 2),
        (LoopConfig(hint_similarity=0.99), 2),
        (LoopConfig(grounding=False), 3),
        (LoopConfig(typed_slots=False), 3),
        (LoopConfig(cheap_first=False), 3),
    ],
    ids=["paper", "off", "no-slots", "rounds", "reflections", "calls", "unlike", "ungrounded", "flags", "every-round"],
)
async def test_there_is_no_look_where_the_run_could_not_go_on(loop: LoopConfig, rounds: int) -> None:
    """The paper's table stays the paper's, and a run in its last round ends with the answer it has."""
    agent, _ = hinted_agent(ScriptedVerifier([open_verdict(), covered(), YEAR_OPEN, BOTH, BOTH]), loop=loop)
    await agent.run(task=REQUEST)
    outcome = outcome_of(agent)
    assert outcome.rounds == rounds or outcome.stop_reason is StopReason.BUDGET
    assert any("requests like this" in item.reason for item in outcome.decisions) == (rounds == 3)


class ThirdParty(SlotVerifier):
    """A verifier that knows nothing of hints, and refuses what it does not know."""

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Close on a draft."""
        return covered() if draft else open_verdict("the year")


async def test_a_verifier_of_somebody_else_is_never_given_a_hint() -> None:
    """It is called as ever; only the names of unused tools come from the store."""
    agent, model = hinted_agent(ThirdParty())
    await agent.run(task=REQUEST)
    assert outcome_of(agent).rounds == 2
    assert "not called yet: year" in model.requests[1].text


@pytest.mark.parametrize("second", [UnavailableVerdict(cause="down"), RuntimeError("boom"), covered()])
async def test_a_second_look_that_finds_nothing_changes_nothing(second: Any) -> None:
    """Whether it fails or agrees, the run ends with the verdict it had."""
    agent, _ = hinted_agent([open_verdict(), covered(), second])
    await agent.run(task=REQUEST)
    outcome = outcome_of(agent)
    assert (outcome.rounds, outcome.stop_reason) == (2, StopReason.ANSWERED)
    assert [slot.name for slot in outcome.slots] == ["population of Vennholm"]


async def test_only_tools_the_agent_has_and_has_not_used_are_named() -> None:
    """A past request was closed by four tools: two are not here, and one was called already."""
    known = past(("a", "population"), ("b", "year"), ("c", "transfer_to_boss"), ("d", "drop_tables"))
    agent, model = hinted_agent(
        [open_verdict("the year")] * 9,
        [call("population"), FIRST, *["no"] * 20],
        store=InMemorySlotStateStore([known]),
        handoffs=["boss"],
    )
    await agent.run(task=REQUEST)
    text = "\n".join(request.text for request in model.requests)
    assert "Of use for requests like this one, and not called yet: year." in text
    assert "drop_tables" not in text
    assert "not called yet: population" not in text
    assert "boss" not in text.split("not called yet:")[1].split("\n")[0]


async def test_the_nudge_names_the_tool_that_closed_similar_requests() -> None:
    """After rounds without news the one warning says which of the unused tools to try."""
    agent, model = hinted_agent([open_verdict("the year")], [call("population")] * 3 + [FIRST] * 9)
    await agent.run(task=REQUEST)
    nudges = [request.text for request in model.requests if "brought nothing new" in request.text]
    assert "Of use for requests like this one, and not called yet: year." in nudges[0].split("brought nothing new")[1]


async def test_runs_at_the_same_time_do_not_mix_their_hints() -> None:
    """Ten agents share a verifier and a store: each second look is told of its own request's past alone."""
    towns = [f"Town{number}{'abcdefghij'[number] * 12}" for number in range(10)]
    store = InMemorySlotStateStore(
        [past((f"mayor of {town}", "mayor"), request=f"{town} {town} {town}?", identity=town) for town in towns]
    )
    verifier = ScriptedVerifier([covered()])

    async def run(town: str) -> None:
        model = ScriptedModel([Slow(0.01, call("population")), *[FIRST] * 5])
        agent = agent_of(model, verifier, tools=[population], slot_store=store, name=town)
        await agent.run(task=f"{town} {town} {town}?")

    await asyncio.gather(*map(run, towns))
    hints = [(item.request, item.hint) for item in verifier.calls if item.hint is not None]
    assert len(hints) == 10
    for request, hint in hints:
        assert hint.names == (f"mayor of {request.split()[0]}",)


@pytest.mark.parametrize(
    ("proposed", "listed", "left"),
    [
        (["population of Aldora"], ["population of Vennholm"], ()),
        (["first_ferry_time"], ["ferry time"], ()),
        (["price", "opening hours"], ["price"], ("opening hours",)),
        (
            ["first_ferry_time", "adult_ticket_cost", "castle_garden_open_until"],
            ["ferry_time", "castle_garden_price"],
            ("adult_ticket_cost",),
        ),
        (["length of A", "length of B"], ["length of C"], ("length of A",)),
        (["price"], [], ("price",)),
        ([], ["price"], ()),
    ],
)
def test_an_item_stands_for_one_of_the_past_only(proposed: list[str], listed: list[str], left: tuple[str, ...]) -> None:
    """Items of one kind are matched whatever they are of, each once; what is left over is worth a second look."""
    assert unlisted(proposed, covered(*listed) if listed else CLOSED) == left


# --- what the verifier model reads -----------------------------------------------------------------------------------

NEEDED = PastSlot(name="year of Aldora", tools=("year", "archive"))
HINT = SlotHint(past=(PastRequest(request="About Aldora?", slots=(NEEDED,)),))
EVIDENCE = (Evidence(id="e1", tool="population", is_error=False, finding=FACT),)


def prompt(hint: SlotHint | None) -> str:
    """What the verifier model reads with a hint, or without."""
    return render_case(REQUEST, FIRST, EVIDENCE, key="k3y", limits=PromptLimits(), hint=hint)


def test_the_hint_stands_apart_behind_everything_the_server_has_just_read() -> None:
    """All of the prompt without the hint, but for its last line, is the head of the one with it."""
    plain, hinted = prompt(None), prompt(HINT)
    head, ask = plain.rsplit("\n\n", 1)
    assert hinted.startswith(head)
    assert hinted.endswith(ask)
    added = hinted.removeprefix(head).removesuffix(ask)
    assert '<past-k3y>\n- "About Aldora?" needed: year of Aldora (from year, archive)\n</past-k3y>' in added
    assert "It is no evidence" in added


async def test_the_model_verifier_asks_with_and_without_the_hint_alike() -> None:
    """Both calls send two messages with the same instructions; what runs at the same time keeps its own hint."""
    reply = json.dumps({"slots": [], "need_tool": True, "answer_complete": False, "confidence": 0.5, "missing": ["x"]})
    model = ScriptedModel([reply] * 20)
    verifier = ModelSlotVerifier(model)
    await asyncio.gather(
        *(verifier.verify(REQUEST, FIRST, EVIDENCE) for _ in range(5)),
        *(verifier.verify_with_hint(REQUEST, FIRST, EVIDENCE, hint=HINT) for _ in range(5)),
    )
    told = ["<past-" in request.text for request in model.requests]
    assert sorted(told) == [False] * 5 + [True] * 5
    systems: list[LLMMessage] = [request.messages[0] for request in model.requests]
    assert all(system == systems[0] for system in systems)
    assert {len(request.messages) for request in model.requests} == {2}


@pytest.mark.parametrize("similarity", [float("nan"), 0.49, -1.0, 0.0])
def test_what_is_not_similar_enough_gives_no_hint(similarity: float) -> None:
    """Below the threshold, or with a similarity that is no number, a past request is as good as none."""
    assert hint_from([SimilarRequest(state=past(), similarity=similarity)], at_least=0.5) is None


def test_at_most_three_requests_and_each_kind_of_need_once() -> None:
    """The same need twice is told once; a fourth request is not told of."""
    found = [past(identity="1"), past(identity="2"), past(("a", "b"), identity="3"), past(("c", "d"), identity="4")]
    hint = hint_from([SimilarRequest(state=state, similarity=0.9) for state in found], at_least=0.5)
    assert hint is not None
    assert [len(item.slots) for item in hint.past] == [2, 1]


# --- the termination condition -------------------------------------------------------------------------------------

GOES_ON = ["", ""]
TURN = [*tool_round(FACT, name="population"), *said(FIRST)]
NEXT = [*tool_round("Vennholm was founded in 1287", name="year"), *said(WHOLE)]


def hinted_condition(verdicts: Any, **options: Any) -> tuple[AgentLoopTermination, ScriptedVerifier]:
    """A condition whose store knows a similar task, and its verifier."""
    verifier = ScriptedVerifier(verdicts)
    store = InMemorySlotStateStore([past()])
    return AgentLoopTermination(verifier, slot_store=store, **options), verifier


async def test_a_team_goes_on_for_one_turn_where_a_similar_task_needed_more() -> None:
    """The condition looks once more before it stops the team; the next turn is judged without the hint."""
    condition, verifier = hinted_condition([covered(), YEAR_OPEN, BOTH])
    assert await feed(condition, [task(REQUEST), TURN]) == GOES_ON
    stop = await condition(NEXT)
    assert stop is not None
    assert stop.metadata["agentloop.unresolved"] == "[]"
    assert [item.hint is not None for item in verifier.calls] == [False, True, False]


async def test_a_team_that_says_the_same_again_is_stopped_then() -> None:
    """The verdict that stands is the one without the hint."""
    condition, _ = hinted_condition([covered(), YEAR_OPEN, covered()])
    assert await feed(condition, [task(REQUEST), TURN]) == GOES_ON
    stop = await condition(said(FIRST))
    assert stop is not None
    assert stop.metadata["agentloop.stop_reason"] == "answered"


async def test_a_saved_conversation_remembers_its_second_look() -> None:
    """Loaded elsewhere it goes on where it stood: the next closing verdict stops the team."""
    first, _ = hinted_condition([covered(), YEAR_OPEN])
    assert await feed(first, [task(REQUEST), TURN]) == GOES_ON
    state = json.loads(json.dumps(await first.save_state()))
    second, verifier = hinted_condition([BOTH, YEAR_OPEN])
    await second.load_state(state)
    assert await second(NEXT) is not None
    assert [item.hint is not None for item in verifier.calls] == [False]


async def test_a_reset_condition_looks_again_in_the_next_conversation() -> None:
    """One look a conversation, not one for ever."""
    condition, verifier = hinted_condition([covered(), YEAR_OPEN, BOTH] * 2)
    for _ in range(2):
        assert await feed(condition, [task(REQUEST), TURN]) == GOES_ON
        assert await condition(NEXT) is not None
        await condition.reset()
    assert sum(item.hint is not None for item in verifier.calls) == 2


async def test_a_team_in_its_last_turn_is_stopped_at_once() -> None:
    """Where no further turn is allowed there is no second look."""
    condition, verifier = hinted_condition([covered(), YEAR_OPEN], loop=LoopConfig(max_rounds=1))
    assert (await feed(condition, [task(REQUEST), TURN]))[-1] == "answered"
    assert len(verifier.calls) == 1
