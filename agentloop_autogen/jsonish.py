"""Finding the JSON objects in what a model wrote, however loosely it wrote them; nothing is ever evaluated."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple, cast

import pydantic_core

__all__ = ["Found", "find_objects", "json_objects", "object_at_start", "without_fence"]

_MAX_CHARS = 40_000
_MAX_STARTS = 60
_MAX_UNCLOSED = 12
_FENCE = re.compile(r"\A```[\w-]*\s*(.*?)\s*(?:```)?\Z", re.DOTALL)
# A whole string, a brace, or the quote of a string that never ends.
_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{}"']""", re.DOTALL)
_LITERALS = {"true": "True", "false": "False", "null": "None"}
# A whole string, or what may need mending outside of strings: a trailing comma, a JSON literal among Python ones.
_LOOSE = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|,(?=\s*[}\]])|\b(true|false|null)\b""", re.DOTALL)


class Found(NamedTuple):
    """One object found in a text."""

    value: dict[str, object]
    source: str
    """The text it was read from."""
    whole: bool
    """Whether it was complete; False: the text ended inside it."""
    last: bool
    """Whether nothing but fences follows it."""


def find_objects(text: str) -> Iterator[Found]:
    """Read the objects of a text in order; objects inside objects or inside strings are no finds of their own.

    Args:
        text: The reply of a model; only its last 40,000 characters are looked at.
    """
    text = text[-_MAX_CHARS:]
    position, unclosed = text.find("{"), 0
    for _ in range(_MAX_STARTS):
        if position < 0 or unclosed > _MAX_UNCLOSED:
            return
        end = _end_of_object(text, position)
        unclosed += end is None
        found = _read_whole(text, position, end) if end is not None else _read_cut(text, position)
        if found is not None:
            yield found
        position = text.find("{", position + 1 if found is None else position + len(found.source))


def json_objects(text: str) -> Iterator[str]:
    """Give the complete objects of a text in order, each as strict JSON.

    Args:
        text: The reply of a model; only its last 40,000 characters are looked at.
    """
    return (json.dumps(found.value, ensure_ascii=False) for found in find_objects(text) if found.whole)


def object_at_start(text: str) -> dict[str, object] | None:
    """Read the complete object a text starts with, whatever follows it; None where there is none.

    Args:
        text: The reply of a model, or part of it; of any length.
    """
    end = _end_of_object(text, 0) if text.startswith("{") else None
    return None if end is None else _loads(text[:end])


def without_fence(text: str) -> str:
    """Give what a text that is one fenced code block fences; any other text as it is.

    Args:
        text: The reply of a model.
    """
    match = _FENCE.match(text)
    return match.group(1) if match else text


def _end_of_object(text: str, start: int) -> int | None:
    """Index after the brace that closes the one at `start`; None: it is never closed."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        match token.group():
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return token.end()
            case '"' | "'":
                return None
            case _:
                pass
    return None


def _read_whole(text: str, start: int, end: int) -> Found | None:
    source = text[start:end]
    value = _loads(source)
    if value is None:
        return None
    return Found(value, source, whole=True, last=not text[end:].strip(" \t\r\n`"))


def _read_cut(text: str, start: int) -> Found | None:
    """Read an object that the end of the text cut off, as far as it goes."""
    source = text[start:].rstrip().rstrip("`").rstrip()
    try:
        value = _as_object(pydantic_core.from_json(source, allow_partial="trailing-strings"))
    except ValueError:
        return None
    return None if value is None else Found(value, text[start:], whole=False, last=True)


def _loads(source: str) -> dict[str, object] | None:
    """Read JSON, JSON with trailing commas, or a Python dict; None where it is none of them."""
    mended = _LOOSE.sub(lambda match: match.group(1) or _LITERALS.get(match.group(2) or "", ""), source)
    for read, attempt in ((json.loads, source), (_json_without_commas, source), (_literal, mended)):
        try:
            return _as_object(read(attempt))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def _json_without_commas(source: str) -> object:
    return json.loads(_LOOSE.sub(lambda match: match.group(1) or match.group(2) or "", source), strict=False)


def _literal(source: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape in a model's string is no concern of the user's console
        value: object = ast.literal_eval(source)
    # Python also has sets and bytes, which nobody further on could write as JSON: they are refused here.
    return json.loads(json.dumps(value))


def _as_object(value: object) -> dict[str, object] | None:
    if not isinstance(value, dict):
        return None
    return {str(key): item for key, item in cast("dict[object, object]", value).items()}
