"""Saving, loading and declaring the agent: its state, its component, and both inside teams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import CancellationToken, ComponentModel, FunctionCall
from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryMimeType
from autogen_core.model_context import BufferedChatCompletionContext, ChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import FunctionTool, StaticStreamWorkbench
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, ValidationError

from agentloop_autogen import AgentLoopAssistantAgent, LoopConfig, ModelSlotVerifier, Policy, SlotVerifier, StopReason
from agentloop_autogen.testing import ScriptedVerifier

from .scripted_model import CLOSED, ScriptedModel, agent_of, call, dangling, open_verdict, outcome_of


def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


def replay(*items: str | list[FunctionCall]) -> ReplayChatCompletionClient:
    """A scripted client that can be dumped."""
    info = ModelInfo(
        vision=False, function_calling=True, json_output=True, structured_output=True, family=ModelFamily.UNKNOWN
    )
    script: list[CreateResult | str] = [
        item
        if isinstance(item, str)
        else CreateResult(finish_reason="function_calls", content=item, usage=RequestUsage(1, 1), cached=False)
        for item in items
    ]
    return ReplayChatCompletionClient(script, model_info=info)


async def history(agent: AssistantAgent) -> list[dict[str, Any]]:
    """What the agent remembers."""
    return [message.model_dump() for message in await agent.model_context.get_messages()]


async def used_agent() -> AgentLoopAssistantAgent:
    """An agent after a run with a tool."""
    agent = agent_of(ScriptedModel([call("add", {"a": 1}), "it is 1"]), [open_verdict(), CLOSED], tools=[add])
    await agent.run(task="go")
    return agent


async def test_state_survives_json_and_a_new_process() -> None:
    """Conversation and last outcome come back from a state that went through JSON."""
    agent = await used_agent()
    state = json.loads(json.dumps(await agent.save_state()))
    other = agent_of(ScriptedModel(["more"]), tools=[add])
    await other.load_state(state)
    assert await history(other) == await history(agent)
    assert other.last_outcome == agent.last_outcome
    await other.run(task="more")
    assert outcome_of(other).stop_reason is StopReason.ANSWERED


async def test_state_of_a_run_without_a_verdict_survives_json() -> None:
    """An outcome whose verdict could not be had is saved and loaded like any other."""
    agent = agent_of(ScriptedModel(["a draft"]), [ValueError("down")])
    await agent.run(task="go")
    other = agent_of(ScriptedModel([]))
    await other.load_state(json.loads(json.dumps(await agent.save_state())))
    assert outcome_of(other).stop_reason is StopReason.FAILED
    assert outcome_of(other).error == outcome_of(agent).error


async def test_state_of_autogens_agent_loads_into_ours_and_back() -> None:
    """Either agent takes up a conversation the other saved."""
    stock = AssistantAgent("agent", replay("hello"))
    await stock.run(task="hi")
    mine = agent_of(ScriptedModel(["and more"]))
    await mine.load_state(await stock.save_state())
    assert await history(mine) == await history(stock)
    assert mine.last_outcome is None
    await mine.run(task="more")
    back = AssistantAgent("agent", replay("x"))
    await back.load_state(json.loads(json.dumps(await mine.save_state())))
    assert await history(back) == await history(mine)


async def test_state_of_a_newer_version_loads() -> None:
    """Keys this version does not know, in the state or in its outcome, do not keep a conversation from loading."""
    agent = await used_agent()
    state: dict[str, Any] = json.loads(json.dumps(await agent.save_state()))
    state["future"] = {"anything": 1}
    state["last_outcome"]["future_field"] = "x"
    other = agent_of(ScriptedModel([]))
    await other.load_state(state)
    assert await history(other) == await history(agent)


async def test_a_state_of_something_else_is_refused() -> None:
    """A state without a conversation raises instead of silently emptying the agent."""
    agent = await used_agent()
    before = await history(agent)
    with pytest.raises(ValidationError):
        await agent.load_state({"llm_context": "nonsense"})
    assert await history(agent) == before


async def test_a_reset_forgets_conversation_and_outcome() -> None:
    """After a reset the agent is as new, and usable."""
    agent = agent_of(ScriptedModel(["one", "two"]))
    await agent.run(task="go")
    await agent.on_reset(CancellationToken())
    assert await history(agent) == []
    assert agent.last_outcome is None
    assert (await agent.run(task="go")).messages[-1].to_text() == "two"


class City(BaseModel):
    """A structured reply."""

    name: str
    population: int


async def everything_set() -> AgentLoopAssistantAgent:
    """An agent with nothing left at its default."""
    memory = ListMemory(name="notes")
    await memory.add(MemoryContent(content="metric", mime_type=MemoryMimeType.TEXT))
    loop = LoopConfig(policy=Policy.PAPER, max_rounds=4, tau_gate=0.7, novelty=False, max_tokens=900, timeout_s=12.5)
    return AgentLoopAssistantAgent(
        "declared",
        replay("a draft", '{"name": "Paris", "population": 2}'),
        verifier=ScriptedVerifier([CLOSED]),
        loop=loop,
        tools=[FunctionTool(add, description="adds", name="plus")],
        handoffs=[Handoff(target="b", name="to_b", message="over to you"), "user"],
        model_context=BufferedChatCompletionContext(7),
        description="a description",
        system_message="Be brief.",
        model_client_stream=True,
        reflect_on_tool_use=True,
        tool_call_summary_format="{tool_name}: {result}",
        output_content_type=City,
        output_content_type_format="{name}",
        memory=[memory],
        metadata={"team": "x"},
    )


@pytest.mark.filterwarnings(r"ignore:[\s\S]*SECURITY WARNING:UserWarning")  # AutoGen's, for every function tool
@pytest.mark.parametrize("as_json", [False, True])
async def test_a_declared_agent_comes_back_whole(as_json: bool) -> None:
    """With every option set, the component loads as this class with the same options, through JSON too."""
    agent = await everything_set()
    model = agent.dump_component()
    assert model.provider == "agentloop_autogen.AgentLoopAssistantAgent"
    assert model.component_type == "agent"
    dumped = ComponentModel.model_validate_json(model.model_dump_json()) if as_json else model
    for loader in (AgentLoopAssistantAgent, AssistantAgent):
        loaded = loader.load_component(dumped)
        assert type(loaded) is AgentLoopAssistantAgent
        assert loaded.loop == agent.loop
        assert (loaded.name, loaded.description) == (agent.name, agent.description)
        assert set(options_of(loaded).items()) == set(options_of(agent).items())
    done = await loaded.run(task="go")
    assert done.messages[-1].to_text() == "Paris"


_OPTIONS = (
    "_model_client_stream _tool_call_summary_format _output_content_type_format _metadata _system_messages _handoffs "
    "_reflects _summarises _memory _verifier _model_context _workbench _model_client"
)


def options_of(agent: AgentLoopAssistantAgent) -> dict[str, str]:
    """The options of an agent as text: components by what they dump to."""
    return {name: _text(getattr(agent, name)) for name in _OPTIONS.split()}


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return str([_text(item) for item in value])  # pyright: ignore[reportUnknownVariableType] - of any type
    if isinstance(value, StaticStreamWorkbench):
        # A function tool that was loaded cannot be dumped again in AutoGen 0.7.5.
        return str([tool.schema for tool in value._tools])  # pyright: ignore[reportPrivateUsage] - there is no other way
    if isinstance(value, (SlotVerifier, ChatCompletionClient, ChatCompletionContext, Memory)):
        return value.dump_component().model_dump_json()
    return str(value)


async def test_a_minimal_component_is_enough() -> None:
    """Name, description and model client make an agent with all defaults, none of AutoGen's silent ones among them."""
    config = {"name": "small", "description": "d", "model_client": replay("hello").dump_component().model_dump()}
    provider = "agentloop_autogen.AgentLoopAssistantAgent"
    loaded = AgentLoopAssistantAgent.load_component(ComponentModel(provider=provider, config=config))
    assert loaded.loop == LoopConfig()
    assert loaded.loop.max_rounds == 10
    config.pop("description")
    assert AgentLoopAssistantAgent.load_component(ComponentModel(provider=provider, config=config)).name == "small"
    with pytest.raises(ValidationError, match="model_client"):
        AgentLoopAssistantAgent.load_component(ComponentModel(provider=provider, config={"name": "small"}))


async def test_defaults_survive_a_dump() -> None:
    """An agent with defaults is loaded as one that reflects and loops, not as one that summarises after one round."""
    script = replay([call("add", {"a": 1})], [call("add", {"a": 2})], "1 and 2")
    agent = AgentLoopAssistantAgent("agent", script, verifier=ScriptedVerifier([open_verdict(), CLOSED]))
    assert agent.dump_component().config.keys().isdisjoint({"max_tool_iterations", "reflect_on_tool_use"})
    loaded = AgentLoopAssistantAgent.load_component(agent.dump_component())
    done = await loaded.run(task="go")
    assert outcome_of(loaded).rounds == 3
    assert done.messages[-1].to_text() == "1 and 2"


async def test_the_default_verifier_is_not_part_of_the_component() -> None:
    """Without a verifier of its own the agent is dumped without one and loaded with the default."""
    agent = AgentLoopAssistantAgent("agent", replay("x"))
    model = agent.dump_component()
    assert "verifier" not in model.config
    loaded = AgentLoopAssistantAgent.load_component(model)
    assert isinstance(loaded._verifier, ModelSlotVerifier)  # pyright: ignore[reportPrivateUsage] - has no accessor


async def test_max_tool_iterations_survives_a_dump() -> None:
    """The round limit given as `max_tool_iterations` is what the loaded agent keeps to."""
    agent = AgentLoopAssistantAgent("agent", replay("x"), max_tool_iterations=4)
    assert AgentLoopAssistantAgent.load_component(agent.dump_component()).loop.max_rounds == 4


async def test_a_formatter_function_is_refused_on_dump() -> None:
    """A summary formatter that is a function cannot be declared, and the error names the option that can."""

    def formatter(call_: FunctionCall, result: FunctionExecutionResult) -> str:
        return result.content

    agent = AgentLoopAssistantAgent("agent", replay("x"), tool_call_summary_formatter=formatter)
    with pytest.raises(ValueError, match="tool_call_summary_format"):
        agent.dump_component()


async def test_a_key_is_masked_in_json_and_kept_in_the_object() -> None:
    """The API key of the model client never shows in a JSON dump, and an object round trip keeps it."""
    client = OpenAIChatCompletionClient(model="gpt-4o", api_key="sk-very-secret")
    agent = AgentLoopAssistantAgent("agent", client, verifier=ModelSlotVerifier(client))
    model = agent.dump_component()
    assert "very-secret" not in model.model_dump_json()
    loaded = AgentLoopAssistantAgent.load_component(model)
    assert loaded._model_client._client.api_key == "sk-very-secret"  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType] - there is no other way to see it


def loaded_team(kind: str) -> RoundRobinGroupChat | SelectorGroupChat:
    """A team of two controlled agents."""
    agents = [
        AgentLoopAssistantAgent(
            name,
            replay([call("add", {"a": 1})], f"{name} says 1", f"{name} says 2", f"{name} says 3"),
            verifier=ScriptedVerifier([open_verdict(), CLOSED]),
            tools=[add],
            description=name,
        )
        for name in ("a", "b")
    ]
    if kind == "selector":
        return SelectorGroupChat(list(agents), replay("a", "b", "a", "b", "a"), max_turns=2)
    return RoundRobinGroupChat(list(agents), max_turns=2)


@pytest.mark.parametrize("kind", ["round robin", "selector"])
async def test_teams_run_save_and_load_with_nothing_registered(kind: str) -> None:
    """A team of controlled agents runs, is saved midway, and goes on in a new team."""
    team = loaded_team(kind)
    first = await team.run(task="go")
    assert [m.to_text() for m in first.messages if isinstance(m, TextMessage)] == ["go", "a says 1", "b says 1"]
    state = json.loads(json.dumps(await team.save_state()))
    other = loaded_team(kind)
    await other.load_state(state)
    assert json.loads(json.dumps(await other.save_state()))["agent_states"].keys() == state["agent_states"].keys()
    second = await other.run(task="again")
    assert len([m for m in second.messages if isinstance(m, TextMessage) and m.source != "user"]) == 2


async def test_a_declared_team_holds_controlled_agents() -> None:
    """A team's component contains the agents as this class."""
    agent = AgentLoopAssistantAgent("a", replay("x"), verifier=ScriptedVerifier([CLOSED]), loop=LoopConfig(patience=2))
    team = RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))
    loaded = RoundRobinGroupChat.load_component(team.dump_component())
    (member,) = loaded._participants  # pyright: ignore[reportPrivateUsage] - a team does not show its members
    assert isinstance(member, AgentLoopAssistantAgent)
    assert member.loop.patience == 2


async def test_a_swarm_resumes_from_a_saved_state() -> None:
    """A swarm that stopped at a handoff to the user goes on in another process."""

    def team(*script: Any) -> tuple[Swarm, AgentLoopAssistantAgent]:
        agent = agent_of(ScriptedModel(script), [CLOSED], name="a", tools=[add], handoffs=["user"])
        return Swarm([agent], termination_condition=HandoffTermination("user") | MaxMessageTermination(8)), agent

    first, _ = team([call("add", {"a": 4}, call_id="n"), call("transfer_to_user", call_id="h")])
    done = await first.run(task="what is it")
    assert isinstance(done.messages[-1], HandoffMessage)
    state = json.loads(json.dumps(await first.save_state()))
    second, agent = team("it is 4", call("transfer_to_user"))
    await second.load_state(state)
    resumed = await second.run(task=HandoffMessage(source="user", target="a", content="tell me"))
    texts: Sequence[str] = [m.to_text() for m in resumed.messages if isinstance(m, TextMessage)]
    assert "it is 4" in texts
    assert await dangling(agent.model_context) == []
    assert "what is it" in str(await history(agent))
