"""Builds the team of a scenario and sums up how its run went."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autogen_agentchat.base import ChatAgent, TaskResult, Team
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import CancellationToken
from typing_extensions import assert_never

from agentloop_autogen import AgentLoopAssistantAgent, AgentLoopTermination, synthesiser_selector
from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.records import Decision, LoopOutcome, RequestUsage, StopReason
from agentloop_autogen.demo_tools import TOOLSETS
from agentloop_autogen.messages import ControlEvent
from agentloop_autogen.scenario import Scenario
from agentloop_autogen.scenario_team import Member, ScenarioTeam, TeamKind
from agentloop_autogen.verify import ModelSlotVerifier

if TYPE_CHECKING:
    from agentloop_autogen.console.models import RunModel

__all__ = ["TeamRun"]

_USER = "user"


class TeamRun:
    """Runs the team of a scenario as if it were one agent.

    Args:
        scenario: A scenario with a team.
        team: Its team.
        model: The clients it runs on.
        loop: Settings of its agents.
    """

    def __init__(self, scenario: Scenario, team: ScenarioTeam, model: RunModel, loop: LoopConfig) -> None:
        tools = list(TOOLSETS[scenario.tools]())
        self._agents = {member.name: _agent(member, scenario, model, loop, tools) for member in team.members}
        self._condition = AgentLoopTermination(loop=_changed(LoopConfig(timeout_s=loop.timeout_s), team.loop))
        self._team = _team(team, list(self._agents.values()), model, self._condition)
        self._outcomes: list[LoopOutcome] = []
        self._stop = ""

    @property
    def last_outcome(self) -> LoopOutcome | None:
        """What the turns amount to together; None before the first, and for a run that did not come to its end."""
        if not self._outcomes or not self._stop:
            return None
        last = self._outcomes[-1]
        usage: dict[str, RequestUsage] = {}
        for outcome in self._outcomes:
            for role, spent in outcome.usage.items():
                usage[role] = usage.get(role, RequestUsage()) + spent
        numbers = Counter[str]()
        decisions: list[Decision] = []
        for outcome in self._outcomes:
            numbers.update(outcome.model_dump(include=set(_SUMMED)))
            decisions += outcome.decisions
        renumbered = [item.model_copy(update={"round": place}) for place, item in enumerate(decisions, start=1)]
        changes: dict[str, Any] = {name: numbers[name] for name in _SUMMED}
        changes.update(usage=usage, decisions=tuple(renumbered), stop_reason=self._reason(last))
        return last.model_copy(update=changes)

    def _reason(self, last: LoopOutcome) -> StopReason:
        # Stopped by something else, such as the end of a graph, a team ends as its last agent did.
        first = self._stop.split(" ")[0]
        return next((reason for reason in StopReason if reason.value == first), last.stop_reason)

    async def run_stream(self, *, task: str, cancellation_token: CancellationToken) -> AsyncGenerator[Any, None]:
        """Yield the messages of a run.

        Args:
            task: The request.
            cancellation_token: Cancels the run.
        """
        async for message in self._team.run_stream(task=task, cancellation_token=cancellation_token):
            if isinstance(message, TaskResult):
                self._stop = message.stop_reason or "stopped"
            elif isinstance(message, BaseChatMessage) and message.source in self._agents:
                outcome = self._agents[message.source].last_outcome
                self._outcomes += [outcome] if outcome is not None else []
            yield message


_SUMMED = (
    "rounds",
    "model_calls",
    "dropped_calls",
    "verifier_calls",
    "synthesis_calls",
    "tool_calls",
    "elapsed_s",
    "verifier_s",
)


def _changed(loop: LoopConfig, changes: Mapping[str, Any]) -> LoopConfig:
    return LoopConfig.model_validate({**loop.model_dump(), **changes})


def _agent(
    member: Member, scenario: Scenario, model: RunModel, loop: LoopConfig, tools: list[Any]
) -> AgentLoopAssistantAgent:
    system = member.system_message or scenario.system_message
    extra: dict[str, Any] = {} if system is None else {"system_message": system}
    return AgentLoopAssistantAgent(
        member.name,
        model.planner,
        tools=tools if member.tools else None,
        handoffs=list(member.handoffs) or None,
        verifier=ModelSlotVerifier(model.verifier, timeout_s=loop.verifier_timeout_s),
        loop=_changed(loop, member.loop),
        description=member.description or member.name.replace("_", " "),
        reflect_on_tool_use=False if member.gathers else None,
        **extra,
    )


def _team(
    team: ScenarioTeam, agents: Sequence[AgentLoopAssistantAgent], model: RunModel, condition: AgentLoopTermination
) -> Team:
    members: list[ChatAgent | Team] = list(agents)
    registered: Any = [ControlEvent]
    match team.kind:
        case TeamKind.ROUND_ROBIN:
            return RoundRobinGroupChat(members, termination_condition=condition, custom_message_types=registered)
        case TeamKind.SELECTOR:
            select = synthesiser_selector(team.synthesiser, termination=condition) if team.synthesiser else None
            return SelectorGroupChat(
                members,
                model.planner,
                termination_condition=condition,
                selector_func=select,
                custom_message_types=registered,
            )
        case TeamKind.SWARM:
            either = HandoffTermination(target=_USER) | condition
            return Swarm(list(agents), termination_condition=either, custom_message_types=registered)
        case TeamKind.GRAPH:
            return _graph(team, agents, condition)
        case _:
            assert_never(team.kind)


def _graph(team: ScenarioTeam, agents: Sequence[AgentLoopAssistantAgent], condition: AgentLoopTermination) -> GraphFlow:
    builder = DiGraphBuilder()
    for agent in agents:
        builder.add_node(agent)
    for member in team.members:
        for before in member.after:
            builder.add_edge(before, member.name)
    registered: Any = [ControlEvent]
    return GraphFlow(list(agents), builder.build(), termination_condition=condition, custom_message_types=registered)
