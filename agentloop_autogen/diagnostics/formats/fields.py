"""Reading single fields of foreign JSON: what is sound is taken, anything else is named and refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard, TypeVar, cast

from pydantic import BaseModel, ValidationError

from agentloop_autogen.core.records import LoopOutcome, RequestUsage, StopReason

__all__ = [
    "FormatError",
    "as_text",
    "completed_of",
    "flag",
    "is_list",
    "is_object",
    "kind",
    "listed",
    "name_of",
    "number",
    "objects",
    "record_of",
    "text",
    "usage_of",
]

_Model = TypeVar("_Model", bound=BaseModel)
_SHOWN_KEYS = 6
_PROMPT_KEYS = ("prompt_tokens", "input_tokens")
_COMPLETION_KEYS = ("completion_tokens", "output_tokens")


class FormatError(ValueError):
    """A document that cannot be read as a trace; the message names what was expected."""


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def kind(value: object) -> str:
    """Name what a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if is_list(value):
        return "an array"
    keys = list(cast("dict[str, object]", value))
    shown = ", ".join(repr(key[:40]) for key in keys[:_SHOWN_KEYS])
    return f"an object with {shown}{', ...' if len(keys) > _SHOWN_KEYS else ''}" if keys else "an empty object"


def as_text(value: object) -> str:
    """Return any JSON value as text: a text as it is, null as none, the rest as JSON with sorted keys."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def text(source: Mapping[str, object], key: str, *, of: str = "") -> str:
    """Return a field that is a text; empty where it is null or absent."""
    value = source.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise _unexpected(key, of, value, "a text")


def name_of(source: Mapping[str, object], key: str, *, of: str = "") -> str:
    """Return a field that must be there and be a text."""
    value = source.get(key)
    if isinstance(value, str):
        return value
    raise _unexpected(key, of, value, "a text")


def flag(source: Mapping[str, object], key: str, *, of: str = "") -> bool | None:
    """Return a field that is true, false, 0 or 1; None where it is null or absent."""
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return bool(value)
    raise _unexpected(key, of, value, "true, false or null")


def number(
    source: Mapping[str, object], key: str, *, of: str = "", lower: float = 0.0, upper: float = math.inf
) -> float | None:
    """Return a field that is a finite number within bounds; None where it is null or absent."""
    value = source.get(key)
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise _unexpected(key, of, value, "a number or null")
    try:
        read = float(value)
    except OverflowError:
        read = math.inf
    if math.isfinite(read) and lower <= read <= upper:
        return read
    bounds = " and".join(
        [f" not under {lower:g}"] * (lower > -math.inf) + [f" not over {upper:g}"] * (upper < math.inf)
    )
    raise FormatError(f"{_named(key, of)} is {read:g}, expected a number{bounds} or null")


def listed(source: Mapping[str, object], key: str, *, of: str = "") -> Sequence[object]:
    """Return a field that is an array; empty where it is null or absent."""
    value = source.get(key)
    if value is None:
        return ()
    if is_list(value):
        return value
    raise _unexpected(key, of, value, "an array")


def objects(source: Mapping[str, object], key: str, *, of: str = "") -> Sequence[dict[str, object]]:
    """Return a field that is an array of objects; empty where it is null or absent."""
    found: list[dict[str, object]] = []
    for index, item in enumerate(listed(source, key, of=of), start=1):
        if not is_object(item):
            raise FormatError(f"element {index} of {_named(key, of)} is {kind(item)}, expected an object")
        found.append(item)
    return found


def record_of(model: type[_Model], source: Mapping[str, object], key: str, *, of: str = "") -> _Model | None:
    """Return a field that holds one of this package's records; None where it is null or absent."""
    value = source.get(key)
    if value is None:
        return None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "itself"
        raise FormatError(f"{_named(key, of)} is no {model.__name__}: {where}: {first['msg']}") from error


def usage_of(source: Mapping[str, object], key: str, *, of: str = "") -> RequestUsage | None:
    """Return a field that holds token counts under any of their usual names; None where it has none."""
    value = source.get(key)
    if value is None:
        return None
    if not is_object(value):
        raise _unexpected(key, of, value, "an object with token counts")
    counts = [_first_count(value, keys, of=_named(key, of)) for keys in (_PROMPT_KEYS, _COMPLETION_KEYS)]
    if counts == [None, None]:
        return None
    prompt, completion = counts
    return RequestUsage(prompt_tokens=prompt or 0, completion_tokens=completion or 0)


def completed_of(outcome: LoopOutcome | None) -> bool:
    """Return whether a run that says nothing else about it ended without a fault of its own."""
    return outcome is None or outcome.stop_reason is not StopReason.FAILED


def _first_count(source: Mapping[str, object], keys: Sequence[str], *, of: str) -> int | None:
    for key in keys:
        value = number(source, key, of=of)
        if value is not None:
            return int(value)
    return None


def _named(key: str, of: str) -> str:
    return f"`{key}` of {of}" if of else f"`{key}`"


def _unexpected(key: str, of: str, value: object, wanted: str) -> FormatError:
    if value is None:
        return FormatError(f"{_named(key, of)} is missing, expected {wanted}")
    return FormatError(f"{_named(key, of)} is {kind(value)}, expected {wanted}")
