"""What one trace shows: the counts every metric is made of. Pure, and linear in the bounded text of the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.novelty import NoveltyTracker
from agentloop_autogen.core.patterns import PatternTracker
from agentloop_autogen.core.records import ControlBranch, Decision, Detector, RequestUsage
from agentloop_autogen.core.rounds import RoundKey
from agentloop_autogen.core.stability import check_stability
from agentloop_autogen.diagnostics.low_value import answer_repeats_itself, neighbours_repeat
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = [
    "SOLVED",
    "Measures",
    "RoundMarks",
    "answers_repeat",
    "best_reward",
    "has_step_rewards",
    "mark_rounds",
    "measure",
    "recorded_decisions",
    "round_tokens",
    "rounds_in_vain",
]

CHARS_PER_TOKEN: Final = 4
"""Where a trace carries no token counts, four characters are taken as one token."""
_GATE: Final = LoopConfig(policy="paper")
SOLVED: Final = 1.0
"""The reward of a solved request."""


@dataclass(frozen=True, kw_only=True)
class RoundMarks:
    """What one round shows, seen against the rounds of its user turn before it."""

    news: bool
    """It brought new evidence."""
    idle: bool
    """It called tools, and neither new evidence nor a failure not met before came of it."""
    failed: bool
    """Every call of it came back as an error."""
    repeats_previous: bool
    """Same calls, same results and same text as the round before."""
    repeated_calls: int
    """Calls of it that had been made before with the same arguments."""
    stable: bool | None
    """G_stab against the round before (eq. 6, default thresholds); None in the first round of a turn."""
    detector: Detector | None
    """The pattern it completes, if any."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The counts of one request."""

    source: str
    model: str
    rounds: int
    turns: int
    tool_calls: int
    errors: int
    repeated_calls: int
    repeated_rounds: int
    idle_rounds: int
    has_cycle: bool
    has_error_streak: bool
    has_monologue: bool
    gate_checks: int
    stable_gates: int
    correct: bool | None
    inter_repeat: bool
    intra_repeat: bool
    without_content: bool
    """It calls tools, and the log holds neither arguments nor results, so that its rounds cannot be told apart."""
    returned: bool
    """The run ended well, with an answer, and with no call waiting (the terms of eq. 13)."""
    recorded_checks: int | None
    """Gate checks that the run's own controller made; None: the trace records no decisions."""
    recorded_stops: int | None
    """How many of them gave `stop_replanning`."""
    closed: bool | None
    """Whether the last recorded verdict says that the request is closed (eq. 3)."""
    verdict_label: bool | None
    model_calls: int
    input_tokens: int | None
    output_tokens: int | None
    estimated_tokens: int
    """Tokens of all planning calls: recorded, or estimated where they are not."""
    idle_tokens: int
    """Those of rounds that brought nothing."""
    elapsed_s: float | None
    first_token_s: float | None
    verifier_s: float | None
    redundant_rounds: int | None
    """Rounds after the one that first reached the best reward; None: no rewards recorded."""
    best_reward: float | None
    rewards_show_it: bool | None
    """Whether the rewards of a solved request say at which round it was solved; None: it was not solved."""


def measure(trace: Trace) -> Measures:
    """Return what one trace shows."""
    marks = mark_rounds(trace)
    detectors = {mark.detector for mark in marks}
    tokens = round_tokens(trace)
    checks, stops, closed = _control(recorded_decisions(trace))
    usage = _usage(trace)
    return Measures(
        source=trace.source,
        model=trace.model,
        rounds=len(trace.rounds),
        turns=len(trace.turns),
        tool_calls=trace.tool_calls,
        errors=sum(result.is_error for round_ in trace.rounds for result in round_.results),
        repeated_calls=sum(mark.repeated_calls for mark in marks),
        repeated_rounds=sum(mark.repeats_previous for mark in marks),
        idle_rounds=sum(mark.idle for mark in marks),
        has_cycle=Detector.CYCLE in detectors,
        has_error_streak=Detector.SAME_ERROR in detectors,
        has_monologue=Detector.MONOLOGUE in detectors,
        gate_checks=sum(mark.stable is not None for mark in marks),
        stable_gates=sum(bool(mark.stable) for mark in marks),
        correct=trace.correct,
        inter_repeat=answers_repeat(trace),
        intra_repeat=answer_repeats_itself(trace.answer),
        without_content=_is_without_content(trace),
        returned=trace.completed and bool(trace.answer.strip()) and not trace.has_pending_call,
        recorded_checks=checks,
        recorded_stops=stops,
        closed=closed,
        verdict_label=trace.verdict_label,
        model_calls=_model_calls(trace),
        input_tokens=None if usage is None else usage.prompt_tokens,
        output_tokens=None if usage is None else usage.completion_tokens,
        estimated_tokens=sum(tokens),
        idle_tokens=sum(spent for spent, mark in zip(tokens, marks, strict=True) if mark.idle),
        elapsed_s=_elapsed_s(trace),
        first_token_s=trace.first_token_s,
        verifier_s=_verifier_s(trace),
        redundant_rounds=rounds_in_vain(trace.rounds),
        best_reward=best_reward(trace.rounds),
        rewards_show_it=has_step_rewards(trace) if trace.correct else None,
    )


def mark_rounds(trace: Trace) -> list[RoundMarks]:
    """Return what each round shows; rounds of different user turns are not compared."""
    marks: list[RoundMarks] = []
    for turn in trace.turns:
        memory = _TurnMemory()
        marks += [memory.mark(round_) for round_ in turn]
    return marks


@dataclass
class _TurnMemory:
    novelty: NoveltyTracker = field(default_factory=NoveltyTracker)
    patterns: PatternTracker = field(default_factory=PatternTracker)
    calls: set[tuple[str, int]] = field(default_factory=set["tuple[str, int]"])
    previous: RoundKey | None = None

    def mark(self, round_: TraceRound) -> RoundMarks:
        key = round_.as_round.key
        brought = [self.novelty.observe(result) for result in round_.results]
        news = any(novelty.news for novelty in brought)
        searching = news or any(novelty.new_failure for novelty in brought)
        previous, self.previous = self.previous, key
        return RoundMarks(
            news=news,
            idle=bool(round_.calls) and not searching,
            failed=bool(round_.results) and all(result.is_error for result in round_.results),
            repeats_previous=previous is not None and key.repeats(previous, masked=False),
            repeated_calls=self._repeated(key),
            stable=check_stability(previous, key, _GATE).stable,
            detector=self.patterns.observe(key, new_evidence=news),
        )

    def _repeated(self, key: RoundKey) -> int:
        repeated = 0
        for call in key.calls:
            made = (call.tool, call.signature)
            repeated += made in self.calls
            self.calls.add(made)
        return repeated


def round_tokens(trace: Trace) -> list[int]:
    """Return the tokens of each planning call, prompt and reply: as recorded, else by the length of the text.

    A prompt is estimated as the request and everything said and returned before it.
    """
    tokens: list[int] = []
    prompt = len(trace.request)
    for round_ in trace.rounds:
        written = len(round_.text) + sum(len(call.name) + len(call.arguments) for call in round_.calls)
        recorded = round_.usage.total if round_.usage is not None else 0
        tokens.append(recorded or (prompt + written) // CHARS_PER_TOKEN)
        prompt += written + sum(len(result.content) for result in round_.results)
    return tokens


def recorded_decisions(trace: Trace) -> Sequence[Decision]:
    """Return the decisions of the run's own controller, oldest first; none where it had none."""
    if trace.outcome is not None and trace.outcome.decisions:
        return trace.outcome.decisions
    return [round_.decision for round_ in trace.rounds if round_.decision is not None]


def _control(decisions: Sequence[Decision]) -> tuple[int | None, int | None, bool | None]:
    """Return the gate checks made, those that stopped the loop, and whether the last verdict is closed."""
    if not decisions:
        return None, None, None
    checks = [decision.branch for decision in decisions if decision.stable is not None]
    verdict = next((decision.verdict for decision in reversed(decisions) if decision.verdict is not None), None)
    return len(checks), checks.count(ControlBranch.STOP_REPLANNING), None if verdict is None else verdict.closed


def answers_repeat(trace: Trace) -> bool:
    """Return whether two adjacent answers of a trace say the same."""
    answers = [(round_.turn, round_.text) for round_ in trace.rounds if not round_.calls]
    if trace.final and trace.final != trace.rounds_answer:
        # A final answer that is a message of its own is one more answer round.
        answers.append((trace.rounds[-1].turn if trace.rounds else None, trace.final))
    return neighbours_repeat(answers)


def _usage(trace: Trace) -> RequestUsage | None:
    by_role = trace.outcome.usage.values() if trace.outcome is not None else ()
    return trace.usage or (sum(by_role, RequestUsage()) if by_role else None)


def _elapsed_s(trace: Trace) -> float | None:
    of_outcome = trace.outcome.elapsed_s if trace.outcome is not None else 0.0
    return trace.elapsed_s if trace.elapsed_s is not None else of_outcome or None


def _verifier_s(trace: Trace) -> float | None:
    if trace.verifier_s is not None or trace.outcome is None:
        return trace.verifier_s
    # An outcome that counts verifier calls but no time for them is from before the time was kept.
    return None if trace.outcome.verifier_calls and not trace.outcome.verifier_s else trace.outcome.verifier_s


def _is_without_content(trace: Trace) -> bool:
    said = (result.content for round_ in trace.rounds for result in round_.results)
    asked = (call.arguments.strip("{} ") for round_ in trace.rounds for call in round_.calls)
    return trace.tool_calls > 0 and not any(asked) and not any(said)


def _model_calls(trace: Trace) -> int:
    if trace.outcome is not None:
        return trace.outcome.model_calls + trace.outcome.synthesis_calls + trace.outcome.verifier_calls
    writes_apart = bool(trace.final) and bool(trace.rounds) and bool(trace.rounds[-1].calls)
    return len(trace.rounds) + writes_apart


def best_reward(rounds: Sequence[TraceRound]) -> float | None:
    """Return the best reward of the rounds; None where none is recorded."""
    return max((round_.reward for round_ in rounds if round_.reward is not None), default=None)


def rounds_in_vain(rounds: Sequence[TraceRound]) -> int | None:
    """Return how many rounds came after the one that first reached the best reward (after arXiv 2505.17616).

    All of them, where none was ever above 0; None where no rewards are recorded.
    """
    best = best_reward(rounds)
    if best is None:
        return None
    first = next(i for i, round_ in enumerate(rounds) if round_.reward == best)
    return len(rounds) - (first + 1 if best > 0 else 0)


def has_step_rewards(trace: Trace) -> bool:
    """Return whether the recorded rewards reach that of a solved request, and so say when it was solved."""
    return any(round_.reward is not None and round_.reward >= SOLVED for round_ in trace.rounds)
