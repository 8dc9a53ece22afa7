"""The control policy: ordered tables of branches, the first that applies decides (eq. 7, and two strikes before it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.records import ControlAction, ControlBranch, Failure, UnavailableVerdict, Verdict

__all__ = ["EXTENDED_TABLE", "PAPER_TABLE", "Rule", "Situation", "Strike", "select"]


class Strike(str, Enum):
    """What the fruitless rounds so far have led to in this round."""

    NONE = "none"
    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True)
class Situation:
    """Everything a branch may look at: one frozen snapshot at the end of a round."""

    verdict: Verdict
    stable: bool
    config: LoopConfig
    strike: Strike = Strike.NONE

    @property
    def ready(self) -> bool:
        """Whether the paper's table ends the run here anyway: there is no use in striking it then."""
        return select(PAPER_TABLE, self).action is not ControlAction.CONTINUE_INVOCATION


@dataclass(frozen=True)
class Rule:
    """One row of a policy table."""

    branch: ControlBranch
    applies: Callable[[Situation], bool]
    action: ControlAction
    reason: str


def _only_unwritten(s: Situation) -> bool:
    v = s.verdict
    return v.failure is Failure.ANSWER_INCOMPLETE and not v.need_tool and not v.missing


def _something_missing(s: Situation) -> bool:
    return s.verdict.need_tool or bool(s.verdict.missing)


def _conflicting(s: Situation) -> bool:
    return s.verdict.failure is Failure.TOOL_CONFLICT


def _unstable_tools(s: Situation) -> bool:
    return s.verdict.failure is Failure.TOOL_SET_UNSTABLE


def _unsure(s: Situation) -> bool:
    return s.verdict.failure is Failure.LOW_CONFIDENCE and s.verdict.confidence < s.config.tau_retry


def _closed_and_stable(s: Situation) -> bool:
    return s.verdict.closed and s.stable and s.verdict.failure is Failure.OK


def _closed_and_confident(s: Situation) -> bool:
    return s.verdict.closed and _confident(s)


def _confident(s: Situation) -> bool:
    return s.verdict.confidence >= s.config.tau_gate


def _second_strike(s: Situation) -> bool:
    return s.strike is Strike.SECOND and not s.ready


def _first_strike(s: Situation) -> bool:
    return s.strike is Strike.FIRST and not s.ready


def _no_verdict(s: Situation) -> bool:
    return isinstance(s.verdict, UnavailableVerdict)


def _always(s: Situation) -> bool:
    return True


_CI = ControlAction.CONTINUE_INVOCATION
_AS = ControlAction.ANSWER_SYNTHESIS
_TI = ControlAction.TERMINATE_ITERATION
_B = ControlBranch

# A table reads by its columns.
# fmt: off
PAPER_TABLE: tuple[Rule, ...] = (
    Rule(_B.NEED_TOOL_ROUND,              _something_missing,    _CI, "information is still missing"),
    Rule(_B.VERIFIER_RETRY,               _conflicting,          _CI, "the evidence contradicts itself"),
    Rule(_B.ROLLBACK_RETRY,               _unstable_tools,       _CI, "the tools in use keep changing"),
    Rule(_B.ROLLBACK_RETRY,               _unsure,               _CI, "the verifier is unsure"),
    Rule(_B.INTEGRATE_ANSWER_RETRY_BREAK, _only_unwritten,       _AS, "the evidence is in, the answer is unwritten"),
    Rule(_B.STOP_REPLANNING,              _closed_and_stable,    _TI, "the answer is complete and nothing changes"),
    Rule(_B.SKIP_DECODE_OUTPUT_BREAK,     _closed_and_confident, _TI, "the answer is complete and supported"),
    Rule(_B.SKIP_DECODE_OUTPUT,           _confident,            _CI, "the answer is not complete"),
    Rule(_B.KEEP_DECODE,                  _always,               _CI, "nothing decides yet"),
)
"""Eq. 7 to the letter: branch, condition, action."""

EXTENDED_TABLE: tuple[Rule, ...] = (
    Rule(_B.EXHAUSTED_BREAK,              _second_strike,        _AS, "nothing new came after the nudge either"),
    Rule(_B.NUDGE,                        _first_strike,         _CI, "nothing new came for several rounds"),
    Rule(_B.NO_VERDICT,                   _no_verdict,           _CI, "there is no verdict"),
    *PAPER_TABLE,
)
"""The paper's table behind the two strikes."""
# fmt: on


def select(table: tuple[Rule, ...], situation: Situation) -> Rule:
    """Return the first rule of `table` that applies to `situation`; the last row of every table always does."""
    return next(rule for rule in table if rule.applies(situation))
