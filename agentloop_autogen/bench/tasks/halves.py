"""The split of each family in two halves, and the order tasks are taken in: both by digest, so both stay."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from agentloop_autogen.bench.tasks.task import BenchTask, Half

__all__ = ["half_of", "in_order"]


def half_of(family: str, key: str) -> Half:
    """Return the half a task belongs to: the parity of the SHA-256 of `family/key`.

    Args:
        family: Name of the family.
        key: Id of the task, or what it shares with tasks that are the same question in other words, so that such
            tasks are never on both sides.
    """
    return Half.HELD_OUT if _digest(f"{family}/{key}")[-1] % 2 else Half.DEVELOPMENT


def in_order(tasks: Iterable[BenchTask], *, seed: int) -> list[BenchTask]:
    """Return the tasks in an order that looks random, hangs on the seed and ids alone, and not on the source's order.

    Args:
        tasks: Tasks of one family.
        seed: Another seed is another order; the first N tasks are then another sample.
    """
    return sorted(tasks, key=lambda task: _digest(f"{seed}/{task.family}/{task.id}"))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
