"""The systems by name: what each is, and how it is made; what one needs is imported only when it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from agentloop_autogen.bench.systems.clients import load_openai_client
from agentloop_autogen.bench.systems.system import BenchSystem
from agentloop_autogen.errors import UsageError

__all__ = ["SYSTEMS", "ListedSystem", "make_systems"]

_ADDITIONS: Final = {
    "typed_slots": "flags that contradict the verdict's own slots stand",
    "grounding": "a slot counts as supported whether or not its quote is in the evidence",
    "novelty": "similarity alone tells stable rounds",
    "patterns": "cycles, error streaks and monologues go unnoticed",
    "two_strikes": "fruitless rounds lead to no nudge and no early answer",
    "cheap_first": "the verifier is asked every round",
}
"""The additions of the extended policy, and what a run without one is like."""


@dataclass(frozen=True, kw_only=True)
class ListedSystem:
    """A system that can be put to the tasks."""

    name: str
    description: str
    """What it is, in one line."""
    make: Callable[[], BenchSystem]
    """Makes it; raises `MissingExtraError` where something it needs is not installed."""


def _autogen() -> BenchSystem:
    from agentloop_autogen.bench.systems.autogen import AutoGenAgent

    load_openai_client()
    return AutoGenAgent()


def _autogen_team() -> BenchSystem:
    from agentloop_autogen.bench.systems.autogen import AutoGenTeam

    load_openai_client()
    return AutoGenTeam()


def _magentic_one() -> BenchSystem:
    from agentloop_autogen.bench.systems.autogen import MagenticOne

    load_openai_client()
    return MagenticOne()


def _reflection() -> BenchSystem:
    from agentloop_autogen.bench.systems.reflection import FunctionCallingReflection

    return FunctionCallingReflection()


def _langgraph() -> BenchSystem:
    from agentloop_autogen.bench.systems.langgraph import LangGraphAgent

    return LangGraphAgent()


def _controlled(
    name: str,
    description: str,
    *,
    calibrated_confidence: bool = False,
    **changes: Any,  # noqa: ANN401 - settings of any type
) -> ListedSystem:
    def make() -> BenchSystem:
        from agentloop_autogen.bench.systems.controlled import ControlledAgent

        load_openai_client()
        return ControlledAgent(name, changes, calibrated_confidence=calibrated_confidence)

    return ListedSystem(name=name, description=description, make=make)


def _without(addition: str, words: str) -> ListedSystem:
    name = f"agentloop-without-{addition.replace('_', '-')}"
    return _controlled(name, f"Ablation of agentloop: {words}.", **{addition: False})


_LISTED: Final = (
    ListedSystem(
        name="autogen",
        description="AutoGen's AssistantAgent with its tool loop and reflection on the last tool round.",
        make=_autogen,
    ),
    ListedSystem(
        name="autogen-team",
        description="That agent in a round-robin team that ends at the word TERMINATE or after the last turn.",
        make=_autogen_team,
    ),
    ListedSystem(
        name="magentic-one",
        description="AutoGen's Magentic-One: an orchestrator that plans, and one agent with the tools.",
        make=_magentic_one,
    ),
    ListedSystem(
        name="fc-reflection",
        description="Function calls until there is an answer; the model then judges it, and goes on at most twice.",
        make=_reflection,
    ),
    ListedSystem(
        name="langgraph",
        description="LangGraph's prebuilt ReAct agent (since version 1 LangChain's create_agent).",
        make=_langgraph,
    ),
    _controlled("agentloop", "This package's agent with the extended policy, as it comes."),
    _controlled("agentloop-paper", "This package's agent with the paper's policy alone.", policy="paper"),
    _controlled(
        "agentloop-no-slots",
        "The paper's ablation: no slot control, budgets and the model's own text end the loop.",
        slot_control=False,
    ),
    *(_without(addition, words) for addition, words in _ADDITIONS.items()),
    _controlled(
        "agentloop-with-speculative",
        "agentloop with an addition that is off by default: it plans on while the verifier judges.",
        speculative=True,
    ),
    _controlled(
        "agentloop-with-calibrated-confidence",
        "agentloop with an addition that is off by default: confidence from the probabilities of the verdict's flags.",
        calibrated_confidence=True,
    ),
)

SYSTEMS: Final[Mapping[str, ListedSystem]] = MappingProxyType({system.name: system for system in _LISTED})
"""The systems by name."""


def make_systems(names: Iterable[str]) -> list[BenchSystem]:
    """Make systems, before anything is run.

    Args:
        names: Their names; one named twice is made once.

    Raises:
        UsageError: There is no such system, or none was named.
        MissingExtraError: Something one of them needs is not installed.
    """
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in SYSTEMS:
            raise UsageError(f"there is no system {name!r}: choose from {', '.join(SYSTEMS)}")
    if not wanted:
        raise UsageError(f"no system was named: choose from {', '.join(SYSTEMS)}")
    return [SYSTEMS[name].make() for name in wanted]
