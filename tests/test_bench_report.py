"""The figures of the benchmark's report, against values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.report.collect import GroupReport, collect_bench_report, on_frontier
from agentloop_autogen.bench.report.comparing import Comparison
from agentloop_autogen.bench.report.measuring import Cell, measure_cells
from agentloop_autogen.bench.report.reading import Results, ResultsGroup, read_results
from agentloop_autogen.bench.report.sections import summary_sections
from agentloop_autogen.bench.report.statistics import mcnemar
from agentloop_autogen.bench.tasks.task import Half
from agentloop_autogen.errors import ResultFileError

from .bench_samples import attempt, many, model_call, outcome, write_results


def reported(attempts: list[Attempt]) -> GroupReport:
    group = ResultsGroup(model="tiny", settings="s", attempts=tuple(attempts), notes=())
    return collect_bench_report(Results(groups=(group,))).groups[0]


def cell_of(attempts: list[Attempt]) -> Cell:
    (cell,) = measure_cells(attempts)
    return cell


def compared(attempts: list[Attempt]) -> Comparison:
    (comparison,) = reported(attempts).comparisons
    return comparison


def test_the_last_of_several_attempts_counts_and_the_report_says_so(tmp_path: Path) -> None:
    """An attempt made again, in the same file or a later one, replaces the first, and a note tells how many were."""
    first = write_results(tmp_path / "a.jsonl", [attempt(correct=False), attempt(correct=False), attempt(task="t1")])
    second = write_results(tmp_path / "b.jsonl.gz", [attempt(correct=True)])
    (group,) = read_results([first, second]).groups
    assert [(one.task, one.correct) for one in group.attempts] == [("t0", True), ("t1", True)]
    assert group.notes == ("2 attempts replaced by a later one at the same system, task and seed.",)


def test_other_models_and_settings_are_never_mixed(tmp_path: Path) -> None:
    """The same task with another model or under other settings is in a group of its own."""
    path = write_results(tmp_path / "a.jsonl", [attempt(), attempt(model="big"), attempt(settings="else")])
    groups = read_results([path]).groups
    assert [(group.model, group.settings, len(group.attempts)) for group in groups] == [
        ("big", "0123456789abcdef", 1),
        ("tiny", "0123456789abcdef", 1),
        ("tiny", "else", 1),
    ]


def test_only_the_half_asked_for_counts(tmp_path: Path) -> None:
    """Tasks policies were developed on are left out of a report on the other half, which says so."""
    path = write_results(tmp_path / "a.jsonl", [attempt(), attempt(task="t1", half=Half.DEVELOPMENT)])
    (group,) = read_results([path], half=Half.HELD_OUT).groups
    assert [one.task for one in group.attempts] == ["t0"]
    assert group.notes == ("Only tasks of the held-out half count here; 1 attempt at other tasks left out.",)


def test_a_file_that_is_no_result_file_is_refused(tmp_path: Path) -> None:
    """A line that is no attempt is named with its number and file."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"no": "attempt"}\n')
    with pytest.raises(ResultFileError, match=r"line 1 of .*a\.jsonl"):
        read_results([path])


def test_the_figures_of_a_system_are_those_worked_out_by_hand() -> None:
    """Two tasks, one solved after one call, one failed after three calls of which two are duplicates."""
    cell = cell_of([attempt(), attempt(task="t1", correct=False, tools=["a", "a", "a"])])
    expected = {
        "solved": 0.5,
        "rounds_mean": 3.0,
        "model_calls_mean": 3.0,
        "tool_calls_mean": 2.0,
        "duplicate_calls_mean": 1.0,
        "input_tokens_mean": 270.0,
        "output_tokens_mean": 30.0,
        "tokens_mean": 300.0,
        "tokens_per_solved": 600.0,
        "latency_mean_s": 5.0,
        "latency_p50_s": 5.0,
        "latency_p90_s": 6.6,
        "model_s_mean": 3.0,
        "tool_s_mean": 2.0,
        "control_s_mean": 0.0,
        "first_token_mean_s": 4.25,
        "lgr": 0.5,
        "lgts": 0.75,
        "failed": 0.0,
    }
    assert {key: cell.value(key) for key in expected} == pytest.approx(expected)
    assert (cell.figures["solved"].low, cell.figures["solved"].high) == pytest.approx((0.0945, 0.9055), abs=1e-4)


def test_tokens_per_solved_task_are_infinite_where_none_was_solved() -> None:
    """A system that solves nothing has no price for a solved task, not a price of zero."""
    metric = cell_of([attempt(correct=False), attempt(task="t1", correct=False)]).figures["tokens_per_solved"]
    assert (metric.value, metric.low, metric.high) == (math.inf, math.inf, math.inf)


def test_a_failed_attempt_counts_with_its_tokens() -> None:
    """A timeout is not solved, and what it spent is part of the bill."""
    cell = cell_of([attempt(), attempt(task="t1", correct=False, error="timeout: no answer within 180 s")])
    assert (cell.value("solved"), cell.figures["failed"].count, cell.value("tokens_per_solved")) == (0.5, 1, 400)


def test_the_first_token_is_unknown_where_nothing_was_streamed() -> None:
    """Without streamed replies there is no time of a first token, rather than one of zero."""
    assert cell_of([attempt(model_calls=(model_call(0, 1, content="done"),))]).value("first_token_mean_s") is None


def test_control_and_verification_are_those_of_the_recorded_decisions() -> None:
    """One attempt of two stops on stability with a closed verdict; verifier tokens and time are shares of the whole."""
    cell = cell_of([attempt(outcome=outcome()), attempt(task="t1", outcome=outcome(stopped=False, closed=False))])
    expected = {
        "slot_closure": 0.5,
        "stable_hit": 1.0,
        "stable_stop": 0.5,
        "stssr": 0.5,
        "verifier_token_share": 40 / 400,
        "verifier_share": 1.0 / 6.0,
        "verifier_mean_s": 0.5,
    }
    assert {key: cell.value(key) for key in expected} == pytest.approx(expected)


def test_a_system_without_control_has_no_figures_of_it() -> None:
    """Baselines make no decisions: their control figures are unknown, not zero."""
    cell = cell_of([attempt("autogen")])
    keys = ("slot_closure", "stable_hit", "stssr", "verifier_share", "verifier_token_share")
    assert [cell.value(key) for key in keys] == [None] * len(keys)


def test_systems_are_compared_on_the_tasks_both_did() -> None:
    """A task only one of them did takes no part in the comparison."""
    mine = [attempt(task=f"t{i}", tokens=(40, 10)) for i in range(3)]
    theirs = [attempt("autogen", f"t{i}", correct=i == 1, tokens=(900, 100)) for i in range(1, 9)]
    comparison = compared([*mine, *theirs])
    assert comparison.tasks == 2
    assert comparison.deltas["tokens"].value == pytest.approx(0.05)
    assert comparison.deltas["solved"].value == pytest.approx(0.5)


def test_a_ratio_of_fixed_proportion_has_an_interval_of_no_width() -> None:
    """Where every task takes half, no choice of tasks gives another ratio."""
    pairs = [[attempt(task=f"t{i}", tokens=(50 + i, 0)), attempt("autogen", f"t{i}", tokens=(100 + 2 * i, 0))]
             for i in range(5)]  # fmt: skip
    interval = compared([one for pair in pairs for one in pair]).deltas["tokens"].interval
    assert interval == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize(("mine", "theirs", "p"), [(0, 0, 1.0), (5, 0, 0.0625), (3, 3, 1.0), (9, 1, 22 / 1024)])
def test_the_exact_test_of_accuracy_is_mcnemars(mine: int, theirs: int, p: float) -> None:
    """Only tasks that one of the two solved say anything: a binomial test of those."""
    assert mcnemar(mine, theirs) == pytest.approx(p)


def test_what_is_worse_comes_first_with_its_basis() -> None:
    """AgentLoop with fewer solved tasks and more tokens is said before anything else, figure by figure."""
    mine = [attempt(task=f"t{i}", correct=False, tokens=(200, 0)) for i in range(6)]
    theirs = [attempt("autogen", f"t{i}", tokens=(100, 0)) for i in range(6)]
    group = ResultsGroup(model="tiny", settings="s", attempts=(*mine, *theirs), notes=())
    first = summary_sections(collect_bench_report(Results(groups=(group,))))[0]
    assert first.title == "Where AgentLoop does worse"
    (point,) = first.points
    assert point.startswith("spider, against autogen (6 tasks): accuracy 0.0 % against 100.0 %, -100.0 points")
    assert "McNemar p 0.031" in point
    assert "tokens 400 against 200, 2.00× (95 % interval 2.00× to 2.00×)" in point
    assert "tokens per solved task ∞ against 200" in point


def test_targets_are_met_or_missed_by_the_figures() -> None:
    """At a tenth of the tokens and calls and the accuracy of the baseline, savings are met and accuracy is missed."""
    mine = [attempt(task=f"t{i}", tools=["a"], tokens=(10, 0)) for i in range(30)]
    theirs = [attempt("autogen", f"t{i}", tools=["a"] * 10, tokens=(100, 0)) for i in range(29)]
    found = {target.wanted: target for target in reported([*mine, *theirs]).targets}
    verdicts = {wanted: target.met for wanted, target in found.items()}
    assert verdicts == {
        "at least 70 % fewer tokens than the costliest baseline": True,
        "at least 75 % fewer tool calls than that baseline": True,
        "accuracy above the best baseline's": False,
        "at least 15 points more accuracy than autogen": False,
        "at most 0.5 times the tokens of autogen": True,
        "at most 0.2 times its tokens per solved task": True,
        "more than the 17 points above autogen of the accurate throw-away guard": False,
        "less than the 0.26 times its tokens of the thrifty one": True,
        "every variant of agentloop on at least 30 tasks": None,
        "every other system and agentloop on at least 30 tasks": False,
    }
    assert found["every other system and agentloop on at least 30 tasks"].count == 29


def test_the_frontier_holds_whoever_no_other_beats() -> None:
    """Cheap and weak, dear and strong are on it; as strong but dearer is behind."""
    cells = measure_cells([
        attempt("weak", correct=False, tokens=(10, 0)),
        attempt("strong", tokens=(50, 0)),
        attempt("dear", tokens=(60, 0)),
    ])  # fmt: skip
    assert on_frontier(cells) == {"weak", "strong"}


def test_the_same_files_give_the_same_intervals() -> None:
    """Resampling is seeded: a report made twice is the same report."""
    attempts = many(6, families=("spider",))
    first, second = (reported(attempts).comparisons for _ in range(2))
    assert [one.deltas["tokens"].interval for one in first] == [one.deltas["tokens"].interval for one in second]


def test_systems_with_different_tasks_are_pointed_out() -> None:
    """Rows of a table that rest on different tasks come with a note."""
    (note,) = reported([attempt(), attempt("autogen"), attempt("autogen", "t1")]).notes
    assert note.startswith("At spider the systems did different tasks (1 to 2)")
