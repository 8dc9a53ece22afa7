"""What is kept of a finished request: which slots it needed, and which tools closed them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from agentloop_autogen.core.records import ControlBranch, SlotState, StopReason

__all__ = ["RuntimeStateObject", "SlotTrace", "ToolTrace"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class SlotTrace(_Record):
    """One information item the request needed, and how it ended."""

    name: str
    state: SlotState
    closed_by: tuple[str, ...] = ()
    """Names of the tools whose results the slot's evidence is from; empty: it was never closed, or needed no tool."""


class ToolTrace(_Record):
    """What one tool did for the request."""

    name: str
    calls: int = Field(ge=0)
    errors: int = Field(default=0, ge=0)
    """Calls of it that ended in an error or an empty result."""


class RuntimeStateObject(_Record):
    """A finished request in brief (the Runtime State Object of Fig. 5): never a result, a quote or an argument."""

    id: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")
    """What it is known by; no database keeps a NUL character in a key."""
    request: str | None = None
    """What was asked; None: the store keeps no request text."""
    slots: tuple[SlotTrace, ...] = ()
    tools: tuple[ToolTrace, ...] = ()
    stop_reason: StopReason
    stop_branch: ControlBranch
    """Which rule ended it (the stop policy of Fig. 5)."""
    confidence: float = Field(default=0.0, ge=0.0, le=1.0, allow_inf_nan=False)
    """κ of the last verdict; 0 where there was none."""
    rounds: int = Field(default=0, ge=0)
    model: str = ""
    created_at: datetime
    """When the request ended, with its time zone."""
