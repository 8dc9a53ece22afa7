"""Summing up a finished run as the object that is kept of it: names, counts and states, never a result or a quote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from agentloop_autogen.core.grounding import supports
from agentloop_autogen.core.normalise import bounded_text, is_empty_result, plain_line
from agentloop_autogen.core.reconcile import as_written
from agentloop_autogen.core.records import (
    ControlBranch,
    Evidence,
    LoopOutcome,
    Slot,
    SlotState,
    StopReason,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.slots.records import RuntimeStateObject, SlotTrace, ToolTrace

__all__ = ["FinishedRun", "ToolUse", "run_of", "summarise"]

_REQUEST_CHARS: Final = 2_000
_NAME_CHARS: Final = 160
_MOST_SLOTS: Final = 64
_MOST_TOOLS: Final = 64
_COVERED: Final = (SlotState.SUPPORTED, SlotState.UNSYNTHESISED)


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """One executed call, as far as it is counted."""

    tool: str
    in_vain: bool
    """Whether it ended in an error or an empty result."""

    @classmethod
    def of(cls, tool: str, content: str, *, is_error: bool) -> ToolUse:
        """Return how one call is counted.

        Args:
            tool: Name of the tool.
            content: Its result.
            is_error: Whether that is an error.
        """
        return cls(tool=tool, in_vain=is_error or is_empty_result(content))


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """What is known of a run at its end."""

    request: str
    stop_reason: StopReason
    stop_branch: ControlBranch
    verdict: Verdict | None
    """As it stands on the reply; None: there was none."""
    unresolved: tuple[str, ...]
    """Names of what stayed open."""
    evidence: tuple[Evidence, ...]
    tools: tuple[ToolUse, ...]
    rounds: int


def run_of(
    outcome: LoopOutcome, *, request: str, evidence: Sequence[Evidence], tools: Sequence[ToolUse]
) -> FinishedRun:
    """Return a finished run of an agent as it is summed up.

    Args:
        outcome: How it ended; at least one decision led there.
        request: What was asked.
        evidence: All evidence it had.
        tools: The calls it made.
    """
    last = outcome.decisions[-1]
    verdict = last.verdict
    if verdict is not None and outcome.stop_reason is StopReason.SYNTHESISED and not outcome.fallback_answer:
        verdict = as_written(verdict)
    return FinishedRun(
        request=request,
        stop_reason=outcome.stop_reason,
        stop_branch=last.branch,
        verdict=verdict,
        unresolved=outcome.unresolved,
        evidence=tuple(evidence),
        tools=tuple(tools),
        rounds=outcome.rounds,
    )


def summarise(run: FinishedRun, *, identity: str, model: str, ended_at: datetime) -> RuntimeStateObject:
    """Return the object that is kept of a run; every text in it is bounded.

    Args:
        run: The run.
        identity: Id of the object; no other has it.
        model: Name of the model that ran; empty: not known.
        ended_at: When it ended, with its time zone.
    """
    verdict = None if isinstance(run.verdict, UnavailableVerdict) else run.verdict
    return RuntimeStateObject(
        id=identity,
        # Half a surrogate pair, as a user's text may hold it, has no place in a database.
        request=bounded_text(run.request, _REQUEST_CHARS).encode("utf-8", "replace").decode(),
        slots=_slots(verdict, run),
        tools=_tools(run.tools),
        stop_reason=run.stop_reason,
        stop_branch=run.stop_branch,
        confidence=verdict.confidence if verdict else 0.0,
        rounds=run.rounds,
        model=plain_line(model, _NAME_CHARS),
        created_at=ended_at,
    )


def _slots(verdict: Verdict | None, run: FinishedRun) -> tuple[SlotTrace, ...]:
    slots = verdict.slots if verdict else ()
    traces = [
        SlotTrace(name=plain_line(slot.name, _NAME_CHARS), state=slot.state, closed_by=_closed_by(slot, run.evidence))
        for slot in slots
    ]
    named = {slot.name for slot in slots}
    traces += [
        SlotTrace(name=plain_line(name, _NAME_CHARS), state=SlotState.MISSING)
        for name in run.unresolved
        if name not in named
    ]
    return tuple(trace for trace in traces if trace.name)[:_MOST_SLOTS]


def _closed_by(slot: Slot, evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """Return the tools whose results hold the slot's quote: those it cites, else any; none without a quote."""
    if slot.state not in _COVERED or not slot.quote.strip():
        return ()
    holding = [piece for piece in evidence if supports(slot.quote, piece)]
    cited = [piece for piece in holding if piece.id in slot.evidence]
    tools = (plain_line(piece.tool, _NAME_CHARS) for piece in cited or holding)
    return tuple(dict.fromkeys(tool for tool in tools if tool))[:_MOST_TOOLS]


def _tools(uses: Sequence[ToolUse]) -> tuple[ToolTrace, ...]:
    calls = Counter(use.tool for use in uses)
    errors = Counter(use.tool for use in uses if use.in_vain)
    return tuple(
        ToolTrace(name=plain_line(tool, _NAME_CHARS), calls=count, errors=errors[tool])
        for tool, count in calls.most_common(_MOST_TOOLS)
    )
