"""The plain records guided tool calling works on: tools, calls, turns of a conversation, and plans.

They know neither AutoGen nor the OpenAI wire format; the two adapters translate to and from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = [
    "ChoiceKind",
    "GuidedCall",
    "GuidedPlan",
    "GuidedReply",
    "GuidedRung",
    "Role",
    "ToolChoice",
    "ToolReply",
    "ToolSpec",
    "Turn",
]


class Role(str, Enum):
    """Who speaks in a turn."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    RESULT = "result"


class ChoiceKind(str, Enum):
    """What the caller allows the model to do with its tools."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"
    NAMED = "named"


class GuidedRung(str, Enum):
    """How firmly the server holds the model to the reply format, firmest first."""

    SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    PROMPT = "prompt"


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One tool the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments object."""


@dataclass(frozen=True, kw_only=True)
class ToolChoice:
    """What the caller allows; `name` is set for a named choice only."""

    kind: ChoiceKind = ChoiceKind.AUTO
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class GuidedCall:
    """One tool call; `arguments` is always the text of a JSON object."""

    name: str
    arguments: str
    id: str = ""
    """Empty until an adapter has given the call its id."""


@dataclass(frozen=True, kw_only=True)
class ToolReply:
    """The result of one call, as the caller sends it back."""

    call_id: str
    content: str
    name: str = ""
    """Empty when the caller's format does not carry it; then the call of the same id names the tool."""
    is_error: bool = False


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message of a conversation."""

    role: Role
    content: str | Sequence[Any] = ""
    """Text, or the caller's own list of parts (images among them), which is passed on as it is."""
    calls: Sequence[GuidedCall] = ()
    results: Sequence[ToolReply] = ()
    source: str = "user"
    """Who sent it, for callers whose messages carry a name."""


@dataclass(frozen=True, kw_only=True)
class GuidedPlan:
    """What to send to a model that cannot call tools by itself."""

    turns: Sequence[Turn]
    """System, user and assistant turns with content only; at most one system turn, the first."""
    schema: Mapping[str, Any] | None
    """JSON schema of the reply; None leaves the caller's own response format in force."""


@dataclass(frozen=True, kw_only=True)
class GuidedReply:
    """What a model's reply means: calls, or else text."""

    calls: Sequence[GuidedCall] = ()
    text: str = ""
    thought: str = ""
