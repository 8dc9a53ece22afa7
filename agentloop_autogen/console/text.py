"""Text of a model or a tool, made fit for a terminal: no control characters, no escapes, a bounded width."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len, set_cell_size

__all__ = ["clean", "one_line"]

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movement
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]",  # everything else an escape may start
    re.DOTALL,
)
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_KEPT = frozenset("\n\t\u200d")  # the last one joins emoji and some scripts' letters
_ELLIPSIS = "…"


def clean(text: str) -> str:
    """Remove everything from a text that would steer a terminal instead of being read.

    Args:
        text: Text of any origin.

    Returns:
        The text with line ends as newlines and without escapes, control and direction characters.
    """
    bare = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(char for char in bare if char in _KEPT or unicodedata.category(char) not in _DROPPED)


def one_line(text: str, width: int) -> str:
    """Bring a text onto one line of at most so many terminal columns.

    Args:
        text: Text of any origin; it is cleaned.
        width: Columns, at least 1.

    Returns:
        The text with its white space collapsed, cut with an ellipsis where it is longer.
    """
    line = " ".join(clean(text).split())
    return line if cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + _ELLIPSIS
