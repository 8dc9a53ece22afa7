"""Hand-made traces with figures that can be worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence

from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics import Trace, TraceRound

PARIS = "Paris has 2,100,000 inhabitants"
ROME = "Rome has 2,800,000 inhabitants"


def tool_round(
    content: str = PARIS,
    *,
    arguments: str = '{"city":"Paris"}',
    name: str = "lookup",
    error: bool = False,
    reward: float | None = None,
    turn: int | None = None,
    text: str = "",
) -> TraceRound:
    """One round with one call and its result."""
    call = ToolCall(name, arguments)
    return TraceRound(
        text=text, calls=(call,), results=(ToolResult(call, content, is_error=error),), reward=reward, turn=turn
    )


def text_round(text: str, *, turn: int | None = None) -> TraceRound:
    """One round in which the model only wrote."""
    return TraceRound(text=text, turn=turn)


def trace_of(
    *rounds: TraceRound,
    final: str = "",
    correct: bool | None = None,
    model: str = "m",
    source: str = "s",
    id: str = "1",
) -> Trace:
    """A trace of these rounds."""
    return Trace(
        id=id, source=source, model=model, request="How many people?", rounds=rounds, final=final, correct=correct
    )


def scored(*rewards: float, contents: Sequence[str] | None = None) -> Trace:
    """A trace of one call after another, each with its reward; solved where the last reward is 1."""
    texts = contents or [f"row {i}: {chr(97 + i) * 5}" for i in range(len(rewards))]
    rounds = [
        tool_round(text, arguments=f'{{"n":{texts.index(text)}}}', reward=reward)
        for text, reward in zip(texts, rewards, strict=True)
    ]
    return trace_of(*rounds, correct=rewards[-1] == 1.0)
