"""Translates AutoGen's messages and tools to the records of guided tool calling, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from agentloop_autogen.models.guided.records import (
    ChoiceKind,
    GuidedCall,
    GuidedPlan,
    Role,
    ToolChoice,
    ToolReply,
    ToolSpec,
    Turn,
)

__all__ = ["ToolChoiceInput", "answer_schema", "messages_of", "tool_choice_of", "tool_spec", "turns_of"]

ToolChoiceInput = Tool | Literal["auto", "required", "none"]
"""What AutoGen takes as `tool_choice`."""


def tool_spec(tool: Tool | ToolSchema) -> ToolSpec:
    """The record of an AutoGen tool or tool schema."""
    schema = tool.schema if isinstance(tool, Tool) else tool
    parameters = cast("Mapping[str, Any]", schema.get("parameters") or {})
    return ToolSpec(name=schema["name"], description=schema.get("description") or "", parameters=parameters)


def tool_choice_of(tool_choice: ToolChoiceInput) -> ToolChoice:
    """The record of AutoGen's `tool_choice`."""
    if isinstance(tool_choice, Tool):
        return ToolChoice(kind=ChoiceKind.NAMED, name=tool_choice.schema["name"])
    return ToolChoice(kind=ChoiceKind(tool_choice))


def answer_schema(json_output: bool | type[BaseModel] | None, wanted_format: object) -> Mapping[str, Any] | None:
    """The schema a structured final answer must fit, None when plain text will do."""
    if isinstance(json_output, type):
        return json_output.model_json_schema()
    if json_output:
        return {"type": "object"}
    wanted = cast("Mapping[str, Any]", wanted_format).get("json_schema") if isinstance(wanted_format, Mapping) else None
    schema = cast("Mapping[str, Any]", wanted).get("schema") if isinstance(wanted, Mapping) else None
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else None


def turns_of(messages: Sequence[LLMMessage]) -> list[Turn]:
    """The turns of an AutoGen conversation."""
    return [_turn(message) for message in messages]


def _turn(message: LLMMessage) -> Turn:
    match message:
        case SystemMessage():
            return Turn(role=Role.SYSTEM, content=message.content)
        case UserMessage():
            return Turn(role=Role.USER, content=message.content, source=message.source)
        case AssistantMessage():
            if isinstance(message.content, str):
                return Turn(role=Role.ASSISTANT, content=message.content, source=message.source)
            calls = [GuidedCall(name=call.name, arguments=call.arguments, id=call.id) for call in message.content]
            return Turn(role=Role.ASSISTANT, calls=calls, source=message.source)
        case FunctionExecutionResultMessage():
            results = [
                ToolReply(call_id=one.call_id, content=one.content, name=one.name, is_error=bool(one.is_error))
                for one in message.content
            ]
            return Turn(role=Role.RESULT, results=results)


def messages_of(plan: GuidedPlan) -> list[LLMMessage]:
    """The AutoGen messages of a plan."""
    messages: list[LLMMessage] = []
    for turn in plan.turns:
        content = turn.content if isinstance(turn.content, str) else list(turn.content)
        if turn.role is Role.SYSTEM:
            messages.append(SystemMessage(content=str(content)))
        elif turn.role is Role.ASSISTANT:
            messages.append(AssistantMessage(content=str(content), source=turn.source))
        else:
            messages.append(UserMessage(content=content, source=turn.source))
    return messages
