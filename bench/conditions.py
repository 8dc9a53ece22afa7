"""Many termination conditions at once: time per message as conversations grow, and the memory they hold.

    python bench/conditions.py [--conditions 1000] [--messages 1000] [--json]

Every condition is fed the same kind of conversation, in step: a turn is a request, an execution and a text, three
messages, and every turn brings a new row. All conditions are alive until the end. What is printed per tenth of the
conversations is processor time per message and the memory in use, the messages themselves not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import sys
import time
import tracemalloc
from collections.abc import Sequence

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from agentloop_autogen import AgentLoopTermination, LoopConfig

MESSAGES_A_TURN = 3
TENTHS = 10
LOOP = LoopConfig(max_rounds=1_000_000, timeout_s=1e9)


def turn(number: int) -> list[BaseAgentEvent | BaseChatMessage]:
    """Return the delta of one turn: a call, its result with a new row in it, and a text."""
    arguments = json.dumps({"page": number})
    rows = "\n".join(f"id {number * 7 + row}, name ann{number % 97}, city Oldtown" for row in range(5))
    return [
        ToolCallRequestEvent(content=[FunctionCall(id="1", name="rows", arguments=arguments)], source="a"),
        ToolCallExecutionEvent(
            content=[FunctionExecutionResult(call_id="1", name="rows", content=rows, is_error=False)], source="a"
        ),
        TextMessage(content=f"Page {number} is read.", source="a"),
    ]


async def feed(conditions: Sequence[AgentLoopTermination], first: int, last: int) -> float:
    """Feed every condition the turns from `first` up to `last` and return the processor seconds it took."""
    spent = 0.0
    for number in range(first, last):
        delta = turn(number)
        begun = time.process_time()
        for condition in conditions:
            assert await condition(delta) is None
        spent += time.process_time() - begun
    return spent


async def measure(conditions: int, messages: int) -> list[dict[str, float]]:
    """Return, per tenth of the conversations, microseconds per message and MiB held."""
    turns = messages // MESSAGES_A_TURN
    made = [AgentLoopTermination(loop=LOOP) for _ in range(conditions)]
    for condition in made:
        await condition([TextMessage(content="Read all pages.", source="user")])
    steps = [turns * step // TENTHS for step in range(TENTHS + 1)]
    rows: list[dict[str, float]] = []
    for first, last in itertools.pairwise(steps):
        spent = await feed(made, first, last)
        fed = (last - first) * MESSAGES_A_TURN * conditions
        rows.append({"messages": last * MESSAGES_A_TURN, "us_per_message": spent / fed * 1e6})
    return rows


async def memory(messages: int) -> list[float]:
    """Return the KiB one condition holds at each tenth of its conversation."""
    gc.collect()
    tracemalloc.start()
    condition = AgentLoopTermination(loop=LOOP)
    turns = messages // MESSAGES_A_TURN
    held: list[float] = []
    for step in range(TENTHS):
        await feed([condition], turns * step // TENTHS, turns * (step + 1) // TENTHS)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0] / 1024)
    tracemalloc.stop()
    return held


def main() -> None:
    """Measure and print one line per tenth."""
    parser = argparse.ArgumentParser(description="Many termination conditions at once.")
    parser.add_argument("--conditions", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    held = asyncio.run(memory(options.messages))
    rows = asyncio.run(measure(options.conditions, options.messages))
    for row, kib in zip(rows, held, strict=True):
        row["kib_per_condition"] = kib
    if options.json:
        json.dump(rows, sys.stdout, indent=2)
        return
    print(f"{options.conditions} conditions, {options.messages} messages each; processor time")
    print(f"{'messages':>9} {'µs/message':>11} {'KiB/condition':>14}")
    for row in rows:
        print(f"{row['messages']:9.0f} {row['us_per_message']:11.1f} {row['kib_per_condition']:14.0f}")


if __name__ == "__main__":
    main()
