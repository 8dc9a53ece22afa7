"""Agents on an SQL store that is not as it should be: one clear line, and the answer all the same."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from autogen_core import ComponentModel

from agentloop_autogen import AgentLoopAssistantAgent, AgentLoopTermination, LoopConfig, StopReason
from agentloop_autogen.slots.sql import SQLSlotStateStore
from agentloop_autogen.testing import ScriptedVerifier

from .deltas import feed, said, task, tool_round
from .scripted_model import ScriptedModel, agent_of, call, open_verdict, outcome_of
from .slot_stores import FACT, PAST, REQUEST, covered, past, population, year

ANSWER = "Vennholm has 48,210 inhabitants."


PATIENT = LoopConfig(hint_timeout_s=20)
"""For tests of what is read, on a machine as busy as may be."""


def agent_on(store: SQLSlotStateStore, loop: LoopConfig | None = None) -> AgentLoopAssistantAgent:
    """An agent that calls one tool and answers."""
    return agent_of(
        ScriptedModel([call("population"), ANSWER] * 4),
        ScriptedVerifier([open_verdict(), covered()] * 4),
        tools=[population, year],
        slot_store=store,
        loop=loop,
    )


async def kept(store: SQLSlotStateStore) -> list[str]:
    """The requests of all objects."""
    return [state.request or "" async for state in store.export()]


async def test_what_one_run_needed_is_there_for_the_next(tmp_path: Path) -> None:
    """Through a file: the first run is kept, and an agent made later is told of it before it ends."""
    path = tmp_path / "slots.sqlite3"
    first = agent_of(
        ScriptedModel([[call("population"), call("year", call_id="y")], "48,210 inhabitants, founded in 1287."]),
        ScriptedVerifier(
            [
                open_verdict(),
                covered("population").model_copy(
                    update={
                        "slots": (
                            *covered("population of Aldora").slots,
                            *covered("year Aldora was founded", quote="founded in 1287").slots,
                        )
                    }
                ),
            ]
        ),
        tools=[population, year],
        slot_store=SQLSlotStateStore(path),
    )
    await first.run(task=PAST)
    await first.close()
    assert await kept(SQLSlotStateStore(path)) == [PAST]
    verifier = ScriptedVerifier([open_verdict(), covered()])
    second = agent_of(
        ScriptedModel([call("population"), ANSWER]),
        verifier,
        tools=[population, year],
        slot_store=SQLSlotStateStore(path),
        loop=PATIENT,
    )
    await second.run(task=REQUEST)
    hints = [item.hint for item in verifier.calls if item.hint is not None]
    assert [hint.names for hint in hints] == [("population of Aldora", "year Aldora was founded")]


def missing_folder(path: Path) -> None:
    """The folder of the file is not there."""


def corrupt(path: Path) -> None:
    """The file holds something else."""
    path.parent.mkdir()
    path.write_bytes(b"this is no database " * 500)


def truncated(path: Path) -> None:
    """The file was cut off behind its first page."""
    fill(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 3])


def newer_version(path: Path) -> None:
    """The file was written by a later version of this package."""
    fill(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE agentloop_slot_meta SET value = '9999' WHERE name = 'schema'")


def a_folder(path: Path) -> None:
    """A folder lies where the file should be."""
    path.mkdir(parents=True)


def fill(path: Path) -> None:
    """Make a store with a similar request in it."""
    path.parent.mkdir(exist_ok=True)
    asyncio.run(SQLSlotStateStore(path).put([past()]))


@pytest.mark.parametrize("spoil", [missing_folder, corrupt, truncated, newer_version, a_folder])
def test_a_store_that_cannot_be_used_is_said_in_one_line_each_and_the_agent_answers(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two runs give their answers in good time; one line says that it cannot be read, one that it cannot be written."""
    path = tmp_path / "there" / "slots.sqlite3"
    spoil(path)
    agent = agent_on(SQLSlotStateStore(path), PATIENT)
    with caplog.at_level(logging.WARNING):
        asyncio.run(_two_runs(agent))
    lines = [record.getMessage() for record in caplog.records if record.name == "agentloop_autogen"]
    assert 1 <= len(lines) <= 2
    assert all("\n" not in line and str(path) in line for line in lines)
    assert not [record for record in caplog.records if record.name != "agentloop_autogen"]


async def _two_runs(agent: AgentLoopAssistantAgent) -> None:
    for _ in range(2):
        started = time.monotonic()
        done = await agent.run(task=REQUEST)
        assert done.messages[-1].to_text() == ANSWER
        assert outcome_of(agent).stop_reason is StopReason.ANSWERED
        assert time.monotonic() - started < 5
        await agent.close()


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the file as another process would that never lets go."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            ready.set()
            done.wait(30)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        done.set()
        thread.join()


def test_a_locked_file_holds_nobody_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While another process holds the file the agent answers at once, and what it cannot write is told of."""
    path = tmp_path / "slots.sqlite3"
    fill(path)
    with locked(path), caplog.at_level(logging.WARNING, "agentloop_autogen"):
        asyncio.run(_two_runs(agent_on(SQLSlotStateStore(path, timeout_s=0.5))))
    assert "finished runs are not kept" in caplog.text
    assert "locked" in caplog.text
    assert asyncio.run(kept(SQLSlotStateStore(path))) == [PAST]


def test_a_full_disk_costs_the_runs_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that may not grow keeps what it holds; hints still come, and one line says what is lost."""
    path = tmp_path / "slots.sqlite3"
    fill(path)
    code = (
        "import asyncio, resource, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.test_slot_sql_faults import agent_on, _two_runs\n"
        "from agentloop_autogen.slots.sql import SQLSlotStateStore\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        "asyncio.run(_two_runs(agent_on(SQLSlotStateStore(Path(sys.argv[1])))))\n"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be written") == 1
    assert "Traceback" not in done.stderr
    assert asyncio.run(kept(SQLSlotStateStore(path))) == [PAST]


def test_a_read_only_file_gives_hints_and_keeps_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The store may be read by somebody who may not write it: that is told once, and hints still come."""
    path = tmp_path / "slots.sqlite3"
    fill(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    store = ReadOnly(path)
    verifier = ScriptedVerifier([open_verdict(), covered()])
    model = ScriptedModel([call("population"), ANSWER])
    agent = agent_of(model, verifier, tools=[population], slot_store=store, loop=PATIENT)
    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        asyncio.run(_one_run(agent))
    assert any(item.hint is not None for item in verifier.calls)
    assert caplog.text.count("cannot be written") == 1


class ReadOnly(SQLSlotStateStore):
    """A store whose file the database refuses to write, whoever the user is: tests may run as root."""

    async def put(self, states: object) -> None:
        """Write as SQLite does on a file without the right to."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            connection.execute("DELETE FROM agentloop_slot_objects")


async def _one_run(agent: AgentLoopAssistantAgent) -> None:
    await agent.run(task=REQUEST)
    await agent.close()


def test_a_process_that_ends_right_after_its_answer_has_kept_it(tmp_path: Path) -> None:
    """Without `close`, and with the event loop ending at once, the run is in the file, and the process ends."""
    path = tmp_path / "slots.sqlite3"
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from tests.test_slot_sql_faults import PATIENT, agent_on\n"
        "from agentloop_autogen.slots.sql import SQLSlotStateStore\n"
        "asyncio.run(agent_on(SQLSlotStateStore(Path(sys.argv[1])), PATIENT).run(task='What?'))\n"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-W", "error", "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert asyncio.run(kept(SQLSlotStateStore(path))) == ["What?"]


async def test_a_team_on_a_store_that_is_gone_stops_as_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The condition reads and writes through the same manager, and says the same."""
    store = SQLSlotStateStore(tmp_path / "nowhere" / "slots.sqlite3")
    condition = AgentLoopTermination(ScriptedVerifier([covered()]), slot_store=store)
    with caplog.at_level(logging.WARNING, "agentloop_autogen"):
        delta = [*tool_round(FACT, name="population"), *said(ANSWER)]
        assert await feed(condition, [task(REQUEST), delta]) == ["", "answered"]
        for _ in range(500):
            if "cannot be read" in caplog.text:
                break
            await asyncio.sleep(0.01)
    assert "cannot be read" in caplog.text


def test_agent_and_condition_are_saved_with_their_store(tmp_path: Path) -> None:
    """The component of either names the file; loaded, it goes on keeping runs there."""
    path = tmp_path / "slots.sqlite3"
    text = AgentLoopTermination(slot_store=SQLSlotStateStore(path)).dump_component().model_dump_json()
    loaded = AgentLoopTermination.load_component(ComponentModel.model_validate_json(text))
    assert loaded.dump_component().config["slot_store"]["config"]["url"] == str(path)
