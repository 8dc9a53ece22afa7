"""The families of tasks by name: what they are, where their data come from, and how their tasks are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from agentloop_autogen.bench.tasks import agentdojo, bfcl, hotpot, spider
from agentloop_autogen.bench.tasks.halves import in_order
from agentloop_autogen.bench.tasks.task import BenchTask, Half
from agentloop_autogen.errors import UsageError

__all__ = ["FAMILIES", "Family", "find_task", "load_tasks"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of tasks."""

    name: str
    description: str
    """What an agent does in it, in one sentence."""
    kind: str
    """Which of the paper's kinds of task it stands for."""
    source: str
    """Where its data come from, and how to get them."""
    licence: str
    """Licence of the data."""
    load: Callable[[Path | None], Sequence[BenchTask]]
    """Loads all its tasks in a fixed order from a data folder; None: the one `AGENTLOOP_DATA` names."""


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family(
                name="spider",
                description="Answers questions over 20 small SQLite databases by looking up tables and running SQL.",
                kind="tool-intensive",
                source="Spider's development set (https://yale-lily.github.io/spider): `dev.json` and `database/`; or "
                "the cut of it that InterCode publishes",
                licence="CC BY-SA 4.0 (Spider); MIT (InterCode)",
                load=spider.load,
            ),
            Family(
                name="hotpot",
                description="Answers questions that need facts from two articles by searching paragraphs of Wikipedia.",
                kind="grounded question answering",
                source="HotpotQA's development set with contexts (https://hotpotqa.github.io): "
                "`hotpot_dev_distractor_v1.json`; or a cut of it",
                licence="CC BY-SA 4.0",
                load=hotpot.load,
            ),
            Family(
                name="bfcl",
                description="Carries out requests with the functions of simulated services such as a file system, a "
                "car or a travel agency: the first turn of each multi-turn task.",
                kind="tool-intensive",
                source="the package bfcl-eval (https://gorilla.cs.berkeley.edu): "
                "`pip install --no-deps bfcl-eval==2026.3.23`",
                licence="Apache-2.0",
                load=bfcl.load,
            ),
            Family(
                name="agentdojo",
                description="Does office work in simulated accounts (mail, calendar, files, bank, travel, chat), in "
                "several steps.",
                kind="multi-step workflow",
                source="the package agentdojo (https://agentdojo.spylab.ai), in the extra `bench`; its user tasks, "
                "without its attacks",
                licence="MIT",
                load=agentdojo.load,
            ),
        )
    }
)
"""The families by name."""


def load_tasks(
    family: str, *, data: Path | None = None, limit: int | None = None, half: Half | None = None, seed: int = 0
) -> Sequence[BenchTask]:
    """Load tasks of a family in an order that hangs on the seed alone.

    Args:
        family: Name of the family.
        data: The data folder. None: the one `AGENTLOOP_DATA` names.
        limit: Tasks at most, the first ones of the order; at least 1. None: all.
        half: Only tasks of this half. None: both.
        seed: Another seed is another order, and so another sample where there is a limit.

    Raises:
        UsageError: There is no such family, or the limit is below 1.
        TaskDataError: Its data are missing or damaged.
        MissingExtraError: A package it needs is not installed.
    """
    found = FAMILIES.get(family)
    if found is None:
        raise UsageError(f"there is no task family {family!r}: choose one of {', '.join(FAMILIES)}")
    if limit is not None and limit < 1:
        raise UsageError(f"the limit of tasks is {limit}: it must be at least 1")
    tasks = in_order(found.load(data), seed=seed)
    return [task for task in tasks if half is None or task.half is half][:limit]


def find_task(family: str, task: str, *, data: Path | None = None) -> BenchTask:
    """Find one task; a family's tasks are loaded once per process.

    Args:
        family: Name of the family.
        task: Id of the task.
        data: The data folder. None: the one `AGENTLOOP_DATA` names.

    Raises:
        UsageError: There is no such task.
        TaskDataError: Its data are missing or damaged.
        MissingExtraError: A package it needs is not installed.
    """
    found = _by_id(family, data).get(task)
    if found is None:
        raise UsageError(f"the data of {family!r} hold no task {task!r}: give every machine the same data")
    return found


@cache
def _by_id(family: str, data: Path | None) -> Mapping[str, BenchTask]:
    return {task.id: task for task in load_tasks(family, data=data)}
