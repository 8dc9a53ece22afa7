"""The SQL store under many processes at once, and under processes that are killed while they write."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentloop_autogen.slots.sql import SQLSlotStateStore

from .slot_samples import state
from .slot_worker import made

ROOT = Path(__file__).parent.parent
PROCESSES = 8


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is, on each of the databases."""
    if request.param == "sqlite":
        return str(tmp_path / "slots.sqlite3")
    return request.getfixturevalue("postgres_server").new_database(uuid.uuid4().hex)


def worker(place: str, name: str, objects: int, batch: int) -> subprocess.Popen[str]:
    """Start a process that puts so many objects."""
    return subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-m", "tests.slot_worker", place, name, str(objects), str(batch)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


async def ids_of(place: str) -> Counter[str]:
    """How often each id comes in an export; each request must be that of its id."""
    found: Counter[str] = Counter()
    async for one in SQLSlotStateStore(place, timeout_s=60).export():
        name, _, number = one.id.partition("-")
        assert one.request == made(name, int(number))
        found[one.id] += 1
    return found


def all_at_once(place: str, objects: int, batch: int) -> None:
    """Let the processes work side by side; none may lose or double an object."""
    workers = [worker(place, f"p{number}", objects, batch) for number in range(PROCESSES)]
    for one in workers:
        out, err = one.communicate(timeout=280)
        assert (one.returncode, err) == (0, "")
        assert out.splitlines()[-1] == str(objects)
    found = asyncio.run(ids_of(place))
    assert found == Counter({f"p{process}-{number}": 1 for process in range(PROCESSES) for number in range(objects)})
    stats = asyncio.run(SQLSlotStateStore(place, timeout_s=60).stats())
    assert stats.objects == PROCESSES * objects


@pytest.mark.timeout(120)
def test_eight_processes_with_500_objects_each_lose_and_double_none(place: str) -> None:
    """They begin on a store that is not there yet, write and read at the same time, and all is there once."""
    all_at_once(place, 500, 50)


@pytest.mark.postgres  # turned on together with the server's: it takes about a minute
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_eight_processes_with_10_000_objects_each_lose_and_double_none(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """The same with 80,000 objects in all, on a file as well as on a server."""
    place = str(tmp_path / "slots.sqlite3")
    if kind == "postgres":
        place = request.getfixturevalue("postgres_server").new_database(uuid.uuid4().hex)
    all_at_once(place, 10_000, 500)
    if kind == "sqlite":
        check_file(place)


@pytest.mark.timeout(120)
def test_a_process_killed_while_it_writes_loses_nothing_that_was_acknowledged(place: str) -> None:
    """Whenever it is killed, the store opens, is sound, holds every batch acknowledged, and no half of a batch."""
    batch = 40
    acknowledged: dict[str, int] = {}
    for attempt in range(8):
        name = f"k{attempt}"
        process = worker(place, name, 100_000, batch)
        assert process.stdout is not None
        assert process.stderr is not None
        acknowledged[name] = int(process.stdout.readline())
        # At another moment of its writing each time.
        time.sleep(0.02 * attempt)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().splitlines()
        process.stdout.close()
        process.stderr.close()
        process.wait(timeout=30)
        # The last line may have been cut off.
        acknowledged[name] = max([acknowledged[name], *(int(line) for line in lines[:-1])])
    found = asyncio.run(ids_of(place))
    kept = Counter(id_.partition("-")[0] for id_ in found)
    assert all(count == 1 for count in found.values())
    assert all(kept[name] >= count for name, count in acknowledged.items())
    assert all(count % batch == 0 for count in kept.values())
    asyncio.run(SQLSlotStateStore(place, timeout_s=30).put([state("k99-0", made("k99", 0))]))
    assert asyncio.run(SQLSlotStateStore(place).stats()).objects == sum(kept.values()) + 1
    if "://" not in place:
        check_file(place)


def check_file(place: str) -> None:
    """Let SQLite check the file and its index, and hold the counts of words against the objects."""
    with sqlite3.connect(place) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute(
            "INSERT INTO agentloop_slot_index (agentloop_slot_index, rank) VALUES ('integrity-check', 1)"
        )
        counted: Counter[str] = Counter()
        for (terms,) in connection.execute("SELECT terms FROM agentloop_slot_objects"):
            counted.update(terms.split())
        assert dict(connection.execute("SELECT term, objects FROM agentloop_slot_terms")) == counted
    connection.close()


async def _same(place: str, rounds: int) -> None:
    store = SQLSlotStateStore(place, timeout_s=60)
    for number in range(rounds):
        await store.put([state(f"k-{number % 5}", made("k", number % 5))])


def test_many_writers_of_the_same_ids_leave_one_of_each(place: str) -> None:
    """Objects that replace each other all the time are counted once, and so are their words."""

    async def all_of_them() -> Sequence[None]:
        return await asyncio.gather(*(_same(place, 10) for _ in range(4)))

    asyncio.run(all_of_them())
    assert asyncio.run(ids_of(place)) == Counter({f"k-{number}": 1 for number in range(5)})
    assert asyncio.run(SQLSlotStateStore(place).stats()).objects == 5
    if "://" not in place:
        check_file(place)
