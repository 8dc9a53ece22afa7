"""What a run shows while it goes on and at its end: the interface of a view, its words, and the view as plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from typing_extensions import assert_never

from agentloop_autogen.console.checks import Check
from agentloop_autogen.console.text import clean, one_line
from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    LoopOutcome,
    Slot,
    SlotState,
    StopReason,
    UnavailableVerdict,
)

if TYPE_CHECKING:
    from agentloop_autogen.diagnostics import Trace

__all__ = [
    "CallView",
    "Heading",
    "PlainView",
    "RoundView",
    "RunReport",
    "RunView",
    "SilentView",
    "action_words",
    "call_text",
    "cost_lines",
    "ending_words",
    "known_so_far",
    "reason_words",
    "score_words",
    "slots_of",
]

_LINE = 160


@dataclass(frozen=True, kw_only=True)
class CallView:
    """One tool call of a round, on one line, and its result on another."""

    name: str
    arguments: str
    result: str | None = None
    """None: it has not come back."""
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """One round as it is shown."""

    number: int
    speaker: str = ""
    """Whose round it was, in a team."""
    calls: tuple[CallView, ...] = ()
    thought: str = ""
    """What the model thought aloud."""
    draft: str = ""
    """The answer it wrote, where that was sent back."""
    decision: Decision | None = None
    tokens: int = 0
    """Prompt and completion tokens of all roles so far."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What a run is about, shown before it starts."""

    name: str
    title: str
    request: str
    model: str
    policy: str
    expected: str = ""
    """What a right run shows, in words."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """How a run ended."""

    answer: str
    outcome: LoopOutcome | None
    """None: it was stopped before it had one."""
    checks: tuple[Check, ...] = ()
    stopped_after: int | None = None
    """Finished rounds at the moment the user stopped it; None: nobody did."""
    last_decision: Decision | None = None
    trace: Trace | None = None
    """What was done, round by round; None if it was stopped."""

    @property
    def passed(self) -> bool:
        """Whether the run came to its end and showed what was expected."""
        return self.stopped_after is None and self.outcome is not None and all(check.passed for check in self.checks)


class RunView(Protocol):
    """Shows one run."""

    def start(self, heading: Heading) -> None:
        """Show what the run is about."""
        ...

    def doing(self, what: str) -> None:
        """Show what is running now."""
        ...

    def round(self, shown: RoundView) -> None:
        """Show a finished round, or the one that was under way when the run was stopped."""
        ...

    def finish(self, report: RunReport) -> None:
        """Show how the run ended."""
        ...

    def close(self) -> None:
        """Give the terminal back as it was; may be called twice."""
        ...


class SilentView:
    """Shows nothing."""

    def start(self, heading: Heading) -> None:
        """Show nothing."""

    def doing(self, what: str) -> None:
        """Show nothing."""

    def round(self, shown: RoundView) -> None:
        """Show nothing."""

    def finish(self, report: RunReport) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing is open."""


class PlainView:
    """Shows a run as lines without colour, for files, pipes and terminals that want no more.

    Args:
        write: Takes one line, without its end.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def start(self, heading: Heading) -> None:
        """Write what the run is about."""
        self._line(f"scenario {heading.name}: {heading.title}")
        self._line(f"request: {heading.request}", width=len(heading.request) + _LINE)
        self._line(f"model: {heading.model}; policy: {heading.policy}")
        if heading.expected:
            self._line(f"expected: {heading.expected}", width=2 * _LINE)

    def doing(self, what: str) -> None:
        """Write nothing: a line says what was done, once it is."""

    def round(self, shown: RoundView) -> None:
        """Write a round."""
        for line in _round_lines(shown):
            self._line(line)

    def finish(self, report: RunReport) -> None:
        """Write how the run ended."""
        if report.stopped_after is not None:
            self._line(f"stopped by you after round {report.stopped_after}")
            for label, words in known_so_far(report):
                self._line(f"{label}: {words}")
        for line in clean(report.answer).splitlines():
            self._write(f"answer: {line}")
        if report.outcome is not None:
            self._outcome(report.outcome)
        for check in report.checks:
            if not check.passed:
                self._line(f"not as expected: wanted {check.wanted}; seen: {check.seen}")
        if report.stopped_after is None:
            self._line(f"as expected: {'yes' if report.passed else 'no'}")

    def close(self) -> None:
        """Nothing is open."""

    def _outcome(self, outcome: LoopOutcome) -> None:
        self._line(f"left open: {', '.join(outcome.unresolved) or 'nothing'}")
        self._line(f"ended: {outcome.stop_reason.value}: {ending_words(outcome)}", width=2 * _LINE)
        for line in cost_lines(outcome):
            self._line(f"cost: {line}")

    def _line(self, text: str, *, width: int = _LINE) -> None:
        indent = len(text) - len(text.lstrip(" "))
        self._write(" " * indent + one_line(text, width))


def _round_lines(shown: RoundView) -> Iterator[str]:
    yield f"round {shown.number}" + (f", {shown.speaker}" if shown.speaker else "")
    for call in shown.calls:
        yield f"  call {call_text(call)}"
        if call.result is not None:
            yield f"    {'error' if call.failed else 'result'}: {call.result}"
    if shown.thought:
        yield f"  thought: {shown.thought}"
    if shown.draft:
        yield f"  draft sent back: {shown.draft}"
    if shown.decision is None:
        return
    for slot in slots_of(shown.decision):
        quote = f' "{slot.quote}"' if slot.quote else ""
        yield f"  slot {slot.state.value}: {slot.name}{quote}"
    action = action_words(shown.decision.action)
    yield f"  decision: {action} ({shown.decision.branch.value}); {shown.tokens:,} tokens so far"
    if scores := score_words(shown.decision):
        yield f"  signs: {scores}"
    if why := reason_words(shown.decision):
        yield f"  reason: {why}"


def call_text(call: CallView) -> str:
    """Write a call as one would in code.

    Args:
        call: The call.

    Returns:
        Its name and arguments, on one line.
    """
    return f"{one_line(call.name, _LINE)}({call.arguments})"


def slots_of(decision: Decision) -> tuple[Slot, ...]:
    """Take the slot table of a decision.

    Args:
        decision: The decision.

    Returns:
        Its verdict's slots; none where there is no verdict.
    """
    return decision.verdict.slots if decision.verdict else ()


def reason_words(decision: Decision) -> str:
    """Say why a decision was made.

    Args:
        decision: The decision.

    Returns:
        Its reason, with what kept the verifier from a verdict where there is none.
    """
    verdict = decision.verdict
    cause = verdict.cause if isinstance(verdict, UnavailableVerdict) else ""
    if not cause or cause in decision.reason:
        return decision.reason
    return f"{decision.reason} ({cause})" if decision.reason else cause


def known_so_far(report: RunReport) -> Iterator[tuple[str, str]]:
    """Say what a run that was stopped had found out.

    Args:
        report: How it ended.

    Yields:
        A label and the slot it stands for, with its passage where there is one.
    """
    for slot in slots_of(report.last_decision) if report.last_decision else ():
        match slot.state:
            case SlotState.SUPPORTED | SlotState.UNSYNTHESISED:
                yield "known", f'{slot.name}, "{slot.quote}"' if slot.quote else slot.name
            case SlotState.MISSING | SlotState.CONFLICTING | SlotState.EXHAUSTED:
                yield "still open", slot.name
            case _:
                assert_never(slot.state)


def action_words(action: ControlAction) -> str:
    """Say what the loop does next.

    Args:
        action: The action.

    Returns:
        A few words.
    """
    match action:
        case ControlAction.CONTINUE_INVOCATION:
            return "another round"
        case ControlAction.ANSWER_SYNTHESIS:
            return "write the answer"
        case ControlAction.TERMINATE_ITERATION:
            return "stop"
        case _:
            assert_never(action)


def score_words(decision: Decision) -> str:
    """Say how much a round resembled the one before, and what it was seen to be.

    Args:
        decision: The decision at its end.

    Returns:
        Similarities, stability and detector, on one line; empty where nothing was compared.
    """
    parts = list[str]()
    if decision.s_call is not None and decision.s_result is not None:
        parts += [f"calls {decision.s_call:.2f} alike", f"results {decision.s_result:.2f} alike"]
    if decision.stable is not None:
        parts.append("stable" if decision.stable else "still changing")
    if decision.detector is not None:
        parts.append(decision.detector.value.replace("_", " "))
    if decision.fruitless:
        parts.append(f"fruitless rounds in a row: {decision.fruitless}")
    return ", ".join(parts)


def ending_words(outcome: LoopOutcome) -> str:
    """Say why a run ended.

    Args:
        outcome: How it ended.

    Returns:
        One phrase, with the error where there is one.
    """
    unchecked = outcome.decisions and outcome.decisions[-1].branch is ControlBranch.MODEL_TEXT_BREAK
    words = "the model's own text, which nobody checked" if unchecked else _reason_words(outcome.stop_reason)
    return f"{words} ({outcome.error})" if outcome.error else words


def _reason_words(reason: StopReason) -> str:
    match reason:
        case StopReason.ANSWERED:
            return "the answer is complete and supported"
        case StopReason.SYNTHESISED:
            return "the evidence was in, so the answer was written from it"
        case StopReason.EXHAUSTED:
            return "nothing new came any more, so the answer names what is open"
        case StopReason.BUDGET:
            return "a limit on rounds, calls, tokens or time was reached"
        case StopReason.HANDOFF:
            return "another agent took over"
        case StopReason.FAILED:
            return "neither a verdict nor an answer could be had"
        case _:
            assert_never(reason)


def cost_lines(outcome: LoopOutcome) -> tuple[str, str]:
    """Say what a run cost.

    Args:
        outcome: How it ended.

    Returns:
        A line of rounds, calls and seconds, and one of tokens.
    """
    in_vain = f" ({outcome.dropped_calls} in vain)" if outcome.dropped_calls else ""
    calls = (
        f"{_counted(outcome.rounds, 'round')}, {_counted(outcome.tool_calls, 'tool call')}, model calls: "
        f"{outcome.model_calls} planning{in_vain}, {outcome.verifier_calls} verifier, "
        f"{outcome.synthesis_calls} answer; {outcome.elapsed_s:.1f} s"
    )
    by_role = ", ".join(
        f"{role} {used.prompt_tokens:,} in + {used.completion_tokens:,} out" for role, used in outcome.usage.items()
    )
    total = sum(used.total for used in outcome.usage.values())
    return calls, f"{total:,} tokens" + (f": {by_role}" if by_role else "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
