"""Many settings over the same traces, and which are beaten by none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agentloop_autogen import ControlAction, ControlBranch, Decision, LoopConfig, Verdict
from agentloop_autogen.diagnostics import Trace, replay, sweep
from agentloop_autogen.diagnostics.sweep import STANDARD_SWEEP, frontier
from agentloop_autogen.errors import TraceError, UsageError

from .trace_samples import scored, tool_round, trace_of

SETTINGS = {"one": LoopConfig(patience=1), "two": LoopConfig(patience=2), "nine": LoopConfig(patience=9)}

# Solved at the last of seven rounds, six of them the same: patience 1 and 2 lose it, the latter saves less of it.
LATE = scored(*[0.0] * 6, 1.0, contents=["alpha 1"] * 6 + ["beta 2"])


def test_a_sweep_agrees_with_replays_one_by_one() -> None:
    """Each point is what `replay` says of its setting, in one pass over the traces."""
    passes = 0

    def traces() -> Iterator[Trace]:
        nonlocal passes
        passes += 1
        yield from [LATE] * 600

    points = sweep(traces(), SETTINGS)
    assert passes == 1
    assert [point.label for point in points] == ["one", "two", "nine"]
    for point in points:
        assert point.savings == replay([LATE] * 600, SETTINGS[point.label]).savings()[0]


def test_the_frontier_holds_what_no_other_setting_beats() -> None:
    """Saving most is on it though it loses; saving less at the same loss is not; saving nothing at no loss is."""
    on = {point.label: point.on_frontier for point in sweep([LATE], SETTINGS)}
    assert on == {"one": True, "two": False, "nine": True}


def test_an_unknown_fate_counts_as_a_loss_on_the_frontier() -> None:
    """A setting does not look better because the trace cannot say what it broke."""
    unsure = trace_of(*[tool_round()] * 7, tool_round("other news 7", arguments='{"city":"Oslo"}'), correct=True)
    cautious, eager = (replay([unsure], LoopConfig(patience=patience)).savings()[0] for patience in (9, 1))
    assert (eager.lost, eager.unknown) == (0, 1)
    assert frontier([cautious, eager]) == [cautious, eager]


def test_equals_stand_on_the_frontier_together() -> None:
    """Two settings that do the same are both shown as best."""
    one = replay([LATE], LoopConfig(patience=1)).savings()[0]
    assert frontier([one, one]) == [one, one]


def test_groups_have_frontiers_of_their_own() -> None:
    """By model there is one point for each setting and model, in order."""
    other = scored(*[1.0] * 8, contents=["alpha 1"] * 8)
    points = sweep([LATE, trace_of(*other.rounds, correct=True, model="a")], SETTINGS, by=("model",))
    assert [(point.savings.model, point.label) for point in points] == [
        (model, label) for model in ("a", "m") for label in SETTINGS
    ]


def test_the_standard_sweep_holds_the_defaults_and_the_gates() -> None:
    """A first look compares the package's default with the paper's gate and with exact match."""
    assert LoopConfig() in STANDARD_SWEEP.values()
    assert {"exact gate", "paper gate"} <= set(STANDARD_SWEEP)
    assert len(sweep([LATE])) == len(STANDARD_SWEEP)


def test_one_recorded_trace_among_many_is_enough_wherever_it_stands() -> None:
    """Traces are read in batches; a batch without any recorded verdict is no error, no verdict at all is."""
    verdict = Verdict(answer_complete=False, need_tool=True, confidence=0.9)
    decided = replace(LATE.rounds[0], decision=Decision(
        round=1, action=ControlAction.CONTINUE_INVOCATION, branch=ControlBranch.KEEP_DECODE, verdict=verdict
    ))  # fmt: skip
    recorded = replace(LATE, rounds=(decided, *LATE.rounds[1:]))
    (point,) = sweep([*[LATE] * 600, recorded], {"one": LoopConfig(patience=1)}, verdicts="recorded")
    assert point.savings.traces == 601
    with pytest.raises(TraceError, match="none of the 600 traces"):
        sweep([LATE] * 600, {"one": LoopConfig(patience=1)}, verdicts="recorded")


def test_a_sweep_without_settings_is_refused() -> None:
    """Nothing to try is a mistake, not an empty result."""
    with pytest.raises(UsageError, match="at least one setting"):
        sweep([LATE], {})


def test_a_sweep_over_nothing_has_no_points() -> None:
    """An empty input is no error."""
    assert sweep([]) == ()
