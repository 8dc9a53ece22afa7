"""JSON on one line: indented over many lines a verdict takes a small model twice the tokens, and it judges worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

__all__ = ["can_be_bound", "on_one_line"]

_BLANK_AT_MOST: Final = {"whitespace_pattern": "[ ]?"}
_NAMED: Final = frozenset({"properties", "$defs", "definitions"})
"""Keywords whose value holds schemas by name, so that its keys are no keywords."""
_DATA: Final = frozenset({"const", "enum", "default", "examples", "required", "title", "description"})
"""Keywords whose value is data."""
_BINDING: Final = frozenset(
    {
        *("$ref", "additionalProperties", "anyOf", "items", "type"),
        *("maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum"),
    }
)


def can_be_bound(schema: object) -> bool:
    """Return whether a JSON schema holds only keywords that the one-line grammar is known to follow.

    llama.cpp drops a grammar that it cannot compile without a word, and the model then writes what it likes. A schema
    with any other keyword is better left to llama.cpp's own conversion, which refuses what it cannot do.

    Args:
        schema: The schema, or a part of it.
    """
    if isinstance(schema, Mapping):
        parts = cast("Mapping[str, object]", schema)
        return all(_part_can_be_bound(keyword, part) for keyword, part in parts.items())
    if isinstance(schema, list):
        return all(map(can_be_bound, cast("Sequence[object]", schema)))
    return True


def _part_can_be_bound(keyword: str, part: object) -> bool:
    if keyword in _NAMED:
        return isinstance(part, Mapping) and all(map(can_be_bound, cast("Mapping[str, object]", part).values()))
    return keyword in _DATA or (keyword in _BINDING and can_be_bound(part))


def on_one_line(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with the remark that makes llama.cpp's grammar allow a blank at most between tokens.

    Args:
        schema: A JSON schema.
    """
    return {**schema, "x-guidance": _BLANK_AT_MOST}
