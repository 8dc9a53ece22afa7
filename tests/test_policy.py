"""The policy tables, row by row."""

from __future__ import annotations

import itertools

import pytest

from agentloop_autogen import (
    ControlAction,
    ControlBranch,
    Failure,
    LoopConfig,
    Slot,
    SlotState,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.core.endings import stop_reason
from agentloop_autogen.core.policy import EXTENDED_TABLE, PAPER_TABLE, Situation, Strike, select

CI = ControlAction.CONTINUE_INVOCATION
AS = ControlAction.ANSWER_SYNTHESIS
TI = ControlAction.TERMINATE_ITERATION


def verdict(
    *, a: bool = False, n: bool = False, m: tuple[str, ...] = (), k: float = 0.6, f: Failure = Failure.OK
) -> Verdict:
    return Verdict(answer_complete=a, need_tool=n, missing=m, confidence=k, failure=f)


def decide(
    v: Verdict, *, stable: bool = False, strike: Strike = Strike.NONE, extended: bool = False
) -> tuple[str, ControlAction]:
    table = EXTENDED_TABLE if extended else PAPER_TABLE
    rule = select(table, Situation(verdict=v, stable=stable, config=LoopConfig(), strike=strike))
    return rule.branch.value, rule.action


@pytest.mark.parametrize(
    ("v", "stable", "branch", "action"),
    [
        (verdict(n=True), False, "need_tool_round", CI),
        (verdict(m=("x",)), False, "need_tool_round", CI),
        (verdict(f=Failure.TOOL_CONFLICT), False, "verifier_retry", CI),
        (verdict(f=Failure.TOOL_SET_UNSTABLE), False, "rollback_retry", CI),
        (verdict(f=Failure.LOW_CONFIDENCE, k=0.49), False, "rollback_retry", CI),
        (verdict(f=Failure.ANSWER_INCOMPLETE), False, "integrate_answer_retry_break", AS),
        (verdict(a=True), True, "stop_replanning", TI),
        (verdict(a=True, k=0.80), False, "skip_decode_output_break", TI),
        (verdict(k=0.80), False, "skip_decode_output", CI),
        (verdict(k=0.79), False, "keep_decode", CI),
    ],
)
def test_each_row_of_the_paper_table(v: Verdict, stable: bool, branch: str, action: ControlAction) -> None:
    """Every row of the paper's table gives its branch and action."""
    assert decide(v, stable=stable) == (branch, action)


@pytest.mark.parametrize(
    ("v", "stable", "branch"),
    [
        (verdict(a=True, n=True, m=("x",), k=0.99, f=Failure.TOOL_CONFLICT), True, "need_tool_round"),
        (verdict(a=True, k=0.99, f=Failure.TOOL_CONFLICT), True, "verifier_retry"),
        (verdict(a=True, k=0.99, f=Failure.TOOL_SET_UNSTABLE), True, "rollback_retry"),
        (verdict(a=True, k=0.10, f=Failure.LOW_CONFIDENCE), True, "rollback_retry"),
        (verdict(a=True, k=0.99, f=Failure.ANSWER_INCOMPLETE), True, "integrate_answer_retry_break"),
        (verdict(a=True, k=0.99), True, "stop_replanning"),
        (verdict(a=True, k=0.99), False, "skip_decode_output_break"),
        (verdict(k=0.99), True, "skip_decode_output"),
        (verdict(k=0.10), True, "keep_decode"),
    ],
)
def test_an_earlier_row_wins_over_all_later_ones(v: Verdict, stable: bool, branch: str) -> None:
    """Where several rows apply, the first in the paper's order decides."""
    assert decide(v, stable=stable)[0] == branch


@pytest.mark.parametrize(
    ("v", "stable", "branch"),
    [
        (verdict(f=Failure.LOW_CONFIDENCE, k=0.50), False, "keep_decode"),
        (verdict(f=Failure.LOW_CONFIDENCE, k=0.80), False, "skip_decode_output"),
        (verdict(a=True, f=Failure.LOW_CONFIDENCE, k=0.80), True, "skip_decode_output_break"),
        (verdict(a=True, k=0.79), False, "keep_decode"),
        (verdict(a=True, k=0.0), True, "stop_replanning"),
    ],
)
def test_thresholds_are_inclusive_above_and_exclusive_below(v: Verdict, stable: bool, branch: str) -> None:
    """κ at τ_retry is not low, κ at τ_gate is high, and only `ok` may stop on stability."""
    assert decide(v, stable=stable)[0] == branch


def _by_the_book(v: Verdict, *, stable: bool) -> str:
    """Eq. 7 written out a second time, as a chain of conditions."""
    closed = v.answer_complete and not v.need_tool
    if v.need_tool or v.missing:
        return "need_tool_round"
    if v.failure == "tool_conflict":
        return "verifier_retry"
    if v.failure == "tool_set_unstable" or (v.failure == "low_confidence" and v.confidence < 0.5):
        return "rollback_retry"
    if v.failure == "answer_incomplete":
        return "integrate_answer_retry_break"
    if closed and stable and v.failure == "ok":
        return "stop_replanning"
    if v.confidence >= 0.8:
        return "skip_decode_output_break" if closed else "skip_decode_output"
    return "keep_decode"


def test_every_combination_of_flags_follows_equation_7() -> None:
    """All 1,120 combinations of flags, confidences and stability get the branch eq. 7 gives them."""
    confidences = (0.0, 0.2, 0.49, 0.5, 0.79, 0.8, 1.0)
    seen: set[str] = set()
    flags = itertools.product((False, True), (False, True), ((), ("x",)), confidences, Failure, (False, True))
    for a, n, m, k, f, stable in flags:
        v = verdict(a=a, n=n, m=m, k=k, f=f)
        expected = _by_the_book(v, stable=stable)
        seen.add(expected)
        assert decide(v, stable=stable)[0] == expected, v
    assert len(seen) == 8


def test_strikes_come_before_the_table_unless_nothing_is_open() -> None:
    """A strike decides while something is open, and never over a complete or merely unwritten answer."""
    open_, done, unwritten = verdict(n=True), verdict(a=True, k=0.9), verdict(f=Failure.ANSWER_INCOMPLETE)
    assert decide(open_, strike=Strike.FIRST, extended=True) == ("nudge", CI)
    assert decide(open_, strike=Strike.SECOND, extended=True) == ("exhausted_break", AS)
    for strike in Strike:
        assert decide(done, strike=strike, extended=True) == ("skip_decode_output_break", TI)
        assert decide(unwritten, strike=strike, extended=True) == ("integrate_answer_retry_break", AS)
        assert decide(open_, strike=strike)[0] == "need_tool_round", "the paper knows no strikes"


def test_without_a_verdict_nothing_is_closure() -> None:
    """The verdict that stands for none goes on, under either table."""
    none = UnavailableVerdict(cause="down")
    assert decide(none, stable=True, extended=True) == ("no_verdict", CI)
    assert decide(none, stable=True) == ("rollback_retry", CI)


def test_every_branch_that_ends_a_run_has_a_stop_reason() -> None:
    """Each branch either goes on or has exactly one stop reason."""
    going_on = {rule.branch for rule in EXTENDED_TABLE if rule.action is CI} - {ControlBranch.NO_VERDICT}
    for branch in ControlBranch:
        if branch in going_on:
            with pytest.raises(ValueError, match="goes on"):
                stop_reason(branch)
        else:
            assert stop_reason(branch)


def test_a_verdict_names_its_open_slots_once() -> None:
    """`unresolved` lists missing, conflicting and exhausted slots, then missing items without a slot, each once."""
    v = Verdict(
        answer_complete=False,
        need_tool=True,
        confidence=0.5,
        missing=("b", "z"),
        slots=tuple(Slot(name=n, state=s) for n, s in zip("abcde", SlotState, strict=True)),
    )
    assert v.unresolved == ("b", "d", "e", "z")
