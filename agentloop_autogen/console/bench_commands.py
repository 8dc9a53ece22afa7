"""What the subcommands of `agentloop bench` do, once the arguments are read."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from agentloop_autogen.bench.endpoint import CountedEndpoint
from agentloop_autogen.bench.quiet import quiet_libraries
from agentloop_autogen.bench.results import ResultFile
from agentloop_autogen.bench.runner import (
    Execute,
    Pace,
    PlannedAttempt,
    RayWorkers,
    RunProgress,
    RunSettings,
    execute_attempt,
    make_plan,
    run_plan,
    still_to_do,
)
from agentloop_autogen.bench.systems.registry import SYSTEMS, make_systems
from agentloop_autogen.bench.systems.system import Limits
from agentloop_autogen.bench.tasks import families
from agentloop_autogen.bench.tasks.data_place import data_folder
from agentloop_autogen.bench.tasks.task import Half
from agentloop_autogen.console.bench_models import ServedModel, open_served
from agentloop_autogen.console.bench_options import BenchRun
from agentloop_autogen.console.bench_view import open_watcher
from agentloop_autogen.console.output import write_json, write_line

__all__ = ["list_families", "list_systems", "run_benchmark"]

_DONE: Final = 0
_INTERRUPTED: Final = 130


def list_systems(*, as_json: bool) -> int:
    """List the systems.

    Args:
        as_json: Whether to print them as one JSON document.

    Returns:
        The exit status.
    """
    rows = [{"name": system.name, "description": system.description} for system in SYSTEMS.values()]
    return _list("systems", rows, as_json=as_json)


def list_families(*, as_json: bool) -> int:
    """List the task families.

    Args:
        as_json: Whether to print them as one JSON document.

    Returns:
        The exit status.
    """
    rows = [
        {"name": family.name, "description": family.description, "kind": family.kind, "source": family.source}
        for family in families.FAMILIES.values()
    ]
    return _list("tasks", rows, as_json=as_json)


def _list(what: str, rows: Sequence[dict[str, str]], *, as_json: bool) -> int:
    if as_json:
        write_json({what: rows})
        return _DONE
    room = max(len(row["name"]) for row in rows)
    for row in rows:
        write_line(f"{row['name']:<{room}}  {row['description']}")
    return _DONE


def run_benchmark(run: BenchRun, *, as_json: bool) -> int:
    """Run systems on tasks, and go on where an earlier run with the same result file stopped.

    Args:
        run: What to run.
        as_json: Whether standard out gets one JSON document and nothing else.

    Returns:
        The exit status.

    Raises:
        UsageError: Something was asked for that cannot be done.
        ModelError: The model cannot be reached, or went away.
    """
    systems = make_systems(run.systems)
    half = None if run.half is None else Half(run.half)
    tasks = [
        task
        for family in run.families
        for task in families.load_tasks(family, data=run.data, limit=run.limit, half=half, seed=run.order)
    ]
    plan = make_plan(systems, tasks, run.seeds)
    pace = Pace(run.rate, poisson=run.poisson, seed=run.order)
    with open_served(run) as model, ResultFile(run.out, settings=_settings(run, model).digest) as file:
        return _run(run, plan, file, model, pace, as_json=as_json)


def _settings(run: BenchRun, model: ServedModel) -> RunSettings:
    limits = Limits(
        rounds=run.rounds,
        timeout_s=run.timeout_s,
        max_completion_tokens=run.max_completion_tokens,
        temperature=run.temperature,
        stream=run.stream,
    )
    return RunSettings(
        model=model.name,
        limits=limits,
        endpoint_kind=model.kind,
        context_length=model.context_length,
        guided=run.guided,
    )


def _run(
    run: BenchRun, plan: Sequence[PlannedAttempt], file: ResultFile, model: ServedModel, pace: Pace, *, as_json: bool
) -> int:
    settings = _settings(run, model)
    pending = still_to_do(plan, file.attempts, retry_failed=run.retry_failed)
    left = {planned.key for planned in pending}
    held = [file.attempts[planned.key] for planned in plan if planned.key not in left]
    progress = RunProgress(held, total=len(plan))
    with (
        warnings.catch_warnings(),
        _executing(run, model, settings) as execute,
        open_watcher(as_json=as_json) as watcher,
    ):
        quiet_libraries()
        work = run_plan(
            pending,
            execute,
            file,
            progress=progress,
            watcher=watcher,
            concurrency=run.concurrency,
            pace=pace,
        )
        finished = asyncio.run(_until_interrupted(work))
    if not finished:
        words = shlex.join(["agentloop", *sys.argv[1:]])
        told = f"stopped by you with {progress.done} of {progress.total} attempts in {file.path}; to go on: {words}"
        write_line(told, stream=sys.stderr)
        return _INTERRUPTED
    if as_json:
        write_json(_document(file, progress))
    return _DONE


@contextmanager
def _executing(run: BenchRun, model: ServedModel, settings: RunSettings) -> Generator[Execute]:
    """Open what executes attempts: this process, or workers of Ray."""
    if run.ray is None:
        with CountedEndpoint(model.upstreams, most_requests=run.most_requests) as endpoint:
            yield lambda planned: execute_attempt(planned, endpoint, settings)
        return
    data = data_folder(run.data)
    workers = RayWorkers(
        count=run.workers,
        address=run.ray or None,
        upstreams=model.upstreams,
        settings=settings,
        # Workers have their own working folder and environment.
        find_task=partial(families.find_task, data=None if data is None else data.absolute()),
    )
    with workers:
        yield workers.execute


def _document(file: ResultFile, progress: RunProgress) -> dict[str, Any]:
    systems = {
        name: {"attempts": tried, "solved": progress.solved[name]} for name, tried in sorted(progress.tried.items())
    }
    return {
        "file": str(file.path),
        "attempts": progress.done,
        "failed": progress.failed,
        "tokens": progress.tokens,
        "systems": systems,
    }


async def _until_interrupted(work: Coroutine[Any, Any, None]) -> bool:
    """Do the work; False where Ctrl-C ended it early."""
    task = asyncio.ensure_future(work)
    with _interrupts(task) as interrupted:
        try:
            await task
        except asyncio.CancelledError:
            if not interrupted.is_set():
                raise
            return False
    return True


@contextmanager
def _interrupts(task: asyncio.Future[None]) -> Generator[threading.Event]:
    """First Ctrl-C: end what is under way. Second: leave at once."""
    wanted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wanted
        return
    loop = asyncio.get_running_loop()

    def on_interrupt(_signal: int, _frame: object) -> None:
        if wanted.is_set():
            os._exit(_INTERRUPTED)
        wanted.set()
        loop.call_soon_threadsafe(task.cancel)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield wanted
    finally:
        signal.signal(signal.SIGINT, before)
