"""Every text this package puts before the model of an agent, and the texts it writes itself when there is no model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from agentloop_autogen.core.normalise import bounded_text
from agentloop_autogen.core.records import ControlBranch, Evidence, Verdict
from agentloop_autogen.core.rounds import ToolCall

__all__ = [
    "TURN_AGAIN",
    "Standing",
    "answer_prompt",
    "budget_exceeded_result",
    "cancelled_result",
    "earlier_exchange",
    "failure_text",
    "fallback_text",
    "nudge",
    "open_slots_note",
    "plain_answer_prompt",
    "reflection",
    "repeated_call_result",
    "timed_out_result",
    "unresolved_note",
]

TURN_AGAIN = "It is your turn again, and nobody has spoken since. Go on with the request."
"""Stands last where the conversation ends with the agent's own words."""
_SHOWN_CALLS = 6
_SHOWN_ARGUMENT_CHARS = 120
_SHOWN_NEWEST_CHARS = 300
_FALLBACK_FINDING_CHARS = 300
_LEAST_FINDING_CHARS = 40
_FALLBACK_CHARS = 4_000


@dataclass(frozen=True)
class Standing:
    """Where the slots stand when an answer is written."""

    settled: Sequence[tuple[str, str]] = ()
    """Names of slots the evidence covers, with the quotes that do."""
    unresolved: Sequence[str] = ()


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _open(verdict: Verdict | None) -> str:
    unresolved = verdict.unresolved if verdict else ()
    return f"Still open: {_names(unresolved)}." if unresolved else ""


def _lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def _tried(tried: Sequence[tuple[ToolCall, int]]) -> str:
    if not tried:
        return ""
    shown = [
        f"{call.name}({bounded_text(call.arguments, _SHOWN_ARGUMENT_CHARS)})" + (f" {count} times" if count > 1 else "")
        for call, count in tried[:_SHOWN_CALLS]
    ]
    more = f" and {len(tried) - _SHOWN_CALLS} more" if len(tried) > _SHOWN_CALLS else ""
    return f"Already tried: {'; '.join(shown)}{more}."


def _unused(unused_tools: Sequence[str], closers: Sequence[str]) -> str:
    return _lines(f"Tools not used yet: {_names(unused_tools)}." if unused_tools else "", _closed_by(closers))


def _closed_by(closers: Sequence[str]) -> str:
    return f"Of use for requests like this one, and not called yet: {_names(closers)}." if closers else ""


def earlier_exchange(question: str, answer: str) -> str:
    """Return the exchange a follow-up refers to, as it precedes the request of the answer call."""
    return f"(Asked before: {question}\nAnswered before: {answer})\n"


def reflection(
    verdict: Verdict | None,
    branch: ControlBranch,
    *,
    blank: bool,
    markup: bool,
    unused_tools: Sequence[str],
    looked_up: bool = True,
    closers: Sequence[str] = (),
) -> str:
    """Return what the model is told when its text is not the answer yet.

    `closers` are those of the unused tools that closed similar requests.
    """
    if markup:
        opening = "Your last reply was a tool call written as text, so nothing was run. Use the tool interface itself."
    elif blank:
        opening = "Your last reply was empty."
    elif branch is ControlBranch.VERIFIER_RETRY:
        opening = "The results contradict each other. Check them with another call, or state both and say so."
    else:
        opening = "This does not answer the request in full yet."
    closing = "Call the tool that gives what is missing, or write the complete answer from the results you have."
    if not looked_up:
        opening = "No tool was called for this answer, so nothing in it is known to be true."
        closing = "Call the tool that gives what is missing. If no tool can, give the same answer again."
    return _lines(
        opening, _open(verdict), _unused(unused_tools, closers) if verdict and verdict.unresolved else "", closing
    )


def nudge(
    verdict: Verdict | None,
    *,
    tried: Sequence[tuple[ToolCall, int]],
    unused_tools: Sequence[str],
    rounds: int,
    closers: Sequence[str] = (),
) -> str:
    """Return the one warning a run gets: the open slots, what was tried, and what was not.

    `closers` are those of the unused tools that closed similar requests.
    """
    return _lines(
        f"The last {rounds} rounds brought nothing new.",
        _open(verdict),
        _tried(tried),
        _unused(unused_tools, closers),
        "Do not repeat these calls. Try something different once, or answer from what is known and say what is not.",
    )


def open_slots_note(
    verdict: Verdict | None,
    branch: ControlBranch,
    *,
    in_vain: bool = False,
    repeated: int = 0,
    newest: Evidence | None = None,
    unused_tools: Sequence[str] = (),
    closers: Sequence[str] = (),
) -> str:
    """Return the short note that follows tool results while something is open or repeated; empty if nothing is.

    `in_vain` says that every call of the round failed or came back empty, `repeated` how often all of them were made by
    now with the same results, if they were; `newest` is the latest evidence there is, and `closers` are unused tools
    that closed similar requests.
    """
    if branch is ControlBranch.VERIFIER_RETRY and not repeated:
        return _lines("The results contradict each other; check them with another call.", _open(verdict))
    if repeated:
        said = _repeated(repeated, newest, in_vain=in_vain)
    elif verdict is None or not verdict.unresolved:
        return ""
    else:
        said = "These calls gave nothing, and would give nothing again. Try another way." if in_vain else ""
    return _lines(_open(verdict), said, _unused(unused_tools, closers))


def _repeated(times: int, newest: Evidence | None, *, in_vain: bool) -> str:
    made = f"You have now made the same calls {times} times"
    if not in_vain:
        return f"{made}, and they gave the same each time. Call something else, or answer from the results."
    # A small model that goes back to a call that failed has passed over what it found since.
    found = " ".join(newest.finding.split()) if newest else ""
    return _lines(
        f"{made}, and they failed in the same way each time. Change them.",
        f"{newest.tool} gave: {bounded_text(found, _SHOWN_NEWEST_CHARS)}" if newest else "",
    )


def _render_evidence(evidence: Sequence[Evidence], limit: int) -> str:
    if not evidence:
        return "(no tool results)"
    same: dict[tuple[str, bool, str], list[str]] = {}
    for piece in evidence:
        same.setdefault((piece.tool, piece.is_error, piece.finding), []).append(piece.id)
    share = max(400, limit // len(same))
    parts = [
        f"[{', '.join(ids)}] {tool}{' (failed)' if is_error else ''}: {bounded_text(finding, share)}"
        for (tool, is_error, finding), ids in same.items()
    ]
    return bounded_text("\n".join(parts), limit)


def _answer_rules(standing: Standing, *, structured: bool) -> str:
    form = "" if structured else "in plain text, "
    return _lines(
        f"Answer the request now, {form}from the results above only. Call no tools and invent nothing."
        " If results contradict each other, give both.",
        _standing(standing),
    )


def _standing(standing: Standing) -> str:
    if not standing.unresolved:
        return ""
    # A small model asked about a gap writes about nothing else, so what is known is put before it.
    found = "; ".join(f"{name} ({quote.rstrip('.')})" for name, quote in standing.settled)
    return _lines(
        f"State what is known: {found}." if found else "",
        f"Say that this could not be found, and claim nothing about it: {_names(standing.unresolved)}.",
        "Write whole sentences.",
    )


def _schema_rules(output_type: type[BaseModel] | None) -> str:
    if output_type is None:
        return ""
    schema = json.dumps(output_type.model_json_schema(), ensure_ascii=False)
    return f"Write the answer as one JSON object that fits this schema, and nothing else:\n{schema}"


def answer_prompt(
    request: str,
    evidence: Sequence[Evidence],
    *,
    draft: str,
    standing: Standing,
    limit: int,
    output_type: type[BaseModel] | None,
    guided: bool,
) -> str:
    """Return the request of the answer call: question, bounded evidence, draft, rules; volatile parts last."""
    return _lines(
        f"Request:\n{request}",
        f"Tool results:\n{_render_evidence(evidence, limit)}",
        f"Draft so far:\n{bounded_text(draft, limit // 2)}" if draft else "",
        _answer_rules(standing, structured=output_type is not None),
        "" if guided else _schema_rules(output_type),
    )


def plain_answer_prompt(
    request: str,
    evidence: Sequence[Evidence],
    *,
    standing: Standing,
    limit: int,
    problem: str,
    output_type: type[BaseModel] | None,
) -> str:
    """Return the second shape of the answer call: rules first, half the evidence, the question last, brief."""
    return _lines(
        "You are given results that were already looked up. Reply with the answer to the question in a few sentences.",
        f"A first attempt did not work ({problem})." if problem else "",
        f"Known:\n{_render_evidence(evidence, limit // 2)}",
        _standing(standing),
        _schema_rules(output_type),
        f"Question:\n{request}",
    )


def unresolved_note(unresolved: Sequence[str]) -> str:
    """Return the sentence added to a reply that does not name its open slots itself."""
    return f"Not established: {_names(unresolved)}."


def _unfinished(draft: str) -> str:
    return f"As far as it got:\n{bounded_text(draft, _FALLBACK_CHARS // 2)}" if draft else ""


def _known(evidence: Sequence[Evidence]) -> str:
    # Every result is mentioned, so the more there are, the less is said of each.
    share = min(_FALLBACK_FINDING_CHARS, max(_LEAST_FINDING_CHARS, _FALLBACK_CHARS // 2 // max(1, len(evidence))))
    findings = [
        f"- {e.tool}: {bounded_text(' '.join(e.finding.split()), share)}"
        for e in evidence
        if not e.is_error and e.finding.strip()
    ]
    failed = dict.fromkeys(e.tool for e in evidence if e.is_error)
    return _lines(
        "What was found:" if findings else "",
        *dict.fromkeys(findings),
        f"These tools failed: {_names(list(failed))}." if failed else "",
    )


def fallback_text(evidence: Sequence[Evidence], unresolved: Sequence[str], *, problem: str, draft: str) -> str:
    """Return the answer made of draft and evidence, where no model could write one; bounded, covering every round."""
    text = _lines(
        f"The answer could not be finished ({problem})." if draft else f"No answer could be written ({problem}).",
        _unfinished(draft),
        _known(evidence),
        unresolved_note(unresolved) if unresolved else "",
    )
    return bounded_text(text, _FALLBACK_CHARS)


def failure_text(problem: str, evidence: Sequence[Evidence], unresolved: Sequence[str], *, draft: str) -> str:
    """Return the reply of a run in which planning failed: what failed, and what is known all the same."""
    text = _lines(
        f"The request could not be completed: {problem}.",
        _unfinished(draft),
        _known(evidence),
        unresolved_note(unresolved) if unresolved else "",
    )
    return bounded_text(text, _FALLBACK_CHARS)


def repeated_call_result(content: str) -> str:
    """Return the result of an identical call of the same round that was not run again."""
    return f"Not run again, the same call was already made in this round. Its result: {bounded_text(content, 200)}"


def budget_exceeded_result() -> str:
    """Return the result of a call the tool-call budget forbids."""
    return "Error: not run, the tool-call budget of this run is used up"


def timed_out_result() -> str:
    """Return the result of a call that was still running when the run's time was over."""
    return "Error: stopped, the time of this run is over"


def cancelled_result() -> str:
    """Return the result of a call that was still running when the run was cancelled."""
    return "Error: stopped, the run was cancelled"
