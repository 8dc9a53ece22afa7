"""The benchmark on Ray: the same attempts on two workers give the same records."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from agentloop_autogen.bench.endpoint import CountedEndpoint, Upstream
from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.results import ResultFile, key_of, read_attempts
from agentloop_autogen.bench.runner import (
    Execute,
    ExecutedAttempt,
    Pace,
    PlannedAttempt,
    RayWorkers,
    RunProgress,
    RunSettings,
    execute_attempt,
    make_plan,
    run_plan,
)
from agentloop_autogen.bench.systems.registry import make_systems
from agentloop_autogen.bench.systems.system import Limits
from agentloop_autogen.cli import main
from agentloop_autogen.errors import MissingExtraError

from .bench_tasks import CODE, code_task, find_after_a_death, find_code_task
from .cli_process import ROOT
from .fake_openai import FakeOpenAI

pytestmark = pytest.mark.timeout(240)

SETTINGS = RunSettings(model="m", limits=Limits(timeout_s=60.0))


class Unwatched:
    """A watcher that looks away."""

    def begun(self, progress: RunProgress) -> None: ...

    def finished(self, attempt: Attempt, progress: RunProgress) -> None: ...


async def worked_off(plan: Sequence[PlannedAttempt], execute: Execute, path: Path) -> list[Attempt]:
    progress = RunProgress((), total=len(plan))
    with ResultFile(path, settings=SETTINGS.digest) as file:
        await run_plan(plan, execute, file, progress=progress, watcher=Unwatched(), concurrency=4, pace=Pace())
    return sorted(read_attempts([path]), key=key_of)


def without_times(attempt: Attempt) -> Attempt:
    calls = tuple(call.model_copy(update={"began_s": 0.0, "ended_s": 0.0}) for call in attempt.model_calls)
    return attempt.model_copy(update={"began_at": "", "elapsed_s": 0.0, "waited_s": 0.0, "model_calls": calls})


async def test_two_workers_give_the_records_one_process_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two local Ray workers do the whole plan, each with its own counted endpoint, and every count is the same."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plan = make_plan(make_systems(["fc-reflection"]), [code_task(number) for number in range(8)], [0])
    with FakeOpenAI([f"The code is {CODE}. ACCEPT"]) as one, FakeOpenAI([f"The code is {CODE}. ACCEPT"]) as two:
        upstreams = [Upstream(base_url=one.base_url), Upstream(base_url=two.base_url)]
        workers = RayWorkers(count=2, address=None, upstreams=upstreams, settings=SETTINGS, find_task=find_code_task)
        with workers:
            far = await worked_off(plan, workers.execute, tmp_path / "far.jsonl")
        shares = (len(one.bodies), len(two.bodies))
        with CountedEndpoint(upstreams) as endpoint:

            async def here(planned: PlannedAttempt) -> ExecutedAttempt:
                return await execute_attempt(planned, endpoint, SETTINGS)

            near = await worked_off(plan, here, tmp_path / "near.jsonl")
    assert len(far) == 8
    assert all(attempt.correct for attempt in far)
    assert [without_times(attempt) for attempt in far] == [without_times(attempt) for attempt in near]
    assert sum(shares) == 16
    assert min(shares) > 0


async def test_a_worker_that_dies_is_replaced_and_its_attempt_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker killed in the middle of the plan costs nothing but time: every attempt is in the file, once."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plan = make_plan(make_systems(["fc-reflection"]), [code_task(number) for number in range(4)], [0])
    with FakeOpenAI([f"The code is {CODE}. ACCEPT"]) as server:
        workers = RayWorkers(
            count=1,
            address=None,
            upstreams=[Upstream(base_url=server.base_url)],
            settings=SETTINGS,
            find_task=partial(find_after_a_death, str(tmp_path / "died")),
        )
        with workers:
            found = await worked_off(plan, workers.execute, tmp_path / "r.jsonl")
    assert (tmp_path / "died").exists()
    assert [attempt.task for attempt in found] == [f"door-{number}" for number in range(4)]
    assert all(attempt.correct for attempt in found)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ray is not installed its option says what to install."""
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> object:
        if name == "ray":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtraError, match="the extra `ray`"):
        RayWorkers(count=1, address=None, upstreams=(), settings=SETTINGS, find_task=find_code_task)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ray", "--endpoint-concurrency", "2"], "--endpoint-concurrency does not go with --ray"),
        (["--ray", "10.0.0.1:6379", "--local"], "--local serves this machine alone"),
        (["--ray", "10.0.0.1:6379", "--tool-mode", "guided"], "--tool-mode guided guides on this machine alone"),
    ],
)
def test_options_that_do_not_go_with_ray_are_refused(
    capsys: pytest.CaptureFixture[str], options: Sequence[str], says: str
) -> None:
    """What cannot be kept across workers is told in one line."""
    assert main(["bench", "--systems", "autogen", "--tasks", "spider", *options]) == 2
    assert says in capsys.readouterr().err
