"""Local control work per round: time, its growth over 1,000 rounds, and memory.

    python bench/control_work.py [--rounds 1000] [--calls 10] [--chars 4096] [--json]

One round is what the loop does besides calling models and tools: normalise calls and results, compress evidence,
look for news and patterns, check the gate, settle the verdict and decide. Three workloads: `unchanged` gives the same
results every round, `timestamps` the same but for the time in every row, `all new` new rows every round. The machine's
noise shows in the spread; compare figures of one run.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

from agentloop_autogen import LoopConfig, Slot, SlotState, Verdict
from agentloop_autogen.core.controller import LoopController
from agentloop_autogen.core.rounds import Round, ToolCall, ToolResult

REQUEST = "How many of the people named ann who live in Oldtown signed up before noon?"
NAMES = ("ann", "bob", "eve", "kim", "lee")
CITIES = ("Oldtown", "Newport", "Westbury")
OPEN = Verdict(
    answer_complete=False,
    need_tool=True,
    confidence=0.5,
    missing=("total",),
    slots=(Slot(name="total", state=SlotState.MISSING),),
)

Workload = Callable[[int, int, int], str]


def page(first_row: int, minute: int, chars: int) -> str:
    """Return a JSON page of rows of about `chars` characters."""
    rows: list[dict[str, object]] = []
    size, row = 2, first_row
    while size < chars:
        entry: dict[str, object] = {
            "id": row,
            "name": f"{NAMES[row % 5]}{row % 97}",
            "city": CITIES[row % 3],
            "at": f"2026-01-05T10:{minute % 60:02}:{row % 60:02}",
        }
        rows.append(entry)
        size += len(json.dumps(entry)) + 2
        row += 1
    return json.dumps(rows)


WORKLOADS: dict[str, Workload] = {
    "unchanged": lambda round_, call, chars: page(call * 60, 0, chars),
    "timestamps": lambda round_, call, chars: page(call * 60, round_, chars).replace("2026-", f"{1000 + round_}-"),
    "all new": lambda round_, call, chars: page(round_ * 1_000 + call * 60, round_, chars),
}


def rounds_of(workload: Workload, *, rounds: int, calls: int, chars: int) -> list[Round]:
    """Return the rounds of a workload, made beforehand so that making them is not measured."""
    return [
        Round(
            "",
            tuple(
                ToolResult(ToolCall("rows", json.dumps({"page": call, "size": 50})), workload(number, call, chars))
                for call in range(calls)
            ),
        )
        for number in range(rounds)
    ]


def decide(controller: LoopController, round_: Round) -> None:
    """Do the control work of one round."""
    controller.observe(round_)
    controller.decide(OPEN if controller.needs_verdict() else None)


def measure(workload: Workload, *, rounds: int, calls: int, chars: int) -> dict[str, float]:
    """Return milliseconds per round (median, 95th percentile, of the first and last tenth) and the memory held."""
    made = rounds_of(workload, rounds=rounds, calls=calls, chars=chars)
    controller = LoopController(LoopConfig(max_rounds=rounds), request=REQUEST)
    times: list[float] = []
    gc.collect()
    gc.disable()
    for round_ in made:
        start = time.process_time()
        decide(controller, round_)
        times.append((time.process_time() - start) * 1e3)
    gc.enable()
    tenth = max(1, rounds // 10)
    return {
        "median_ms": statistics.median(times),
        "p95_ms": statistics.quantiles(times, n=20)[-1],
        "first_tenth_ms": statistics.median(times[:tenth]),
        "last_tenth_ms": statistics.median(times[-tenth:]),
        **memory(workload, rounds=rounds, calls=calls, chars=chars),
    }


def memory(workload: Workload, *, rounds: int, calls: int, chars: int) -> dict[str, float]:
    """Return the KiB a controller holds after half and after all rounds, its input not counted."""
    held: dict[str, float] = {}
    for name, count in (("half_kib", rounds // 2), ("all_kib", rounds)):
        controller = LoopController(LoopConfig(max_rounds=rounds), request=REQUEST)
        tracemalloc.start()
        for number in range(count):
            decide(
                controller,
                rounds_of(
                    lambda _, call, chars, n=number: workload(n, call, chars), rounds=1, calls=calls, chars=chars
                )[0],
            )
        gc.collect()
        held[name] = tracemalloc.get_traced_memory()[0] / 1024
        tracemalloc.stop()
    return held


def main() -> None:
    """Measure every workload and print one line each."""
    parser = argparse.ArgumentParser(description="Local control work per round.")
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--chars", type=int, default=4_096)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {
        name: measure(workload, rounds=options.rounds, calls=options.calls, chars=options.chars)
        for name, workload in WORKLOADS.items()
    }
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        return
    print(f"{options.calls} calls of {options.chars} characters a round, {options.rounds} rounds; processor time in ms")
    heads = ("median", "p95", "first 10%", "last 10%", "KiB, half", "KiB, all")
    print(f"{'workload':12}" + "".join(f" {head:>10}" for head in heads))
    for name, row in found.items():
        print(
            f"{name:12} {row['median_ms']:10.3f} {row['p95_ms']:10.3f} {row['first_tenth_ms']:10.3f} "
            f"{row['last_tenth_ms']:10.3f} {row['half_kib']:10.0f} {row['all_kib']:10.0f}"
        )


if __name__ == "__main__":
    main()
