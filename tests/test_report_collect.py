"""What goes into a report: figures of all traces, timelines of a few, and notes on the rest."""

from __future__ import annotations

from dataclasses import replace

from agentloop_autogen import ControlAction, ControlBranch, Decision, LoopConfig, Slot, SlotState, Verdict
from agentloop_autogen.diagnostics import Trace, TraceRound, summarize
from agentloop_autogen.diagnostics.report import GroupRow, Metric, ReportData
from agentloop_autogen.diagnostics.report.collect import collect_report

from .trace_samples import PARIS, scored, text_round, tool_round, trace_of

LATE = replace(scored(*[0.0] * 6, 1.0, contents=["alpha 1"] * 6 + ["beta 2"]), final="beta")
KEPT = replace(scored(*[1.0] * 8, contents=["alpha 1"] * 8), final="alpha")


def metric(group: GroupRow, name: str) -> Metric:
    (found,) = [metric for metric in group.metrics if metric.name == name]
    return found


def collected(*traces: Trace, timelines: int = 50) -> ReportData:
    return collect_report(traces, settings={}, timelines=timelines)


def named(trace: Trace, request: str, *, model: str = "m", id: str = "1") -> Trace:
    return Trace(
        id=id, source="s", model=model, request=request, rounds=trace.rounds, final=trace.final, correct=trace.correct
    )


def test_groups_carry_the_summary_and_the_replay() -> None:
    """Every figure of `summarize`, then what the loop saves and loses, with counts and intervals."""
    (group,) = collected(LATE, KEPT).groups
    (row,) = summarize([LATE, KEPT]).rows
    assert group.metrics[: len(row.metrics)] == tuple(row.metrics.values())
    saved = metric(group, "calls_saved")
    assert (saved.count, saved.of, saved.value) == (3, 15, 3 / 15)
    assert saved.low is not None
    lost = metric(group, "lost")
    assert (lost.count, lost.of, lost.value) == (1, 2, 0.5)
    assert lost.high is not None
    assert lost.high > 0.5


def test_without_solved_traces_losses_are_unknown_not_zero() -> None:
    """Nobody can lose what nobody judged."""
    (group,) = collected(trace_of(tool_round())).groups
    assert metric(group, "lost").value is None


def test_distributions_count_every_trace_by_group_and_outcome() -> None:
    """Rounds and calls of each group add up to its traces; large values are rounded to two figures."""
    long = trace_of(*[tool_round(f"row {i} north", arguments=f'{{"n":{i}}}') for i in range(123)], correct=False)
    data = collected(LATE, KEPT, long)
    rounds = {d.solved: (d.values, d.counts) for d in data.distributions if d.quantity == "rounds"}
    assert rounds == {True: ((7.0, 8.0), (1, 1)), False: ((120.0,), (1,))}
    assert sum(sum(d.counts) for d in data.distributions if d.quantity == "tool_calls") == 3
    saved = {d.solved: d.values for d in data.distributions if d.quantity == "calls_saved"}
    assert saved[True] == (1.0, 2.0)
    assert not [d for d in data.distributions if d.quantity == "elapsed_s"]


def test_the_frontier_marks_the_replayed_setting_whether_or_not_it_is_a_standard_one() -> None:
    """The setting asked for is among the points, once for all traces and once for each group."""
    for loop in (LoopConfig(), LoopConfig(patience=2, tau_gate=0.7)):
        points = collect_report([LATE, KEPT], loop).frontier
        assert [(point.source, point.model) for point in points if point.is_default] == [("", ""), ("s", "m")]
        assert len({point.label for point in points}) * 2 == len(points)


def test_all_traces_are_shown_where_they_are_few_and_it_is_said_where_they_are_not() -> None:
    """No note without a reason; with more traces than room the note counts them."""
    few = collected(*[named(KEPT, f"request {i}", id=str(i)) for i in range(5)], timelines=5)
    assert (len(few.timelines), few.notes) == (5, ())
    many = collected(*[named(KEPT, f"request {i}", id=str(i)) for i in range(40)], timelines=10)
    assert len(many.timelines) == 10
    assert many.notes == ("10 of 40 requests can be looked at round by round.",)


def test_half_of_the_timelines_are_the_same_requests_in_every_group() -> None:
    """So that two models can be looked at side by side."""
    traces = [named(KEPT, f"request {i}", model=model, id=f"{model}{i}") for model in ("a", "b") for i in range(100)]
    shown = collected(*traces, timelines=40).timelines
    of_a, of_b = ({one.request for one in shown if one.model == model} for model in ("a", "b"))
    assert len(of_a & of_b) >= 10


def test_traces_that_the_loop_would_lose_are_shown_first_of_all() -> None:
    """One loss among 300 traces is there to be looked at."""
    traces = [named(KEPT, f"request {i}", id=str(i)) for i in range(300)]
    shown = collected(*traces, named(LATE, "the one that is lost", id="lost"), timelines=4).timelines
    assert "lost" in {one.id for one in shown}


def test_a_timeline_shows_rounds_marks_decisions_and_slots() -> None:
    """The decision of the run's own controller is shown with its slots, and what each round was."""
    verdict = Verdict(
        answer_complete=False,
        need_tool=True,
        confidence=0.9,
        slots=(Slot(name="population", state=SlotState.SUPPORTED, quote=PARIS),),
    )
    decision = Decision(
        round=1,
        action=ControlAction.CONTINUE_INVOCATION,
        branch=ControlBranch.NEED_TOOL_ROUND,
        verdict=verdict,
        reason="information is still missing",
    )
    first = TraceRound(calls=tool_round().calls, results=tool_round().results, decision=decision)
    error = tool_round("no such city", arguments='{"city":"Atlantis"}', error=True)
    (shown,) = collected(trace_of(first, tool_round(), error, text_round("2.1 million"), correct=True)).timelines
    assert [one.marks for one in shown.rounds] == [("news",), ("repeat", "stable", "nothing_new"), ("error",), ()]
    assert (shown.rounds[0].branch, shown.rounds[0].slots[0].name) == ("need_tool_round", "population")
    assert shown.rounds[0].tools[0].result == PARIS
    assert shown.rounds[2].tools[0].is_error
    assert (shown.answer, shown.solved, shown.stopped_at) == ("2.1 million", True, None)


def test_a_timeline_without_recorded_decisions_shows_the_replayed_ones() -> None:
    """The rounds up to the stop say what the loop would have decided."""
    (shown,) = collected(trace_of(*[tool_round()] * 8)).timelines
    assert [one.branch for one in shown.rounds[3:7]] == ["nudge", "need_tool_round", "exhausted_break", ""]
    assert (shown.stopped_at, shown.calls_saved) == (5, 2)


def test_long_traces_and_texts_are_cut_and_what_is_left_out_is_said() -> None:
    """A megabyte in a result or a thousand rounds do not make the page grow without bound."""
    rounds = [tool_round(f"{i} " * 500_000, arguments=f'{{"n":"{i}"}}') for i in range(100)]
    (shown,) = collected(trace_of(*rounds)).timelines
    assert (len(shown.rounds), shown.rounds_left_out) == (60, 40)
    assert len(shown.rounds[0].tools[0].result or "") <= 800
    assert "left out" in (shown.rounds[0].tools[0].result or "")


def test_what_was_skipped_of_the_input_is_noted() -> None:
    """The reader of the page learns that it is not about everything."""
    data = collect_report([KEPT], settings={}, skipped=lambda: "3 lines could not be read")
    assert data.notes == ("3 lines could not be read",)


def test_the_reader_is_told_where_the_log_and_not_the_agent_is_at_fault() -> None:
    """A group without any recorded answer, and calls recorded without content, are named."""
    bare = trace_of(tool_round("", arguments="{}"), tool_round("", arguments="{}"), model="a")
    notes = collected(bare, KEPT).notes
    assert notes == (
        "s · a: no answer is recorded, so its GCR of 0 says nothing of the agent.",
        "s · a: 1 requests are recorded with calls without arguments and results; figures that compare rounds say "
        "nothing of them.",
    )


def test_redundant_rounds_cut_are_a_share() -> None:
    """Seven of eight rounds come after the best reward, and two of them are saved."""
    (group,) = collected(KEPT).groups
    assert metric(group, "redundant_step_reduction").value == 2 / 7


def test_nothing_gives_an_empty_report() -> None:
    """No traces are no error."""
    data = collected()
    assert (data.groups, data.frontier, data.timelines) == ((), (), ())
