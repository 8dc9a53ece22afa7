"""A process of its own that works on a slot store, for the tests of many processes and of sudden ends.

    python -m tests.slot_worker STORE NAME OBJECTS BATCH

It puts objects `NAME-0`, `NAME-1` and so on, prints how many are acknowledged after each write, and asks now and then.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from agentloop_autogen.slots.sql import SQLSlotStateStore

from .slot_samples import START, state

__all__ = ["made"]


def made(name: str, number: int) -> str:
    """The request of an object."""
    return f"How many tickets of town {number % 977} did {name} sell in week {number}?"


async def work(place: str, name: str, objects: int, batch: int) -> None:
    """Put objects, and look for some of those that were put."""
    store = SQLSlotStateStore(place, timeout_s=60)
    for first in range(0, objects, batch):
        numbers = range(first, min(first + batch, objects))
        await store.put([state(f"{name}-{number}", made(name, number), minutes=number) for number in numbers])
        sys.stdout.write(f"{numbers[-1] + 1}\n")
        sys.stdout.flush()
        if first // batch % 5 == 0:
            found = await store.similar(made(name, first), 1)
            assert found[0].state.request == made(name, first), found
            assert found[0].state.created_at == START + timedelta(minutes=first)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
