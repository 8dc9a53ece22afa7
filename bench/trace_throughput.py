"""Reads, diagnoses and replays recorded runs, and shows how the time grows with the length of a trace.

    python bench/trace_throughput.py [TRACES ...]

Without files only made-up traces are measured: of 10 to 10,000 rounds, half of them fruitless. Linear work shows as the
same time per round at every length. The machine's noise shows in the spread; compare figures of one run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from agentloop_autogen import LoopConfig
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics import Trace, TraceRound, load_traces, measure, replay, summarize

LENGTHS = (10, 100, 1_000, 10_000)
ENDLESS = LoopConfig(two_strikes=False, max_rounds=1_000_000)

T = TypeVar("T")


def made_up(rounds: int) -> Trace:
    """Return a trace of so many rounds, every other one a repeat of the one before."""
    found: list[TraceRound] = []
    for i in range(rounds):
        call = ToolCall("query", f'{{"towns_of": "city{i // 2}", "id": {i // 2}}}')
        result = ToolResult(call, f"[('town{i // 2}', {i // 2 * 17}), ('village{i // 2}', {i // 2 * 31})]")
        found.append(TraceRound(calls=(call,), results=(result,)))
    return Trace(id=str(rounds), source="made up", model="none", request="Which towns?", rounds=tuple(found))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds a piece of work takes, and what it gives."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def files(paths: list[str]) -> None:
    """Print the seconds for each step over files."""
    loaded, traces = timed(lambda: [trace for path in paths for trace in load_traces(path)])
    rounds = sum(len(trace.rounds) for trace in traces)
    print(f"{len(traces):,} traces, {rounds:,} rounds")
    # Traces read anew for each step, so that no step profits from what another one has put into comparable form.
    steps: dict[str, Callable[[], object]] = {
        "diagnose": lambda: summarize(trace for path in paths for trace in load_traces(path)),
        "replay": lambda: replay(trace for path in paths for trace in load_traces(path)).savings(),
    }
    total = 0.0
    for name, work in steps.items():
        seconds, _ = timed(work)
        total += seconds
        print(f"{name:<10}{seconds:6.1f} s  {seconds / rounds * 1e6:6.0f} us a round (reading {loaded:.1f} s of it)")
    print(f"{'together':<10}{total:6.1f} s")


def lengths() -> None:
    """Print the time per round by the length of a trace."""
    print(f"\n{'rounds':>8}  {'measure':>16}  {'replay':>16}   us a round, median of five (spread)")
    for length in LENGTHS:
        cells = [_per_round(work, length) for work in (measure, _replayed)]
        print(f"{length:>8,}  {cells[0]:>16}  {cells[1]:>16}")


def _replayed(trace: Trace) -> object:
    return replay([trace], ENDLESS)


def _per_round(work: Callable[[Trace], object], length: int) -> str:
    times: list[float] = []
    for _ in range(5):
        trace = made_up(length)
        times.append(timed(lambda trace=trace: work(trace))[0] / length * 1e6)
    return f"{statistics.median(times):6.0f} ({min(times):.0f}-{max(times):.0f})"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="*", help="files of traces")
    args = parser.parse_args()
    if args.traces:
        files(args.traces)
    lengths()


if __name__ == "__main__":
    main()
