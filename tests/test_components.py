"""Every configurable class as a component: whole in JSON and back, or refused with the mend."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.base import AndTerminationCondition, OrTerminationCondition, TerminationCondition
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, ComponentLoader, ComponentModel
from autogen_core.models import ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from agentloop_autogen import (
    AgentLoopAssistantAgent,
    AgentLoopTermination,
    Evidence,
    LoopConfig,
    ModelSlotVerifier,
    SlotVerifier,
    Verdict,
)
from agentloop_autogen.errors import UsageError
from agentloop_autogen.models import GuidedToolCallingClient
from agentloop_autogen.testing import ScriptedVerifier

from .scripted_model import CLOSED, UNWRITTEN

_INFO = ModelInfo(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown")
LOOP = LoopConfig(
    policy="paper",
    slot_control=False,
    max_rounds=7,
    max_reflections=1,
    max_integrations=0,
    timeout_s=33.5,
    max_tokens=900,
    max_tool_calls=0,
    tau_call=0.8,
    tau_result=0.7,
    tau_retry=0.4,
    tau_gate=0.6,
    call_similarity=False,
    result_similarity=False,
    patience=2,
    verifier_timeout_s=3.5,
    typed_slots=False,
    grounding=False,
    novelty=False,
    patterns=False,
    two_strikes=False,
    cheap_first=False,
    speculative=True,
    max_finding_chars=100,
    max_evidence_chars=1_000,
    max_result_chars=500,
    max_prompt_chars=2_000,
    emit_control_events=True,
)
"""Every setting different from its default."""


def client() -> ReplayChatCompletionClient:
    """A model that can be saved."""
    return ReplayChatCompletionClient(["48,210"], model_info=_INFO)


def verifier() -> ModelSlotVerifier:
    """A verifier with every setting its own."""
    return ModelSlotVerifier(
        client(),
        timeout_s=3.0,
        max_slots=3,
        max_quote_chars=50,
        max_request_chars=100,
        max_draft_chars=200,
        max_evidence_chars=300,
        extra_create_args={"temperature": 0.5},
    )


def components() -> list[Any]:
    """One of each configurable class, no setting at its default."""
    return [
        AgentLoopTermination(verifier(), loop=LOOP, sources=["writer", "editor"], request="How many?"),
        AgentLoopAssistantAgent("agent", client(), verifier=verifier(), loop=LOOP, description="It answers."),
        verifier(),
        ScriptedVerifier([CLOSED, UNWRITTEN], repeat_last=False),
        GuidedToolCallingClient(client(), max_calls=3),
    ]


def test_the_settings_of_these_tests_are_no_defaults() -> None:
    """A setting that these tests leave at its default would be lost unnoticed."""
    defaults = LoopConfig()
    assert [name for name in LoopConfig.model_fields if getattr(LOOP, name) == getattr(defaults, name)] == []


@pytest.mark.parametrize("component", components(), ids=lambda component: type(component).__name__)
def test_a_component_comes_back_whole(component: Any) -> None:
    """Through JSON and back it is the same class with the same settings, by a provider that imports to that class."""
    dumped = component.dump_component()
    text = dumped.model_dump_json()
    loaded = ComponentLoader.load_component(ComponentModel.model_validate_json(text), object)
    assert type(loaded) is type(component)
    again: Any = loaded
    assert again.dump_component().model_dump_json() == text
    module, name = dumped.provider.rsplit(".", 1)
    assert getattr(importlib.import_module(module), name) is type(component)
    assert dumped.description
    assert "\n\n" not in dumped.description
    assert dumped.label == type(component).__name__


@pytest.mark.parametrize("component", components(), ids=lambda component: type(component).__name__)
def test_an_empty_config_loads_or_says_what_is_missing(component: Any) -> None:
    """As a form in AutoGen Studio begins, `config: {}` makes the default, or a validation error names the fields."""
    declared = {"provider": component.dump_component().provider, "component_type": component.component_type}
    model = ComponentModel.model_validate({**declared, "version": 1, "config": {}})
    if isinstance(component, AgentLoopTermination):
        loaded = TerminationCondition.load_component(model)
        assert loaded.dump_component() == AgentLoopTermination().dump_component()
        return
    with pytest.raises(ValidationError, match=r"(?s)validation errors? for \w+Config.*Field required"):
        ComponentLoader.load_component(model, object)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"max_rounds": 3}, "max_rounds"),
        ({"loop": {"max_rouns": 3}}, "max_rouns"),
        ({"loop": {"max_rounds": 0}}, "max_rounds"),
        ({"sources": "writer"}, "sources"),
    ],
)
def test_a_misspelt_setting_is_refused(config: dict[str, Any], problem: str) -> None:
    """Settings nobody knows are an error that names them, not silently the default."""
    model = ComponentModel(
        provider="agentloop_autogen.AgentLoopTermination", component_type="termination", config=config
    )
    with pytest.raises(ValidationError, match=problem):
        TerminationCondition.load_component(model)


@pytest.mark.parametrize("combined", [OrTerminationCondition, AndTerminationCondition])
def test_a_combination_with_autogens_conditions_comes_back_whole(combined: Any) -> None:
    """Inside `|` and `&` nothing of ours is lost."""
    ours = AgentLoopTermination(verifier(), loop=LOOP, sources=["a"], request="How many?")
    condition = combined(ours, MaxMessageTermination(20), TextMentionTermination("DONE"))
    text = condition.dump_component().model_dump_json()
    assert combined.load_component(json.loads(text)).dump_component().model_dump_json() == text


class Plain(SlotVerifier):
    """A verifier that is no component."""

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Close."""
        return CLOSED


@pytest.mark.parametrize(
    "owner",
    [AgentLoopTermination(Plain()), AgentLoopAssistantAgent("agent", client(), verifier=Plain())],
    ids=["condition", "agent"],
)
def test_a_verifier_that_cannot_be_saved_is_refused_with_the_mend(owner: Any) -> None:
    """Whoever holds it, and a team around that, cannot be saved either, and the message says what to do."""
    with pytest.raises(UsageError, match=r"verifier `Plain` is no component; derive .* or give a ModelSlotVerifier$"):
        owner.dump_component()
    agent = AgentLoopAssistantAgent("agent", client()) if isinstance(owner, AgentLoopTermination) else owner
    condition = owner if isinstance(owner, AgentLoopTermination) else None
    with pytest.raises(UsageError, match="cannot be saved"):
        RoundRobinGroupChat([agent], termination_condition=condition).dump_component()


def test_the_allow_list_of_later_versions_is_named_right() -> None:
    """Components load in a process that sets the variable the README names (0.7.5 does not look at it)."""
    text = AgentLoopTermination(loop=LOOP).dump_component().model_dump_json()
    code = (
        "import sys\nfrom autogen_agentchat.base import TerminationCondition\nimport json\n"
        "print(type(TerminationCondition.load_component(json.load(sys.stdin))).__name__)"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code],
        input=text,
        env={**os.environ, "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES": "agentloop_autogen"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout.strip() == "AgentLoopTermination", done.stderr
