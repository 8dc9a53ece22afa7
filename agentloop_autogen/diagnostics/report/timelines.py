"""One request as a report shows it round by round: texts cut to what a reader looks at."""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from agentloop_autogen.core.normalise import bounded_text
from agentloop_autogen.core.records import Decision, Detector, Slot
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics.loop_run import Replayed
from agentloop_autogen.diagnostics.low_value import answer_repeats_itself
from agentloop_autogen.diagnostics.measures import RoundMarks, answers_repeat, mark_rounds, recorded_decisions
from agentloop_autogen.diagnostics.report.data import RoundCell, SlotCell, Timeline, ToolCell
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["timeline_of"]

_REQUEST_CHARS: Final = 600
_ANSWER_CHARS: Final = 1_500
_TEXT_CHARS: Final = 800
_ARGUMENT_CHARS: Final = 400
_RESULT_CHARS: Final = 800
_MOST_ROUNDS: Final = 60
_MOST_TOOLS: Final = 20


def timeline_of(trace: Trace, replayed: Replayed) -> Timeline:
    """Return a trace with what the loop would have done with it.

    A round shows the decision that its own controller recorded; where it had none, the replayed one.
    """
    row = replayed.row
    recorded = recorded_decisions(trace)
    decisions = recorded or replayed.decisions
    marks = mark_rounds(trace)
    shown = trace.rounds[:_MOST_ROUNDS]
    failed = trace.tool_calls > 0 and trace.correct is False
    return Timeline(
        id=trace.id,
        source=trace.source,
        model=trace.model,
        request=bounded_text(trace.request, _REQUEST_CHARS),
        answer=bounded_text(trace.answer, _ANSWER_CHARS),
        solved=trace.correct,
        solved_after=row.solved_after,
        low_value=failed or answers_repeat(trace) or answer_repeats_itself(trace.answer),
        stopped_at=row.stopped_at,
        calls=row.calls,
        calls_saved=row.calls_saved,
        rounds=tuple(
            _round(round_, mark, decisions[index] if index < len(decisions) else None)
            for index, (round_, mark) in enumerate(zip(shown, marks, strict=False))
        ),
        rounds_left_out=len(trace.rounds) - len(shown),
    )


def _round(round_: TraceRound, mark: RoundMarks, decision: Decision | None) -> RoundCell:
    verdict = decision.verdict if decision else None
    pairs = zip_longest(round_.calls[:_MOST_TOOLS], round_.results[:_MOST_TOOLS])
    return RoundCell(
        text=bounded_text(round_.text, _TEXT_CHARS),
        tools=tuple(_tool(call, result) for call, result in pairs),
        reward=round_.reward,
        turn=round_.turn or 0,
        marks=_marks(mark),
        action=decision.action.value if decision else "",
        branch=decision.branch.value if decision else "",
        reason=decision.reason if decision else "",
        slots=tuple(map(_slot, verdict.slots)) if verdict else (),
    )


def _tool(call: ToolCall | None, result: ToolResult | None) -> ToolCell:
    asked = call or (result.call if result else ToolCall("", ""))
    return ToolCell(
        name=asked.name,
        arguments=bounded_text(asked.arguments, _ARGUMENT_CHARS),
        result=None if result is None else bounded_text(result.content, _RESULT_CHARS),
        is_error=result is not None and result.is_error,
    )


def _slot(slot: Slot) -> SlotCell:
    return SlotCell(name=slot.name, state=slot.state.value, quote=slot.quote)


def _marks(mark: RoundMarks) -> tuple[str, ...]:
    shows = {
        "news": mark.news,
        "error": mark.failed,
        "repeat": mark.repeated_calls > 0 or mark.repeats_previous,
        "stable": bool(mark.stable),
        "nothing_new": mark.idle,
    }
    found = [name for name, shown in shows.items() if shown]
    if mark.detector is not None and mark.detector is not Detector.NOTHING_NEW:
        found.append(mark.detector.value)
    return tuple(found)
