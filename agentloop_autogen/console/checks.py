"""Holds a finished run against what its scenario expects; every check says what was wanted and what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from agentloop_autogen.core.records import LoopOutcome, StopReason
from agentloop_autogen.scenario import Expectation

__all__ = ["Check", "check_run"]

_MAX_NAMED = 4


class Check(BaseModel):
    """One expectation and whether the run met it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wanted: str
    passed: bool
    seen: str
    """What the run showed instead, or just as well."""


def check_run(
    expectation: Expectation | None, *, answer: str, outcome: LoopOutcome, tools: Mapping[str, int]
) -> tuple[Check, ...]:
    """Hold a run against an expectation.

    Args:
        expectation: What is expected; None: only that the run does not fail.
        answer: The reply's text.
        outcome: How the run ended.
        tools: How often each tool ran.

    Returns:
        One check per expectation, in a fixed order.
    """
    wanted = expectation or Expectation()
    return (
        *_ending_checks(wanted, outcome),
        *_answer_checks(wanted, answer, outcome),
        *_slot_checks(wanted, outcome),
        *_effort_checks(wanted, outcome, tools),
    )


def _ending_checks(wanted: Expectation, outcome: LoopOutcome) -> Iterator[Check]:
    reason = outcome.stop_reason
    seen = f"{reason.value} ({outcome.error})" if outcome.error else reason.value
    if wanted.stop_reasons:
        names = " or ".join(item.value for item in wanted.stop_reasons)
        yield Check(wanted=f"stop reason {names}", passed=reason in wanted.stop_reasons, seen=seen)
    else:
        yield Check(wanted="the run does not fail", passed=reason is not StopReason.FAILED, seen=seen)


def _answer_checks(wanted: Expectation, answer: str, outcome: LoopOutcome) -> Iterator[Check]:
    folded = _folded(answer)
    for item in wanted.answer_contains:
        found = [text for text in _alternatives(item) if _folded(text) in folded]
        seen = _or(found) if found else "not there"
        yield Check(wanted=f"answer contains {_or(item)}", passed=bool(found), seen=seen)
    for text in wanted.answer_lacks:
        found = _folded(text) in folded
        yield Check(wanted=f"answer lacks {text!r}", passed=not found, seen="there" if found else "not there")
    if wanted.figures_grounded:
        loose = outcome.ungrounded_figures
        seen = ", ".join(loose) if loose else "all found"
        yield Check(wanted="every figure of the answer is in the evidence", passed=not loose, seen=seen)


def _slot_checks(wanted: Expectation, outcome: LoopOutcome) -> Iterator[Check]:
    names = outcome.unresolved
    seen = ", ".join(names) if names else "none"
    match wanted.unresolved:
        case None:
            pass
        case "empty":
            yield Check(wanted="nothing left open", passed=not names, seen=seen)
        case "non-empty":
            yield Check(wanted="something left open and named", passed=bool(names), seen=seen)
    for item in wanted.unresolved_names:
        found = any(_folded(text) in _folded(name) for text in _alternatives(item) for name in names)
        yield Check(wanted=f"left open: {_or(item)}", passed=found, seen=seen)


def _effort_checks(wanted: Expectation, outcome: LoopOutcome, tools: Mapping[str, int]) -> Iterator[Check]:
    if wanted.min_rounds is not None or wanted.max_rounds is not None:
        yield _within("rounds", outcome.rounds, wanted.min_rounds or 0, wanted.max_rounds)
    for name, count in wanted.tools_called.items():
        yield _within(f"calls of {name}", tools.get(name, 0), count.min, count.max)
    if wanted.max_tool_calls is not None:
        yield _within("tool calls", outcome.tool_calls, 0, wanted.max_tool_calls)


def _within(what: str, number: int, low: int, high: int | None) -> Check:
    if high is None:
        wanted = f"at least {low} {what}"
    else:
        wanted = f"{low} to {high} {what}" if low else f"at most {high} {what}"
    return Check(wanted=wanted, passed=low <= number and (high is None or number <= high), seen=str(number))


def _alternatives(item: str | Sequence[str]) -> tuple[str, ...]:
    return (item,) if isinstance(item, str) else tuple(item)


def _or(item: str | Sequence[str]) -> str:
    texts = _alternatives(item)
    more = f" or {len(texts) - _MAX_NAMED} others" if len(texts) > _MAX_NAMED else ""
    return " or ".join(repr(text) for text in texts[:_MAX_NAMED]) + more


def _folded(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())
