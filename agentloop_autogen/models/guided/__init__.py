"""Schema-guided tool calls for models that have no tool calling of their own.

The tools go into the system message, the reply is held to a JSON schema that allows either calls or a final
answer, and results go back as user text. The pure part plans a call and reads its reply; the client and the two
wire functions are thin adapters on it. Nothing here knows which server answers.
"""

from __future__ import annotations

from agentloop_autogen.models.guided.client import GuidedToolCallingClient, GuidedToolCallingClientConfig
from agentloop_autogen.models.guided.parse import AnswerStream, parse_reply
from agentloop_autogen.models.guided.plan import plan_call
from agentloop_autogen.models.guided.records import (
    ChoiceKind,
    GuidedCall,
    GuidedPlan,
    GuidedReply,
    GuidedRung,
    Role,
    ToolChoice,
    ToolReply,
    ToolSpec,
    Turn,
)
from agentloop_autogen.models.guided.schema import MAX_CALLS, reply_schema, response_format
from agentloop_autogen.models.guided.wire import (
    calls_allowed,
    from_guided_response,
    needs_guiding,
    to_guided_request,
    tool_names,
    wire_calls,
)

__all__ = [
    "MAX_CALLS",
    "AnswerStream",
    "ChoiceKind",
    "GuidedCall",
    "GuidedPlan",
    "GuidedReply",
    "GuidedRung",
    "GuidedToolCallingClient",
    "GuidedToolCallingClientConfig",
    "Role",
    "ToolChoice",
    "ToolReply",
    "ToolSpec",
    "Turn",
    "calls_allowed",
    "from_guided_response",
    "needs_guiding",
    "parse_reply",
    "plan_call",
    "reply_schema",
    "response_format",
    "to_guided_request",
    "tool_names",
    "wire_calls",
]
