"""Finding and reading the data of a family, with one clear error where they are missing."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

from agentloop_autogen.errors import TaskDataError

__all__ = ["DATA_VARIABLE", "data_folder", "find_file", "read_json", "read_lines", "read_text"]

DATA_VARIABLE: Final = "AGENTLOOP_DATA"
"""Environment variable that names the data folder where no folder is given."""


def data_folder(data: Path | None) -> Path | None:
    """Return the data folder: the given one, else the one the environment names.

    Args:
        data: The folder asked for. None: look at `AGENTLOOP_DATA`.

    Returns:
        The folder; None where none was named.

    Raises:
        TaskDataError: A folder was named that is not there.
    """
    if data is None and (named := os.environ.get(DATA_VARIABLE, "").strip()):
        data = Path(named)
    if data is not None and not data.is_dir():
        raise TaskDataError(f"the data folder {str(data)!r} does not exist: name another or set {DATA_VARIABLE}")
    return data


def find_file(folder: Path | None, names: Sequence[str]) -> Path | None:
    """Return the first of these files or folders that is there.

    Args:
        folder: Where to look. None: nowhere.
        names: Paths below the folder, the best first.
    """
    if folder is None:
        return None
    return next((folder / name for name in names if (folder / name).exists()), None)


def read_text(path: Path) -> str:
    """Read a UTF-8 text, unpacked where the name ends in `.gz`.

    Raises:
        TaskDataError: The file cannot be read.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TaskDataError(f"{str(path)!r} cannot be read ({error}): fetch it again") from error


def read_json(path: Path) -> object:
    """Read a JSON document, unpacked where the name ends in `.gz`.

    Raises:
        TaskDataError: The file cannot be read or is no JSON.
    """
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise TaskDataError(f"{str(path)!r} is no JSON ({error}): fetch it again") from error


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read JSON objects, one a line, unpacked where the name ends in `.gz`; empty lines are passed over.

    Raises:
        TaskDataError: The file cannot be read, or a line is no JSON object.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise TaskDataError(f"line {number} of {str(path)!r} is no JSON ({error}): fetch it again") from error
        if not isinstance(record, dict):
            raise TaskDataError(f"line {number} of {str(path)!r} is no JSON object: fetch the file again")
        yield cast("dict[str, Any]", record)
