"""One recorded trace run through the loop: the loop of `Run.execute` with recorded rounds in place of calls.

Written as a generator that yields a question where a verdict is wanted and takes the verdict in return, so that the
same code serves a replay without a judge, with recorded verdicts, and with a model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from agentloop_autogen.core.budget import Budget, Role
from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.controller import LoopController
from agentloop_autogen.core.records import ControlAction, ControlBranch, Decision, Evidence, RequestUsage, Verdict
from agentloop_autogen.core.rounds import ToolResult
from agentloop_autogen.diagnostics.measures import SOLVED, best_reward, has_step_rewards, round_tokens, rounds_in_vain
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["Judge", "Question", "ReplayRow", "Replayed", "replay_steps", "replay_with"]


class Question(NamedTuple):
    """What a verdict is wanted on."""

    round: int
    """Index of the round in its trace."""
    request: str
    draft: str
    evidence: tuple[Evidence, ...]


Judge = Callable[[Question], Verdict]
"""Gives the verdict on a round."""


@dataclass(frozen=True, kw_only=True)
class ReplayRow:
    """What a loop setting would have done with one trace; fields can be read as keys too."""

    id: str
    source: str
    model: str
    stopped_at: int | None
    """Index of the round after which the loop ends the trace, from 0; None: it runs to its own end."""
    branch: ControlBranch | None
    """The rule that ends it; None where none does."""
    nudged_at: int | None
    """Index of the round after which the model is first warned; what it had done then, no record can tell."""
    rounds: int
    rounds_saved: int
    calls: int
    """Tool calls of the whole trace."""
    calls_saved: int
    """Tool calls after the stop."""
    tokens: int
    """Planning tokens of the whole trace, estimated by length where they are not recorded."""
    tokens_saved: int
    """Planning tokens after the stop; the call that writes the forced answer is not set against them."""
    solved: bool | None
    """Whether the trace was solved; None: nobody judged."""
    solved_after: bool | None
    """Whether it is still solved when it ends at the stop; None: the trace cannot say."""
    best_reward: float | None
    """Best reward of the whole trace; None: no rewards recorded."""
    best_reward_after: float | None
    """Best reward up to the stop."""
    redundant_rounds: int | None
    """Rounds after the one that first reached the best reward; None: no rewards recorded."""
    redundant_rounds_after: int | None
    """The same up to the stop."""

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {**asdict(self), "branch": None if self.branch is None else self.branch.value}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - fields have different types
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)


class Replayed(NamedTuple):
    """One replayed trace."""

    row: ReplayRow
    decisions: tuple[Decision, ...]
    """What the loop decides after each round up to the stop, in order."""


def replay_with(trace: Trace, loop: LoopConfig, judge: Judge) -> Replayed:
    """Replay one trace with a judge that answers at once."""
    steps = replay_steps(trace, loop)
    try:
        question = next(steps)
        while True:
            question = steps.send(judge(question))
    except StopIteration as end:
        return end.value


def replay_steps(trace: Trace, loop: LoopConfig) -> Generator[Question, Verdict, Replayed]:
    """Replay one trace; yields each question, takes its verdict, returns what the loop did.

    Each user turn is a run of its own, as it is for an agent. A run that ends with its last round as recorded is no
    stop, unless the loop would have forced an answer there.
    """
    decisions: list[Decision] = []
    tokens = round_tokens(trace)
    start = 0
    stopped_at: int | None = None
    for rounds in trace.turns:
        run = _RecordedRun(trace.request, loop, rounds, first=start, tokens=tokens[start : start + len(rounds)])
        ended = yield from run.execute()
        decisions += run.controller.decisions
        start += len(rounds)
        if ended is not None:
            stopped_at = ended
            break
    return Replayed(_row(trace, tokens, decisions, stopped_at), tuple(decisions))


@dataclass
class _RecordedRun:
    request: str
    loop: LoopConfig
    rounds: Sequence[TraceRound]
    first: int
    """Index of its first round in the trace."""
    tokens: Sequence[int]
    controller: LoopController = field(init=False)
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.controller = LoopController(self.loop, request=self.request)
        self.budget = Budget(self.loop)

    def execute(self) -> Generator[Question, Verdict, int | None]:
        """Return the index of the round that ends the trace; None where the turn ends by itself."""
        for index, round_ in enumerate(self.rounds, start=self.first):
            self.controller.observe(round_.as_round)
            verdict = None
            if self.controller.needs_verdict():
                evidence = tuple(self.controller.evidence)
                verdict = yield Question(index, self.request, self.controller.draft, evidence)
            decision = self._within_budget(self.controller.decide(verdict), round_, self.tokens[index - self.first])
            answered = not round_.calls and round_ is self.rounds[-1]
            if decision.action is not ControlAction.CONTINUE_INVOCATION and not answered:
                return index
        return None

    def _within_budget(self, decision: Decision, round_: TraceRound, tokens: int) -> Decision:
        self.budget.rounds += 1
        self.budget.tool_calls += len(round_.calls)
        self.budget.spend_tokens(Role.AGENT, RequestUsage(prompt_tokens=tokens), characters=0)
        if decision.action is not ControlAction.CONTINUE_INVOCATION:
            return decision
        limit = self.budget.after_round(elapsed_s=0.0, reflects=not round_.calls)
        self.budget.reflections += not round_.calls
        return decision if limit is None else self.controller.stop_for_budget(limit)


def _row(trace: Trace, tokens: Sequence[int], decisions: Sequence[Decision], stopped_at: int | None) -> ReplayRow:
    kept = len(trace.rounds) if stopped_at is None else stopped_at + 1
    rounds_kept = trace.rounds[:kept]
    nudges = (i for i, decision in enumerate(decisions) if decision.branch is ControlBranch.NUDGE)
    return ReplayRow(
        id=trace.id,
        source=trace.source,
        model=trace.model,
        stopped_at=stopped_at,
        branch=None if stopped_at is None else decisions[-1].branch,
        nudged_at=next(nudges, None),
        rounds=len(trace.rounds),
        rounds_saved=len(trace.rounds) - kept,
        calls=trace.tool_calls,
        calls_saved=sum(len(round_.calls) for round_ in trace.rounds[kept:]),
        tokens=sum(tokens),
        tokens_saved=sum(tokens[kept:]),
        solved=trace.correct,
        solved_after=_solved_after(trace, kept),
        best_reward=best_reward(trace.rounds),
        best_reward_after=best_reward(rounds_kept),
        redundant_rounds=rounds_in_vain(trace.rounds),
        redundant_rounds_after=rounds_in_vain(rounds_kept),
    )


def _solved_after(trace: Trace, kept: int) -> bool | None:
    """Whether a trace that ends after `kept` rounds is still solved.

    By its rewards where they say when it was solved. Else it is while the rounds cut off only repeat calls made
    before with the results they had before: the same was known and done at the stop.
    """
    if not trace.correct or kept == len(trace.rounds):
        return trace.correct
    if has_step_rewards(trace):
        return any(round_.reward is not None and round_.reward >= SOLVED for round_ in trace.rounds[:kept])
    done = {_deed(result) for round_ in trace.rounds[:kept] for result in round_.results}
    later = [result for round_ in trace.rounds[kept:] for result in round_.results]
    complete = all(len(round_.results) == len(round_.calls) for round_ in trace.rounds[kept:])
    return True if complete and all(_deed(result) in done for result in later) else None


def _deed(result: ToolResult) -> tuple[str, int, int]:
    return result.call.name, result.call.key.signature, result.signature
