"""Whether a decision stops a team, and the words in which a team is told why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autogen_agentchat.messages import StopMessage
from autogen_core.models import RequestUsage as ModelUsage
from pydantic import BaseModel, Field
from typing_extensions import assert_never

from agentloop_autogen.core.budget import Budget, Limit, Role
from agentloop_autogen.core.config import LoopConfig, Policy
from agentloop_autogen.core.endings import stop_reason
from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    RequestUsage,
    StopReason,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.metadata import ending_metadata, verdict_metadata

__all__ = ["SOURCE", "Spent", "Stop", "spent_limit", "stop_for", "undecided"]

SOURCE: Final = "AgentLoopTermination"
_AFTER_NUDGE: Final = 2


class Spent(BaseModel):
    """What a conversation has used so far."""

    turns: int = Field(default=0, ge=0)
    tool_rounds: int = Field(default=0, ge=0)
    tool_calls: int = Field(default=0, ge=0)
    tokens: RequestUsage = RequestUsage()
    """Of all messages in the deltas."""
    verifier_calls: int = Field(default=0, ge=0)
    verifier_tokens: RequestUsage = RequestUsage()
    """Of the condition's own verifier."""
    elapsed_s: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Seconds, without the time a user took to answer."""

    @property
    def all_tokens(self) -> int:
        """Tokens of the conversation and of the condition's own verifier."""
        return self.tokens.total + self.verifier_tokens.total


@dataclass(frozen=True)
class Stop:
    """Why a team is to stop."""

    branch: ControlBranch
    words: str
    verdict: Verdict | None = None

    @property
    def reason(self) -> StopReason:
        """The stop reason."""
        return stop_reason(self.branch)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names of what stayed open."""
        if self.verdict is None:
            return ()
        return self.verdict.open_slots if self.reason is StopReason.ANSWERED else self.verdict.unresolved

    def message(self, spent: Spent) -> StopMessage:
        """Return the message a team stops with.

        Args:
            spent: What the conversation has used.
        """
        turns = f"{spent.turns} turn" + ("" if spent.turns == 1 else "s")
        still_open = f"; open: {', '.join(self.unresolved)}" if self.unresolved else ""
        content = f"{self.reason.value} ({self.branch.value}) after {turns}: {self.words}{still_open}"
        usage = spent.verifier_tokens
        return StopMessage(
            content=content,
            source=SOURCE,
            models_usage=ModelUsage(usage.prompt_tokens, usage.completion_tokens) if usage.total else None,
            metadata={
                **ending_metadata(self.reason, self.branch, rounds=spent.turns, unresolved=self.unresolved),
                **verdict_metadata(self.verdict),
                "agentloop.tool_rounds": str(spent.tool_rounds),
            },
        )


def undecided(verdict: Verdict | None) -> Verdict:
    """Return the verdict on a turn nobody judged: it closes nothing, asks for nothing, and forgets nothing.

    Args:
        verdict: The last one, for what is known to be open; None where there was none.
    """
    return Verdict(
        answer_complete=False,
        need_tool=False,
        confidence=0.0,
        missing=verdict.missing if verdict else (),
        slots=verdict.slots if verdict else (),
    )


def stop_for(decision: Decision, config: LoopConfig, *, draft: str) -> Stop | None:
    """Return why `decision` stops a team; None where the team goes on.

    An answer that is not written yet is no reason to stop, however complete the evidence: somebody is to write it, and
    has until patience runs out. Nor is a verdict without a draft that it could be about.

    Args:
        decision: The decision on the last turn.
        config: The settings of the loop.
        draft: What the turn said.
    """
    verdict = decision.verdict
    if isinstance(verdict, UnavailableVerdict):
        verdict = None
    if decision.branch is ControlBranch.EXHAUSTED_BREAK:
        return Stop(decision.branch, f"{decision.fruitless} turns in a row brought no new evidence", verdict)
    if (
        decision.action is ControlAction.TERMINATE_ITERATION
        and draft
        and decision.branch is not ControlBranch.NO_VERDICT
    ):
        return Stop(decision.branch, decision.reason, verdict)
    waits = config.policy is Policy.EXTENDED and config.two_strikes
    if decision.action is not ControlAction.CONTINUE_INVOCATION and waits:
        waited = decision.fruitless >= config.patience + _AFTER_NUDGE
        if waited:
            words = f"the evidence is in, and in {decision.fruitless} turns nobody wrote the answer"
            return Stop(ControlBranch.EXHAUSTED_BREAK, words, verdict)
    return None


def spent_limit(spent: Spent, config: LoopConfig) -> str:
    """Return which budget is used up, in words; empty where none is.

    Args:
        spent: What the conversation has used; no answer call is made here, so none is reserved.
        config: The limits.
    """
    budget = Budget(config, rounds=spent.turns, tool_calls=spent.tool_calls)
    for usage in (spent.tokens, spent.verifier_tokens):
        budget.spend_tokens(Role.AGENT, usage, characters=0)
    limit = budget.after_round(elapsed_s=0.0, reflects=False)
    if limit is None and spent.elapsed_s >= config.timeout_s:
        limit = Limit.TIME
    match limit:
        case None | Limit.REFLECTIONS:
            return ""
        case Limit.ROUNDS:
            return f"ran out of turns (max_rounds={config.max_rounds})"
        case Limit.TOKENS:
            return f"ran out of tokens (max_tokens={config.max_tokens})"
        case Limit.TOOL_CALLS:
            return f"ran out of tool calls (max_tool_calls={config.max_tool_calls})"
        case Limit.TIME:
            return f"ran out of time (timeout_s={config.timeout_s:g})"
        case _:
            assert_never(limit)
