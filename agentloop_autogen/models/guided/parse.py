"""Reads a model's reply back: tool calls, or else text, and never the JSON around them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from pydantic_core import from_json

from agentloop_autogen.core.normalise import split_thinking
from agentloop_autogen.jsonish import object_at_start
from agentloop_autogen.models.guided.records import GuidedCall, GuidedReply

__all__ = ["AnswerStream", "parse_reply"]

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<(?:tool_call|tools)>\s*(.*?)\s*(?:</(?:tool_call|tools)>|\Z)", re.DOTALL)
_ENVELOPE = re.compile(r'\{\s*"(?:tool_calls|final_answer)"\s*:')
_CALL_LIST = re.compile(r'\{\s*"tool_calls"\s*:\s*\[')
_ANSWER = re.compile(r'\{\s*"final_answer"\s*:')
_ANSWER_HEAD = re.compile(r'\s*(?:```[a-zA-Z]*\s*)?\{\s*"final_answer"\s*:\s*"')
_ARGUMENT_KEYS = ("arguments", "parameters", "args")
_MAX_DECODINGS = 3
"""How often arguments may be JSON inside a JSON string."""


def parse_reply(
    reply: str,
    *,
    tool_names: Collection[str] = (),
    allow_calls: bool = True,
    truncated: bool = False,
) -> GuidedReply:
    """Read one reply.

    Args:
        reply: The model's text.
        tool_names: Names on offer; a call written without its envelope counts only with one of these.
        allow_calls: False where the caller forbade calls: they are dropped.
        truncated: Whether the reply was cut off. A call that was cut off is then dropped rather than run with
            part of its arguments.

    Returns:
        The calls, or else the text, which is empty when the reply was nothing but unusable scaffolding.
    """
    thought, body = split_thinking(reply)
    names = frozenset(tool_names)
    found = _first_meaning(body, names, truncated=truncated)
    if found is None:
        return GuidedReply(text="" if _is_scaffolding(body, names) else body.strip(), thought=thought)
    calls, text = found
    if calls:
        return GuidedReply(calls=tuple(calls) if allow_calls else (), thought=thought)
    return GuidedReply(text=_sendable(text), thought=thought)


class AnswerStream:
    """Finds the text of a final answer in a reply while it is still being written.

    `feed` returns what can be shown already; `finish` what is left once the whole text is known.
    """

    __slots__ = ("_buffer", "_shown")

    def __init__(self) -> None:
        self._buffer = ""
        self._shown = ""

    @property
    def reply(self) -> str:
        """Everything the model has written so far."""
        return self._buffer

    def feed(self, delta: str) -> str:
        """Add what the model wrote and return the new part of the answer, if any."""
        self._buffer += delta
        answer = self._partial_answer()
        # An answer that starts like JSON may turn out to be calls in disguise: it waits for the end.
        if answer.lstrip().startswith("{") or not answer.startswith(self._shown):
            return ""
        new = answer[len(self._shown) :]
        self._shown = answer
        return new

    def finish(self, text: str) -> str:
        """Return the part of the whole text that `feed` has not returned yet."""
        return text[len(self._shown) :] if text.startswith(self._shown) else ""

    def _partial_answer(self) -> str:
        _, body = split_thinking(self._buffer)
        head = _ANSWER_HEAD.match(body)
        if head is None:
            return ""
        text = '{"answer": "' + body[head.end() :]
        try:
            value: object = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            # Something other than JSON follows the object, or an escape is still incomplete.
            value = _decode_head(text)
        answer = cast("Mapping[str, object]", value).get("answer") if isinstance(value, Mapping) else None
        return _sendable(answer) if isinstance(answer, str) else ""


def _first_meaning(body: str, names: frozenset[str], *, truncated: bool) -> tuple[list[GuidedCall], str] | None:
    for candidate in _candidates(body):
        found = _meaning(_decode_lenient(candidate), names)
        if found is None:
            found = _cut_off_meaning(candidate, names, truncated=truncated)
        if found is not None:
            return found
    tagged = [_meaning(_decode_lenient(part), names) for part in _TAGGED.findall(body)]
    calls = [call for found in tagged if found is not None for call in found[0]]
    return (calls, "") if calls else None


def _candidates(body: str) -> Iterator[str]:
    yield body.strip()
    for fenced in _FENCE.findall(body):
        yield fenced.strip()
    envelope = _ENVELOPE.search(body)
    if envelope is not None:
        yield body[envelope.start() :]


def _decode_lenient(text: str) -> object:
    """Decode the object or list a text starts with, however loosely it is written; None where there is none."""
    return object_at_start(text) if text.startswith("{") else _decode_head(text) if text.startswith("[") else None


def _decode_head(text: str) -> object:
    """Decode JSON that may hold raw line breaks or be followed by more text; None when it is no JSON."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _meaning(value: object, names: frozenset[str], *, nested: bool = False) -> tuple[list[GuidedCall], str] | None:
    """The calls or the text a decoded reply stands for, None when it is neither."""
    if isinstance(value, list):
        calls = _calls(cast("list[object]", value), names)
        return (calls, "") if calls else None
    if not isinstance(value, Mapping):
        return None
    fields = cast("Mapping[str, Any]", value)
    listed = _calls(_listed(fields.get("tool_calls")), None)
    if listed:
        return listed, ""
    if "final_answer" in fields:
        return _answer_meaning(fields["final_answer"], names, nested=nested)
    bare = _call(fields, names)
    if bare is not None:
        return [bare], ""
    return ([], "") if "tool_calls" in fields else None


def _answer_meaning(answer: object, names: frozenset[str], *, nested: bool) -> tuple[list[GuidedCall], str]:
    if not isinstance(answer, str):
        return [], json.dumps(answer, ensure_ascii=False)
    inner = None if nested else _meaning(_decode_lenient(answer.strip()), names, nested=True)
    return inner if inner is not None else ([], answer)


def _listed(value: object) -> list[object]:
    if isinstance(value, str):
        value = _decode_lenient(value.strip())
    if isinstance(value, Mapping):
        return [cast("object", value)]
    return cast("list[object]", value) if isinstance(value, list) else []


def _calls(values: list[object], names: frozenset[str] | None) -> list[GuidedCall]:
    found = (_call(cast("Mapping[str, Any]", value), names) for value in values if isinstance(value, Mapping))
    return [call for call in found if call is not None]


def _call(fields: Mapping[str, Any], names: frozenset[str] | None) -> GuidedCall | None:
    """Read one call; `names` None accepts any name, since the envelope already says that it is a call."""
    function = fields.get("function")
    if isinstance(function, Mapping):
        fields = cast("Mapping[str, Any]", function)
    name = fields.get("name")
    key = next((key for key in _ARGUMENT_KEYS if key in fields), None)
    if not isinstance(name, str) or not name:
        return None
    if names is not None and (name not in names or (key is None and len(fields) > 1)):
        return None
    arguments = _as_object(fields[key] if key is not None else None)
    return GuidedCall(name=_sendable(name), arguments=_sendable(json.dumps(arguments, ensure_ascii=False)))


def _as_object(value: object) -> Mapping[str, Any]:
    for _ in range(_MAX_DECODINGS):
        if not isinstance(value, str):
            break
        value = _decode_lenient(value.strip())
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _cut_off_meaning(text: str, names: frozenset[str], *, truncated: bool) -> tuple[list[GuidedCall], str] | None:
    """What can be saved of an envelope that never closed."""
    if _ENVELOPE.match(text) is None:
        return None
    whole = _calls(list(_whole_items(text)), None)
    if whole:
        return whole, ""
    answer = _ANSWER.match(text) is not None
    try:
        value: object = from_json(text, allow_partial="trailing-strings" if answer else True)
    except ValueError:
        return None
    if answer or not truncated:
        return _meaning(value, names)
    return [], ""


def _whole_items(text: str) -> Iterator[object]:
    """The items of a cut-off call list that were written to their end."""
    head = _CALL_LIST.match(text)
    position = head.end() if head else len(text)
    decoder = json.JSONDecoder(strict=False)
    while position < len(text):
        position += len(text[position:]) - len(text[position:].lstrip(" \t\r\n,"))
        try:
            item, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield item


def _is_scaffolding(body: str, names: frozenset[str]) -> bool:
    """Whether text that could not be read is the wreck of a call or an answer envelope, not prose."""
    stripped = body.lstrip().removeprefix("```json").removeprefix("```").lstrip()
    if _ENVELOPE.match(stripped) or stripped.startswith(("<tool_call>", "<tools>")):
        return True
    return any(stripped.startswith(f'{{"name": "{name}"') for name in names)


def _sendable(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can produce and UTF-8 cannot carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
