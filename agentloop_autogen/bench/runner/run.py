"""Works a plan off, a few attempts at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from agentloop_autogen.bench.results import ResultFile
from agentloop_autogen.bench.runner.attempt import ExecutedAttempt
from agentloop_autogen.bench.runner.pace import Pace
from agentloop_autogen.bench.runner.plan import PlannedAttempt
from agentloop_autogen.bench.runner.progress import RunProgress, RunWatcher
from agentloop_autogen.errors import ModelError

__all__ = ["Execute", "run_plan"]

_MOST_UNREACHABLE: Final = 3
"""Attempts in a row that find no model before the run stops."""

Execute = Callable[[PlannedAttempt], Awaitable[ExecutedAttempt]]
"""Executes one attempt, somewhere."""


async def run_plan(
    pending: Sequence[PlannedAttempt],
    execute: Execute,
    file: ResultFile,
    *,
    progress: RunProgress,
    watcher: RunWatcher,
    concurrency: int,
    pace: Pace,
) -> None:
    """Execute attempts and write each down as soon as it is finished.

    An attempt that found no model says nothing about its system: it is not written down, so that the next run makes it
    again. Cancelling ends the attempts that are under way; what is finished by then is in the file.

    Args:
        pending: The attempts, in order.
        execute: Executes one of them.
        file: Where they are written down.
        progress: What is counted.
        watcher: Who is told.
        concurrency: Attempts under way at once, at least 1.
        pace: When the next one may begin.

    Raises:
        ModelError: Three attempts in a row found no model, or some did not in the end.
    """
    work = _Work(execute, file, progress, watcher)
    watcher.begun(progress)
    running: set[asyncio.Task[None]] = set()
    try:
        for planned in pending:
            while len(running) >= concurrency:
                running = await _some_done(running)
            await pace.wait()
            work.check_reachable()
            running.add(asyncio.create_task(work.do(planned)))
        while running:
            running = await _some_done(running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    work.check_complete()


async def _some_done(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    done, rest = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest


class _Work:
    def __init__(self, execute: Execute, file: ResultFile, progress: RunProgress, watcher: RunWatcher) -> None:
        self._execute = execute
        self._file = file
        self._progress = progress
        self._watcher = watcher
        self._in_a_row = 0

    async def do(self, planned: PlannedAttempt) -> None:
        executed = await self._execute(planned)
        if executed.unreachable:
            self._progress.unreachable += 1
            self._in_a_row += 1
            return
        self._in_a_row = 0
        self._file.add(executed.attempt)
        self._progress.add(executed.attempt)
        self._watcher.finished(executed.attempt, self._progress)

    def check_reachable(self) -> None:
        if self._in_a_row >= _MOST_UNREACHABLE:
            raise ModelError(f"the model could not be reached in {self._in_a_row} attempts in a row{self._mend()}")

    def check_complete(self) -> None:
        if self._progress.unreachable:
            raise ModelError(f"{self._progress.unreachable} attempts could not reach the model{self._mend()}")

    def _mend(self) -> str:
        held = f"{self._progress.done} of {self._progress.total} attempts are in {self._file.path}"
        return f" ({held}): see to the server, and give the same command to go on"
