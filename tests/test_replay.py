"""Replay of recorded runs: where each policy stops, what that saves, and what it cannot know."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from autogen_core import CancellationToken

from agentloop_autogen import (
    AgentLoopError,
    ControlAction,
    ControlBranch,
    Decision,
    Evidence,
    LoopConfig,
    LoopOutcome,
    StopReason,
    Verdict,
)
from agentloop_autogen.diagnostics import ReplayRow, Trace, TraceRound, replay
from agentloop_autogen.errors import TraceError, UsageError
from agentloop_autogen.testing import ScriptedVerifier
from agentloop_autogen.verify import SlotVerifier

from .trace_samples import scored, text_round, tool_round, trace_of

PAPER = LoopConfig(policy="paper")
OPEN = Verdict(answer_complete=False, need_tool=True, confidence=0.9, missing=("population",))
CLOSED = Verdict(answer_complete=True, need_tool=False, confidence=0.9)


def only(trace: Trace, loop: LoopConfig | None = None) -> ReplayRow:
    (row,) = replay([trace], loop).rows
    return row


def test_the_paper_gate_stops_at_the_first_stable_pair() -> None:
    """Results a, b, b, c, c: the gate closes after the third round, so two of five calls are saved."""
    row = only(scored(0, 0, 0, 0, 0, contents=["alpha 1", "beta 2", "beta 2", "gamma 3", "gamma 3"]), PAPER)
    assert (row.stopped_at, row.branch) == (2, ControlBranch.STOP_REPLANNING)
    assert (row.calls, row.calls_saved, row.rounds_saved) == (5, 2, 2)


def test_extended_stops_two_fruitless_rounds_after_the_nudge() -> None:
    """News, then the same for ever: fruitless from index 1, nudged at 3, stopped at 5."""
    row = only(trace_of(*[tool_round()] * 10))
    assert (row.nudged_at, row.stopped_at, row.branch) == (3, 5, ControlBranch.EXHAUSTED_BREAK)
    assert row.calls_saved == 4


def test_progress_is_never_cut_short() -> None:
    """Nine different results run to their own end under `extended`."""
    row = only(scored(*[0.0] * 9))
    assert (row.stopped_at, row.branch, row.calls_saved) == (None, None, 0)


def test_a_round_limit_ends_a_trace_that_goes_on_calling() -> None:
    """`max_rounds=4` forces an answer after the fourth round."""
    row = only(scored(*[0.0] * 6), LoopConfig(max_rounds=4))
    assert (row.stopped_at, row.branch, row.calls_saved) == (3, ControlBranch.BUDGET_BREAK, 2)


@pytest.mark.parametrize(
    ("loop", "stopped_at"),
    [
        (LoopConfig(max_tool_calls=3), 2),
        (LoopConfig(max_tokens=1), 0),
        (LoopConfig(policy="off", max_rounds=2), 1),
    ],
)
def test_the_other_budgets_are_kept_too(loop: LoopConfig, stopped_at: int) -> None:
    """Tool calls and tokens end a trace as they end a run, also without any policy."""
    assert only(scored(*[0.0] * 6), loop).stopped_at == stopped_at


def test_the_answer_that_ends_a_recorded_run_is_no_stop() -> None:
    """A trace that ends in text by itself is not cut, whatever the policy."""
    trace = trace_of(tool_round(), text_round("Paris has 2.1 million."))
    for loop in (LoopConfig(), PAPER, LoopConfig(policy="off"), LoopConfig(slot_control=False)):
        assert only(trace, loop).stopped_at is None


def test_each_user_turn_is_a_run_of_its_own() -> None:
    """The same call for each of eight questions is fruitless in none of them."""
    rounds = [part for turn in range(8) for part in (tool_round(turn=turn), text_round(f"It is {turn}.", turn=turn))]
    for loop in (LoopConfig(), PAPER, LoopConfig(max_rounds=3)):
        assert only(trace_of(*rounds), loop).stopped_at is None


def test_a_stop_before_the_solving_round_loses_the_trace() -> None:
    """Solved at the last of seven rounds, the ones before fruitless: stopped at 5, solved no more."""
    trace = scored(*[0.0] * 6, 1.0, contents=["alpha 1"] * 6 + ["beta 2"])
    row = only(trace)
    assert (row.stopped_at, row.solved, row.solved_after) == (5, True, False)
    assert (row.best_reward, row.best_reward_after) == (1.0, 0.0)


def test_a_stop_after_the_solving_round_keeps_it() -> None:
    """Solved in the first round and repeated for ever: what is saved costs nothing."""
    row = only(scored(*[1.0] * 8, contents=["alpha 1"] * 8))
    assert (row.stopped_at, row.solved_after, row.calls_saved) == (5, True, 2)
    assert (row.redundant_rounds, row.redundant_rounds_after) == (7, 5)


def test_without_step_rewards_a_trace_stays_solved_only_if_nothing_new_was_cut_off() -> None:
    """Cutting off repeats of calls already made is safe; cutting off anything else is unknown, not lost."""
    safe = only(trace_of(*[tool_round()] * 8, correct=True))
    assert (safe.stopped_at, safe.solved_after) == (5, True)
    unsure = only(trace_of(*[tool_round()] * 7, tool_round("other news 7", arguments='{"city":"Oslo"}'), correct=True))
    assert (unsure.stopped_at, unsure.solved_after) == (5, None)
    failed = only(trace_of(*[tool_round()] * 8, correct=False))
    assert failed.solved_after is False
    assert only(trace_of(*[tool_round()] * 8)).solved_after is None


def test_savings_add_up_by_group() -> None:
    """Two models, one trace lost, one unknown, one kept: the counts by group and in total."""
    lost = scored(*[0.0] * 6, 1.0, contents=["alpha 1"] * 6 + ["beta 2"])
    kept = scored(*[1.0] * 8, contents=["alpha 1"] * 8)
    unsure = trace_of(
        *[tool_round()] * 7, tool_round("other news 7", arguments='{"city":"Oslo"}'), correct=True, model="n"
    )
    result = replay([lost, kept, unsure])
    m, n = result.savings(by=("model",))
    assert (m.model, m.traces, m.calls, m.calls_saved, m.solved, m.lost, m.unknown) == ("m", 2, 15, 3, 2, 1, 0)
    assert (n.model, n.calls_saved, n.solved, n.lost, n.unknown) == ("n", 2, 1, 0, 1)
    assert m.progress_degradation == pytest.approx((1.0 - 0.0) / 2)
    # Seven of eight rounds came after the best reward, none of seven; two of the seven are saved. The trace that is
    # lost has six rounds left in vain, where it had none: nothing was reached by then.
    assert m.redundant_rounds == pytest.approx((0 + 7) / 2)
    assert m.redundant_step_reduction == pytest.approx(((0 - 6) + (7 - 5)) / 2)
    assert n.progress_degradation is None
    (total,) = result.savings(by=())
    assert (total.source, total.model, total.calls, total.cut) == (None, None, 23, 3)


def test_the_result_is_plain_data_by_model() -> None:
    """`to_dict` holds what the command prints: by model, and by source and model."""
    data = replay([scored(*[1.0] * 8, contents=["alpha 1"] * 8)]).to_dict()
    by_model = cast("dict[str, dict[str, object]]", data["by_model"])
    expected = {"traces": 1, "calls": 8, "calls_saved": 2, "solved": 1, "lost": 0}
    assert {key: by_model["m"][key] for key in expected} == expected


def test_rows_read_as_attributes_and_as_keys() -> None:
    """A row is a record that can be read either way, and turns into plain data."""
    row = only(trace_of(*[tool_round()] * 10))
    assert row["stopped_at"] == row.stopped_at == row.to_dict()["stopped_at"] == 5
    assert row.to_dict()["branch"] == "exhausted_break"
    with pytest.raises(KeyError):
        _ = row["nothing"]


def recorded(*verdicts: Verdict) -> Trace:
    """A trace whose own controller acted on these verdicts, one for each round."""
    decisions = tuple(
        Decision(
            round=i,
            action=ControlAction.CONTINUE_INVOCATION,
            branch=ControlBranch.KEEP_DECODE,
            verdict=verdict,
            verified=True,
        )
        for i, verdict in enumerate(verdicts, start=1)
    )
    rounds = tuple(tool_round(f"row {i} north", arguments=f'{{"n":{i}}}') for i in range(len(verdicts)))
    outcome = LoopOutcome(stop_reason=StopReason.BUDGET, decisions=decisions)
    return Trace(id="1", source="s", model="m", request="q", rounds=rounds, outcome=outcome)


def test_recorded_verdicts_decide() -> None:
    """Under `paper` the run ends with the first recorded verdict that is closed and sure."""
    (row,) = replay([recorded(OPEN, OPEN, CLOSED, CLOSED)], PAPER, verdicts="recorded").rows
    assert (row.stopped_at, row.branch) == (2, ControlBranch.SKIP_DECODE_OUTPUT_BREAK)


def test_a_trace_without_verdicts_is_replayed_mechanically_beside_others() -> None:
    """One recorded trace is enough; the other falls back to what needs no judge."""
    rows = replay([recorded(OPEN, CLOSED), trace_of(*[tool_round()] * 8)], PAPER, verdicts="recorded").rows
    assert [row.stopped_at for row in rows] == [1, 1]


def test_recorded_verdicts_that_are_nowhere_are_an_error() -> None:
    """Nobody is told of a replay on verdicts that rests on none."""
    with pytest.raises(TraceError, match="none of the 1 traces records a verdict"):
        replay([scored(0.0, 0.0)], verdicts="recorded")


def test_another_word_for_verdicts_is_refused() -> None:
    """A typo is one clear error."""
    with pytest.raises(UsageError, match="'mechanicall' is none of"):
        replay([scored(0.0)], verdicts="mechanicall")  # pyright: ignore[reportArgumentType] - the typo under test


def test_a_verifier_is_asked_about_each_round_it_must_judge() -> None:
    """It gets request, draft and evidence as in a run, and its verdict ends the trace."""
    verifier = ScriptedVerifier([OPEN, CLOSED])
    trace = scored(0.0, 0.0, 0.0, contents=["alpha 1", "beta 2", "gamma 3"])
    (row,) = replay([trace], PAPER, verdicts=verifier).rows
    assert (row.stopped_at, row.branch) == (1, ControlBranch.SKIP_DECODE_OUTPUT_BREAK)
    assert [len(call.evidence) for call in verifier.calls] == [1, 2]
    assert verifier.calls[0].request == "How many people?"


async def test_a_verifier_can_be_used_inside_a_running_loop() -> None:
    """A notebook or a service can call `replay` as it is."""
    (row,) = replay([scored(0.0, 0.0)], PAPER, verdicts=ScriptedVerifier([CLOSED])).rows
    assert row.stopped_at == 0


@pytest.mark.parametrize("fault", [RuntimeError("down"), asyncio.TimeoutError()])
def test_a_verifier_that_fails_costs_verdicts_not_the_replay(fault: Exception) -> None:
    """Nothing is closed on a verdict that could not be had; all traces are still replayed."""
    rows = replay([scored(0.0, 0.0)] * 20, verdicts=ScriptedVerifier([fault])).rows
    assert [row.stopped_at for row in rows] == [None] * 20


class _Slow(SlotVerifier):
    """Takes its time; counts how many are in it at once."""

    component_config_schema = None  # pyright: ignore[reportAssignmentType] - never dumped

    def __init__(self) -> None:
        self.now = self.most = 0

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return CLOSED


def test_traces_are_judged_a_few_at_a_time_and_stay_in_order() -> None:
    """Twenty traces keep their order, and no more than eight verdicts are wanted at once."""
    slow = _Slow()
    traces = [trace_of(tool_round(f"row {i} north"), tool_round(f"row {i} south"), id=str(i)) for i in range(20)]
    rows = replay(traces, PAPER, verdicts=slow).rows
    assert [row.id for row in rows] == [str(i) for i in range(20)]
    assert 1 < slow.most <= 8


def test_a_reader_that_breaks_ends_a_judged_replay_with_its_own_error() -> None:
    """An error of the input comes through as it is, and nothing hangs."""

    def broken() -> object:
        yield scored(0.0)
        raise AgentLoopError("the file went away")

    with pytest.raises(AgentLoopError, match="the file went away"):
        replay(broken(), verdicts=ScriptedVerifier([CLOSED]))  # pyright: ignore[reportArgumentType] - a generator that ends badly


def test_a_trace_without_rounds_is_replayed_to_nothing() -> None:
    """There is nothing to stop."""
    row = only(trace_of())
    assert (row.rounds, row.stopped_at, row.calls) == (0, None, 0)


def test_calls_that_never_came_back_are_counted_and_survived() -> None:
    """A call without a result is a call; the round it stands in brought nothing."""
    waiting = TraceRound(calls=tool_round().calls)
    assert only(trace_of(*[waiting] * 8)).calls == 8
