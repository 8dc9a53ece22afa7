"""What a model's reply amounts to once it was made safe: a draft, or calls that can be run and kept in history."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from autogen_core import FunctionCall
from autogen_core.models import CreateResult

from agentloop_autogen.core.normalise import without_thinking

__all__ = ["PlannedCall", "Reply", "is_call_markup", "read_reply"]

_SAFE_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARKUP: Final = re.compile(
    r"<(tool_call|tool_calls|tools|function_call|function|invoke)\b[^>]*>.*?(?:</\1>|\Z)|"
    r"<\|(?:tool_call|python_tag|plugin)[^|]*\|>.*|\[TOOL_CALLS\].*",
    re.DOTALL | re.IGNORECASE,
)
_FENCE: Final = re.compile(r"\A```[\w-]*\s*(.*?)\s*(?:```)?\Z", re.DOTALL)
_NAME_FIELD: Final = re.compile(r'"(?:name|function|tool|tool_name)"\s*:\s*"([^"]+)"')
_ARGUMENT_FIELD: Final = re.compile(r'"(?:arguments|parameters|args|input)"\s*:')


@dataclass(frozen=True)
class PlannedCall:
    """One call of a reply."""

    call: FunctionCall
    """As it is shown and run; its id is unique within the reply."""
    arguments: dict[str, object]
    problem: str = ""
    """Why it cannot be run; empty if it can."""

    @property
    def kept(self) -> FunctionCall:
        """The call as it may stand in history: a legal name, and arguments that are a JSON object."""
        name = _SAFE_NAME.sub("_", self.call.name)[:64] or "unnamed"
        arguments = "{}" if self.problem else json.dumps(self.arguments, ensure_ascii=False)
        return FunctionCall(id=self.call.id, name=name, arguments=arguments)


@dataclass(frozen=True)
class Reply:
    """A planning reply: calls, a draft, or neither."""

    draft: str
    calls: tuple[PlannedCall, ...] = ()
    thought: str | None = None
    markup: bool = False
    """Whether the text was tool-call markup, which is no draft."""
    truncated: bool = False


def read_reply(result: CreateResult, tool_names: Collection[str]) -> Reply:
    """Return what a model's reply amounts to.

    Text loses its reasoning; text that is mostly tool-call markup is no draft. An empty list of calls is an empty text.
    """
    thought = result.thought
    if isinstance(result.content, str):
        text = without_thinking(result.content)
        markup = is_call_markup(text, tool_names)
        return Reply("" if markup else text, thought=thought, markup=markup, truncated=result.finish_reason == "length")
    return Reply("", tuple(_planned(result.content)), thought)


def _planned(calls: Sequence[FunctionCall]) -> list[PlannedCall]:
    planned: list[PlannedCall] = []
    seen: set[str] = set()
    for index, call in enumerate(calls):
        # Servers are seen to repeat an id within a reply, or to send none; results are paired by it.
        identity = call.id if call.id and call.id not in seen else f"{call.id or 'call'}_{index}"
        seen.add(identity)
        shown = FunctionCall(id=identity, name=call.name, arguments=call.arguments)
        planned.append(_read_arguments(shown))
    return planned


def _read_arguments(call: FunctionCall) -> PlannedCall:
    text = call.arguments.strip()
    if text in ("", "null"):
        return PlannedCall(call, {})
    try:
        value: object = json.loads(text)
        if isinstance(value, str):
            # Guided decoding on some servers encodes the object twice.
            value = json.loads(value)
    except (ValueError, RecursionError) as error:
        return PlannedCall(call, {}, problem=f"Error: the arguments are not valid JSON ({error})")
    if isinstance(value, dict):
        return PlannedCall(call, {str(key): item for key, item in value.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - json.loads gives Any
    return PlannedCall(call, {}, problem='Error: the arguments must be a JSON object such as {} or {"key": value}')


def is_call_markup(text: str, tool_names: Collection[str]) -> bool:
    """Return whether `text` is mostly a tool call that was not recognised as one: tags, or JSON that names a tool."""
    if not text:
        return False
    rest = _MARKUP.sub("", text).strip()
    if rest != text and len(rest) < len(text) / 2:
        return True
    match = _FENCE.match(text)
    body = match.group(1) if match else text
    if not body.startswith(("{", "[")):
        return False
    name = _NAME_FIELD.search(body)
    return name is not None and name.group(1) in tool_names and _ARGUMENT_FIELD.search(body) is not None
