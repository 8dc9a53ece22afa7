"""The termination condition for AutoGen teams, and the selector function that goes with it."""

from agentloop_autogen.termination.condition import (
    AgentLoopTermination,
    AgentLoopTerminationConfig,
    AgentLoopTerminationState,
)
from agentloop_autogen.termination.selector import synthesiser_selector

__all__ = [
    "AgentLoopTermination",
    "AgentLoopTerminationConfig",
    "AgentLoopTerminationState",
    "synthesiser_selector",
]
