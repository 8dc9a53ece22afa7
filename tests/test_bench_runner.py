"""The benchmark's runner: one record per attempt whatever happens, and nothing finished is ever lost or done twice."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop_autogen.bench.endpoint import CountedEndpoint, Upstream
from agentloop_autogen.bench.records import Attempt, CountedModelCall, CountedToolCall
from agentloop_autogen.bench.results import AttemptKey, ResultFile, key_of, read_attempts
from agentloop_autogen.bench.runner import (
    ExecutedAttempt,
    Pace,
    PlannedAttempt,
    RunProgress,
    RunSettings,
    execute_attempt,
    make_plan,
    run_plan,
    still_to_do,
)
from agentloop_autogen.bench.systems.registry import make_systems
from agentloop_autogen.bench.systems.system import Limits
from agentloop_autogen.bench.tasks.task import BenchTool, Half, TaskSession
from agentloop_autogen.bench.timing import split_time
from agentloop_autogen.errors import ModelError, UsageError

from .bench_tasks import CODE, StubSystem, as_system, code_task, code_tool, stub_attempt
from .cli_process import ROOT, environment
from .fake_openai import FakeOpenAI

SETTINGS = RunSettings(model="m", limits=Limits(timeout_s=5.0))
NOWHERE = "http://127.0.0.1:9/v1"


def planned(system: StubSystem | None = None, *, task: int = 1) -> PlannedAttempt:
    return PlannedAttempt(system=as_system(system or StubSystem()), task=code_task(task), seed=0)


def attempt(task: str = "door-1", **fields: object) -> Attempt:
    return stub_attempt(task, **{"settings": SETTINGS.digest, **fields})


async def executed(
    stub: StubSystem, *, settings: RunSettings = SETTINGS, tools: Sequence[BenchTool] | None = None
) -> Attempt:
    one = PlannedAttempt(system=as_system(stub), task=code_task(tools=tools), seed=3)
    with CountedEndpoint([Upstream(base_url=NOWHERE)]) as endpoint:
        return (await execute_attempt(one, endpoint, settings)).attempt


class Silent:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begun(self, progress: RunProgress) -> None:
        self.told.append(f"begun {progress.done}/{progress.total}")

    def finished(self, attempt: Attempt, progress: RunProgress) -> None:
        self.told.append(f"{attempt.task} {progress.done}/{progress.total}")


async def test_an_attempt_is_recorded_with_its_answer_grade_and_tool_calls() -> None:
    """A finished attempt tells what was asked, answered and called, how it was graded, and under which settings."""
    found = await executed(StubSystem())
    assert (found.system, found.family, found.task, found.half, found.seed) == (
        "stub",
        "codes",
        "door-1",
        Half.DEVELOPMENT,
        3,
    )
    assert (found.answer, found.correct, found.error, found.stop_reason) == (CODE, True, None, "stubbed")
    (call,) = found.tool_calls
    assert (call.name, call.arguments, call.is_error) == ("look_up", {"door": "blue"}, False)
    assert CODE in call.result
    assert 0 <= call.began_s <= call.ended_s <= found.elapsed_s
    assert found.settings == SETTINGS.digest


@pytest.mark.parametrize(
    ("stub", "error"),
    [
        (StubSystem(error=RuntimeError("it broke")), "RuntimeError: it broke"),
        (StubSystem(error=asyncio.CancelledError()), "the system cancelled itself"),
        (StubSystem(takes_s=60), "timeout: no answer within 0.2 s"),
        (StubSystem(answer="break the grader"), "grading the answer: ValueError: the grader broke"),
    ],
    ids=["raises", "cancels itself", "too slow", "breaks the grader"],
)
async def test_a_failed_attempt_is_a_record_with_its_error(stub: StubSystem, error: str) -> None:
    """Whatever goes wrong in an attempt is told in its record, which is never correct."""
    settings = replace(SETTINGS, limits=Limits(timeout_s=0.2))
    found = await executed(stub, settings=settings)
    assert found.error == error
    assert not found.correct


async def test_a_system_that_ignores_its_time_limit_is_left_behind() -> None:
    """A system that does not end when cancelled holds nothing up: its attempt is over after a short grace."""
    began = time.monotonic()
    stub = StubSystem(takes_s=60, stubborn=True)
    found = await executed(stub, settings=replace(SETTINGS, limits=Limits(timeout_s=0.2)))
    assert found.error is not None
    assert found.elapsed_s < 1
    assert time.monotonic() - began < 2.9


async def test_a_task_that_does_not_open_fails_alone() -> None:
    """A world that cannot be made is an error of that attempt."""

    def broken() -> TaskSession:
        raise OSError("no space")

    task = replace(code_task(), open=broken)
    one = PlannedAttempt(system=as_system(StubSystem()), task=task, seed=0)
    with CountedEndpoint([Upstream(base_url=NOWHERE)]) as endpoint:
        found = await execute_attempt(one, endpoint, SETTINGS)
    assert found.attempt.error == "opening the task: OSError: no space"


async def test_a_failing_tool_is_recorded_as_such_and_long_texts_are_cut() -> None:
    """An error of a tool is an error in the record; arguments and results are kept bounded."""

    async def fails(arguments: object) -> str:
        raise ValueError("broken")

    async def floods(arguments: object) -> str:
        return "x" * 100_000

    flood = replace(code_tool(), name="flood", run=floods)
    found = await executed(StubSystem(), tools=[flood, replace(code_tool(), name="fail", run=fails)])
    one, two = found.tool_calls
    assert len(one.result) == 2_000
    assert (two.is_error, two.result) == (True, "broken")
    assert found.error == "ValueError: broken"


def test_all_systems_do_a_task_before_the_next_and_take_turns_to_begin() -> None:
    """The order is fixed: seed by seed, task by task, and which system begins moves on by one."""
    systems = [as_system(StubSystem(name=name)) for name in ("a", "b", "c")]
    plan = make_plan(systems, [code_task(1), code_task(2)], [0, 1])
    told = [f"{one.seed}{one.task.id[-1]}{one.system.name}" for one in plan]
    assert told == ["01a", "01b", "01c", "02b", "02c", "02a", "11a", "11b", "11c", "12b", "12c", "12a"]


def test_what_a_file_holds_is_not_done_again_but_failures_are_on_request() -> None:
    """Attempts that are there are left out; failed ones are left out too, unless they are to be retried."""
    plan = [planned(task=1), planned(task=2), planned(task=3)]
    done = {
        AttemptKey("stub", "codes", "door-1", 0): attempt(),
        AttemptKey("stub", "codes", "door-2", 0): attempt("door-2", error="timeout", correct=False),
    }
    assert [one.task.id for one in still_to_do(plan, done, retry_failed=False)] == ["door-3"]
    assert [one.task.id for one in still_to_do(plan, done, retry_failed=True)] == ["door-2", "door-3"]


def test_settings_have_the_same_digest_only_when_they_are_the_same() -> None:
    """Any limit, the model and what serves it make other settings; the seed does not."""
    base = SETTINGS.digest
    assert RunSettings(model="m", limits=Limits(timeout_s=5.0, seed=9)).digest == base
    others = [
        replace(SETTINGS, model="n"),
        replace(SETTINGS, endpoint_kind="vllm"),
        replace(SETTINGS, guided=True),
        replace(SETTINGS, context_length=4096),
        *(replace(SETTINGS, limits=replace(SETTINGS.limits, **change)) for change in ({"rounds": 3}, {"stream": True})),
    ]
    assert base not in {other.digest for other in others}
    assert len({other.digest for other in others}) == len(others)


async def work_off(
    pending: Sequence[PlannedAttempt],
    execute: Callable[[PlannedAttempt], Awaitable[ExecutedAttempt]],
    path: Path,
    *,
    concurrency: int = 1,
) -> tuple[RunProgress, Silent]:
    progress, watcher = RunProgress((), total=len(pending)), Silent()
    with ResultFile(path, settings=SETTINGS.digest) as file:
        await run_plan(
            pending,
            execute,
            file,
            progress=progress,
            watcher=watcher,
            concurrency=concurrency,
            pace=Pace(),
        )
    return progress, watcher


async def test_a_run_keeps_each_attempt_and_tells_how_far_it_is(tmp_path: Path) -> None:
    """Each finished attempt is in the file and was told of, failed ones too, and none stops the others."""

    async def execute(one: PlannedAttempt) -> ExecutedAttempt:
        failed = one.task.id == "door-2"
        found = attempt(one.task.id, error="timeout" if failed else None, correct=not failed)
        return ExecutedAttempt(attempt=found, unreachable=False)

    pending = [planned(task=number) for number in (1, 2, 3)]
    progress, watcher = await work_off(pending, execute, tmp_path / "r.jsonl")
    assert watcher.told == ["begun 0/3", "door-1 1/3", "door-2 2/3", "door-3 3/3"]
    assert (progress.failed, progress.solved["stub"], progress.tried["stub"]) == (1, 2, 3)
    assert len(read_attempts([tmp_path / "r.jsonl"])) == 3


async def test_no_more_attempts_are_under_way_than_asked_for(tmp_path: Path) -> None:
    """Concurrency is a bound, and it is used."""
    under_way = 0
    most = 0

    async def execute(one: PlannedAttempt) -> ExecutedAttempt:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        return ExecutedAttempt(attempt=attempt(one.task.id), unreachable=False)

    await work_off([planned(task=number) for number in range(9)], execute, tmp_path / "r.jsonl", concurrency=3)
    assert most == 3


async def test_a_server_that_is_down_stops_the_run_instead_of_failing_the_plan(tmp_path: Path) -> None:
    """After three attempts without a model the run stops and says so; none of them is written down as a failure."""
    with CountedEndpoint([Upstream(base_url=NOWHERE)]) as endpoint:
        system = make_systems(["fc-reflection"])[0]
        pending = [PlannedAttempt(system=system, task=code_task(number), seed=0) for number in range(20)]

        async def execute(one: PlannedAttempt) -> ExecutedAttempt:
            return await execute_attempt(one, endpoint, SETTINGS)

        with pytest.raises(ModelError, match=r"3 attempts in a row \(0 of 20 .*give the same command"):
            await work_off(pending, execute, tmp_path / "r.jsonl")
    assert (tmp_path / "r.jsonl").read_bytes() == b""


async def test_a_passing_outage_leaves_its_attempts_to_do(tmp_path: Path) -> None:
    """An attempt that found no model is not written down; the run goes on, and says at its end what is left."""

    async def execute(one: PlannedAttempt) -> ExecutedAttempt:
        return ExecutedAttempt(attempt=attempt(one.task.id), unreachable=one.task.id == "door-2")

    with pytest.raises(ModelError, match=r"^1 attempts could not reach the model \(2 of 3"):
        await work_off([planned(task=number) for number in (1, 2, 3)], execute, tmp_path / "r.jsonl")
    assert [one.task for one in read_attempts([tmp_path / "r.jsonl"])] == ["door-1", "door-3"]


async def test_a_cancelled_run_keeps_what_is_finished_and_ends_the_rest(tmp_path: Path) -> None:
    """Cancelling ends what is under way without a record of it."""
    ended: list[str] = []

    async def execute(one: PlannedAttempt) -> ExecutedAttempt:
        if one.task.id != "door-1":
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(one.task.id)
        return ExecutedAttempt(attempt=attempt(one.task.id), unreachable=False)

    pending = [planned(task=number) for number in (1, 2, 3)]
    running = asyncio.create_task(work_off(pending, execute, tmp_path / "r.jsonl", concurrency=2))
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [one.task for one in read_attempts([tmp_path / "r.jsonl"])] == ["door-1"]
    assert sorted(ended) == ["door-2", "door-3"]


async def test_attempts_begin_at_the_asked_rate() -> None:
    """A fixed rate leaves the same gap between beginnings; random gaps have it on average and repeat with the seed."""
    fixed, began = Pace(50.0), time.monotonic()
    for _ in range(6):
        await fixed.wait()
    assert 0.1 <= time.monotonic() - began < 0.6

    async def gaps() -> list[float]:
        pace, found = Pace(2000.0, poisson=True, seed=4), [time.monotonic()]
        for _ in range(5):
            await pace.wait()
            found.append(time.monotonic())
        return found

    assert len(await gaps()) == 6
    for rate in (0.0, -1.0, float("inf")):
        with pytest.raises(UsageError, match="above 0"):
            Pace(rate)


def test_the_parts_of_an_attempts_time_add_up() -> None:
    """What runs at the same time is counted once, the model first; what is left is control."""
    calls = (CountedModelCall(began_s=1, ended_s=3), CountedModelCall(began_s=2, ended_s=4))
    tools = (
        CountedToolCall(name="t", arguments={}, began_s=3.5, ended_s=6),
        CountedToolCall(name="t", arguments={}, began_s=9, ended_s=14),
    )
    split = split_time(attempt(elapsed_s=10.0, waited_s=0.5, model_calls=calls, tool_calls=tools))
    assert (split.model_s, split.tool_s, split.waiting_s, split.control_s) == (3, 3, 0.5, 3.5)
    assert split.elapsed_s == 10.0
    crowded = split_time(attempt(elapsed_s=10.0, waited_s=99.0, model_calls=calls, tool_calls=tools))
    assert (crowded.waiting_s, crowded.control_s) == (4, 0)


def test_the_last_of_a_killed_run_is_all_that_is_lost(tmp_path: Path) -> None:
    """SIGKILL at many moments: every finished attempt is there once, and going on finishes the plan."""
    path, script = tmp_path / "r.jsonl", tmp_path / "run.py"
    script.write_text(KILLED_RUN, encoding="utf-8")
    environ = environment()
    with FakeOpenAI([f"The code is {CODE}."]) as server:
        words = [sys.executable, str(script), str(path), server.base_url]
        for moment in range(8):
            running = subprocess.Popen(  # noqa: S603 - our own interpreter
                words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
            )
            with running:
                assert running.stdout is not None
                told = [running.stdout.readline() for _ in range(1 + moment % 4)]
                time.sleep(0.004 * moment)
                running.send_signal(signal.SIGKILL)
            found = [key_of(one) for one in read_attempts([path])]
            promised = {line.strip() for line in told if line.startswith("door-")}
            assert promised <= {key.task for key in found}
            raw = [json.loads(line)["task"] for line in path.read_bytes().split(b"\n")[:-1]]
            assert len(raw) == len(set(raw))
        subprocess.run(  # noqa: S603 - our own interpreter
            words, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL
        )
    done = read_attempts([path])
    assert sorted(one.task for one in done) == sorted(f"door-{number}" for number in range(40))
    assert all(one.error is None and len(one.model_calls) >= 1 for one in done)


KILLED_RUN = """
import asyncio, sys
from pathlib import Path

from agentloop_autogen.bench.endpoint import CountedEndpoint, Upstream
from agentloop_autogen.bench.results import ResultFile
from agentloop_autogen.bench.runner import Pace, RunProgress, RunSettings, execute_attempt, make_plan, run_plan
from agentloop_autogen.bench.runner import still_to_do
from agentloop_autogen.bench.systems.registry import make_systems
from agentloop_autogen.bench.systems.system import Limits
from tests.bench_tasks import code_task

settings = RunSettings(model="m", limits=Limits())
plan = make_plan(make_systems(["fc-reflection"]), [code_task(number) for number in range(40)], [0])


class Watcher:
    def begun(self, progress):
        print("begun", flush=True)

    def finished(self, attempt, progress):
        print(attempt.task, flush=True)


with ResultFile(Path(sys.argv[1]), settings=settings.digest) as file:
    with CountedEndpoint([Upstream(base_url=sys.argv[2])]) as endpoint:
        pending = still_to_do(plan, file.attempts, retry_failed=False)
        progress = RunProgress((), total=len(pending))
        execute = lambda one: execute_attempt(one, endpoint, settings)
        asyncio.run(
            run_plan(
                pending, execute, file, progress=progress, watcher=Watcher(), concurrency=2, pace=Pace()
            )
        )
"""
