"""Runs as AutoGen's AgentChat shows them: a task result, an array of messages, or a message a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from agentloop_autogen.core.records import ControlAction, Decision, LoopOutcome, RequestUsage, StopReason
from agentloop_autogen.diagnostics.formats.agent_messages import AgentRun
from agentloop_autogen.diagnostics.formats.fields import (
    FormatError,
    as_text,
    completed_of,
    flag,
    is_list,
    is_object,
    objects,
    record_of,
    text,
)
from agentloop_autogen.diagnostics.formats.pairing import call_id, ends_with_final, result_ids, rounds_by_turn
from agentloop_autogen.diagnostics.formats.place import MAX_BYTES, Place
from agentloop_autogen.diagnostics.formats.record import identity
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["AgentLines", "TaskResultLike", "autogen_from", "read_task_result", "trace_of"]

_METADATA = "agentloop."
_AGENT = "assistant"


@runtime_checkable
class _Dumps(Protocol):
    def model_dump(self, *, mode: str) -> dict[str, object]: ...


class TaskResultLike(Protocol):
    """AutoGen's `TaskResult`, or anything else with its messages."""

    @property
    def messages(self) -> Sequence[object]:
        """The messages of the run in order: AutoGen's, or JSON objects of them."""
        ...


def trace_of(
    result: TaskResultLike,
    *,
    model: str = "",
    source: str = "",
    correct: bool | None = None,
    outcome: LoopOutcome | None = None,
) -> Trace:
    """Make a trace of a run that has just ended, for a program that logs its own runs.

    Args:
        result: What the run of an agent or a team returned.
        model: Name of the model; AutoGen's messages do not carry it. Empty: not known.
        source: What the runs of this program are called together. Empty: not named.
        correct: Whether the request was solved. None: nobody judged.
        outcome: `last_outcome` of the agent. None: what the reply and the control events say of it, if anything.

    Returns:
        The trace; its id is that of the run's first message.

    Raises:
        ValueError: A message is not what a message of its type must be.
    """
    run = AgentRun()
    first = ""
    for message in result.messages:
        data = message.model_dump(mode="json") if isinstance(message, _Dumps) else message
        if not is_object(data):
            raise FormatError(f"expected messages of AutoGen or JSON objects, found {type(message).__name__}")
        first = first or text(data, "id")
        run.take(data)
    trace = _trace_from(run, id_=first, source=source)
    return replace(_with_outcome(trace, outcome), model=model, correct=correct)


def read_task_result(document: Mapping[str, object], place: Place) -> Trace:
    """Read a document with AutoGen's messages: one trace, in which every later user message begins a turn.

    Args:
        document: The JSON object; `id`, `source`, `model`, `correct` and `outcome` count as well.
        place: Where it stands.

    Returns:
        The trace.

    Raises:
        FormatError: A field is not what it must be.
    """
    run = AgentRun()
    for message in objects(document, "messages"):
        run.take(message)
    trace = _trace_from(run, id_=identity(document, place), source=text(document, "source") or place.source)
    trace = _with_outcome(trace, record_of(LoopOutcome, document, "outcome"))
    return replace(trace, model=text(document, "model"), correct=flag(document, "correct"))


class AgentLines:
    """Gathers messages that stand one by one, as `run_stream` gives them."""

    def __init__(self) -> None:
        self._run = AgentRun()
        self._place: Place | None = None
        self._size = 0
        self._last: Mapping[str, object] | None = None

    def feed(self, message: Mapping[str, object], place: Place) -> Trace | None:
        """Take the next message.

        What a user says after a reply begins the next trace, unless a human was asked for it just before.

        Args:
            message: The message.
            place: Where it stands.

        Returns:
            The trace that ends before it; None: it goes on.

        Raises:
            FormatError: It is no message, or one too many for the trace it belongs to.
        """
        starts = self._run.answered and self._run.from_user(message) and not self._run.asks_user
        done = self.finish() if starts else None
        self._place = self._place or place
        if message.get("type") != "ModelClientStreamingChunkEvent":
            self._size += place.size
            self._last = message
        if self._size > MAX_BYTES:
            raise FormatError(f"a message of a run larger than {MAX_BYTES // 2**20} MiB was left out")
        self._run.take(message)
        return done

    def repeats(self, document: Mapping[str, object]) -> bool:
        """Return whether a task result is the one that ends the stream just read."""
        messages = document.get("messages")
        return self._last is not None and is_list(messages) and bool(messages) and messages[-1] == self._last

    def finish(self) -> Trace | None:
        """Return the trace gathered so far; None: nothing was."""
        run, place = self._run, self._place
        self._run, self._place, self._size, self._last = AgentRun(), None, 0, None
        if place is None or (run.conversation.empty and not run.answered):
            return None
        return _trace_from(run, id_=place.id, source=place.source)


def _trace_from(run: AgentRun, *, id_: str, source: str) -> Trace:
    outcome = _outcome(run)
    conversation = run.conversation
    return Trace(
        id=id_,
        source=source,
        model="",
        request=conversation.request,
        rounds=conversation.closed(),
        final=run.final,
        completed=completed_of(outcome),
        outcome=outcome,
        usage=run.usage,
        elapsed_s=run.elapsed_s,
        first_token_s=run.first_token_s,
    )


def _with_outcome(trace: Trace, outcome: LoopOutcome | None) -> Trace:
    """Give a trace the outcome that was kept beside its messages, which knows more than they do."""
    if outcome is None:
        return trace
    return replace(
        trace,
        outcome=outcome,
        completed=completed_of(outcome),
        elapsed_s=outcome.elapsed_s or trace.elapsed_s,
        verifier_s=outcome.verifier_s or None,
    )


def _outcome(run: AgentRun) -> LoopOutcome | None:
    """Put together what the reply and the decisions say; counts of retries are not known, so they are the least."""
    try:
        reason = StopReason(run.metadata.get(f"{_METADATA}stop_reason"))
    except ValueError:
        return None
    last: Decision | None = run.decisions[-1] if run.decisions else None
    written = last is not None and last.action is ControlAction.ANSWER_SYNTHESIS
    rounds = run.conversation.rounds
    counted = run.metadata.get(f"{_METADATA}rounds", "")
    spent = dict(run.spent)
    if written and run.reply_usage is not None:
        spent["synthesis"] = run.reply_usage
    return LoopOutcome(
        stop_reason=reason,
        slots=last.verdict.slots if last and last.verdict else (),
        unresolved=_unresolved(run.metadata),
        rounds=int(counted) if counted.isdecimal() and len(counted) < 10 else len(rounds),
        model_calls=len(rounds),
        verifier_calls=sum(decision.verified for decision in run.decisions),
        synthesis_calls=int(written),
        tool_calls=sum(len(round_.results) for round_ in rounds),
        usage=spent,
        decisions=tuple(run.decisions),
        elapsed_s=run.elapsed_s or 0.0,
    )


def _unresolved(metadata: Mapping[str, str]) -> tuple[str, ...]:
    try:
        names: object = json.loads(metadata.get(f"{_METADATA}unresolved", "[]"))
        return tuple(as_text(name) for name in names) if is_list(names) else ()
    except (ValueError, RecursionError):
        return ()


# --- writing -------------------------------------------------------------------------------------------------------


def autogen_from(trace: Trace) -> dict[str, object]:
    """Put a trace into the form of a task result; rewards and times have no place in it.

    Args:
        trace: Any trace.

    Returns:
        Plain data, ready for JSON; AutoGen can load its messages.
    """
    messages: list[dict[str, object]] = [_message("TextMessage", trace.request, source="user")]
    spoken = 0
    last = len(trace.rounds) if ends_with_final(trace) and trace.final else 0
    for turn, number, round_ in rounds_by_turn(trace):
        if turn != spoken:
            # What the user said then is not kept in a trace; that somebody spoke is.
            messages.append(_message("TextMessage", "", source="user"))
            spoken = turn
        messages += _round_messages(round_, number, is_final=number == last)
    if not ends_with_final(trace):
        messages.append(_message("TextMessage", trace.final))
    document: dict[str, object] = {"messages": messages, "stop_reason": None}
    document |= {"id": trace.id, "source": trace.source, "model": trace.model, "correct": trace.correct}
    if trace.outcome is not None:
        document["outcome"] = trace.outcome.model_dump(mode="json")
    return document


def _round_messages(round_: TraceRound, number: int, *, is_final: bool) -> list[dict[str, object]]:
    decision = [_decision_message(round_.decision)] if round_.decision is not None else []
    if not round_.calls and not round_.results:
        # A decided draft is sent behind its decision, and as a thought where the loop went on.
        kind = "TextMessage" if is_final or not decision else "ThoughtEvent"
        return [*decision, _message(kind, round_.text, usage=round_.usage or RequestUsage())]
    thought = [_message("ThoughtEvent", round_.text)] if round_.text else []
    calls = [
        {"id": call_id(number, index), "name": call.name, "arguments": call.arguments}
        for index, call in enumerate(round_.calls, start=1)
    ]
    asked = _message("ToolCallRequestEvent", calls, usage=round_.usage)
    results = [
        {"call_id": asked_id, "name": result.call.name, "content": result.content, "is_error": result.is_error}
        for result, asked_id in zip(round_.results, result_ids(round_, number), strict=True)
    ]
    returned = [_message("ToolCallExecutionEvent", results)] if results else []
    return [*thought, asked, *returned, *decision]


def _message(
    kind: str, content: object, *, source: str = _AGENT, usage: RequestUsage | None = None
) -> dict[str, object]:
    message: dict[str, object] = {"type": kind, "source": source, "content": content}
    if usage is not None:
        message["models_usage"] = usage.model_dump(mode="json")
    return message


def _decision_message(decision: Decision) -> dict[str, object]:
    return {"type": "ControlEvent", "source": _AGENT, "decision": decision.model_dump(mode="json")}
