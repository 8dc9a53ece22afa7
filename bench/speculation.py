"""Verification off the critical path: time and tokens of a run with `speculative` on against off.

    python bench/speculation.py [--rounds 5] [--repeats 10] [--planning-ms 400] [--verifier-ms 300] [--json]

Model and verifier are scripted and take the given time for each call; nothing else is waited for. A run makes the
given number of tool rounds, the last verdict then ends it, and one call writes the answer. Three workloads: `verifier
faster`, `verifier slower` (the two times changed over), and `every call in vain`, in which each verdict reports a
contradiction, so that no call made ahead is ever kept. Runs with and without take turns. Printed are medians with the
least and the most, and the agent's tokens, four characters a token; those of calls that were broken off are the agent's
own estimate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.replay import ReplayChatCompletionClient

from agentloop_autogen import AgentLoopAssistantAgent, Evidence, Failure, LoopConfig, SlotVerifier, Verdict
from agentloop_autogen.agent.model_call import prompt_characters

TASK = "How many readings are there for each of the stations?"
ANSWER = "There are twelve readings for each of the stations."
INFO = ModelInfo(
    vision=False, function_calling=True, json_output=True, structured_output=True, family=ModelFamily.UNKNOWN
)
MISSING = Verdict(answer_complete=False, need_tool=True, confidence=0.9, missing=("the next station",))
CONTRADICTION = Verdict(answer_complete=False, need_tool=False, confidence=0.9, failure=Failure.TOOL_CONFLICT)
UNWRITTEN = Verdict(answer_complete=False, need_tool=False, confidence=0.9, failure=Failure.ANSWER_INCOMPLETE)


def readings(station: int) -> str:
    """Return the readings of a station."""
    rows = [f"station {station}, hour {hour}, reading {station * 97 + hour * 13}" for hour in range(12)]
    return "\n".join(rows)


class TimedModel(ReplayChatCompletionClient):
    """Takes a fixed time for each call, then asks for the next station, or answers where it has no tools."""

    def __init__(self, seconds: float) -> None:
        super().__init__([ANSWER], model_info=INFO)
        self._seconds = seconds

    async def create(  # pyright: ignore[reportIncompatibleMethodOverride] - takes what it needs, and anything else
        self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = (), **_: object
    ) -> CreateResult:
        """Wait, and reply."""
        await asyncio.sleep(self._seconds)
        station = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
        call = FunctionCall(id=f"c{station}", name="readings", arguments=json.dumps({"station": station}))
        usage = RequestUsage(prompt_characters(messages) // 4, 20)
        content = [call] if tools else ANSWER
        return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False)


class TimedVerifier(SlotVerifier):
    """Takes a fixed time for each verdict, and ends the run once there is enough evidence."""

    def __init__(self, seconds: float, goes_on: Verdict, rounds: int) -> None:
        self._seconds = seconds
        self._goes_on = goes_on
        self._rounds = rounds

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Wait, and judge."""
        await asyncio.sleep(self._seconds)
        return self._goes_on if len(evidence) < self._rounds else UNWRITTEN


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How long a call takes, and what verdicts say."""

    planning_s: float
    verifier_s: float
    goes_on: Verdict = MISSING


@dataclass(frozen=True)
class Measured:
    """One run."""

    seconds: float
    tokens: int
    in_vain: int


async def measure(workload: Workload, *, rounds: int, speculative: bool) -> Measured:
    """Make one run."""
    agent = AgentLoopAssistantAgent(
        "agent",
        TimedModel(workload.planning_s),
        tools=[readings],
        verifier=TimedVerifier(workload.verifier_s, workload.goes_on, rounds),
        loop=LoopConfig(speculative=speculative, max_rounds=rounds + 1),
    )
    begun = time.monotonic()
    await agent.run(task=TASK)
    spent = time.monotonic() - begun
    outcome = agent.last_outcome
    assert outcome is not None
    assert outcome.rounds == rounds
    return Measured(spent, outcome.usage["agent"].total, outcome.dropped_calls)


async def compare(workload: Workload, *, rounds: int, repeats: int) -> dict[str, dict[str, float]]:
    """Return what runs took without and with, in turns."""
    runs: dict[str, list[Measured]] = {"off": [], "on": []}
    for _ in range(repeats):
        for name, taken in runs.items():
            taken.append(await measure(workload, rounds=rounds, speculative=name == "on"))
    return {name: _summed_up(taken) for name, taken in runs.items()}


def _summed_up(taken: Sequence[Measured]) -> dict[str, float]:
    seconds = [one.seconds for one in taken]
    return {
        "median_s": statistics.median(seconds),
        "least_s": min(seconds),
        "most_s": max(seconds),
        "agent_tokens": statistics.median(one.tokens for one in taken),
        "calls_in_vain": statistics.median(one.in_vain for one in taken),
    }


def main() -> None:
    """Measure every workload and print two lines each."""
    parser = argparse.ArgumentParser(description="Verification off the critical path.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--planning-ms", type=float, default=400)
    parser.add_argument("--verifier-ms", type=float, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    planning_s, verifier_s = options.planning_ms / 1e3, options.verifier_ms / 1e3
    workloads = {
        "verifier faster": Workload(planning_s=planning_s, verifier_s=verifier_s),
        "verifier slower": Workload(planning_s=verifier_s, verifier_s=planning_s),
        "every call in vain": Workload(planning_s=planning_s, verifier_s=verifier_s, goes_on=CONTRADICTION),
    }
    found = {
        name: asyncio.run(compare(workload, rounds=options.rounds, repeats=options.repeats))
        for name, workload in workloads.items()
    }
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        return
    print(f"{options.rounds} rounds, {options.repeats} runs of each kind; seconds of a run, tokens of the agent")
    print(f"{'workload':20} {'speculative':>11} {'median':>7} {'least':>7} {'most':>7} {'tokens':>7} {'in vain':>8}")
    for name, kinds in found.items():
        for kind, row in kinds.items():
            print(
                f"{name:20} {kind:>11} {row['median_s']:7.2f} {row['least_s']:7.2f} {row['most_s']:7.2f} "
                f"{row['agent_tokens']:7.0f} {row['calls_in_vain']:8.0f}"
            )


if __name__ == "__main__":
    main()
