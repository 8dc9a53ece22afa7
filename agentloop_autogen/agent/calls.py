"""What a model's reply amounts to once it was made safe: a draft, or calls that can be run and kept in history."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from autogen_core import FunctionCall
from autogen_core.models import CreateResult

from agentloop_autogen.core.normalise import without_thinking
from agentloop_autogen.jsonish import without_fence

__all__ = ["PlannedCall", "Reply", "encodable", "is_call_markup", "read_reply"]

_SAFE_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARKUP: Final = re.compile(
    r"<(tool_call|tool_calls|tools|function_call|function|invoke)\b[^>]*>.*?(?:</\1>|\Z)|"
    r"<\|(?:tool_call|python_tag|plugin)[^|]*\|>.*|\[TOOL_CALLS\].*",
    re.DOTALL | re.IGNORECASE,
)
_NAME_FIELD: Final = re.compile(r'"(?:name|function|tool|tool_name)"\s*:\s*"([^"]+)"')
_ARGUMENT_FIELD: Final = re.compile(r'"(?:arguments|parameters|args|input)"\s*:')


@dataclass(frozen=True)
class PlannedCall:
    """One call of a reply."""

    call: FunctionCall
    """As it is shown and run; its id is unique within the reply."""
    arguments: dict[str, object]
    kept_arguments: str = "{}"
    """The arguments as they may stand in history: a JSON object, to the letter where the model wrote one."""
    known: bool = True
    """Whether there is a tool or a handoff of this name."""
    problem: str = ""
    """Why it cannot be run; empty if it can."""

    @property
    def kept(self) -> FunctionCall:
        """The call as it may stand in history: the name of a tool or at least a legal one, and a JSON object."""
        name = self.call.name if self.known else _SAFE_NAME.sub("_", self.call.name)[:64] or "unnamed"
        return FunctionCall(id=self.call.id, name=name, arguments=self.kept_arguments)


@dataclass(frozen=True)
class Reply:
    """A planning reply: calls, a draft, or neither."""

    draft: str
    calls: tuple[PlannedCall, ...] = ()
    thought: str | None = None
    markup: bool = False
    """Whether the text was tool-call markup, which is no draft."""
    truncated: bool = False


def encodable(text: str) -> str:
    """Return `text` with lone surrogates replaced: no request could carry them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def read_reply(result: CreateResult, tool_names: Collection[str]) -> Reply:
    """Return what a model's reply amounts to.

    Args:
        result: The reply as the client gives it.
        tool_names: Names of everything that can be called, handoffs included.

    Text loses its reasoning; text that is mostly tool-call markup is no draft. An empty list of calls is an empty text.
    """
    thought = result.thought
    if isinstance(result.content, str):
        text = without_thinking(encodable(result.content))
        markup = is_call_markup(text, tool_names)
        return Reply("" if markup else text, thought=thought, markup=markup, truncated=result.finish_reason == "length")
    return Reply("", tuple(_planned(result.content, tool_names)), thought)


def _planned(calls: Sequence[FunctionCall], tool_names: Collection[str]) -> list[PlannedCall]:
    planned: list[PlannedCall] = []
    seen: set[str] = set()
    for index, call in enumerate(calls):
        # A dataclass checks nothing: servers are seen to leave out any of the three, or to send an object.
        identity, name, arguments = _as_text(call.id), _as_text(call.name), _as_text(call.arguments)
        identity = _unused(identity, index, seen)
        seen.add(identity)
        shown = FunctionCall(id=identity, name=name, arguments=arguments)
        planned.append(_read_arguments(shown, known=name in tool_names))
    return planned


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return encodable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _unused(identity: str, index: int, seen: Collection[str]) -> str:
    # Servers are seen to repeat an id within a reply, or to send none; results are paired by it.
    candidates = (f"{identity or 'call'}_{number}" for number in count(index))
    return identity if identity and identity not in seen else next(item for item in candidates if item not in seen)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _read_arguments(call: FunctionCall, *, known: bool) -> PlannedCall:
    text = call.arguments.strip()
    if text in ("", "null"):
        return PlannedCall(call, {}, known=known)
    kept = call.arguments
    try:
        # Python alone reads NaN and Infinity; no server accepts them back.
        value: object = json.loads(text, parse_constant=_refuse_constant)
        if isinstance(value, str):
            # Guided decoding on some servers encodes the object twice.
            kept = value
            value = json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return PlannedCall(call, {}, known=known, problem=f"Error: the arguments are not valid JSON ({error})")
    if isinstance(value, dict):
        arguments: dict[str, object] = {str(key): item for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - json.loads gives Any
        return PlannedCall(call, arguments, encodable(kept), known)
    problem = 'Error: the arguments must be a JSON object such as {} or {"key": value}'
    return PlannedCall(call, {}, known=known, problem=problem)


def is_call_markup(text: str, tool_names: Collection[str]) -> bool:
    """Return whether `text` is mostly a tool call that was not recognised as one: tags, or JSON that names a tool."""
    if not text:
        return False
    rest = _MARKUP.sub("", text).strip()
    if rest != text and len(rest) < len(text) / 2:
        return True
    body = without_fence(text)
    if not body.startswith(("{", "[")):
        return False
    name = _NAME_FIELD.search(body)
    return name is not None and name.group(1) in tool_names and _ARGUMENT_FIELD.search(body) is not None
