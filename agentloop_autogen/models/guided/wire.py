"""Guided tool calling on OpenAI chat completion bodies, for an HTTP server that has no model client."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from agentloop_autogen.errors import UsageError
from agentloop_autogen.models.guided.parse import parse_reply
from agentloop_autogen.models.guided.plan import has_tool_turns, merge_system_turns, plan_call
from agentloop_autogen.models.guided.records import (
    ChoiceKind,
    GuidedCall,
    GuidedRung,
    Role,
    ToolChoice,
    ToolReply,
    ToolSpec,
    Turn,
)
from agentloop_autogen.models.guided.schema import MAX_CALLS, response_format

__all__ = [
    "call_id",
    "calls_allowed",
    "from_guided_response",
    "needs_guiding",
    "to_guided_request",
    "tool_names",
    "wire_calls",
]

_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls")


def call_id() -> str:
    """A fresh id for one tool call."""
    return f"call_{uuid.uuid4().hex[:24]}"


def needs_guiding(body: Mapping[str, Any]) -> bool:
    """Whether a request has tools, or a history of tool calls, that the model cannot handle by itself."""
    return bool(body.get("tools")) or has_tool_turns(_turns(body))


def tool_names(body: Mapping[str, Any]) -> frozenset[str]:
    """The names of the tools a request offers."""
    return frozenset(tool.name for tool in _tools(body))


def calls_allowed(body: Mapping[str, Any]) -> bool:
    """Whether the reply to a request may hold tool calls."""
    return bool(body.get("tools")) and _choice(body).kind is not ChoiceKind.NONE


def to_guided_request(body: Mapping[str, Any], *, rung: GuidedRung = GuidedRung.SCHEMA) -> dict[str, Any]:
    """Translate a request with tools into one without.

    Args:
        body: An OpenAI chat completion request.
        rung: How firmly to ask for the reply format.

    Returns:
        A new request whose one system message lists the tools and whose response format holds the model to
        calls or an answer. A request without tools and without a history of calls keeps everything but the
        order of its system messages.

    Raises:
        UsageError: The request is malformed; the message is fit for the client's eyes.
    """
    turns = _turns(body)
    request = {key: value for key, value in body.items() if key not in _TOOL_FIELDS}
    if not body.get("tools") and not has_tool_turns(turns):
        system = sum(turn.role is Role.SYSTEM for turn in turns)
        if system > 1:
            request["messages"] = [_message(turn) for turn in merge_system_turns(turns)]
        return request
    own_format = not body.get("tools") and _asks_for_json(body)
    plan = plan_call(
        turns,
        tools=_tools(body),
        choice=_choice(body),
        answer_schema=None if own_format else _answer_schema(body),
        constrain=not own_format,
        max_calls=1 if body.get("parallel_tool_calls") is False else MAX_CALLS,
    )
    request["messages"] = [_message(turn) for turn in plan.turns]
    if plan.schema is not None:
        request.pop("response_format", None)
        wanted = response_format(plan.schema, rung)
        request.update({"response_format": wanted} if wanted else {})
    return request


def from_guided_response(
    response: Mapping[str, Any], *, names: Collection[str] = (), allow_calls: bool = True
) -> dict[str, Any]:
    """Translate the reply to a guided request back into OpenAI tool calls or text.

    Args:
        response: The server's chat completion.
        names: The tools on offer, to recognise a call that was written without its envelope.
        allow_calls: False where the request forbade calls.

    Returns:
        A new chat completion with `tool_calls` and the finish reason "tool_calls", or with plain content.
    """
    choices = cast("Sequence[Mapping[str, Any]]", response.get("choices") or ())
    return {**response, "choices": [_choice_back(choice, names, allow_calls=allow_calls) for choice in choices]}


def wire_calls(calls: Sequence[GuidedCall]) -> list[dict[str, Any]]:
    """Calls as OpenAI `tool_calls`, each with an id of its own."""
    return [
        {"id": call_id(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def _choice_back(choice: Mapping[str, Any], names: Collection[str], *, allow_calls: bool) -> dict[str, Any]:
    message = cast("Mapping[str, Any]", choice.get("message") or {})
    content = message.get("content")
    reply = parse_reply(
        content if isinstance(content, str) else "",
        tool_names=names,
        allow_calls=allow_calls,
        truncated=choice.get("finish_reason") == "length",
    )
    thought = {"reasoning_content": reply.thought} if reply.thought else {}
    if not reply.calls:
        return {**choice, "message": {**message, "content": reply.text, **thought}}
    calls = wire_calls(reply.calls)
    new_message = {**message, "content": None, "tool_calls": calls, **thought}
    return {**choice, "message": new_message, "finish_reason": "tool_calls"}


def _turns(body: Mapping[str, Any]) -> list[Turn]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UsageError("`messages` must be a list with at least one message")
    return [_turn(message) for message in cast("list[object]", messages)]


def _turn(message: object) -> Turn:
    if not isinstance(message, Mapping):
        raise UsageError("each of `messages` must be an object")
    fields = cast("Mapping[str, Any]", message)
    if fields.get("role") == "tool":
        content = _content(fields.get("content"))
        reply = ToolReply(
            call_id=str(fields.get("tool_call_id") or ""),
            content=content if isinstance(content, str) else json.dumps(content, ensure_ascii=False),
            name=str(fields.get("name") or ""),
        )
        return Turn(role=Role.RESULT, results=(reply,))
    role = _ROLES.get(str(fields.get("role")))
    if role is None:
        raise UsageError(f"a message has the unknown role {fields.get('role')!r}")
    calls = [_call(call) for call in cast("Sequence[Mapping[str, Any]]", fields.get("tool_calls") or ())]
    return Turn(role=role, content=_content(fields.get("content")), calls=calls, source=str(fields.get("name") or ""))


def _content(content: object) -> str | Sequence[Any]:
    """Text parts become plain text; a list with anything else in it stays as it is."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise UsageError("the `content` of a message must be text or a list of parts")
    parts = cast("list[object]", content)
    texts = [_part_text(part) for part in parts]
    return "\n".join(text for text in texts if text is not None) if None not in texts else parts


def _part_text(part: object) -> str | None:
    if isinstance(part, Mapping):
        fields = cast("Mapping[str, Any]", part)
        if fields.get("type") == "text" and isinstance(fields.get("text"), str):
            return fields["text"]
    return None


def _call(call: Mapping[str, Any]) -> GuidedCall:
    function = cast("Mapping[str, Any]", call.get("function") or {})
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return GuidedCall(name=str(function.get("name") or "tool"), arguments=text or "{}", id=str(call.get("id") or ""))


def _message(turn: Turn) -> dict[str, Any]:
    return {"role": turn.role.value, "content": turn.content}


def _tools(body: Mapping[str, Any]) -> list[ToolSpec]:
    return [_tool(tool) for tool in cast("Sequence[object]", body.get("tools") or ())]


def _tool(tool: object) -> ToolSpec:
    found = cast("Mapping[str, Any]", tool).get("function") if isinstance(tool, Mapping) else None
    function = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else None
    name = function.get("name") if function is not None else None
    if function is None or not isinstance(name, str) or not name:
        raise UsageError("each of `tools` must be of type function and have a name")
    description = str(function.get("description") or "")
    return ToolSpec(name=name, description=description, parameters=function.get("parameters") or {})


def _choice(body: Mapping[str, Any]) -> ToolChoice:
    choice: object = body.get("tool_choice")
    if choice is None:
        return ToolChoice()
    if isinstance(choice, str):
        if choice in ("auto", "required", "none"):
            return ToolChoice(kind=ChoiceKind(choice))
        raise UsageError(f"tool_choice must be auto, required, none or a named function, not {choice!r}")
    function = cast("Mapping[str, Any]", choice).get("function") if isinstance(choice, Mapping) else None
    if not isinstance(function, Mapping):
        raise UsageError("a tool_choice object must hold the `function` it names")
    return ToolChoice(kind=ChoiceKind.NAMED, name=str(cast("Mapping[str, Any]", function).get("name") or ""))


def _asks_for_json(body: Mapping[str, Any]) -> bool:
    wanted = body.get("response_format")
    return isinstance(wanted, Mapping) and cast("Mapping[str, Any]", wanted).get("type") in (
        "json_object",
        "json_schema",
    )


def _answer_schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema the caller asked the answer to fit, None when plain text will do."""
    if not _asks_for_json(body):
        return None
    wanted = cast("Mapping[str, Any]", body["response_format"]).get("json_schema")
    schema = cast("Mapping[str, Any]", wanted).get("schema") if isinstance(wanted, Mapping) else None
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {"type": "object"}
