"""Answers for which nothing was looked up: sent back once where they state what nobody gave, believed otherwise."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from autogen_core.models import SystemMessage, UserMessage

from agentloop_autogen import ControlBranch, Failure, LoopConfig, Slot, SlotState, StopReason, Verdict
from agentloop_autogen.agent import prompts
from agentloop_autogen.core.controller import LoopController
from agentloop_autogen.core.rounds import Round

from .scripted_model import ScriptedModel, agent_of, call, outcome_of

ITEM = Slot(name="languages", state=SlotState.SUPPORTED)
DONE = Verdict(answer_complete=True, need_tool=False, confidence=0.9, slots=(ITEM,))
UNWRITTEN = Verdict(
    answer_complete=False, need_tool=False, confidence=0.9, failure=Failure.ANSWER_INCOMPLETE, slots=(ITEM,)
)
FOUND = Verdict(
    answer_complete=True,
    need_tool=False,
    confidence=0.9,
    slots=(Slot(name="languages", state=SlotState.SUPPORTED, quote="2 official languages"),),
)
QUESTION = "How many official languages does Oland have?"


def count_languages(country: str = "") -> str:
    """Count the official languages of a country."""
    return f"{country} has 2 official languages"


def decided(draft: str, verdict: Verdict, *, request: str = QUESTION, **settings: Any) -> list[ControlBranch]:
    """Return the branches of two rounds in which the model gives the same draft and calls nothing."""
    controller = LoopController(LoopConfig(**settings), request=request)
    branches: list[ControlBranch] = []
    for _ in range(2):
        controller.observe(Round(draft, tools_offered=True))
        decision = controller.decide(verdict if controller.needs_verdict() else None)
        branches.append(decision.branch)
        if decision.branch is not ControlBranch.NEED_TOOL_ROUND:
            break
    return branches


MISSING = Verdict(
    answer_complete=False,
    need_tool=True,
    confidence=0.9,
    missing=("languages",),
    slots=(Slot(name="languages", state=SlotState.MISSING),),
)


def failing(table: str = "") -> str:
    """Never works."""
    raise ValueError(f"no such table: {table}")


@pytest.mark.parametrize("verdict", [DONE, UNWRITTEN])
def test_a_guessed_figure_is_sent_back_once(verdict: Verdict) -> None:
    """A figure that stands in no result is sent to be looked up, and believed as judged when it comes again."""
    branches = decided("It has 6.", verdict)
    assert branches[0] is ControlBranch.NEED_TOOL_ROUND
    assert branches[1] in (ControlBranch.STOP_REPLANNING, ControlBranch.INTEGRATE_ANSWER_RETRY_BREAK)


@pytest.mark.parametrize(
    ("draft", "request_text"),
    [
        ("Hello! How can I help?", "Hi there"),
        ("17 times 3 is 51.", "What is 17 times 3?"),
        ("You asked about 1994.", "Which year did I name? It was 1994."),
    ],
)
def test_what_needs_no_look_up_is_believed_at_once(draft: str, request_text: str) -> None:
    """A greeting, a sum of given figures and a figure of the request end in one round."""
    assert len(decided(draft, DONE, request=request_text)) == 1


@pytest.mark.parametrize(
    "settings", [{"policy": "paper"}, {"grounding": False}, {"slot_control": False}, {"policy": "off"}]
)
def test_other_policies_believe_as_before(settings: dict[str, Any]) -> None:
    """The paper's policy, and the extended one without grounding, end with the first complete draft."""
    assert len(decided("It has 6.", DONE, **settings)) == 1


def test_without_tools_there_is_nothing_to_look_up() -> None:
    """A round in which the model had no tools is never sent to look anything up."""
    controller = LoopController(LoopConfig(), request=QUESTION)
    controller.observe(Round("It has 6."))
    assert controller.decide(DONE).branch is not ControlBranch.NEED_TOOL_ROUND


def test_flags_without_items_decide_alone() -> None:
    """A verdict that lists no items is acted on as it is."""
    bare = Verdict(answer_complete=True, need_tool=False, confidence=0.9)
    assert len(decided("It has 6.", bare)) == 1


async def test_the_model_is_told_and_looks_it_up() -> None:
    """After an invented figure the next prompt says that no tool was called, and the found figure is the answer."""
    model = ScriptedModel(["It has 6.", call("count_languages", {"country": "Oland"}), "It has 2."])
    agent = agent_of(model, [DONE, FOUND], tools=[count_languages])
    done = await agent.run(task=QUESTION)
    told = [message.content for message in model.requests[1].messages if isinstance(message, UserMessage)]
    assert "No tool was called for this answer" in str(told[-1])
    assert "count_languages" in str(told[-1])
    outcome = outcome_of(agent)
    assert (outcome.stop_reason, outcome.decisions[0].reason) == (
        StopReason.SYNTHESISED,
        "nothing was looked up for this answer",
    )
    assert getattr(done.messages[-1], "content", "") == "It has 2."


async def test_a_model_that_stands_by_its_answer_costs_no_second_verdict() -> None:
    """The same answer again ends the run with one verifier call and nothing named as open."""
    model = ScriptedModel(["It has 6.", "It has 6."])
    agent = agent_of(model, [DONE], tools=[count_languages])
    await agent.run(task=QUESTION)
    outcome = outcome_of(agent)
    assert (outcome.stop_reason, outcome.verifier_calls, outcome.unresolved) == (StopReason.ANSWERED, 1, ())


@pytest.mark.parametrize("settings", [{"max_rounds": 1}, {"max_reflections": 0}])
async def test_without_room_for_another_round_the_draft_counts_as_judged(settings: dict[str, Any]) -> None:
    """Where nothing can be looked up any more the answer is no budget stop and names nothing as open."""
    agent = agent_of(ScriptedModel(["It has 6."]), [DONE], tools=[count_languages], loop=LoopConfig(**settings))
    await agent.run(task=QUESTION)
    outcome = outcome_of(agent)
    assert (outcome.stop_reason, outcome.unresolved, len(outcome.decisions)) == (StopReason.ANSWERED, (), 1)


async def test_after_calls_in_vain_the_model_is_told_at_once_what_is_left_to_try() -> None:
    """When every call of a round fails, the note behind the results names the tools not used yet."""
    model = ScriptedModel([call("failing", {"table": "x"}), call("count_languages", {"country": "Oland"}), "It has 2."])
    agent = agent_of(model, [MISSING, MISSING, FOUND], tools=[failing, count_languages])
    await agent.run(task=QUESTION)
    first, second = (str(model.requests[place].messages[-1].content) for place in (1, 2))
    assert "These calls gave nothing" in first
    assert "Tools not used yet: count_languages." in first
    assert "These calls gave nothing" not in second


COUNTED = itertools.count(10, 10)


def ticking() -> str:
    """Say how far the count is, which is further every time."""
    return f"{next(COUNTED)} countries counted"


async def last_words(*replies: Any, **settings: Any) -> list[str]:
    """Run an agent on these rounds and return what stood last in each prompt after the first."""
    model = ScriptedModel([*replies, "It has 2.", "It has 2, and nothing else is known of its languages."])
    tools = [failing, count_languages, ticking]
    loop = LoopConfig(max_rounds=len(replies) + 1, **settings)
    agent = agent_of(model, [MISSING] * (len(replies) + 1), tools=tools, loop=loop)
    await agent.run(task=QUESTION)
    return [str(request.messages[-1].content) for request in model.requests[1 : len(replies) + 1]]


async def test_a_call_that_failed_before_is_answered_with_what_was_found_since() -> None:
    """A model that goes back to a failed call is told so, and of the newest result, which it has passed over."""
    wrong = call("failing", {"table": "x"})
    first, found, again = await last_words(wrong, call("count_languages", {"country": "Oland"}), wrong)
    assert "made the same calls" not in first
    assert "made the same calls" not in found
    assert "You have now made the same calls 2 times, and they failed in the same way each time." in again
    assert "count_languages gave: Oland has 2 official languages" in again


async def test_a_call_repeated_for_nothing_is_told_from_one_that_brings_more() -> None:
    """The second of two equal calls with equal results is called a repetition; a poll that moves on is none."""
    known = call("count_languages", {"country": "Oland"})
    poll = call("ticking", {})
    _, moved, _, same = await last_words(poll, poll, known, known)
    assert "made the same calls" not in moved
    assert "You have now made the same calls 2 times, and they gave the same each time." in same


async def test_only_the_times_that_gave_the_same_are_counted() -> None:
    """A poll that moved on before it stood still is told of the calls that were alike, not of all of them."""
    states = iter(["3 countries counted", *["7 countries counted"] * 3])

    def counting() -> str:
        """Say how far the count is."""
        return next(states)

    poll = call("counting", {})
    model = ScriptedModel([poll] * 4 + ["It has 2."], repeat_last=True)
    agent = agent_of(model, [MISSING], tools=[counting], loop=LoopConfig(max_rounds=5, patience=9))
    await agent.run(task=QUESTION)
    words = [str(request.messages[-1].content) for request in model.requests[1:5]]
    assert ["made the same calls" in text for text in words] == [False, False, True, True]
    assert "made the same calls 2 times" in words[2]
    assert "made the same calls 3 times" in words[3]


async def test_without_novelty_no_repetition_is_claimed() -> None:
    """What counts as the same again is judged by novelty, so that nothing is said of it where that is off."""
    wrong = call("failing", {"table": "x"})
    _, again = await last_words(wrong, wrong, novelty=False)
    assert "made the same calls" not in again


async def test_what_the_loop_said_is_no_answer_when_it_comes_back() -> None:
    """A model that repeats the feedback it was given has written nothing: the text is never the reply."""
    echo = prompts.reflection(None, ControlBranch.KEEP_DECODE, blank=False, markup=False, unused_tools=())
    unsure = Verdict(answer_complete=False, need_tool=False, confidence=0.1)
    model = ScriptedModel(["Perhaps.", echo, "It has 2."])
    agent = agent_of(model, [unsure, unsure, FOUND], tools=[count_languages])
    done = await agent.run(task=QUESTION)
    shown = [getattr(message, "content", "") for message in done.messages]
    assert echo not in shown
    assert not any(isinstance(message, SystemMessage) for message in model.requests[2].messages[1:])
