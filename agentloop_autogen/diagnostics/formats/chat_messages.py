"""Single messages of a chat, as OpenAI's API or Anthropic's content blocks have them, taken into a conversation."""

from __future__ import annotations

from collections.abc import Mapping

from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.core.rounds import ToolCall
from agentloop_autogen.diagnostics.formats.conversation import Asked, Conversation, Returned
from agentloop_autogen.diagnostics.formats.fields import (
    FormatError,
    as_text,
    flag,
    is_list,
    is_object,
    kind,
    name_of,
    objects,
    text,
)

__all__ = ["SYSTEM_ROLES", "content_text", "role_of", "take_message"]

SYSTEM_ROLES = ("system", "developer")
_UNSPOKEN = ("thinking", "redacted_thinking", "reasoning", "tool_use", "tool_result", "tool_call", "tool_call_response")
"""Kinds of content parts that are no text: what the model thinks unseen, and what is read as a call or a result."""


def role_of(message: Mapping[str, object]) -> str:
    """Return who a message is from."""
    return name_of(message, "role", of="a message")


def take_message(conversation: Conversation, message: Mapping[str, object], usage: RequestUsage | None = None) -> None:
    """Take one message into a conversation.

    Args:
        conversation: What came before.
        message: The message.
        usage: Tokens of the call that made it; None: not known.

    Raises:
        FormatError: It is not what a message must be.
    """
    role = role_of(message)
    if role in SYSTEM_ROLES:
        return
    if role == "user":
        _take_user(conversation, message)
    elif role in ("assistant", "model"):
        content = content_text(message.get("content")) or text(message, "refusal", of="a message")
        conversation.reply(content, [*_calls(message), *_call_blocks(message)], usage)
    elif role in ("tool", "function"):
        _take_result(conversation, message)
    else:
        raise FormatError(f"`role` of a message is {role[:40]!r}, expected system, user, assistant or tool")


def content_text(content: object) -> str:
    """Return the text of a message's content; parts that are none are named in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    if not is_list(content):
        raise FormatError(f"`content` of a message is {kind(content)}, expected a text or an array of parts")
    return "\n".join(part for part in map(_part_text, content) if part is not None)


def _part_text(part: object) -> str | None:
    if isinstance(part, str):
        return part
    if not is_object(part):
        raise FormatError(f"a part of `content` is {kind(part)}, expected a text or an object")
    name = part.get("type")
    for key in ("text", "refusal", "content"):
        value = part.get(key)
        if isinstance(value, str) and name not in _UNSPOKEN:
            return value
    if name in _UNSPOKEN:
        return None
    shown = name if isinstance(name, str) else "part"
    return f"[{shown.removeprefix('input_').removesuffix('_url')}]"


def _take_user(conversation: Conversation, message: Mapping[str, object]) -> None:
    blocks = _blocks(message, "tool_result")
    for block in blocks:
        content = block.get("content")
        returned = content_text(content) if is_list(content) else as_text(content)
        conversation.result(Returned(text(block, "tool_use_id"), "", returned, _says_error(block)))
    said = content_text(message.get("content"))
    if said or not blocks:
        conversation.user(said)


def _calls(message: Mapping[str, object]) -> list[Asked]:
    found = [_asked(item) for item in objects(message, "tool_calls", of="a message")]
    legacy = message.get("function_call")
    if legacy is None:
        return found
    if not is_object(legacy):
        raise FormatError(f"`function_call` of a message is {kind(legacy)}, expected an object")
    return [*found, _asked({"function": legacy})]


def _asked(item: Mapping[str, object]) -> Asked:
    # A call of a custom tool has its free text under `input`; some clients write name and arguments side by side.
    inner = item.get("function") or item.get("custom") or item
    if not is_object(inner):
        raise FormatError(f"`function` of a tool call is {kind(inner)}, expected an object")
    arguments = inner.get("arguments", inner.get("input"))
    return Asked(text(item, "id", of="a tool call"), ToolCall(name_of(inner, "name", of="a call"), as_text(arguments)))


def _call_blocks(message: Mapping[str, object]) -> list[Asked]:
    return [
        Asked(
            text(block, "id", of="a call"),
            ToolCall(name_of(block, "name", of="a call"), as_text(block.get("input", block.get("arguments")))),
        )
        for block in [*_blocks(message, "tool_use"), *_blocks(message, "tool_call")]
    ]


def _blocks(message: Mapping[str, object], name: str) -> list[dict[str, object]]:
    content = message.get("content")
    parts = content if is_list(content) else []
    return [part for part in parts if is_object(part) and part.get("type") == name]


def _take_result(conversation: Conversation, message: Mapping[str, object]) -> None:
    content = message.get("content")
    returned = content_text(content) if is_list(content) else as_text(content)
    call_id, name = text(message, "tool_call_id", of="a message"), text(message, "name", of="a message")
    conversation.result(Returned(call_id, name, returned, _says_error(message)))


def _says_error(message: Mapping[str, object]) -> bool:
    """Whether a result says by its structure that it is an error; what its words say is nobody's business here."""
    return flag(message, "is_error", of="a result") or message.get("status") == "error"
