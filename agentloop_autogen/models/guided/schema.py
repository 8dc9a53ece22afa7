"""The JSON schema that holds a model to either tool calls or a final answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from typing_extensions import assert_never

from agentloop_autogen.models.guided.records import ChoiceKind, GuidedRung, ToolChoice, ToolSpec

__all__ = ["MAX_CALLS", "reply_schema", "response_format", "self_contained"]

MAX_CALLS = 8
"""Most calls one reply may hold, so that a degenerate model cannot fill its whole output with calls."""

_SCHEMA_NAME = "agentloop_reply"
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLES = frozenset({"items", "additionalProperties", "not", "contains", "if", "then", "else", "propertyNames"})
_ANNOTATIONS = frozenset(
    {"$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description", "examples"}
    | {"readOnly", "title", "writeOnly"}
)


def reply_schema(
    tools: Sequence[ToolSpec],
    choice: ToolChoice,
    *,
    answer_schema: Mapping[str, Any] | None = None,
    max_calls: int = MAX_CALLS,
) -> dict[str, Any]:
    """Build the schema of one reply.

    Args:
        tools: The tools that may be called.
        choice: What the caller allows.
        answer_schema: Schema of a structured final answer. Default: None, a string.
        max_calls: Most calls in one reply; a named choice allows one.

    Returns:
        A schema whose alternatives are `{"tool_calls": [...]}` and `{"final_answer": ...}`, as far as allowed.
    """
    answer = _only("final_answer", self_contained(answer_schema) if answer_schema else {"type": "string"})
    match choice.kind:
        case ChoiceKind.NONE:
            return answer
        case ChoiceKind.REQUIRED:
            return _calls_schema(tools, max_calls)
        case ChoiceKind.NAMED:
            return _calls_schema([tool for tool in tools if tool.name == choice.name], 1)
        case ChoiceKind.AUTO:
            return {"anyOf": [_calls_schema(tools, max_calls), answer]}
        case _:  # pragma: no cover - the enum is closed
            assert_never(choice.kind)


def response_format(schema: Mapping[str, Any], rung: GuidedRung) -> dict[str, Any] | None:
    """The OpenAI `response_format` that asks for a schema as firmly as a rung says, None for the prompt alone."""
    match rung:
        case GuidedRung.SCHEMA:
            return {"type": "json_schema", "json_schema": {"name": _SCHEMA_NAME, "schema": dict(schema)}}
        case GuidedRung.JSON_OBJECT:
            return {"type": "json_object"}
        case GuidedRung.PROMPT:
            return None
        case _:  # pragma: no cover - the enum is closed
            assert_never(rung)


def self_contained(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a schema so that it can stand inside another one.

    Args:
        schema: A JSON schema; references into its own definitions are allowed.

    Returns:
        The schema without references and annotations. A recursive reference accepts anything at its second
        occurrence, and a pattern that common grammars refuse is left out.
    """
    return _inlined(schema, schema, ())


def _calls_schema(tools: Sequence[ToolSpec], max_calls: int) -> dict[str, Any]:
    calls = [_call_schema(tool) for tool in tools]
    item = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return _only("tool_calls", {"type": "array", "items": item, "minItems": 1, "maxItems": max_calls})


def _call_schema(tool: ToolSpec) -> dict[str, Any]:
    arguments = self_contained(tool.parameters)
    arguments["type"] = "object"
    if not arguments.get("properties"):
        # Without this a model may invent arguments for a tool that takes none.
        arguments.setdefault("properties", {})
        arguments.setdefault("additionalProperties", False)
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _only(key: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {key: dict(schema)}, "required": [key], "additionalProperties": False}


def _inlined(schema: Mapping[str, Any], root: Mapping[str, Any], seen: tuple[str, ...]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return {}
        return _inlined(_target(root, reference), root, (*seen, reference))
    return {
        key: _inlined_value(key, value, root, seen)
        for key, value in schema.items()
        if key not in _ANNOTATIONS and not (key == "pattern" and not _is_portable(value))
    }


def _inlined_value(key: str, value: Any, root: Mapping[str, Any], seen: tuple[str, ...]) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        if key in _MAPS:
            return {name: _inlined_schema(field, root, seen) for name, field in fields.items()}
        if key in _SINGLES:
            return _inlined(fields, root, seen)
    if isinstance(value, list) and key in _LISTS | {"items"}:
        return [_inlined_schema(option, root, seen) for option in cast("list[object]", value)]
    return cast("Any", value)


def _inlined_schema(schema: object, root: Mapping[str, Any], seen: tuple[str, ...]) -> object:
    # A schema may also be the plain value true or false.
    return _inlined(cast("Mapping[str, Any]", schema), root, seen) if isinstance(schema, Mapping) else schema


def _target(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    node: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        node = cast("Mapping[str, Any]", node).get(key) if isinstance(node, Mapping) else None
    return cast("Mapping[str, Any]", node) if isinstance(node, Mapping) else {}


def _is_portable(pattern: object) -> bool:
    """Whether common grammars take a pattern: anchored at both ends, and no group with a `?` modifier."""
    return isinstance(pattern, str) and pattern.startswith("^") and pattern.endswith("$") and "(?" not in pattern
