"""Writing to standard out in whatever encoding it has."""

from __future__ import annotations

import json
import sys
from typing import TextIO

__all__ = ["write_json", "write_line"]


def write_json(data: object) -> None:
    """Write one JSON document.

    Args:
        data: Plain data.
    """
    write_line(json.dumps(data, indent=2))


def write_line(line: str, *, stream: TextIO | None = None) -> None:
    """Write one line at once; characters the stream cannot show are replaced.

    Args:
        line: The text, without its line end.
        stream: Where to; None: standard out.
    """
    out = stream or sys.stdout
    encoding = out.encoding or "utf-8"
    out.write(line.encode(encoding, errors="replace").decode(encoding) + "\n")
    out.flush()
