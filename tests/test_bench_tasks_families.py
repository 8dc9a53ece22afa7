"""The registry of task families, the split in halves, and the order of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from agentloop_autogen.bench.tasks import families
from agentloop_autogen.bench.tasks.families import FAMILIES, Family, load_tasks
from agentloop_autogen.bench.tasks.halves import half_of
from agentloop_autogen.bench.tasks.task import BenchTask, Half, TaskSession
from agentloop_autogen.errors import UsageError


def no_world() -> TaskSession:
    raise NotImplementedError("these tasks are never opened")


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of twenty tasks beside the real ones."""
    tasks = [
        BenchTask(
            family="numbers",
            id=str(number),
            half=half_of("numbers", str(number)),
            instructions="",
            request="",
            open=no_world,
        )
        for number in range(20)
    ]
    family = Family(name="numbers", description="d", kind="k", source="s", licence="l", load=lambda _data: list(tasks))
    known: Mapping[str, Family] = MappingProxyType({**FAMILIES, "numbers": family})
    monkeypatch.setattr(families, "FAMILIES", known)


def test_the_split_in_halves_stays_as_it_is() -> None:
    """Which half a task belongs to never changes: figures of earlier versions stay comparable."""
    assert "".join(half_of("spider", str(number)).value[0] for number in range(24)) == "dddhdhhddddddhddhhhhdddd"


@pytest.mark.usefixtures("numbers")
def test_the_order_hangs_on_the_seed_alone() -> None:
    """The same seed gives the same order, another seed another one, and a limit takes the first of it."""
    first = [task.id for task in load_tasks("numbers")]
    assert first == [task.id for task in load_tasks("numbers", seed=0)]
    assert first != [task.id for task in load_tasks("numbers", seed=1)]
    assert sorted(first, key=int) == [str(number) for number in range(20)]
    assert [task.id for task in load_tasks("numbers", limit=5)] == first[:5]


@pytest.mark.usefixtures("numbers")
def test_a_limit_counts_the_tasks_of_the_half_asked_for() -> None:
    """With a half and a limit, that many tasks of that half come back."""
    held_out = load_tasks("numbers", half=Half.HELD_OUT, limit=4)
    assert [task.half for task in held_out] == [Half.HELD_OUT] * 4
    both = {task.id for half in Half for task in load_tasks("numbers", half=half)}
    assert both == {task.id for task in load_tasks("numbers")}


@pytest.mark.parametrize(
    ("family", "limit", "message"), [("spidre", None, "choose one of spider"), ("spider", 0, "at least 1")]
)
def test_what_cannot_be_loaded_is_said(family: str, limit: int | None, message: str) -> None:
    """An unknown family and an impossible limit are errors that say what can be had."""
    with pytest.raises(UsageError, match=message):
        load_tasks(family, limit=limit)


def test_every_family_says_what_it_is() -> None:
    """The registry names description, kind, source and licence of every family."""
    for name, family in FAMILIES.items():
        assert family.name == name
        assert all((family.description, family.kind, family.source, family.licence))
