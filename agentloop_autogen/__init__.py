"""Runtime loop control for AutoGen agents: after every round, continue invoking, write the answer, or stop."""

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
from agentloop_autogen.verify import ModelSlotVerifier, SlotVerifier

__all__ = [
    "AgentLoopAssistantAgent",
    "AgentLoopError",
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
    "Verdict",
]
