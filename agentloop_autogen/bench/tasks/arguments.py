"""Reading the arguments of a tool call; what does not fit is told to the model in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["object_schema", "text_argument", "whole_argument"]


def object_schema(properties: Mapping[str, Mapping[str, Any]], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties.

    Args:
        properties: Schema of each argument, by name.
        optional: Names of those that may be left out.
    """
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """Return a text argument.

    Raises:
        ValueError: It is missing, empty, or no text.
    """
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the argument `{name}` must be a text that is not empty")
    return value.strip()


def whole_argument(arguments: Mapping[str, Any], name: str, *, default: int, most: int) -> int:
    """Return a whole number of 1 to `most`.

    Args:
        arguments: All arguments of the call.
        name: Name of the argument.
        default: Used where it is missing or null.
        most: Highest value allowed.

    Raises:
        ValueError: It is no whole number, or out of range.
    """
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"the argument `{name}` must be a whole number from 1 to {most}")
    return value
