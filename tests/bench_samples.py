"""Attempts made up for tests of the benchmark's report: small, and with figures that can be worked out by hand."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agentloop_autogen.bench.records import Attempt, CountedModelCall, CountedToolCall
from agentloop_autogen.bench.tasks.task import Half
from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    LoopOutcome,
    RequestUsage,
    StopReason,
    Verdict,
)

SYSTEMS = ("autogen", "langgraph", "fc-reflection", "agentloop", "agentloop-paper", "agentloop-without-novelty")
CLOSED = Verdict(answer_complete=True, need_tool=False, confidence=0.9)


def attempt(
    system: str = "agentloop",
    task: str = "t0",
    *,
    correct: bool = True,
    tools: Sequence[str] = ("lookup a",),
    tokens: tuple[int, int] = (90, 10),
    second: float = 1.0,
    **changes: Any,
) -> Attempt:
    """Return an attempt: each model call and each tool call takes `second` seconds, one after the other.

    Args:
        system: Its system.
        task: Its task.
        correct: Whether it was solved.
        tools: The argument of each tool call; each is asked for by a model call of its own.
        tokens: Prompt and completion tokens of each model call.
        second: How long a call takes.
        changes: Any other fields.
    """
    model_calls: list[CountedModelCall] = []
    tool_calls: list[CountedToolCall] = []
    now = 0.0
    for argument in tools:
        asked = ({"name": "lookup", "arguments": f'{{"q": "{argument}"}}'},)
        model_calls.append(model_call(now, now + second, tokens, tool_calls=asked))
        now += second
        result = f"row of {argument}"
        ran = CountedToolCall(
            name="lookup", arguments={"q": argument}, began_s=now, ended_s=now + second, result=result
        )
        tool_calls.append(ran)
        now += second
    answer = f"The answer of {task} is {len(tools)}."
    model_calls.append(model_call(now, now + second, tokens, content=answer, first_token_s=now + second / 4))
    given: dict[str, Any] = {
        "system": system,
        "family": "spider",
        "task": task,
        "half": Half.HELD_OUT,
        "model": "tiny",
        "settings": "0123456789abcdef",
        "request": f"What is {task}?",
        "answer": answer,
        "correct": correct,
        "began_at": "2026-01-01T00:00:00.000+00:00",
        "elapsed_s": now + second,
        "model_calls": tuple(model_calls),
        "tool_calls": tuple(tool_calls),
    }
    return Attempt(**{**given, **changes})


def model_call(
    began_s: float, ended_s: float, tokens: tuple[int, int] = (90, 10), *, offers_tools: bool = True, **changes: Any
) -> CountedModelCall:
    """Return a counted model call."""
    prompt, completion = tokens
    return CountedModelCall(
        began_s=began_s,
        ended_s=ended_s,
        prompt_tokens=prompt,
        completion_tokens=completion,
        offers_tools=offers_tools,
        **changes,
    )


def outcome(*, stopped: bool = True, closed: bool = True, verifier_tokens: int = 20) -> LoopOutcome:
    """Return how a controlled run of two rounds ended."""
    verdict = CLOSED if closed else CLOSED.model_copy(update={"answer_complete": False, "need_tool": True})
    branch = ControlBranch.STOP_REPLANNING if stopped else ControlBranch.NEED_TOOL_ROUND
    action = ControlAction.ANSWER_SYNTHESIS if stopped else ControlAction.CONTINUE_INVOCATION
    return LoopOutcome(
        stop_reason=StopReason.ANSWERED,
        rounds=2,
        model_calls=2,
        verifier_calls=1,
        usage={"agent": RequestUsage(prompt_tokens=100), "verifier": RequestUsage(prompt_tokens=verifier_tokens)},
        decisions=(Decision(round=2, action=action, branch=branch, verdict=verdict, stable=stopped),),
        elapsed_s=2.0,
        verifier_s=0.5,
    )


def many(tasks: int = 30, families: Sequence[str] = ("bfcl", "spider"), **changes: Any) -> list[Attempt]:
    """Return attempts of every sample system at every task: baselines go round in circles, AgentLoop does not."""
    found: list[Attempt] = []
    for family in families:
        for number in range(tasks):
            for place, system in enumerate(SYSTEMS):
                controlled = system.startswith("agentloop")
                loops = 1 + number % 2 if controlled else 4 + (number + place) % 5
                found.append(
                    attempt(
                        system,
                        f"t{number:02}",
                        correct=(number * 7 + place) % 10 < (6 if controlled else 3 + place),
                        tools=[f"{'same' if number % 3 else index}" for index in range(loops)],
                        tokens=(200 + 30 * loops, 20 + place),
                        second=0.5 + (number % 7) / 10,
                        family=family,
                        outcome=outcome(stopped=number % 4 > 0) if controlled else None,
                        waited_s=0.05,
                        **changes,
                    )
                )
    return found


def write_results(path: Path, attempts: Iterable[Attempt]) -> Path:
    """Write a result file; a name that ends in `.gz` is compressed."""
    text = "".join(one.model_dump_json() + "\n" for one in attempts)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
    return path
