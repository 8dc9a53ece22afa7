"""The slot store on real tasks: the same tasks without it and with one warmed on other tasks of the same databases.

    python bench/warm_store.py --out DIR [--databases 3] [--each 10] [--warm-each 5] [--weights FILE]
        [--data DIR] [--concurrency 2]

First the tasks of the development half of some Spider databases are run, and what each run needed is kept in a store.
Then the tasks of the other half of the same databases are run twice each, in turn: without a store (`agentloop`) and
with that one (`agentloop-warm-store`), which is only read from now on, so that no task sees another of its own half.
The model is the local one. Attempts are appended to `DIR/attempts.jsonl`; the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from agentloop_autogen.bench.endpoint import CountedEndpoint, Upstream
from agentloop_autogen.bench.quiet import quiet_libraries
from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.report.comparing import Comparison, Kind, compare
from agentloop_autogen.bench.report.measuring import measure_cells
from agentloop_autogen.bench.results import ResultFile, read_attempts
from agentloop_autogen.bench.runner import (
    Pace,
    PlannedAttempt,
    RunProgress,
    RunSettings,
    execute_attempt,
    make_plan,
    run_plan,
    still_to_do,
)
from agentloop_autogen.bench.systems.controlled import ControlledAgent
from agentloop_autogen.bench.systems.system import Limits
from agentloop_autogen.bench.tasks.families import load_tasks
from agentloop_autogen.bench.tasks.task import BenchTask, Half
from agentloop_autogen.console.bench_view import open_watcher
from agentloop_autogen.models import MODEL_ID, LocalModelServer, resolve_weights
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.sql import SQLSlotStateStore
from agentloop_autogen.slots.store import SimilarRequest, SlotStateStore

COLD, WARM = "agentloop", "agentloop-warm-store"
HINT_S = 5.0
"""A machine busy with the model may keep a look into the store waiting; what is measured is not the wait."""
SHOWN = ("solved", "rounds", "tool_calls", "model_calls", "tokens", "tokens_per_solved")


class OneWay(SlotStateStore):
    """A store that can only be written, or only be read.

    Args:
        store: The store behind it.
        readable: Whether it finds anything; it keeps what it is given where it does not.
    """

    component_config_schema = BaseModel

    def __init__(self, store: SlotStateStore, *, readable: bool) -> None:
        self._store = store
        self._readable = readable
        self.found = 0
        """Requests for which something similar was there."""

    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Keep the objects, where it can be written."""
        if not self._readable:
            await self._store.put(states)

    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Return similar requests, where it can be read."""
        if not self._readable:
            return ()
        hits = await self._store.similar(request, k)
        self.found += bool(hits)
        return hits

    async def forget(self, ids: Sequence[str]) -> int:
        """Remove objects."""
        return await self._store.forget(ids)

    def export(self) -> AsyncIterator[RuntimeStateObject]:
        """Go through all objects."""
        return self._store.export()

    async def close(self) -> None:
        """Close the store behind it."""
        await self._store.close()


def chosen(data: Path | None, *, databases: int, each: dict[Half, int]) -> tuple[list[BenchTask], list[BenchTask]]:
    """Return tasks to warm on and tasks to measure, of the databases with most tasks in both halves."""
    tasks = load_tasks("spider", data=data)
    counts = Counter((task.group, task.half) for task in tasks)
    names = sorted({task.group for task in tasks}, key=lambda name: (-min(counts[name, half] for half in Half), name))
    halves: dict[Half, list[BenchTask]] = {half: [] for half in Half}
    for name, half in itertools.product(names[:databases], Half):
        halves[half] += [task for task in tasks if task.group == name and task.half is half][: each[half]]
    return halves[Half.DEVELOPMENT], halves[Half.HELD_OUT]


async def run(
    plan: Sequence[PlannedAttempt], base: CountedEndpoint, file: ResultFile, settings: RunSettings, n: int
) -> None:
    """Run what a plan still lacks."""
    pending = still_to_do(plan, file.attempts, retry_failed=False)
    left = {planned.key for planned in pending}
    held = [file.attempts[planned.key] for planned in plan if planned.key not in left]
    with open_watcher(as_json=False) as watcher:
        await run_plan(
            pending,
            lambda planned: execute_attempt(planned, base, settings),
            file,
            progress=RunProgress(held, total=len(plan)),
            watcher=watcher,
            concurrency=n,
            pace=Pace(None, poisson=False, seed=0),
        )


async def measure(options: argparse.Namespace, server: LocalModelServer) -> None:
    """Warm the store, then run the tasks without and with it."""
    each = {Half.DEVELOPMENT: options.warm_each, Half.HELD_OUT: options.each}
    warming, measured = chosen(options.data, databases=options.databases, each=each)
    settings = RunSettings(model=MODEL_ID, limits=Limits(timeout_s=options.timeout), endpoint_kind="agentloop")
    store = SQLSlotStateStore(options.out / "slots.sqlite3")
    written, read = OneWay(store, readable=False), OneWay(store, readable=True)
    cold = ControlledAgent(COLD, {})
    warm = ControlledAgent(WARM, {"hint_timeout_s": HINT_S}, slot_store=read)
    first = ControlledAgent(COLD, {}, slot_store=written)
    with (
        warnings.catch_warnings(),
        CountedEndpoint((Upstream(base_url=server.base_url),)) as endpoint,
        ResultFile(options.out / "attempts.jsonl", settings=settings.digest) as file,
    ):
        quiet_libraries()
        await run(make_plan([first], warming, [0]), endpoint, file, settings, options.concurrency)
        await run(make_plan([cold, warm], measured, [0]), endpoint, file, settings, options.concurrency)
    print(f"{(await store.stats()).objects} requests kept; something similar was found for {read.found} in this run")


def report(attempts: Sequence[Attempt]) -> None:
    """Print what was measured on the held-out half."""
    held = [attempt for attempt in attempts if attempt.half is Half.HELD_OUT]
    cells = {cell.system: cell for cell in measure_cells(held)}
    comparison: Comparison = compare(cells[WARM], cells[COLD])
    print(f"{comparison.tasks} tasks, with the warm store against without it; 95 % intervals by the paired bootstrap")
    for key in SHOWN:
        delta = comparison.deltas[key]
        ends = f" [{delta.interval.low:.2f}, {delta.interval.high:.2f}]" if delta.interval else ""
        told = "difference" if delta.compared.kind is Kind.SHARE else "ratio"
        test = "" if delta.p_value is None else f", McNemar p = {delta.p_value:.2f}"
        print(f"{delta.compared.label}: {delta.theirs:.2f} -> {delta.mine:.2f}, {told} {delta.value:.2f}{ends}{test}")
    alike = sum(
        one.answer == other.answer
        for one, other in itertools.product(held, held)
        if (one.system, other.system) == (COLD, WARM) and one.task == other.task
    )
    print(f"the same answer in {alike} of {comparison.tasks}")


def main() -> None:
    """Measure what is not measured yet, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for attempts and store")
    parser.add_argument("--databases", type=int, default=3)
    parser.add_argument("--each", type=int, default=10, help="tasks of a database to measure, at most")
    parser.add_argument("--warm-each", type=int, default=5, help="tasks of a database to warm on, at most")
    parser.add_argument("--weights", type=Path, help="the model's GGUF file; default: where `agentloop` finds it")
    parser.add_argument("--data", type=Path, help="folder with the Spider data; default: AGENTLOOP_DATA")
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds of one attempt")
    parser.add_argument("--report", action="store_true", help="print the figures of the attempts that are there")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        with LocalModelServer(options.weights or resolve_weights(), parallel=2 * options.concurrency) as server:
            asyncio.run(measure(options, server))
    report(read_attempts([options.out / "attempts.jsonl"]))


if __name__ == "__main__":
    main()
