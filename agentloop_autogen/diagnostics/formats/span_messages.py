"""The messages that a span of a model call holds, in any of the ways the conventions had for them over time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from agentloop_autogen.diagnostics.formats.fields import as_text, is_list, is_object
from agentloop_autogen.diagnostics.formats.spans import Span

__all__ = ["input_messages", "output_messages"]

_Message = dict[str, object]
_INDEXED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,5})\.(?:tool_calls\.(\d{1,5})\.)?(\w+)")
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def input_messages(span: Span) -> list[_Message]:
    """Return what the model was given, as messages of a chat; empty: the span does not tell."""
    told = span.attributes.get("gen_ai.input.messages", span.attributes.get("gen_ai.prompt"))
    found = list(_messages(told, "user")) or _indexed(span, "prompt")
    if found:
        return found
    for event in span.events:
        if event.name in _EVENT_ROLES:
            found += _messages([_event_message(event.attributes, _EVENT_ROLES[event.name])], "user")
        elif event.name == "gen_ai.content.prompt":
            found += _messages(event.attributes.get("gen_ai.prompt"), "user")
        elif event.name == "gen_ai.client.inference.operation.details":
            found += _messages(event.attributes.get("gen_ai.input.messages"), "user")
    return found


def output_messages(span: Span) -> list[_Message]:
    """Return what the model gave, as messages of a chat; empty: the span does not tell."""
    told = span.attributes.get("gen_ai.output.messages", span.attributes.get("gen_ai.completion"))
    found = list(_messages(told, "assistant")) or _indexed(span, "completion")
    if found:
        return found
    for event in span.events:
        if event.name == "gen_ai.choice":
            inner = _decoded(event.attributes.get("message", event.attributes))
            found += _messages([_event_message(inner, "assistant")] if is_object(inner) else inner, "assistant")
        elif event.name == "gen_ai.content.completion":
            found += _messages(event.attributes.get("gen_ai.completion"), "assistant")
        elif event.name == "gen_ai.client.inference.operation.details":
            found += _messages(event.attributes.get("gen_ai.output.messages"), "assistant")
    return found


def _event_message(attributes: Mapping[str, object], role: str) -> _Message:
    message: _Message = {**attributes, "role": role}
    message["tool_calls"] = _decoded(attributes.get("tool_calls"))
    if role == "tool":
        message["tool_call_id"] = attributes.get("id")
    return message


def _decoded(value: object) -> object:
    """Structured values are often recorded as JSON, since attributes were flat for long."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _messages(told: object, role: str) -> Iterator[_Message]:
    value = _decoded(told)
    if isinstance(value, str):
        yield {"role": role, "content": value}
        return
    if is_object(value):
        inner = value.get("messages")
        value = inner if is_list(inner) else [value]
    for item in value if is_list(value) else ():
        if isinstance(item, str):
            yield {"role": role, "content": item}
        elif is_object(item):
            message = {"role": role, **item}
            parts = message.pop("parts", None)
            yield from _of_parts(message, parts) if is_list(parts) else [message]


def _of_parts(message: _Message, parts: Sequence[object]) -> Iterator[_Message]:
    """A message of the conventions has parts; results of tools among them become messages of their own."""
    texts: list[str] = []
    calls: list[object] = []
    responses: list[_Message] = []
    for part in parts:
        if not is_object(part):
            continue
        match part.get("type"):
            case "text":
                texts.append(as_text(part.get("content")))
            case "tool_call":
                calls.append(part)
            case "tool_call_response":
                content = as_text(part.get("response", part.get("result")))
                responses.append({"role": "tool", "tool_call_id": part.get("id"), "content": content})
            case "reasoning":
                pass
            case other:
                texts.append(f"[{as_text(part.get('modality') or other)}]")
    yield from responses
    if texts or calls or not responses:
        yield {**message, "content": "\n".join(texts), "tool_calls": calls}


def _indexed(span: Span, which: str) -> list[_Message]:
    """Some instrumentations spread messages over attributes such as `gen_ai.prompt.0.content`."""
    messages: dict[int, _Message] = {}
    calls: dict[int, dict[int, _Message]] = {}
    for key, value in span.attributes.items():
        match = _INDEXED.fullmatch(key)
        if match is None or match[1] != which:
            continue
        index = int(match[2])
        messages.setdefault(index, {"role": "user" if which == "prompt" else "assistant"})
        if match[3] is None:
            messages[index][match[4]] = _decoded(value) if match[4] == "content" else value
        else:
            calls.setdefault(index, {}).setdefault(int(match[3]), {})[match[4]] = value
    for index, of_message in calls.items():
        messages[index]["tool_calls"] = [of_message[position] for position in sorted(of_message)]
    return [messages[index] for index in sorted(messages)]
