"""The slot store on real tasks: the benchmark's Spider tasks without it and with one warmed on other tasks.

    python bench/warm_store.py --out DIR [--attempts FILE] [--limit 30] [--warm-each 2] [--weights FILE] [--data DIR]
        [--timeout 180] [--concurrency 1]

Measured are the tasks of `agentloop bench run --tasks spider --half held_out --limit 30`, without a store
(`agentloop`) and with one (`agentloop-warm-store`). It is warmed on the development half: of the tasks of the same
database, those most like a measured one, if they are like it enough to be found; no others could make a difference.
Then it is only read, so that no task sees another of its own half. Where it knows nothing of use for a task, a run with
it is the run without it, and is made once. The model is the local one. Attempts are appended to FILE, which may be that
of the benchmark, whose attempts then need not be made again; the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import warnings
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
from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.similarity import text_similarity
from agentloop_autogen.models import MODEL_ID, LocalModelServer, resolve_weights
from agentloop_autogen.slots.hint import MOST_PAST, hint_from
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

    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Keep the objects, where it can be written."""
        if not self._readable:
            await self._store.put(states)

    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Return similar requests, where it can be read."""
        return await self._store.similar(request, k) if self._readable else ()

    async def forget(self, ids: Sequence[str]) -> int:
        """Remove objects."""
        return await self._store.forget(ids)

    def export(self) -> AsyncIterator[RuntimeStateObject]:
        """Go through all objects."""
        return self._store.export()

    async def close(self) -> None:
        """Close the store behind it."""
        await self._store.close()


def chosen(data: Path | None, *, limit: int, warm_each: int) -> tuple[list[BenchTask], list[BenchTask]]:
    """Return tasks to warm on and tasks to measure."""
    measured = list(load_tasks("spider", data=data, limit=limit, half=Half.HELD_OUT))
    warming: dict[str, BenchTask] = {}
    others = load_tasks("spider", data=data, half=Half.DEVELOPMENT)
    for task in measured:
        alike = [(text_similarity(task.request, other.request), other) for other in others if other.group == task.group]
        alike.sort(key=lambda pair: -pair[0])
        warming |= {other.id: other for rho, other in alike[:warm_each] if rho >= LoopConfig().hint_similarity}
    return list(warming.values()), measured


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


async def knows(store: SlotStateStore, task: BenchTask) -> bool:
    """Return whether a store holds anything that makes a hint for a task."""
    found = await store.similar(task.request, MOST_PAST)
    return hint_from(found, at_least=LoopConfig().hint_similarity) is not None


async def measure(options: argparse.Namespace, server: LocalModelServer) -> None:
    """Warm the store, then run the tasks without and with it."""
    warming, measured = chosen(options.data, limit=options.limit, warm_each=options.warm_each)
    settings = RunSettings(
        model=MODEL_ID,
        limits=Limits(timeout_s=options.timeout),
        endpoint_kind="agentloop",
        context_length=server.context_length,
    )
    store = SQLSlotStateStore(options.out / "slots.sqlite3")
    written, read = OneWay(store, readable=False), OneWay(store, readable=True)
    cold = ControlledAgent(COLD, {})
    warm = ControlledAgent(WARM, {"hint_timeout_s": HINT_S}, slot_store=read)
    first = ControlledAgent(COLD, {}, slot_store=written)
    with (
        warnings.catch_warnings(),
        CountedEndpoint((Upstream(base_url=server.base_url),)) as endpoint,
        ResultFile(options.attempts, settings=settings.digest) as file,
    ):
        quiet_libraries()
        await run(make_plan([first], warming, [0]), endpoint, file, settings, options.concurrency)
        of_use = [task for task in measured if await knows(store, task)]
        await run(make_plan([cold, warm], of_use, [0]), endpoint, file, settings, options.concurrency)
        others = [task for task in measured if task not in of_use]
        await run(make_plan([cold], others, [0]), endpoint, file, settings, options.concurrency)
    kept = (await store.stats()).objects
    print(f"{len(warming)} tasks to warm on, {kept} requests kept, of use for {len(of_use)} of {len(measured)} tasks")


def report(attempts: Sequence[Attempt]) -> None:
    """Print what was measured on the held-out half: of all tasks, and of those for which the store had something."""
    warm = {attempt.task: attempt for attempt in attempts if attempt.system == WARM}
    cold = {attempt.task: attempt for attempt in attempts if attempt.system == COLD and attempt.half is Half.HELD_OUT}
    same = [one.model_copy(update={"system": WARM}) for task, one in cold.items() if task not in warm]
    if warm:
        told(f"{len(warm)} tasks for which the store had something", [*warm.values(), *cold.values()])
        alike = sum(one.answer == cold[task].answer for task, one in warm.items() if task in cold)
        print(f"the same answer in {alike} of {len(warm)}")
    told(f"all {len(cold)} tasks", [*warm.values(), *same, *cold.values()])


def told(what: str, attempts: Sequence[Attempt]) -> None:
    """Compare the tasks both arms have."""
    cells = {cell.system: cell for cell in measure_cells(attempts)}
    comparison: Comparison = compare(cells[WARM], cells[COLD])
    print(f"{what}, with the warm store against without it; 95 % intervals by the paired bootstrap")
    for key in SHOWN:
        delta = comparison.deltas[key]
        ends = f" [{delta.interval.low:.2f}, {delta.interval.high:.2f}]" if delta.interval else ""
        kind = "difference" if delta.compared.kind is Kind.SHARE else "ratio"
        test = "" if delta.p_value is None else f", McNemar p = {delta.p_value:.2f}"
        print(f"  {delta.compared.label}: {delta.theirs:.2f} -> {delta.mine:.2f}, {kind} {delta.value:.2f}{ends}{test}")


def main() -> None:
    """Measure what is not measured yet, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the store")
    parser.add_argument("--attempts", type=Path, help="the result file; default: attempts.jsonl in that folder")
    parser.add_argument("--limit", type=int, default=30, help="tasks to measure")
    parser.add_argument("--warm-each", type=int, default=2, help="tasks to warm on for each measured one, at most")
    parser.add_argument("--weights", type=Path, help="the model's GGUF file; default: where `agentloop` finds it")
    parser.add_argument("--data", type=Path, help="folder with the Spider data; default: AGENTLOOP_DATA")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds of one attempt")
    parser.add_argument("--concurrency", type=int, default=1, help="attempts at once")
    parser.add_argument("--report", action="store_true", help="print the figures of the attempts that are there")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.attempts = options.attempts or options.out / "attempts.jsonl"
    if not options.report:
        with LocalModelServer(options.weights or resolve_weights(), parallel=2 * options.concurrency) as server:
            asyncio.run(measure(options, server))
    report(read_attempts([options.attempts]))


if __name__ == "__main__":
    main()
