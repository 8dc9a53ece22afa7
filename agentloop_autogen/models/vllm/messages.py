"""AutoGen's messages as a vLLM chat template takes them: one system message first, roles in an order it accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

__all__ = ["alternating", "one_system_first", "wire_messages", "with_instruction", "without_names"]

_VALID_NAME: Final = re.compile(r"[\w-]{1,64}", re.ASCII)
_JOINT: Final = "\n\n"


def wire_messages(
    messages: Sequence[LLMMessage], *, name_prefixes: bool, reasoning_field: str | None
) -> list[dict[str, Any]]:
    """Translate a conversation into the messages of a chat completion request.

    Args:
        messages: The conversation.
        name_prefixes: Whether each user message starts with the name of its sender.
        reasoning_field: Where the thought beside earlier tool calls goes: the field the server itself sends its
            reasoning in. None: it is text that stood beside the calls, and goes back as their content.

    Returns:
        One message each, except that every tool result becomes a message of its own.
    """
    wire: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case SystemMessage():
                wire.append({"role": "system", "content": message.content})
            case UserMessage():
                wire.append(_user(message, name_prefixes=name_prefixes))
            case AssistantMessage():
                wire.append(_assistant(message, reasoning_field))
            case FunctionExecutionResultMessage():
                wire += [
                    {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
                    for result in message.content
                ]
    return wire


def without_names(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave the senders' names out: few templates show them, and strict ones refuse them."""
    return [{key: value for key, value in message.items() if key != "name"} for message in messages]


def one_system_first(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join all system messages, wherever they stand, into one at the start; without any, nothing is added."""
    system = [str(message["content"]) for message in messages if message["role"] == "system" and message["content"]]
    head: list[dict[str, Any]] = [{"role": "system", "content": _JOINT.join(system)}] if system else []
    return [*head, *(dict(message) for message in messages if message["role"] != "system")]


def with_instruction(messages: Sequence[Mapping[str, Any]], text: str) -> list[dict[str, Any]]:
    """Add a lasting instruction to the system message, where it stays part of the cached prefix."""
    return one_system_first([*messages, {"role": "system", "content": text}])


def alternating(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge neighbours of the same role, for templates that demand strict turns; tool results stay apart."""
    merged: list[dict[str, Any]] = []
    for role, group in groupby(messages, key=lambda message: str(message["role"])):
        turns = [dict(turn) for turn in group]
        merged += turns if role == "tool" else [_joined(turns)]
    return merged


def _joined(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(turns) == 1:
        return turns[0]
    contents = [turn["content"] for turn in turns if turn.get("content")]
    joined: dict[str, Any] = {key: value for turn in turns for key, value in turn.items() if key != "name"}
    if all(isinstance(content, str) for content in contents):
        joined["content"] = _JOINT.join(contents) or None
    else:
        joined["content"] = [part for content in contents for part in _parts(content)]
    if calls := [call for turn in turns for call in turn.get("tool_calls") or ()]:
        joined["tool_calls"] = calls
    return joined


def _parts(content: object) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(cast("Sequence[Any]", content))


def _user(message: UserMessage, *, name_prefixes: bool) -> dict[str, Any]:
    prefix = f"{message.source} said:\n" if name_prefixes else ""
    wire: dict[str, Any] = {"role": "user", "content": f"{prefix}{message.content}"}
    if not isinstance(message.content, str):
        parts = [
            {"type": "text", "text": part} if isinstance(part, str) else part.to_openai_format()
            for part in message.content
        ]
        wire["content"] = [{"type": "text", "text": prefix}, *parts] if prefix else parts
    if _VALID_NAME.fullmatch(message.source):
        wire["name"] = message.source
    return wire


def _assistant(message: AssistantMessage, reasoning_field: str | None) -> dict[str, Any]:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    wire: dict[str, Any] = {"role": "assistant", "content": None}
    if message.thought:
        wire[reasoning_field or "content"] = message.thought
    # An empty list is refused, and a reply without calls is text.
    if message.content:
        wire["tool_calls"] = [_call(call) for call in message.content]
    return wire if message.content else {**wire, "content": wire["content"] or ""}


def _call(call: FunctionCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
