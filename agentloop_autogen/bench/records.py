"""What is kept of an attempt: one line of a result file, enough for every table and figure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agentloop_autogen.bench.tasks.task import Half
from agentloop_autogen.core.records import LoopOutcome

__all__ = ["Attempt", "CountedModelCall", "CountedToolCall"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CountedModelCall(_Record):
    """One request to the model, as the endpoint saw it; times are seconds since the attempt began."""

    began_s: float
    first_token_s: float | None = None
    """When the first piece of the reply came; None: it was not streamed, or none came."""
    ended_s: float
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    """Prompt tokens the server had in its cache; 0 where it does not say."""
    estimated: bool = False
    """Whether the tokens are estimates: the request was broken off before the server told them."""
    status: int = 200
    """HTTP status of the reply; 499: the system hung up before the end, 502: the endpoint could not be reached."""
    offers_tools: bool = False
    content: str = ""
    """What the model wrote, bounded."""
    tool_calls: tuple[dict[str, Any], ...] = ()
    """The calls it asked for: `name` and `arguments`."""


class CountedToolCall(_Record):
    """One executed tool call, as the tool saw it; times are seconds since the attempt began."""

    name: str
    arguments: dict[str, Any]
    began_s: float
    ended_s: float
    is_error: bool = False
    result: str = ""
    """What came back, bounded."""


class Attempt(_Record):
    """One system at one task, once."""

    system: str
    family: str
    task: str
    half: Half
    group: str = ""
    seed: int = 0
    model: str
    settings: str
    """Digest of the limits, the model and the endpoint kind: attempts of other settings are not mixed."""
    request: str
    answer: str = ""
    correct: bool
    detail: str = ""
    stop_reason: str = ""
    error: str | None = None
    """Why the attempt failed as such (a fault, a timeout), which is never correct; None: it came to its own end."""
    began_at: str
    """Wall-clock time in UTC, ISO 8601."""
    elapsed_s: float
    waited_s: float = 0.0
    """Seconds of `elapsed_s` that model calls waited at the endpoint for their turn."""
    model_calls: tuple[CountedModelCall, ...] = ()
    tool_calls: tuple[CountedToolCall, ...] = ()
    outcome: LoopOutcome | None = None
