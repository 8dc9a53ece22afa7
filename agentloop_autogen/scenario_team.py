"""The part of a scenario that says which agents work together, and how."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from agentloop_autogen.core.config import LoopConfig

__all__ = ["LoopSettings", "Member", "ScenarioTeam", "TeamKind"]

_USER = "user"


def _loop_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    LoopConfig.model_validate(settings)
    return settings


LoopSettings = Annotated[Mapping[str, Any], AfterValidator(_loop_settings)]
"""Settings of `LoopConfig` that differ from its defaults."""


class TeamKind(str, Enum):
    """How the turns go round."""

    ROUND_ROBIN = "round-robin"
    SELECTOR = "selector"
    SWARM = "swarm"
    GRAPH = "graph"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(_Part):
    """One agent of a team."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    description: str = ""
    """What a selector is told of it; empty: its name says it."""
    system_message: str | None = None
    """None: the scenario's."""
    tools: bool = False
    """Whether it has the tools of the scenario."""
    gathers: bool = False
    """True: it hands over what its tools returned and leaves the answer to others."""
    handoffs: tuple[str, ...] = ()
    """In a swarm, to whom it can hand the task: members, or `user`."""
    after: tuple[str, ...] = ()
    """In a graph, the members whose turns come before its own."""
    loop: LoopSettings = Field(default_factory=dict[str, Any])
    """Settings that differ from the scenario's."""


class ScenarioTeam(_Part):
    """The agents of a scenario and how their turns go round."""

    kind: TeamKind
    members: tuple[Member, ...] = Field(min_length=2)
    synthesiser: str | None = None
    """With a selector, who gets the turn once only the answer is left to be written. None: the selector's choice."""
    loop: LoopSettings = Field(default_factory=dict[str, Any])
    """Settings of the team's condition that differ from the defaults; `max_rounds` counts turns."""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise ValueError(f"two members have one name: {', '.join(names)}")
        known = set(names)
        for member in self.members:
            self._check(member.handoffs, known | {_USER}, TeamKind.SWARM, f"`handoffs` of `{member.name}`")
            self._check(member.after, known - {member.name}, TeamKind.GRAPH, f"`after` of `{member.name}`")
        self._check((self.synthesiser,) if self.synthesiser else (), known, TeamKind.SELECTOR, "`synthesiser`")
        return self

    def _check(self, named: tuple[str, ...], known: set[str], kind: TeamKind, where: str) -> None:
        unknown = [name for name in named if name not in known]
        if unknown:
            raise ValueError(f"{where} names `{unknown[0]}`; there are: {', '.join(sorted(known))}")
        if named and self.kind is not kind:
            raise ValueError(f"{where} is for the kind `{kind.value}`, and this team is a `{self.kind.value}`")
