"""Keeping finished runs: what is kept of them, and that no store, however broken, is felt by a run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken

from agentloop_autogen import (
    AgentLoopAssistantAgent,
    AgentLoopTermination,
    ControlBranch,
    LoopConfig,
    Slot,
    SlotState,
    StopReason,
    Verdict,
)
from agentloop_autogen.core.records import Evidence, LoopOutcome
from agentloop_autogen.errors import UsageError
from agentloop_autogen.slots.manager import RuntimeStateManager
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.store import SimilarRequest, SlotStateStore
from agentloop_autogen.slots.summary import FinishedRun, ToolUse, run_of, summarise
from agentloop_autogen.testing import InMemorySlotStateStore, ScriptedVerifier

from .deltas import feed, said, task, tool_round
from .scripted_model import HANG, ScriptedModel, Slow, agent_of, call, open_verdict, outcome_of
from .slot_stores import FACT, REQUEST, FaultyStore, SlowStore, covered, past, population, year

ANSWER = "Vennholm has 48,210 inhabitants."
QUICK = LoopConfig(hint_timeout_s=0.05)


def agent_with(store: SlotStateStore, **options: Any) -> AgentLoopAssistantAgent:
    """An agent that calls one tool and then answers."""
    model = ScriptedModel([call("population", {"town": "Vennholm"}), ANSWER] * 8)
    open_first = Verdict(
        answer_complete=False,
        need_tool=True,
        confidence=0.4,
        slots=(Slot(name="population of Vennholm", state=SlotState.MISSING),),
    )
    verifier = ScriptedVerifier([open_first, covered()] * 8)
    return agent_of(model, verifier, tools=[population, year], slot_store=store, loop=QUICK, **options)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the package warned of."""
    return [record.getMessage() for record in caplog.records if record.name == "agentloop_autogen"]


async def test_a_finished_run_is_kept_in_brief() -> None:
    """Request, slots with the tools that closed them, tools with their counts, how it ended and when."""
    store = InMemorySlotStateStore()
    agent = agent_with(store)
    await agent.run(task=REQUEST)
    await agent.close()
    (state,) = store.states.values()
    assert state.request == REQUEST
    assert [(slot.name, slot.state, slot.closed_by) for slot in state.slots] == [
        ("population of Vennholm", SlotState.SUPPORTED, ("population",))
    ]
    assert [(tool.name, tool.calls, tool.errors) for tool in state.tools] == [("population", 1, 0)]
    assert (state.stop_reason, state.stop_branch) == (StopReason.ANSWERED, ControlBranch.SKIP_DECODE_OUTPUT_BREAK)
    assert (state.confidence, state.rounds) == (0.95, 2)
    assert state.created_at.tzinfo == timezone.utc


async def test_no_result_no_quote_and_no_argument_is_kept() -> None:
    """Only names and counts leave the run: neither what a tool returned nor what it was called with."""
    store = InMemorySlotStateStore()
    agent = agent_with(store)
    await agent.run(task="How many live there?")
    await agent.close()
    (kept,) = [state.model_dump_json() for state in store.states.values()]
    assert "48,210" not in kept
    assert "town" not in kept


async def test_only_calls_that_ran_are_counted() -> None:
    """Of five identical calls in a round three are run, and a handoff is no tool of the request."""
    store = InMemorySlotStateStore()
    calls = [call("population", call_id=f"c{number}") for number in range(5)]
    model = ScriptedModel([calls, call("transfer_to_boss", call_id="h")])
    agent = agent_of(
        model, [open_verdict()], tools=[population], handoffs=["boss"], slot_store=store, loop=LoopConfig(max_rounds=3)
    )
    await agent.run(task=REQUEST)
    await agent.close()
    (state,) = store.states.values()
    assert state.stop_reason is StopReason.HANDOFF
    assert [(tool.name, tool.calls) for tool in state.tools] == [("population", outcome_of(agent).tool_calls)]
    assert outcome_of(agent).tool_calls == 3


async def test_a_team_keeps_its_conversation_when_it_stops() -> None:
    """The condition writes one object: the task, the tools of every turn, and why the team stopped."""
    store = InMemorySlotStateStore()
    condition = AgentLoopTermination(ScriptedVerifier([covered()]), slot_store=store)
    delta = [*tool_round(FACT, name="population"), *said(ANSWER)]
    assert await feed(condition, [task(REQUEST), delta]) == ["", "answered"]
    await until_written(store, 1)
    (state,) = store.states.values()
    assert (state.request, state.rounds, state.stop_reason) == (REQUEST, 1, StopReason.ANSWERED)
    assert state.slots[0].closed_by == ("population",)
    assert [(tool.name, tool.calls) for tool in state.tools] == [("population", 1)]


async def until_written(store: InMemorySlotStateStore, count: int) -> None:
    """Wait for what is written in the background."""
    for _ in range(200):
        if len(store.states) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(store.states)} of {count} objects were written")


async def test_the_answer_does_not_wait_for_the_store() -> None:
    """The run is over before anything is written, and `close` waits for the writing."""
    store = SlowStore(put_s=0.3)
    agent = agent_with(store)
    await agent.run(task=REQUEST)
    assert not store.states
    await agent.close()
    assert len(store.states) == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (OSError("the disk is full"), "the disk is full"),
        (ValueError("api_key=sk-abcdefghijk"), "***"),
        ("hang", "0.05 s"),
        ("cancel", "cancelled"),
        (7, "TypeError"),
        ([7], "AttributeError"),
    ],
    ids=["raises", "secret", "hangs", "cancels", "returns-no-list", "returns-no-objects"],
)
async def test_a_broken_store_is_said_once_and_never_felt(
    fault: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Three runs on a store that fails give the answers they would give without, at once, and one line in the log."""
    store = FaultyStore(fault)
    agent = agent_with(store)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        for _ in range(3):
            done = await agent.run(task=REQUEST)
            assert done.messages[-1].to_text() == ANSWER
            assert outcome_of(agent).stop_reason is StopReason.ANSWERED
        assert time.monotonic() - started < 5
        again = agent_with(store)
        await again.run(task=REQUEST)
        await asyncio.sleep(0.01)
    lines = warnings_in(caplog)
    read = [line for line in lines if "cannot be read" in line]
    assert len(read) == 1
    assert says in read[0]
    assert "\n" not in read[0]
    assert len(lines) <= 2
    assert "sk-abc" not in caplog.text


@dataclass
class Unhashable(InMemorySlotStateStore):
    """A store that is a dataclass, as users write them: it compares by value and has no hash."""

    place: str = ""

    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Fail."""
        raise OSError("gone")

    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Fail."""
        raise OSError("gone")


async def test_a_store_without_a_hash_is_a_store(caplog: pytest.LogCaptureFixture) -> None:
    """Its faults are told of once as well, and reach no run."""
    agent = agent_with(Unhashable())
    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        for _ in range(2):
            await agent.run(task=REQUEST)
            await agent.close()
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED
    assert len(warnings_in(caplog)) == 2


async def test_a_failure_to_write_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A store that cannot be written loses the runs, says so once, and the runs end as they would."""
    agent = agent_with(FaultyStore(OSError("read-only")))
    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        for _ in range(3):
            await agent.run(task=REQUEST)
            await agent.close()
    written = [line for line in warnings_in(caplog) if "cannot be written" in line]
    assert len(written) == 1
    assert "finished runs are not kept: OSError: read-only" in written[0]


def test_what_waits_is_written_when_the_event_loop_ends() -> None:
    """`asyncio.run` around the run alone, without `close`: nothing is lost, not even what was half-way."""
    store = SlowStore(put_s=0.2)
    asyncio.run(_run_once(agent_with(store)))
    assert len(store.states) == 1


async def _run_once(agent: AgentLoopAssistantAgent) -> None:
    await agent.run(task=REQUEST)
    await asyncio.sleep(0.02)


def test_a_store_that_hangs_does_not_hold_up_the_end_of_the_process(caplog: pytest.LogCaptureFixture) -> None:
    """With a write that never ends, the event loop still ends within a few seconds, and that is said."""
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        asyncio.run(_run_once(agent_with(FaultyStore("hang"))))
    assert time.monotonic() - started < 8
    assert any("cannot be written" in line for line in warnings_in(caplog))


def test_one_agent_and_one_store_serve_several_event_loops() -> None:
    """Each loop writes what was run in it; nothing is bound to the first."""
    store = SlowStore(put_s=0.01)
    agent = agent_with(store)
    for _ in range(3):
        asyncio.run(_run_once(agent))
    assert len(store.states) == 3


async def test_many_agents_share_one_store() -> None:
    """Thirty runs at once leave thirty objects: none lost, none twice."""
    store = SlowStore(put_s=0.01)
    agents = [agent_with(store, name=f"agent{number}") for number in range(30)]
    await asyncio.gather(*(agent.run(task=f"{REQUEST} {number}") for number, agent in enumerate(agents)))
    await asyncio.gather(*(agent.close() for agent in agents))
    assert sorted(state.request or "" for state in store.states.values()) == sorted(
        f"{REQUEST} {number}" for number in range(30)
    )


async def test_a_cancelled_run_is_not_kept() -> None:
    """It came to no end, so there is nothing to learn from it; its search for similar requests ends with it."""
    store = SlowStore(similar_s=30)
    token = CancellationToken()
    agent = agent_of(
        ScriptedModel([HANG]), [covered()], tools=[population], slot_store=store, loop=LoopConfig(hint_timeout_s=20)
    )
    running = asyncio.ensure_future(agent.run(task=REQUEST, cancellation_token=token))
    await asyncio.sleep(0.05)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await agent.close()
    assert not store.states
    others = [item for item in asyncio.all_tasks() if item is not asyncio.current_task()]
    await asyncio.wait(others, timeout=1) if others else None
    assert all(item.done() for item in others)


async def test_a_store_that_is_far_too_slow_gets_no_more_than_it_can_hold(caplog: pytest.LogCaptureFixture) -> None:
    """What waits is bounded: beyond it runs are dropped, once said, instead of filling the memory."""
    store = SlowStore(put_s=0.2)
    manager = RuntimeStateManager(store, similarity=0.5, timeout_s=0.1)
    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        for _ in range(400):
            manager.keep(lambda: FINISHED, model="m")
        assert await manager.drain() is True
    assert len(store.states) == 256
    assert len([line for line in warnings_in(caplog) if "dropped" in line]) == 1


async def test_a_run_that_cannot_be_summed_up_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Of three runs the odd one is left out and told of."""
    store = InMemorySlotStateStore()
    manager = RuntimeStateManager(store, similarity=0.5, timeout_s=0.1)

    def odd() -> FinishedRun:
        raise RuntimeError("odd")

    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        for finished in (lambda: FINISHED, odd, lambda: FINISHED):
            manager.keep(finished, model="m")
        await manager.drain()
    assert len(store.states) == 2
    assert "RuntimeError: odd" in caplog.text


async def test_the_search_goes_on_beside_the_first_model_call() -> None:
    """The planning call does not wait for the store: here the store answers only once the model has been asked."""
    asked = asyncio.Event()

    class AfterTheModel(InMemorySlotStateStore):
        async def similar(self, request: str, k: int = 3) -> Any:
            await asked.wait()
            return await super().similar(request, k)

    def plan(_: Any) -> Any:
        asked.set()
        return Slow(0.05, call("population", {"town": "Vennholm"}))

    verifier = ScriptedVerifier([covered(), covered()])
    agent = agent_of(
        ScriptedModel([plan, ANSWER, ANSWER, ANSWER]),
        verifier,
        tools=[population, year],
        slot_store=AfterTheModel([past()]),
        loop=LoopConfig(hint_timeout_s=20),
    )
    await agent.run(task=REQUEST)
    assert any(item.hint is not None for item in verifier.calls)


def condition_on(store: Any) -> object:
    """A condition with whatever is given it as a store."""
    return AgentLoopTermination(slot_store=store)


def agent_on(store: Any) -> object:
    """An agent with whatever is given it as a store."""
    return agent_of(ScriptedModel([]), slot_store=store)


@pytest.mark.parametrize("make", [condition_on, agent_on])
def test_what_is_no_store_is_refused(make: Callable[[Any], object]) -> None:
    """A path in place of a store is wrong use, known at once and not at the first run."""
    with pytest.raises(UsageError, match=r"`slot_store` is a str: give a SlotStateStore"):
        make("slots.db")


async def test_without_a_store_nothing_is_kept_and_nobody_is_asked_more() -> None:
    """Off by default: no write, no search, no further verifier call."""
    verifier = ScriptedVerifier([covered()])
    agent = agent_of(ScriptedModel([call("population"), ANSWER]), verifier, tools=[population])
    await agent.run(task=REQUEST)
    await agent.close()
    assert all(item.hint is None for item in verifier.calls)


async def test_a_team_of_agents_with_stores_runs_as_ever() -> None:
    """In a real team agents and condition may all hold the same store."""
    store = InMemorySlotStateStore()
    team = RoundRobinGroupChat([agent_with(store)], termination_condition=AgentLoopTermination(slot_store=store))
    done = await team.run(task=REQUEST)
    assert done.messages[-1].source == "agent"
    await until_written(store, 2)


# --- the summary ---------------------------------------------------------------------------------------------------

FINISHED = FinishedRun(
    request="How many?",
    stop_reason=StopReason.ANSWERED,
    stop_branch=ControlBranch.STOP_REPLANNING,
    verdict=covered("population"),
    unresolved=(),
    evidence=(Evidence(id="e1", tool="population", is_error=False, finding=FACT),),
    tools=(ToolUse.of("population", FACT, is_error=False),),
    rounds=1,
)


def summed(**changes: Any) -> Any:
    """The object kept of `FINISHED` with these changes."""
    return summarise(replace(FINISHED, **changes), identity="1", model="m", ended_at=datetime.now(timezone.utc))


@pytest.mark.parametrize(
    ("slot", "closed_by"),
    [
        (Slot(name="a", state=SlotState.SUPPORTED, quote="48,210", evidence=("e1",)), ("population",)),
        (Slot(name="a", state=SlotState.SUPPORTED, quote="48,210", evidence=("e9",)), ("population",)),
        (Slot(name="a", state=SlotState.SUPPORTED, quote="nowhere said"), ()),
        (Slot(name="a", state=SlotState.SUPPORTED, quote=""), ()),
        (Slot(name="a", state=SlotState.MISSING, quote="48,210"), ()),
        (Slot(name="a", state=SlotState.UNSYNTHESISED, quote="48,210"), ("population",)),
    ],
    ids=["cited", "wrongly-cited", "invented", "no-quote", "open", "unwritten"],
)
def test_a_tool_closed_a_slot_only_if_its_result_holds_the_quote(slot: Slot, closed_by: tuple[str, ...]) -> None:
    """Whatever the verifier cites, the words must stand in what the tool returned."""
    verdict = Verdict(answer_complete=True, need_tool=False, confidence=1.0, slots=(slot,))
    assert summed(verdict=verdict).slots[0].closed_by == closed_by


def test_errors_and_empty_results_are_counted() -> None:
    """Of four calls two came to nothing."""
    uses = [
        ToolUse.of("look", "found", is_error=False),
        ToolUse.of("look", "boom", is_error=True),
        ToolUse.of("look", "[]", is_error=False),
        ToolUse.of("other", "x", is_error=False),
    ]
    tools = summed(tools=tuple(uses)).tools
    assert [(tool.name, tool.calls, tool.errors) for tool in tools] == [("look", 3, 2), ("other", 1, 0)]


def test_what_stayed_open_without_a_slot_is_kept_as_missing() -> None:
    """An item that only the flags named is an item all the same."""
    state = summed(verdict=None, unresolved=("the price",))
    assert [(slot.name, slot.state) for slot in state.slots] == [("the price", SlotState.MISSING)]
    assert state.confidence == 0.0


def test_all_text_is_bounded() -> None:
    """A run with huge texts and broken characters leaves a small object that has a JSON form."""
    huge = "x" * 1_000_000
    slots = tuple(Slot(name=f"{number} {huge}", state=SlotState.MISSING) for number in range(500))
    verdict = Verdict(answer_complete=False, need_tool=True, confidence=0.0, slots=slots)
    state = summed(request=f"\ud800{huge}", verdict=verdict, tools=(ToolUse.of(huge, "", is_error=True),) * 5)
    assert len(state.model_dump_json()) < 20_000


def test_a_synthesised_run_closed_what_was_only_unwritten() -> None:
    """The answer call wrote it, so the slot ended as supported."""
    outcome = LoopOutcome.model_validate(
        {
            "stop_reason": "synthesised",
            "decisions": [
                {
                    "round": 1,
                    "action": "answer_synthesis",
                    "branch": "integrate_answer_retry_break",
                    "verdict": {
                        "answer_complete": False,
                        "need_tool": False,
                        "confidence": 0.9,
                        "failure": "answer_incomplete",
                        "slots": [{"name": "a", "state": "unsynthesised", "quote": "48,210"}],
                    },
                }
            ],
        }
    )
    run = run_of(outcome, request="q", evidence=FINISHED.evidence, tools=())
    assert run.verdict is not None
    assert run.verdict.slots[0].state is SlotState.SUPPORTED
