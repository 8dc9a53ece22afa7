"""A recorded run of any agent, in the one form that metrics, replay and report read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from agentloop_autogen.core.records import Decision, LoopOutcome, RequestUsage
from agentloop_autogen.core.rounds import Round, ToolCall, ToolResult

__all__ = ["Trace", "TraceRound"]


@dataclass(frozen=True, kw_only=True)
class TraceRound:
    """One model reply with the tools it ran."""

    text: str = ""
    """What the model wrote: a thought where it also called tools, else an answer."""
    calls: tuple[ToolCall, ...] = ()
    """The calls it asked for, in order."""
    results: tuple[ToolResult, ...] = ()
    """What came back, each with its call; fewer than `calls` where some never ran."""
    reward: float | None = None
    """How good the state after this round was, from 0 to 1; None: not recorded."""
    turn: int | None = None
    """Which user turn it belongs to; None: not recorded."""
    decision: Decision | None = None
    """What a controller decided after it, where the run had one."""
    usage: RequestUsage | None = None
    """Tokens of its planning call; None: not recorded."""

    @cached_property
    def as_round(self) -> Round:
        """The round as the controller takes it in; text beside calls is a thought, not a draft."""
        return Round(draft="" if self.calls else self.text, results=self.results)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One request with everything that was done for it."""

    id: str
    source: str
    """Where it is from: a data set, or the name of a log file."""
    model: str
    request: str
    rounds: tuple[TraceRound, ...]
    final: str = ""
    """The answer as the user got it; empty: none, or not recorded."""
    correct: bool | None = None
    """Whether the request was solved; None: nobody judged."""
    completed: bool = True
    """Whether the run ended without a fault of its own (ok_i of eq. 13)."""
    outcome: LoopOutcome | None = None
    """How a controlled run ended; None: it had no controller, or nobody kept it."""
    usage: RequestUsage | None = None
    """Tokens of the whole request, all roles; None: not recorded."""
    elapsed_s: float | None = None
    """Wall seconds of the request; None: not recorded."""
    first_token_s: float | None = None
    """Seconds until the first token of the answer; None: not recorded."""
    verifier_s: float | None = None
    """Seconds spent in verification; None: not recorded."""
    verdict_label: bool | None = None
    """Whether a judge holds the request to have been closed when it ended; what verifier precision is measured by."""

    @property
    def tool_calls(self) -> int:
        """Calls the model asked for (u_i)."""
        return sum(len(round_.calls) for round_ in self.rounds)

    @cached_property
    def turns(self) -> tuple[tuple[TraceRound, ...], ...]:
        """The rounds by user turn; rounds of different turns are never compared.

        Where no turn is recorded, a reply without calls is taken to have gone to the user, whose answer begins the next
        turn; the same reply over again is taken for an agent that talks to itself.
        """
        turns: list[list[TraceRound]] = []
        for round_ in self.rounds:
            if turns and not _answered(turns[-1][-1], round_):
                turns[-1].append(round_)
            else:
                turns.append([round_])
        return tuple(map(tuple, turns))

    @property
    def has_pending_call(self) -> bool:
        """Whether the last message still waits for a tool result."""
        return bool(self.rounds) and len(self.rounds[-1].results) < len(self.rounds[-1].calls) and not self.final

    @property
    def rounds_answer(self) -> str:
        """The text of the last round where it called no tool, else nothing."""
        return "" if not self.rounds or self.rounds[-1].calls else self.rounds[-1].text

    @property
    def answer(self) -> str:
        """The final answer; where none was recorded, the last text that came without calls."""
        return self.final or self.rounds_answer


def _answered(before: TraceRound, after: TraceRound) -> bool:
    """Whether the user spoke between two neighbouring rounds."""
    if before.turn is not None or after.turn is not None:
        return before.turn != after.turn
    return not before.calls and (bool(after.calls) or after.text.strip() != before.text.strip())
