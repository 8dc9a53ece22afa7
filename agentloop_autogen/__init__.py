"""Runtime loop control for AutoGen agents: after every round, continue invoking, write the answer, or stop."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloop_autogen.agent import AgentLoopAssistantAgent
    from agentloop_autogen.core.config import LoopConfig, Policy
    from agentloop_autogen.core.records import (
        ControlAction,
        ControlBranch,
        Decision,
        Detector,
        Evidence,
        Failure,
        LoopOutcome,
        RequestUsage,
        Slot,
        SlotState,
        StopReason,
        UnavailableVerdict,
        Verdict,
    )
    from agentloop_autogen.errors import AgentLoopError
    from agentloop_autogen.messages import ControlEvent
    from agentloop_autogen.models.vllm import VLLMChatCompletionClient
    from agentloop_autogen.termination import AgentLoopTermination, synthesiser_selector
    from agentloop_autogen.verify import ModelSlotVerifier, SlotVerifier

__all__ = [
    "AgentLoopAssistantAgent",
    "AgentLoopError",
    "AgentLoopTermination",
    "ControlAction",
    "ControlBranch",
    "ControlEvent",
    "Decision",
    "Detector",
    "Evidence",
    "Failure",
    "LoopConfig",
    "LoopOutcome",
    "ModelSlotVerifier",
    "Policy",
    "RequestUsage",
    "Slot",
    "SlotState",
    "SlotVerifier",
    "StopReason",
    "UnavailableVerdict",
    "VLLMChatCompletionClient",
    "Verdict",
    "synthesiser_selector",
]

_HOMES = {
    "AgentLoopAssistantAgent": "agentloop_autogen.agent",
    "AgentLoopError": "agentloop_autogen.errors",
    "AgentLoopTermination": "agentloop_autogen.termination",
    "ControlEvent": "agentloop_autogen.messages",
    "LoopConfig": "agentloop_autogen.core.config",
    "ModelSlotVerifier": "agentloop_autogen.verify",
    "Policy": "agentloop_autogen.core.config",
    "SlotVerifier": "agentloop_autogen.verify",
    "synthesiser_selector": "agentloop_autogen.termination",
    "VLLMChatCompletionClient": "agentloop_autogen.models.vllm",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what a module gives by name has any type
    # Names are imported when they are first asked for: the command line starts without AutoGen.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "agentloop_autogen.core.records")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
