"""Objects of a store as JSON lines: one object a line, in UTF-8."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Final

from pydantic import ValidationError

from agentloop_autogen.errors import UsageError
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.store import SlotStateStore

__all__ = ["export_lines", "import_lines"]

_BATCH: Final = 500


async def export_lines(store: SlotStateStore) -> AsyncIterator[str]:
    """Yield all objects of a store as JSON, oldest first, in bounded memory; lines are pure ASCII, without line ends.

    Args:
        store: The store.

    Raises:
        SlotStoreError: The store could not be read.
    """
    async for state in store.export():
        yield json.dumps(state.model_dump(mode="json"), separators=(",", ":"))


async def import_lines(store: SlotStateStore, lines: Iterable[str | bytes], *, name: str = "the input") -> int:
    """Put the objects of JSON lines into a store, in bounded memory.

    What stands before a line that cannot be read is kept, and importing everything again, once that is mended, does no
    harm: objects are known by their ids.

    Args:
        store: The store.
        lines: The lines; empty ones are passed over.
        name: What to call them in a message.

    Returns:
        How many objects there were.

    Raises:
        UsageError: A line is no object; the message names it.
        SlotStoreError: The store could not keep them.
    """
    batch: list[RuntimeStateObject] = []
    done = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            batch.append(RuntimeStateObject.model_validate_json(line))
        except ValidationError as error:
            await store.put(batch)
            message = (
                f"line {number} of {name} is no Runtime State Object ({_first(error)}): mend or remove it and import"
                f" again; the {done + len(batch):,} before it are kept"
            )
            raise UsageError(message) from error
        if len(batch) == _BATCH:
            await store.put(batch)
            done += len(batch)
            batch = []
    await store.put(batch)
    return done + len(batch)


def _first(error: ValidationError) -> str:
    # Neither the value nor its context: a message must not show what the line holds.
    first = error.errors(include_input=False, include_context=False, include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"].splitlines()[0]
