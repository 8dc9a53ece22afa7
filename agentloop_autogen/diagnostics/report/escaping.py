"""Text of a trace on its way into the page: whatever it holds, it can only be read."""

from __future__ import annotations

import json
from typing import Final, TypeAlias

__all__ = ["Json", "script_json", "visible"]

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""Plain data."""

_KEPT: Final = "\n\t"
_BIDI: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_UNSEEN: Final = (0x00AD, 0x200B, 0x2028, 0x2029, *range(0x2060, 0x2065), 0xFEFF, *range(0xE0000, 0xE0080))
"""Soft hyphens, zero-width characters and tag letters: text that is there for a machine and not for the reader."""


def _table() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT}
    table[0x7F] = "␡"
    table |= {code: f"⟨U+{code:04X}⟩" for code in (*range(0x80, 0xA0), *_BIDI, *_UNSEEN)}
    # A lone surrogate cannot be written to a file.
    return table | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


_SHOWN: Final = _table()
_ESCAPED: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def visible(text: str) -> str:
    """Return a text with every control, bidi and unseen character replaced by one that can be seen.

    Args:
        text: Anything.

    Returns:
        The same text; line breaks and tabs are kept.
    """
    return text.replace("\r\n", "\n").translate(_SHOWN)


def script_json(value: Json) -> str:
    """Return plain data as JSON that can stand in a script element.

    Args:
        value: Dicts, lists, texts, finite numbers, booleans and None.

    Returns:
        ASCII without `<`, `>` and `&`, so that nothing in it can end the element or begin another.
    """
    dumped = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return dumped.translate(_ESCAPED)
