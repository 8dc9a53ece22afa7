"""What `agentloop slots` does, once the arguments are read."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final, TextIO, TypeVar

from agentloop_autogen.console.output import write_json, write_line
from agentloop_autogen.console.slot_text import object_lines, row_line, stats_lines
from agentloop_autogen.errors import UsageError
from agentloop_autogen.slots.lines import export_lines, import_lines
from agentloop_autogen.slots.sql import SQLSlotStateStore

__all__ = [
    "export_objects",
    "forget_objects",
    "forget_older",
    "import_objects",
    "list_objects",
    "show_object",
    "show_stats",
]

T = TypeVar("T")

_DONE: Final = 0
_TIMEOUT_S: Final = 60.0
"""Whoever types a command waits longer than an agent does."""


def list_objects(place: str | None, *, limit: int, as_json: bool) -> int:
    """List the newest objects.

    Args:
        place: Where the store is; None: the default.
        limit: How many at most.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.
    """
    states = _with(place, lambda store: store.newest(limit))
    if as_json:
        write_json({"objects": [state.model_dump(mode="json") for state in states]})
        return _DONE
    width = os.get_terminal_size().columns if sys.stdout.isatty() else None
    for state in states:
        write_line(row_line(state, width=width))
    if not states:
        write_line("the store is empty")
    return _DONE


def show_object(place: str | None, wanted: str, *, as_json: bool) -> int:
    """Show one object whole.

    Args:
        place: Where the store is; None: the default.
        wanted: The object's id.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.

    Raises:
        UsageError: There is no such object.
    """
    found = _with(place, lambda store: store.get([wanted]))
    if not found:
        raise UsageError(f"no object has the id {wanted!r}: `agentloop slots list` shows those there are")
    if as_json:
        write_json(found[0].model_dump(mode="json"))
        return _DONE
    for line in object_lines(found[0]):
        write_line(line)
    return _DONE


def forget_objects(place: str | None, ids: Sequence[str], *, as_json: bool) -> int:
    """Remove objects by their ids.

    Args:
        place: Where the store is; None: the default.
        ids: The ids; unknown ones are no error.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.
    """
    return _say_forgotten(_with(place, lambda store: store.forget(ids)), as_json=as_json)


def forget_older(place: str | None, days: float | None, *, as_json: bool) -> int:
    """Remove objects by their age.

    Args:
        place: Where the store is; None: the default.
        days: Age in days from which they go. None: all go.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.
    """
    moment = None if days is None else datetime.now(timezone.utc) - timedelta(days=days)
    return _say_forgotten(_with(place, lambda store: store.forget_before(moment)), as_json=as_json)


def export_objects(place: str | None, output: Path | None) -> int:
    """Write all objects as JSON lines.

    Args:
        place: Where the store is; None: the default.
        output: The file. None: standard output.

    Returns:
        The exit status.

    Raises:
        UsageError: The file cannot be written.
    """

    async def write(store: SQLSlotStateStore) -> int:
        written = 0
        with nullcontext(sys.stdout) if output is None else _opened(output) as stream:
            async for line in export_lines(store):
                stream.write(f"{line}\n")
                written += 1
        return written

    try:
        written = _with(place, write)
    except OSError as error:
        if output is None:
            raise
        raise UsageError(f"{output} cannot be written ({error.strerror}): name another file") from error
    if output is not None:
        write_line(f"wrote {_objects(written)} to {output}")
    return _DONE


def import_objects(place: str | None, wanted: str, *, as_json: bool) -> int:
    """Put the objects of JSON lines into the store, which is made if it is not there.

    Args:
        place: Where the store is; None: the default.
        wanted: The file; `-`: standard input.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.

    Raises:
        UsageError: The file cannot be read, or one of its lines is no object.
    """
    name = "standard input" if wanted == "-" else wanted

    async def put(store: SQLSlotStateStore, lines: Iterable[bytes]) -> int:
        return await import_lines(store, lines, name=name)

    try:
        with nullcontext(sys.stdin.buffer) if wanted == "-" else Path(wanted).open("rb") as lines:
            kept = _with(place, lambda store: put(store, lines), may_be_new=True)
    except OSError as error:
        raise UsageError(f"{name} cannot be read ({error.strerror}): name a file `export` wrote") from error
    if as_json:
        write_json({"imported": kept})
    else:
        write_line(f"imported {_objects(kept)}")
    return _DONE


def show_stats(place: str | None, *, as_json: bool) -> int:
    """Say what the store holds.

    Args:
        place: Where the store is; None: the default.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.
    """
    store = SQLSlotStateStore(place, timeout_s=_TIMEOUT_S)
    found = _with(place, lambda store: store.stats())
    size = store.path.stat().st_size if store.path is not None else None
    if as_json:
        ends = {name: None if end is None else end.isoformat() for name, end in found.ends.items()}
        write_json(
            {"store": store.place, "objects": found.objects, "with_text": found.with_text, **ends, "bytes": size}
        )
        return _DONE
    for line in stats_lines(store.place, found, size):
        write_line(line)
    return _DONE


def _with(place: str | None, work: Callable[[SQLSlotStateStore], Awaitable[T]], *, may_be_new: bool = False) -> T:
    store = SQLSlotStateStore(place, timeout_s=_TIMEOUT_S)
    if store.path is not None and not (may_be_new or store.path.exists()):
        raise UsageError(f"there is no slot store at {store.place}: name one with --store")

    async def run() -> T:
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _opened(output: Path) -> TextIO:
    # For this user alone, as the store itself.
    return os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii")


def _say_forgotten(count: int, *, as_json: bool) -> int:
    if as_json:
        write_json({"forgotten": count})
    else:
        write_line(f"forgot {_objects(count)}")
    return _DONE


def _objects(count: int) -> str:
    return f"{count:,} object{'' if count == 1 else 's'}"
