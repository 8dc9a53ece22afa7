"""Objects of the slot store in words, fit for a terminal."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

from agentloop_autogen.console.text import one_line
from agentloop_autogen.core.records import SlotState
from agentloop_autogen.slots.records import RuntimeStateObject, SlotTrace
from agentloop_autogen.slots.sql import StoreStats

__all__ = ["object_lines", "row_line", "stats_lines"]

_WHOLE: Final = 1_000_000
"""Columns of a line that is not cut."""
_ROOM: Final = 12
_LEAST: Final = 12
"""Columns a request gets in however narrow a terminal."""


def row_line(state: RuntimeStateObject, *, width: int | None) -> str:
    """Put an object on one line.

    Args:
        state: The object.
        width: Columns of the terminal; None: the line is not cut.
    """
    closed = sum(slot.state is SlotState.SUPPORTED for slot in state.slots)
    facts = (
        one_line(state.id, _WHOLE),
        _when(state.created_at),
        f"{state.stop_reason.value}, {closed} of {len(state.slots)} slots",
    )
    line = "  ".join(facts)
    room = _WHOLE if width is None else max(_LEAST, width - len(line) - 2)
    return f"{line}  {one_line(_request(state), room)}"


def object_lines(state: RuntimeStateObject) -> list[str]:
    """Put an object into words.

    Args:
        state: The object.

    Returns:
        Its lines.
    """
    ended = f"{state.stop_reason.value} by {state.stop_branch.value}, confidence {state.confidence:.2f}"
    facts = {
        "id": state.id,
        "request": _request(state),
        "ended": f"{_when(state.created_at)}, {ended}, after {state.rounds:,} round{'' if state.rounds == 1 else 's'}",
        "model": state.model or "(not known)",
    }
    lines = [f"{name:<{_ROOM}}{one_line(value, _WHOLE)}" for name, value in facts.items()]
    lines += [f"{'slot':<{_ROOM}}{one_line(_slot(slot), _WHOLE)}" for slot in state.slots]
    for tool in state.tools:
        calls = f"{tool.name}: {tool.calls:,} call{'' if tool.calls == 1 else 's'}, {tool.errors:,} in error"
        lines.append(f"{'tool':<{_ROOM}}{one_line(calls, _WHOLE)}")
    return lines


def stats_lines(place: str, stats: StoreStats, size: int | None) -> list[str]:
    """Put into words what a store holds.

    Args:
        place: Where it is.
        stats: What it holds.
        size: Bytes of its file; None: it is on a server.

    Returns:
        The lines.
    """
    facts = {"store": one_line(place, _WHOLE), "objects": f"{stats.objects:,}", "with text": f"{stats.with_text:,}"}
    for name, end in stats.ends.items():
        if end is not None:
            facts[name] = _when(end)
    if size is not None:
        facts["size"] = f"{size / 2**20:,.1f} MiB"
    return [f"{name:<{_ROOM}}{value}" for name, value in facts.items()]


def _slot(slot: SlotTrace) -> str:
    closed_by = f", closed by {', '.join(slot.closed_by)}" if slot.closed_by else ""
    return f"{slot.name}: {slot.state.value}{closed_by}"


def _request(state: RuntimeStateObject) -> str:
    return "(request not kept)" if state.request is None else state.request


def _when(moment: datetime) -> str:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return f"{aware.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
