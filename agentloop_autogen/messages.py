"""The one event type of this package: what the loop decided after a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from autogen_agentchat.messages import BaseAgentEvent
from pydantic import Field

from agentloop_autogen.core.records import Decision, RequestUsage

__all__ = ["ControlEvent"]


class ControlEvent(BaseAgentEvent):
    """What the loop decided after a round; in the stream only with `LoopConfig(emit_control_events=True)`.

    A team must be told of it: `custom_message_types=[ControlEvent]`.
    """

    decision: Decision
    """The decision with its branch, verdict, slots and similarities."""
    usage: Mapping[str, RequestUsage] = Field(default_factory=dict[str, RequestUsage])
    """Tokens of the run so far by role: `agent`, `verifier`, `synthesis`."""
    type: Literal["ControlEvent"] = "ControlEvent"

    def to_text(self) -> str:
        """Return the decision as one line of text."""
        decision = self.decision
        return f"round {decision.round}: {decision.action.value} ({decision.branch.value}): {decision.reason}"
