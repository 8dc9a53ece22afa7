"""Every kind of team against everything a controlled team has to do.

A cell that AutoGen 0.7.5 makes impossible is a test of its own here: it shows the limit, and what holds in its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall, SingleThreadedAgentRuntime
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from agentloop_autogen import AgentLoopAssistantAgent, AgentLoopTermination, LoopConfig, StopReason
from agentloop_autogen.testing import ScriptedVerifier

from .scripted_model import CLOSED, HANG, UNWRITTEN, ScriptedModel, agent_of, call, open_verdict, outcome_of
from .team_kinds import KINDS, TASK, Make, chain_of, pair_of, team_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:The agent .* is being used with tools:UserWarning",  # AutoGen's, about models it does not know
)

PLAIN = LoopConfig(policy="off")
"""An agent that replies with its first text and attaches no verdict, as AutoGen's own would."""
SEES_METADATA = ("round robin", "selector", "swarm", "graph", "magentic", "nested", "user proxy")
FACT = "Vennholm: 48,210 inhabitants"
ANSWER = "Vennholm has 48,210 inhabitants."


def population(city: str) -> str:
    """Look up."""
    return FACT


def models(items: Sequence[Any]) -> ChatCompletionClient:
    """The models beside the speaker's."""
    return ScriptedModel(list(items), repeat_last=True)


def says(*items: Any, verdicts: Any = (CLOSED,), loop: LoopConfig | None = PLAIN) -> Make:
    """Speakers that play `items`, the last one for ever."""
    return lambda name: agent_of(ScriptedModel(list(items), repeat_last=True), verdicts, name=name, loop=loop)


async def run(team: Team, task: str | None = TASK, **options: Any) -> TaskResult:
    """Run a team, but not for ever."""
    return await asyncio.wait_for(team.run(task=task, **options), 20)


async def _until(holds: Callable[[], bool]) -> None:
    """Wait until something is so; the test's own time limit is the end of it."""
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("what was waited for did not happen")


def reason(done: TaskResult) -> str:
    """The first word of a stop reason, which is ours where the condition stopped the team."""
    return (done.stop_reason or "").split(" ")[0]


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_closure_stops_every_team(kind: str) -> None:
    """The condition's own verifier closes on the first answer, in every kind of team."""
    term = AgentLoopTermination(ScriptedVerifier([CLOSED]), request=TASK)
    done = await run(team_of(kind, says("48,210"), term, models))
    assert reason(done) == "answered"
    assert "after 1 turn:" in (done.stop_reason or "")


@pytest.mark.parametrize("kind", SEES_METADATA)
async def test_an_attached_verdict_stops_every_team_that_shows_it(kind: str) -> None:
    """Where the condition sees the agent's reply, that agent's own verdict is enough."""
    done = await run(team_of(kind, says("48,210", loop=None), AgentLoopTermination(), models))
    assert reason(done) == "answered"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SEES_METADATA])
async def test_a_wrapped_agents_verdict_does_not_reach_the_team(kind: str) -> None:
    """A society and a tool pass on text alone: the team cannot stop on a verdict inside, and patience bounds it.

    A verifier of the condition's own covers this (see above), and the agent inside keeps its own limits.
    """
    done = await run(team_of(kind, says("48,210", loop=None), AgentLoopTermination(), models))
    assert reason(done) == "exhausted"


@pytest.mark.parametrize("kind", KINDS)
async def test_exhaustion_stops_every_team(kind: str) -> None:
    """Turns that bring nothing end every kind of team, without a verifier and without a keyword."""
    term = AgentLoopTermination(request=TASK)
    done = await run(team_of(kind, says("I am not sure. TERMINATE"), term, models))
    assert reason(done) == "exhausted"


async def test_a_graph_hides_turns_from_the_condition_but_not_from_the_agents() -> None:
    """A diamond shows a condition one of its parallel turns and never the last; the agents' own limits hold there."""
    seen: list[list[str]] = []

    class Spy(AgentLoopTermination):
        async def __call__(self, messages: Sequence[Any]) -> Any:
            """Note whose turn it is."""
            seen.append([message.source for message in messages])
            return await super().__call__(messages)

    looping = [call("population", {"city": "Vennholm"})] * 12
    agents = {
        name: agent_of(
            ScriptedModel([*looping, "?"], repeat_last=True), [open_verdict()], name=name, tools=[population]
        )
        for name in ("a", "b", "c", "d")
    }
    builder = DiGraphBuilder()
    for agent in agents.values():
        builder.add_node(agent)
    for start, end in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")):
        builder.add_edge(agents[start], agents[end])
    term = Spy(loop=LoopConfig(max_rounds=50))
    done = await run(GraphFlow(list(agents.values()), builder.build(), termination_condition=term))
    assert [sources[-1] for sources in seen][:2] == ["user", "a"]
    assert [sources[-1] for sources in seen][2:] in (["b"], ["c"])
    assert reason(done) == "Digraph"
    for agent in agents.values():
        assert outcome_of(agent).stop_reason is StopReason.EXHAUSTED
        assert outcome_of(agent).rounds <= 6


# --- the synthesis turn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "agent tool"])
async def test_the_next_turn_writes_the_answer(kind: str) -> None:
    """With all of it found by a plain agent, the plugin agent answers without planning, in every kind of team."""
    look_up: list[FunctionCall] = [call("population", {"city": "Vennholm"}, call_id="1")]
    if kind == "swarm":
        look_up.append(call("transfer_to_writer", call_id="2"))
    handoffs: Any = ["writer"] if kind == "swarm" else None
    gatherer = AssistantAgent("gatherer", ScriptedModel([look_up]), tools=[population], handoffs=handoffs)
    writer_model = ScriptedModel([ANSWER])
    writer = agent_of(writer_model, [UNWRITTEN], name="writer", tools=[population], handoffs=["gatherer"])
    seen_whole = kind in ("society", "team tool")
    term = AgentLoopTermination(ScriptedVerifier([CLOSED] if seen_whole else [UNWRITTEN, CLOSED]), request=TASK)
    done = await run(pair_of(kind, gatherer, writer, term, models))
    (request,) = writer_model.requests
    assert request.tool_names == []
    assert FACT in request.text
    (reply,) = [m for m in done.messages if m.source == "writer" and isinstance(m, TextMessage)]
    assert (reply.content, reply.metadata["agentloop.stop_reason"]) == (ANSWER, "synthesised")
    # The last node's turn is never shown to a graph's condition: the graph is complete anyway.
    assert reason(done) == ("Digraph" if kind == "graph" else "answered")


async def test_an_agent_that_is_a_tool_is_given_no_messages_to_answer_from() -> None:
    """A tool gets a task in words and nothing else: it plans, within its own limits, as in any run of its own."""
    model = ScriptedModel([call("population", {"city": "Vennholm"}), ANSWER])
    speaker = agent_of(model, [UNWRITTEN], name="speaker", tools=[population])
    term = AgentLoopTermination(ScriptedVerifier([CLOSED]))
    done = await run(team_of("agent tool", lambda _: speaker, term, models))
    assert model.requests[0].tool_names == ["population"]
    assert outcome_of(speaker).stop_reason is StopReason.SYNTHESISED
    assert reason(done) == "answered"


# --- cancelling, faults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_cancelling_in_the_middle_of_a_turn_ends_every_team(kind: str) -> None:
    """A cancelled token ends the run at once; the speaker's model is not called again."""
    speakers: list[ScriptedModel] = []

    def hanging(name: str) -> BaseChatAgent:
        speakers.append(ScriptedModel([HANG], repeat_last=True))
        return agent_of(speakers[-1], name=name, loop=PLAIN)

    token = CancellationToken()
    team = team_of(kind, hanging, AgentLoopTermination(request=TASK), models)
    running = asyncio.ensure_future(run(team, cancellation_token=token))
    await _until(lambda: any(model.active for model in speakers))
    token.cancel()
    with pytest.raises((asyncio.CancelledError, RuntimeError)):
        await asyncio.wait_for(running, 3)
    calls = sum(len(model.requests) for model in speakers)
    await asyncio.sleep(0.1)
    assert (calls, sum(model.active for model in speakers)) == (1, 0)


_HANGS = """
import asyncio, os
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from agentloop_autogen import AgentLoopAssistantAgent, LoopConfig
from tests.scripted_model import HANG, ScriptedModel, call

async def main(manager_class, **options):
    inner = ScriptedModel([HANG])
    speaker = AgentLoopAssistantAgent("speaker", inner, loop=LoopConfig(policy="off"))
    manager = manager_class("manager", ScriptedModel([call("speaker", {"task": "x"})]), tools=[AgentTool(speaker)])
    token = CancellationToken()
    running = asyncio.ensure_future(manager.run(task="x", cancellation_token=token))
    while not inner.active:
        await asyncio.sleep(0.01)
    token.cancel()
    done, _ = await asyncio.wait({running}, timeout=1.0)
    print(manager_class.__name__, "ended" if done else "hangs", flush=True)

asyncio.run(main(AgentLoopAssistantAgent))
loop = asyncio.new_event_loop()
loop.run_until_complete(main(AssistantAgent))
os._exit(0)
"""


async def test_only_a_controlled_manager_survives_a_cancelled_tool() -> None:
    """AutoGen's own AssistantAgent waits for ever for a tool that was cancelled; the controlled one ends."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout.split("\n")[:2] == ["AgentLoopAssistantAgent ended", "AssistantAgent hangs"], done.stderr


async def test_a_busy_condition_delays_a_cancelled_team_by_its_verifiers_time_at_most() -> None:
    """AutoGen gives a condition no token, so the time limit of the verifier is what bounds the wait."""

    class Slow(ScriptedVerifier):
        async def verify(self, *_: Any, **__: Any) -> Any:
            """Take long."""
            await asyncio.sleep(HANG.seconds)

    token = CancellationToken()
    term = AgentLoopTermination(Slow([CLOSED]), loop=LoopConfig(verifier_timeout_s=0.5))
    running = asyncio.ensure_future(run(team_of("round robin", says("48,210"), term, models), cancellation_token=token))
    await asyncio.sleep(0.2)
    begun = asyncio.get_running_loop().time()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.get_running_loop().time() - begun < 1.5


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fault_leaves_every_team_fit_for_the_next_run(kind: str) -> None:
    """A model that is down ends in a reply, so the same team, with the same condition, answers in its next run."""
    down = True

    def item(_: Any) -> str:
        if down:
            raise RuntimeError("down")
        return "48,210"

    term = AgentLoopTermination(ScriptedVerifier([open_verdict(), CLOSED]), request=TASK, loop=LoopConfig(max_rounds=1))
    team = team_of(kind, says(item), term, models)
    first = await run(team)
    down = False
    second = await run(team)
    assert (reason(first), reason(second)) == ("budget", "answered")


async def test_a_plain_agents_fault_breaks_the_team_but_not_the_condition(caplog: pytest.LogCaptureFixture) -> None:
    """AutoGen keeps a speaker that raised for busy: that team stops after one reply, and a new one goes on.

    The condition is not reset by a fault either; `team.reset()` or its own `reset` begins it anew.
    """
    caplog.set_level(logging.CRITICAL, "autogen_core")
    script: list[Any] = [RuntimeError("down"), "48,210", "48,210"]
    model = ScriptedModel(script, repeat_last=True)
    term = AgentLoopTermination(ScriptedVerifier([CLOSED]))
    team = RoundRobinGroupChat([AssistantAgent("speaker", model, tools=[population])], termination_condition=term)
    with pytest.raises(RuntimeError, match="down"):
        await run(team)
    stale = await run(team)
    assert stale.stop_reason == "The group chat is stopped."
    fresh = RoundRobinGroupChat([AssistantAgent("speaker", model, tools=[population])], termination_condition=term)
    await fresh.load_state(await team.save_state())
    await term.reset()
    assert reason(await run(fresh, "And now?")) == "answered"


# --- saving and loading ----------------------------------------------------------------------------------------------


async def _save_in_turn(team: BaseGroupChat, term: AgentLoopTermination, hanging: ScriptedModel, turn: int) -> Any:
    """Run until the speaker's model hangs in a turn, save team and condition, and give the run up."""
    token = CancellationToken()
    running = asyncio.ensure_future(run(team, cancellation_token=token))
    await _until(lambda: len(hanging.requests) >= turn and hanging.active > 0)
    saved = json.loads(json.dumps([await team.save_state(), await term.save_state()]))
    token.cancel()
    with pytest.raises((asyncio.CancelledError, RuntimeError)):
        await running
    return saved


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "graph"])
async def test_a_team_saved_in_the_middle_goes_on_with_the_same_decisions(kind: str) -> None:
    """Loaded into a new team and condition, the conversation ends for the same reason after as many turns in all."""

    def condition() -> AgentLoopTermination:
        return AgentLoopTermination(ScriptedVerifier([open_verdict("population")]), request=TASK)

    expected = await run(team_of(kind, says("Not yet."), condition(), models))
    hanging = ScriptedModel(["Not yet.", "Not yet.", HANG], repeat_last=True)
    term = condition()
    team = team_of(kind, lambda name: agent_of(hanging, name=name, loop=PLAIN), term, models)
    team_state, term_state = await _save_in_turn(team, term, hanging, 3)
    loaded_term = condition()
    loaded = team_of(kind, says("Not yet."), loaded_term, models)
    await loaded.load_state(team_state)
    await loaded_term.load_state(term_state)
    assert term_state["spent"]["turns"] == 2
    # An orchestrator does nothing without a task; the condition is not given it and goes on where it stood.
    done = await run(loaded, TASK if kind == "magentic" else None)
    assert done.stop_reason == expected.stop_reason
    assert reason(done) == "exhausted"


async def test_a_graph_loses_the_turn_it_was_interrupted_in() -> None:
    """A saved graph no longer knows of the node that was running: loaded, it does nothing; the agents lose nothing."""
    hanging = ScriptedModel(["Not yet.", HANG], repeat_last=True)
    term = AgentLoopTermination()

    def agents(model: ScriptedModel) -> list[BaseChatAgent]:
        return [agent_of(model, name=name, loop=PLAIN) for name in ("a", "b", "c")]

    team_state, term_state = await _save_in_turn(chain_of(agents(hanging), term), term, hanging, 2)
    again = agents(ScriptedModel(["Not yet."], repeat_last=True))
    loaded = chain_of(again, term)
    await loaded.load_state(team_state)
    await term.load_state(term_state)
    done = await run(loaded, None)
    assert (len(done.messages), done.stop_reason) == (0, "The group chat is stopped.")
    assert isinstance(again[0], AgentLoopAssistantAgent)
    assert len(await again[0].model_context.get_messages()) == 2


_RESUME = """
import asyncio, json, sys
from autogen_agentchat.teams import RoundRobinGroupChat
from agentloop_autogen import AgentLoopTermination
from agentloop_autogen.testing import ScriptedVerifier
from tests.scripted_model import ScriptedModel, open_verdict
from tests.test_team_matrix import models, says
from tests.team_kinds import TASK, team_of

async def main():
    team_state, term_state = json.load(sys.stdin)
    term = AgentLoopTermination(ScriptedVerifier([open_verdict("population")]), request=TASK)
    team = team_of("round robin", says("Not yet."), term, models)
    await team.load_state(team_state)
    await term.load_state(term_state)
    print((await team.run()).stop_reason)

asyncio.run(main())
"""


async def test_another_process_goes_on_with_the_same_decisions() -> None:
    """Nothing of a saved conversation depends on the process: hash seeds differ, decisions do not."""
    hanging = ScriptedModel(["Not yet.", "Not yet.", HANG], repeat_last=True)
    term = AgentLoopTermination(ScriptedVerifier([open_verdict("population")]), request=TASK)
    team = team_of("round robin", lambda name: agent_of(hanging, name=name, loop=PLAIN), term, models)
    saved = await _save_in_turn(team, term, hanging, 3)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _RESUME],
        input=json.dumps(saved),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout.strip().startswith("exhausted (exhausted_break) after 5 turns"), done.stderr


# --- as JSON ---------------------------------------------------------------------------------------------------------

_INFO = ModelInfo(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown")


def replayed(items: Sequence[Any]) -> ChatCompletionClient:
    """A model that can be saved."""
    made = [
        CreateResult(finish_reason="function_calls", content=[item], usage=RequestUsage(1, 1), cached=False)
        if isinstance(item, FunctionCall)
        else item
        for item in items
    ]
    return ReplayChatCompletionClient(made, model_info=_INFO)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_team_comes_back_from_json(kind: str) -> None:
    """Dumped as JSON and loaded, a team has the same parts, condition included, and stops for the same reason."""

    def speaker(name: str) -> BaseChatAgent:
        verifier = ScriptedVerifier([CLOSED])
        return AgentLoopAssistantAgent(name, replayed(["48,210"]), verifier=verifier, loop=LoopConfig(max_rounds=3))

    term = AgentLoopTermination(
        ScriptedVerifier([CLOSED]), loop=LoopConfig(patience=2), sources=_sources(kind), request=TASK
    )
    team = team_of(kind, speaker, term, replayed)
    text = team.dump_component().model_dump_json()
    loaded = type(team).load_component(json.loads(text))
    assert loaded.dump_component().model_dump_json() == text
    assert json.loads(text)["config"]["termination_condition"]["provider"] == "agentloop_autogen.AgentLoopTermination"
    assert text.count('"agentloop_autogen.AgentLoopAssistantAgent"') == _CONTROLLED.get(kind, 1)
    assert reason(await run(loaded)) == "answered"


_CONTROLLED = {"selector": 2, "graph": 8, "nested": 2, "agent tool": 2, "team tool": 2}
"""How many controlled agents a team of each kind holds, where it is not one."""


def _sources(kind: str) -> list[str]:
    return {"society": ["society"], "agent tool": ["manager"], "team tool": ["manager"]}.get(kind, ["speaker"])


# --- pausing, people -------------------------------------------------------------------------------------------------


async def test_pausing_a_team_holds_its_controlled_agents() -> None:
    """A paused team makes no model call until it is resumed, and then ends as it would have."""
    tool_runs: list[str] = []
    model = ScriptedModel([call("pausing"), "48,210"])
    term = AgentLoopTermination()

    async def pausing() -> str:
        """Pause the team in the middle of a round."""
        tool_runs.append("ran")
        await team.pause()
        return FACT

    team = RoundRobinGroupChat([agent_of(model, [open_verdict(), CLOSED], tools=[pausing])], termination_condition=term)
    running = asyncio.ensure_future(run(team))
    await asyncio.sleep(0.3)
    assert (tool_runs, len(model.requests), running.done()) == (["ran"], 1, False)
    await team.resume()
    assert reason(await running) == "answered"


async def test_what_a_person_says_in_the_loop_is_no_answer() -> None:
    """A user proxy that repeats the answer, or says to stop, does not stop the team; the next answer does."""
    term = AgentLoopTermination(ScriptedVerifier([open_verdict(), CLOSED]))
    team = team_of("user proxy", says("It is 5.", "It is 48,210."), term, models)
    done = await run(team)
    spoken = [message.source for message in done.messages if isinstance(message, TextMessage)]
    assert spoken == ["user", "speaker", "user_proxy", "speaker"]
    assert reason(done) == "answered"


async def test_a_runtime_of_the_users_own_will_do() -> None:
    """A team in a runtime that others share stops as one in a runtime of its own."""
    runtime = SingleThreadedAgentRuntime()
    runtime.start()
    term = AgentLoopTermination()
    team = RoundRobinGroupChat([says("48,210", loop=None)("speaker")], termination_condition=term, runtime=runtime)
    assert reason(await run(team)) == "answered"
    assert reason(await run(team, "And now?")) == "answered"
    await runtime.stop_when_idle()


async def test_streaming_changes_nothing_for_the_condition() -> None:
    """Chunks are in no delta: a team that streams stops after as many turns."""
    agent = agent_of(ScriptedModel(["48,210"]), name="speaker", model_client_stream=True)
    done = await run(RoundRobinGroupChat([agent], termination_condition=AgentLoopTermination()))
    assert "after 1 turn:" in (done.stop_reason or "")


async def test_nested_rounds_are_not_the_teams() -> None:
    """The tool rounds of an agent inside a tool are in the delta, and are neither rounds nor evidence of the team."""
    inner = agent_of(
        ScriptedModel([call("population", {"city": "V"}), ANSWER]), [UNWRITTEN], name="speaker", tools=[population]
    )
    verifier = ScriptedVerifier([CLOSED])
    done = await run(team_of("agent tool", lambda _: inner, AgentLoopTermination(verifier), models))
    assert sum(isinstance(message, ToolCallExecutionEvent) for message in done.messages) == 2
    (asked,) = verifier.calls
    assert asked.request == TASK
    assert [piece.tool for piece in asked.evidence] == ["speaker"]
