"""Every word guided tool calling puts in front of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from typing_extensions import assert_never

from agentloop_autogen.models.guided.records import ChoiceKind, ToolChoice, ToolSpec

__all__ = ["answer_format_text", "choice_text", "result_text", "tools_text"]

_MAX_SHOWN_ARGUMENTS = 300
"""Longer arguments are cut in a result's heading: they stand in full in the call just above it."""

_TOOLS = """# Tools

You can call these tools (`?` marks an argument that may be left out):
{tools}

# How to reply

Reply with one JSON object and nothing else.
1. While the answer needs something these tools can look up or do, call them: \
{{"tool_calls": [{{"name": "TOOL", "arguments": {{"ARGUMENT": "VALUE"}}}}]}}
   A call that needs the result of another one waits for it. Do not repeat a call whose result you have.
   The result of a call comes back in a message that begins with "Result of".
2. If the request needs none of these tools, or once the results hold the answer, answer the user: \
{{"final_answer": "TEXT"}}
   An answer holds only what the user or a result said, never a guess."""

_ANSWER_FORMAT = "The value of final_answer must be JSON that fits this schema: {schema}"
_REQUIRED = 'Call at least one tool now: reply with {"tool_calls": [...]}.'
_NAMED = 'Call the tool {name} now: reply with {{"tool_calls": [{{"name": "{name}", "arguments": {{...}}}}]}}.'
_NONE = 'Do not call any tool now: reply with {"final_answer": "TEXT"}.'


def tools_text(tools: Sequence[ToolSpec]) -> str:
    """The part of the system message that lists the tools and says how to reply.

    Args:
        tools: The tools, in the order the caller gave them.

    Returns:
        Text that depends on the tools alone, so that a server's prefix cache can serve it.
    """
    return _TOOLS.format(tools="\n".join(_tool_lines(tool) for tool in tools))


def answer_format_text(schema: Mapping[str, Any]) -> str:
    """The sentence that states the schema of a structured final answer."""
    return _ANSWER_FORMAT.format(schema=json.dumps(schema, ensure_ascii=False))


def choice_text(choice: ToolChoice) -> str:
    """The closing line that states a tool choice, empty for `auto`."""
    match choice.kind:
        case ChoiceKind.AUTO:
            return ""
        case ChoiceKind.REQUIRED:
            return _REQUIRED
        case ChoiceKind.NAMED:
            return _NAMED.format(name=choice.name)
        case ChoiceKind.NONE:
            return _NONE
        case _:  # pragma: no cover - the enum is closed
            assert_never(choice.kind)


def result_text(name: str, arguments: str, content: str, *, is_error: bool) -> str:
    """The user text that carries one tool result back to the model."""
    shown = arguments if len(arguments) <= _MAX_SHOWN_ARGUMENTS else arguments[:_MAX_SHOWN_ARGUMENTS] + "…"
    failed = " (failed)" if is_error else ""
    return f"Result of {name}({'' if shown == '{}' else shown}){failed}: {content}"


def _tool_lines(tool: ToolSpec) -> str:
    properties = cast("Mapping[str, Any]", tool.parameters.get("properties") or {})
    required = cast("Sequence[str]", tool.parameters.get("required") or ())
    arguments = ", ".join(
        f"{name}{'' if name in required else '?'}: {_type_text(schema)}" for name, schema in properties.items()
    )
    head = f"- {tool.name}({arguments}): {_one_line(tool.description)}".rstrip(": ")
    notes = [f"    {name}: {text}" for name, schema in properties.items() if (text := _note(name, schema))]
    return "\n".join([head, *notes])


def _note(name: str, schema: object) -> str:
    text = str(cast("Mapping[str, Any]", schema).get("description") or "") if isinstance(schema, Mapping) else ""
    # AutoGen describes an argument without a description by its own name, which says nothing.
    return "" if text == name else _one_line(text)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _type_text(schema: object) -> str:
    """A short, TypeScript-like rendering of a JSON schema."""
    if not isinstance(schema, Mapping) or not schema:
        return "any"
    schema = cast("Mapping[str, Any]", schema)
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "enum" in schema:
        return "|".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    for union in ("anyOf", "oneOf"):
        if schema.get(union):
            return "|".join(dict.fromkeys(_type_text(option) for option in schema[union]))
    kind: object = schema.get("type", "any")
    if isinstance(kind, list):
        return "|".join(str(part) for part in cast("list[object]", kind))
    if kind == "array":
        return f"[{_type_text(schema.get('items'))}, ...]"
    if kind == "object" and schema.get("properties"):
        return _object_text(schema)
    return str(kind)


def _object_text(schema: Mapping[str, Any]) -> str:
    required = cast("Sequence[str]", schema.get("required") or ())
    properties = cast("Mapping[str, Any]", schema["properties"])
    fields = (f"{name}{'' if name in required else '?'}: {_type_text(value)}" for name, value in properties.items())
    return "{" + ", ".join(fields) + "}"
