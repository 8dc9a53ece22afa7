"""Metrics over a hand-made set, every figure worked out in the test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from agentloop_autogen import (
    ControlAction,
    ControlBranch,
    Decision,
    LoopOutcome,
    RequestUsage,
    StopReason,
    Verdict,
)
from agentloop_autogen.diagnostics import RiskRecord, Summary, Trace, low_value_risk, measure, summarize
from agentloop_autogen.diagnostics.intervals import wilson
from agentloop_autogen.errors import MissingExtraError, UsageError

from .trace_samples import ROME, text_round, tool_round, trace_of

CLOSED = Verdict(answer_complete=True, need_tool=False, confidence=0.9)
OPEN = Verdict(answer_complete=False, need_tool=True, confidence=0.9)


def outcome(*gates: bool | None, verdict: Verdict = CLOSED) -> LoopOutcome:
    """A run whose gate said this after each round; `True` stops it."""
    decisions = [
        Decision(
            round=i,
            action=ControlAction.TERMINATE_ITERATION if stable else ControlAction.CONTINUE_INVOCATION,
            branch=ControlBranch.STOP_REPLANNING if stable else ControlBranch.KEEP_DECODE,
            stable=stable,
            verdict=verdict,
        )
        for i, stable in enumerate(gates, start=1)
    ]
    return LoopOutcome(stop_reason=StopReason.ANSWERED, model_calls=len(gates), decisions=tuple(decisions))


def controlled(
    gates: LoopOutcome, *, label: bool, elapsed_s: float, verifier_s: float, tokens: tuple[int, int], first_s: float
) -> Trace:
    """A trace of a controlled run with everything recorded."""
    return Trace(
        id="c",
        source="ours",
        model="m",
        request="q",
        rounds=(tool_round(),),
        final="2.1 million",
        correct=True,
        outcome=gates,
        usage=RequestUsage(prompt_tokens=tokens[0], completion_tokens=tokens[1]),
        elapsed_s=elapsed_s,
        first_token_s=first_s,
        verifier_s=verifier_s,
        verdict_label=label,
    )


PLAIN = (
    # Four calls, two of them repeats, one error; failed.
    trace_of(
        tool_round(),
        tool_round(),
        tool_round("no such city", arguments='{"city":"Atlantis"}', error=True),
        tool_round(),
        correct=False,
        final="I do not know.",
    ),
    # Two calls, solved.
    trace_of(tool_round(), tool_round(ROME, arguments='{"city":"Rome"}'), correct=True, final="Rome."),
    # One call, solved, but the answer repeats itself.
    trace_of(tool_round(), correct=True, final="Paris. Paris."),
    # No call, not solved: no failure after tools.
    trace_of(text_round("No idea."), correct=False),
    # One call, never judged.
    trace_of(tool_round()),
)
CONTROLLED = (
    controlled(outcome(None, False, True), label=True, elapsed_s=10, verifier_s=1, tokens=(100, 10), first_s=1),
    controlled(outcome(None), label=True, elapsed_s=20, verifier_s=1, tokens=(200, 20), first_s=3),
    controlled(
        outcome(None, False, False, verdict=OPEN), label=True, elapsed_s=30, verifier_s=4, tokens=(600, 60), first_s=2
    ),
    controlled(outcome(None, True), label=False, elapsed_s=40, verifier_s=4, tokens=(300, 30), first_s=2),
)


def summed(traces: tuple[Trace, ...]) -> Summary:
    return summarize(iter(traces))


@pytest.mark.parametrize(
    ("name", "count", "of"),
    [
        ("solved", 2, 4),
        ("post_tool_failure", 1, 4),  # the unjudged one could have failed
        ("repetition", 1, 5),
        ("lgr", 2, 4),
        ("failure_share", 1, 2),
        ("gcr", 4, 5),  # the last has no answer
        ("lgts", 5, 7),  # calls 4 and 1 of the judged 4 + 2 + 1 + 0
        ("duplicate_calls", 2, 8),
        ("error_results", 1, 8),
        ("repeated_rounds", 1, 9),
        ("idle_rounds", 2, 9),
        ("stable_gates", 1, 4),
        ("cycles", 0, 5),
        ("monologues", 0, 5),
        ("error_streaks", 0, 5),
    ],
)
def test_shares_on_paper(name: str, count: int, of: int) -> None:
    """Each share of the plain set is its counts, and says them."""
    metric = summed(PLAIN).rows[0].metrics[name]
    assert (metric.count, metric.of) == (count, of)
    assert metric.value == pytest.approx(count / of)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slot_closure", 3 / 4),
        ("stable_hit", 3 / 4),  # the second was never checked
        ("stable_stop", 2 / 4),
        ("stssr", 2 / 5),  # 2 + 0 + 2 + 1 checks
        ("verifier_share", 10 / 100),
        ("verifier_mean_s", 2.5),
        ("verifier_precision", 2 / 3),
        ("verifier_recall", 2 / 3),
        ("verifier_f1", 2 / 3),
        ("rounds_mean", 1.0),
        ("tool_calls_mean", 1.0),
        ("model_calls_mean", 9 / 4),
        ("input_tokens_mean", 300.0),
        ("output_tokens_mean", 30.0),
        ("latency_mean_s", 25.0),
        ("latency_p50_s", 25.0),
        ("latency_p90_s", 37.0),
        ("first_token_mean_s", 2.0),
        ("first_token_p90_s", 2.7),
    ],
)
def test_controller_and_cost_figures_on_paper(name: str, value: float) -> None:
    """Each figure of the controlled set is what its four runs come to."""
    assert summed(CONTROLLED).rows[0].metrics[name].value == pytest.approx(value)


def test_what_no_trace_says_is_none() -> None:
    """Traces without decisions, times, tokens or rewards give None for what rests on them, not 0."""
    row = summed(PLAIN).rows[0]
    for name in (
        "slot_closure",
        "stable_hit",
        "stable_stop",
        "stssr",
        "verifier_share",
        "verifier_f1",
        "latency_mean_s",
        "input_tokens_mean",
        "redundant_steps_mean",
    ):
        assert row.metrics[name].value is None, name


def test_shares_of_requests_carry_wilson_intervals() -> None:
    """The interval beside a share is the Wilson interval of its counts."""
    metric = summed(PLAIN).rows[0].metrics["solved"]
    assert (metric.low, metric.high) == wilson(2, 4)


def test_the_aggregate_agrees_with_algorithm_two() -> None:
    """LGR and LGTS over judged traces are those of Algorithm 2 run one by one."""
    judged = [trace for trace in PLAIN if trace.correct is not None]
    shown = [measure(trace) for trace in judged]
    risk = low_value_risk(
        RiskRecord(one.tool_calls, bool(one.correct), one.inter_repeat, one.intra_repeat) for one in shown
    )
    row = summed(tuple(judged)).rows[0]
    assert (row.lgr, row.lgts) == (pytest.approx(risk.lgr), pytest.approx(risk.lgts))


def test_groups_and_their_order() -> None:
    """By default one row for each source and model; by model, by nothing, in the order of names."""
    traces = (*CONTROLLED, *PLAIN, trace_of(tool_round(), model="a", source="s"))
    assert [(row.source, row.model, row.requests) for row in summarize(traces).rows] == [
        ("ours", "m", 4),
        ("s", "a", 1),
        ("s", "m", 5),
    ]
    assert [(row.model, row.requests) for row in summarize(traces, by=("model",)).rows] == [("a", 1), ("m", 9)]
    assert [row.requests for row in summarize(traces, by=()).rows] == [10]


def test_rows_read_as_attributes_as_keys_and_as_plain_data() -> None:
    """`row.lgr`, `row["lgr"]` and `to_dict()["lgr"]` are the same figure, the last with its counts beside it."""
    row = summed(PLAIN).rows[0]
    plain = row.to_dict()
    assert row.lgr == row["lgr"] == plain["lgr"] == 0.5
    assert (plain["source"], plain["requests"], plain["lgr_count"], plain["lgr_of"]) == ("s", 5, 2, 4)
    with pytest.raises(AttributeError, match="there is no figure 'lgrr'"):
        _ = row.lgrr
    with pytest.raises(KeyError):
        _ = row["lgrr"]


def test_an_unknown_group_is_refused() -> None:
    """A typo in `by` is one clear error."""
    with pytest.raises(UsageError, match="cannot be grouped by 'modell': use source or model"):
        summarize(PLAIN, by=("modell",))


def test_no_traces_give_no_rows() -> None:
    """An empty input is no error and has no groups."""
    assert summarize([]).to_dict() == {"rows": []}


def test_many_batches_give_the_sum_of_all() -> None:
    """More traces than fit one batch are all counted, and are read one at a time."""

    def many() -> Iterator[Trace]:
        for _ in range(1_000):
            yield from PLAIN

    row = summarize(many()).rows[0]
    assert (row.requests, row.metrics["duplicate_calls"].count) == (5_000, 2_000)
    assert row.lgr == 0.5


def test_without_polars_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed the base alone learns what to install."""
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "agentloop_autogen.diagnostics.aggregation", raising=False)
    with pytest.raises(MissingExtraError, match=r"agentloop-autogen\[diagnose\]"):
        summarize(PLAIN)
