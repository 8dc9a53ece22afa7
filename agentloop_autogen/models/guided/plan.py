"""Turns a conversation with tools into one a model without tool calling can follow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import assert_never

from agentloop_autogen.errors import UsageError
from agentloop_autogen.models.guided.prompts import answer_format_text, choice_text, result_text, tools_text
from agentloop_autogen.models.guided.records import (
    ChoiceKind,
    GuidedCall,
    GuidedPlan,
    Role,
    ToolChoice,
    ToolSpec,
    Turn,
)
from agentloop_autogen.models.guided.schema import MAX_CALLS, reply_schema

__all__ = ["has_tool_turns", "merge_system_turns", "plan_call"]


def has_tool_turns(turns: Iterable[Turn]) -> bool:
    """Whether a conversation holds tool calls or results, which such a model cannot read as they are."""
    return any(turn.calls or turn.role is Role.RESULT for turn in turns)


def plan_call(
    turns: Sequence[Turn],
    *,
    tools: Sequence[ToolSpec] = (),
    choice: ToolChoice | None = None,
    answer_schema: Mapping[str, Any] | None = None,
    constrain: bool = True,
    max_calls: int = MAX_CALLS,
) -> GuidedPlan:
    """Plan one model call.

    Args:
        turns: The conversation so far.
        tools: The tools on offer. Default: none, then only an answer is possible.
        choice: What the caller allows. Default: auto.
        answer_schema: Schema of a structured final answer. Default: a string.
        constrain: False leaves the reply format to the caller: no schema and no closing line.
        max_calls: Most calls in one reply.

    Returns:
        The messages to send and the schema of the reply.

    Raises:
        UsageError: A named choice names a tool that is not on offer.
    """
    choice = choice or ToolChoice()
    if not tools:
        choice = ToolChoice(kind=ChoiceKind.NONE)
    elif choice.kind is ChoiceKind.NAMED and all(tool.name != choice.name for tool in tools):
        raise UsageError(f"tool_choice names {choice.name!r}, which is not among the tools")
    system = "\n\n".join(part for part in (_system_text(turns), _frame(tools, answer_schema)) if part)
    rendered = _render(turns)
    if constrain and choice_text(choice):
        rendered.append(Turn(role=Role.USER, content=choice_text(choice)))
    head = [Turn(role=Role.SYSTEM, content=system, source="system")] if system else []
    schema = reply_schema(tools, choice, answer_schema=answer_schema, max_calls=max_calls) if constrain else None
    return GuidedPlan(turns=(*head, *_merge_users(rendered)), schema=schema)


def merge_system_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Put the text of all system turns into one, first."""
    system = _system_text(turns)
    head = [Turn(role=Role.SYSTEM, content=system, source="system")] if system else []
    return [*head, *(turn for turn in turns if turn.role is not Role.SYSTEM)]


def _frame(tools: Sequence[ToolSpec], answer_schema: Mapping[str, Any] | None) -> str:
    parts = [tools_text(tools)] if tools else []
    if answer_schema:
        parts.append(answer_format_text(answer_schema))
    return "\n".join(parts)


def _system_text(turns: Iterable[Turn]) -> str:
    return "\n\n".join(_plain_text(turn.content) for turn in turns if turn.role is Role.SYSTEM and turn.content)


def _plain_text(content: str | Sequence[Any]) -> str:
    return content if isinstance(content, str) else "\n".join(str(part) for part in content)


def _render(turns: Iterable[Turn]) -> list[Turn]:
    calls: dict[str, GuidedCall] = {}
    rendered: list[Turn] = []
    for turn in turns:
        match turn.role:
            case Role.SYSTEM:
                continue
            case Role.USER:
                rendered.append(turn)
            case Role.ASSISTANT:
                calls.update({call.id: call for call in turn.calls})
                rendered.append(_as_written(turn))
            case Role.RESULT:
                rendered.append(_as_user_text(turn, calls))
            case _:  # pragma: no cover - the enum is closed
                assert_never(turn.role)
    return rendered


def _as_written(turn: Turn) -> Turn:
    """An assistant turn as the JSON text the model writes itself, which is also what its cache holds."""
    if not turn.calls:
        return turn
    calls = [{"name": call.name, "arguments": _decoded(call.arguments)} for call in turn.calls]
    text = json.dumps({"tool_calls": calls}, ensure_ascii=False)
    return Turn(role=Role.ASSISTANT, content=text, source=turn.source)


def _decoded(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _as_user_text(turn: Turn, calls: Mapping[str, GuidedCall]) -> Turn:
    texts: list[str] = []
    for result in turn.results:
        call = calls.get(result.call_id) or GuidedCall(name=result.name or "tool", arguments="{}")
        texts.append(result_text(call.name, call.arguments, result.content, is_error=result.is_error))
    return Turn(role=Role.USER, content="\n".join(texts))


def _merge_users(turns: Iterable[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.role is turn.role is Role.USER
            and isinstance(last.content, str)
            and isinstance(turn.content, str)
        ):
            merged[-1] = Turn(role=Role.USER, content=f"{last.content}\n\n{turn.content}", source=last.source)
        else:
            merged.append(turn)
    return merged
