"""Every kind of AutoGen team around the same speakers, so that one test can ask each of them the same thing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from autogen_agentchat.agents import BaseChatAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, TerminationCondition
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.models import ChatCompletionClient

from agentloop_autogen import AgentLoopAssistantAgent, LoopConfig

from .scripted_model import call

__all__ = ["KINDS", "TASK", "Make", "Models", "chain_of", "ledger", "pair_of", "team_of"]

TASK = "How many people live in Vennholm?"
KINDS = (
    "round robin",
    "selector",
    "swarm",
    "graph",
    "magentic",
    "society",
    "agent tool",
    "team tool",
    "nested",
    "user proxy",
)
_NODES = 8

Make = Callable[[str], BaseChatAgent]
"""Makes the speaker, by name: a graph needs one for each of its nodes."""
Models = Callable[[Sequence[Any]], ChatCompletionClient]
"""Makes the models of orchestrators, selectors, societies and managers; the last reply is repeated."""


def ledger(speaker: str) -> str:
    """What the orchestrator's model says between turns: never satisfied, always in progress."""

    def entry(answer: str | bool) -> dict[str, Any]:
        return {"reason": "so it is", "answer": answer}

    return json.dumps(
        {
            "is_request_satisfied": entry(False),
            "is_in_loop": entry(False),
            "is_progress_being_made": entry(True),
            "next_speaker": entry(speaker),
            "instruction_or_question": entry("Go on."),
        }
    )


def chain_of(agents: Sequence[BaseChatAgent], term: TerminationCondition) -> GraphFlow:
    """A graph in which each agent follows the one before it."""
    builder = DiGraphBuilder()
    for agent in agents:
        builder.add_node(agent)
    for before, after in itertools.pairwise(agents):
        builder.add_edge(before, after)
    return GraphFlow(list(agents), builder.build(), termination_condition=term)


def team_of(kind: str, make: Make, term: TerminationCondition, models: Models) -> BaseGroupChat:
    """A team of `kind` in which the speaker has every turn that counts."""
    speaker = make("speaker")
    match kind:
        case "round robin":
            return RoundRobinGroupChat([speaker], termination_condition=term)
        case "selector":
            return SelectorGroupChat(
                [speaker, make("other")], models(["speaker"]), termination_condition=term, allow_repeated_speaker=True
            )
        case "swarm":
            return Swarm([speaker], termination_condition=term)
        case "graph":
            return chain_of([speaker, *(make(f"speaker{number}") for number in range(1, _NODES))], term)
        case "magentic":
            return MagenticOneGroupChat(
                [speaker], models(["facts", "plan", ledger("speaker")]), termination_condition=term
            )
        case "society":
            inner = RoundRobinGroupChat([speaker], max_turns=1)
            return RoundRobinGroupChat(
                [SocietyOfMindAgent("society", inner, models(["As they say: 48,210."]))], termination_condition=term
            )
        case "agent tool":
            return _managed(AgentTool(speaker), "speaker", term, models)
        case "team tool":
            inner = RoundRobinGroupChat([speaker], max_turns=1)
            return _managed(TeamTool(inner, name="speakers", description="Ask them."), "speakers", term, models)
        case "nested":
            # Alone, a nested team has no messages to begin its second turn with, and AutoGen refuses an empty task.
            inner = RoundRobinGroupChat([speaker], max_turns=1)
            return RoundRobinGroupChat([inner, make("other")], termination_condition=term)
        case _:
            return RoundRobinGroupChat(
                [speaker, UserProxyAgent("user_proxy", input_func=lambda _: "go on")], termination_condition=term
            )


def _managed(tool: Any, name: str, term: TerminationCondition, models: Models) -> RoundRobinGroupChat:
    model = models([item for _ in range(8) for item in (call(name, {"task": TASK}), "They say: 48,210.")])
    manager = AgentLoopAssistantAgent("manager", model, tools=[tool], loop=LoopConfig(policy="off"))
    return RoundRobinGroupChat([manager], termination_condition=term)


def pair_of(
    kind: str, gatherer: BaseChatAgent, writer: BaseChatAgent, term: TerminationCondition, models: Models
) -> BaseGroupChat:
    """A team of `kind` in which the gatherer has the first turn and the writer the next."""
    agents: list[ChatAgent] = [gatherer, writer]
    inner = RoundRobinGroupChat([gatherer, writer], max_turns=2)
    match kind:
        case "round robin":
            return RoundRobinGroupChat([gatherer, writer], termination_condition=term)
        case "selector":
            return SelectorGroupChat([gatherer, writer], models(["gatherer", "writer"]), termination_condition=term)
        case "swarm":
            return Swarm(agents, termination_condition=term)
        case "graph":
            return chain_of([gatherer, writer], term)
        case "magentic":
            script = ["facts", "plan", ledger("gatherer"), ledger("writer")]
            return MagenticOneGroupChat(agents, models(script), termination_condition=term)
        case "society":
            return RoundRobinGroupChat(
                [SocietyOfMindAgent("society", inner, models(["As they say: 48,210."]))], termination_condition=term
            )
        case "team tool":
            return _managed(TeamTool(inner, name="speakers", description="Ask them."), "speakers", term, models)
        case "nested":
            return RoundRobinGroupChat([inner], termination_condition=term)
        case "user proxy":
            proxy = UserProxyAgent("user_proxy", input_func=lambda _: "go on")
            return RoundRobinGroupChat([gatherer, proxy, writer], termination_condition=term)
        case _:
            raise ValueError(f"no pair in {kind!r}: a tool is given a task and no messages")
