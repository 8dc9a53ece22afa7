"""How long the slot store takes to find similar requests and to keep new ones, as it grows to a million.

    python bench/slot_store.py [--sizes 1000 10000 100000 1000000] [--queries 200] [--store FOLDER-OR-URL] [--no-text]

Requests are made up (`slot_requests.py`, seeded), other ones for the store than for the questions. Recall is the share
of the three most similar requests, by ρ over all that are kept, that the store returns, where one that is as similar
counts as well; `ρ lost` is how much less similar on average the three returned are than the three best. Peak memory is
that of a process that only asks; `cpu ms` is the median of its processor time, which a busy machine changes less than
the time that passes. The machine's noise shows in the spread; compare figures of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import TypedDict

from rapidfuzz.distance import Indel
from slot_requests import made_up_requests

from agentloop_autogen import SlotState, StopReason
from agentloop_autogen.core.records import ControlBranch
from agentloop_autogen.core.similarity import LEXICAL_WEIGHT, TOKEN_WEIGHT, text_similarity
from agentloop_autogen.slots.records import RuntimeStateObject, SlotTrace, ToolTrace
from agentloop_autogen.slots.sql import SQLSlotStateStore

K = 3
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SLOTS = (
    SlotTrace(name="the figure asked for", state=SlotState.SUPPORTED, closed_by=("query_table",)),
    SlotTrace(name="the period it is for", state=SlotState.SUPPORTED, closed_by=("list_tables", "query_table")),
)
TOOLS = (ToolTrace(name="list_tables", calls=1), ToolTrace(name="query_table", calls=3, errors=1))


class Asked(TypedDict):
    """What a process that only asks has found."""

    times: list[float]
    """Milliseconds of each question."""
    processor: list[float]
    """Milliseconds of processor time of each question, all threads together."""
    found: list[list[float]]
    """How similar the requests returned are."""
    peak_mib: float


def objects(first: int, last: int, largest: int) -> Iterator[RuntimeStateObject]:
    """Yield made-up objects number `first` to `last` of a sequence of `largest`."""
    for number, request in enumerate(islice(made_up_requests(largest, seed=1), first, last), first):
        yield RuntimeStateObject(
            id=f"run-{number:08}",
            request=request,
            slots=SLOTS,
            tools=TOOLS,
            stop_reason=StopReason.ANSWERED,
            stop_branch=ControlBranch.STOP_REPLANNING,
            confidence=0.9,
            rounds=3,
            model="made-up",
            created_at=START + timedelta(seconds=number),
        )


async def fill(store: SQLSlotStateStore, states: Iterator[RuntimeStateObject]) -> None:
    """Put all of them, many at a time."""
    while batch := list(islice(states, 500)):
        await store.put(batch)


async def ask(url: str, queries: Sequence[str]) -> Asked:
    """Return how long each question took, how similar the answers are, and the peak memory of this process."""
    # What was written just before is not to be measured.
    os.sync()
    store = SQLSlotStateStore(url)
    await store.similar(queries[0], K)
    times: list[float] = []
    processor: list[float] = []
    found: list[list[float]] = []
    for query in queries:
        started, used = time.perf_counter(), time.process_time()
        similar = await store.similar(query, K)
        times.append((time.perf_counter() - started) * 1e3)
        processor.append((time.process_time() - used) * 1e3)
        found.append([text_similarity(query, one.state.request) for one in similar if one.state.request is not None])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Asked(times=times, processor=processor, found=found, peak_mib=peak)


def best(query: str, texts: Sequence[str]) -> list[float]:
    """Return the `K` highest ρ over all texts, without computing those that cannot be among them."""
    found: list[float] = []
    for text in texts:
        least = (found[-1] - TOKEN_WEIGHT) / LEXICAL_WEIGHT if len(found) == K else 0.0
        if Indel.normalized_similarity(query, text, score_cutoff=max(0.0, least)) > 0.0:
            found = sorted([*found, text_similarity(query, text)], reverse=True)[:K]
    return found


def held_against(found: Sequence[list[float]], queries: Sequence[str], texts: Sequence[str]) -> tuple[float, float]:
    """Return recall and the ρ lost of the first answers, held against all texts."""
    pairs = [(mine, best(query, texts)) for mine, query in zip(found, queries, strict=False)]
    hits = sum(sum(rho >= right[-1] - 1e-9 for rho in mine) for mine, right in pairs)
    return hits / (K * len(pairs)), statistics.fmean((sum(right) - sum(mine)) / K for mine, right in pairs)


def in_own_process(url: str, queries: Sequence[str]) -> Asked:
    """Ask from a fresh process, so that its memory is that of asking alone."""
    done = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, __file__, "--ask", url],
        input=json.dumps(list(queries)),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    """Measure every size and print one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--checked", type=int, default=50, help="questions held against all that is kept")
    parser.add_argument("--store", help="a file that is not there yet, or an empty database (default: a file)")
    parser.add_argument("--no-text", action="store_true", help="keep no request text")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(asyncio.run(ask(options.ask, json.load(sys.stdin)))))
        return
    print("  objects   put/s median ms  p95 ms  cpu ms recall@3  ρ lost peak MiB file MiB")
    with tempfile.TemporaryDirectory() as folder:
        measure(options, options.store or f"{folder}/slots.sqlite3")


def measure(options: argparse.Namespace, url: str) -> None:
    """Let one store grow and print a line at each size."""
    store = SQLSlotStateStore(url, keep_request_text=not options.no_text, timeout_s=60)
    queries = list(made_up_requests(options.queries, seed=2))
    size = 0
    for wanted in options.sizes:
        started = time.perf_counter()
        asyncio.run(fill(store, objects(size, wanted, wanted)))
        rate = (wanted - size) / (time.perf_counter() - started)
        size = wanted
        asked = in_own_process(url, queries)
        recall, lost = held_against(asked["found"], queries[: options.checked], list(made_up_requests(size, seed=1)))
        times = sorted(asked["times"])
        mib = os.stat(url).st_size / 2**20 if "://" not in url else float("nan")
        print(
            f"{size:>9,} {rate:>7,.0f} {statistics.median(times):>9.1f} {times[int(len(times) * 0.95)]:>7.1f}"
            f" {statistics.median(asked['processor']):>7.1f} {recall:>8.2f} {lost:>7.3f}"
            f" {asked['peak_mib']:>8.0f} {mib:>8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
