"""What one trace shows, counted by hand."""

from __future__ import annotations

from agentloop_autogen import ControlAction, ControlBranch, Decision, Detector, LoopOutcome, RequestUsage, StopReason
from agentloop_autogen import Verdict as _Verdict
from agentloop_autogen.core.rounds import ToolCall
from agentloop_autogen.diagnostics import Trace, TraceRound, measure
from agentloop_autogen.diagnostics.measures import mark_rounds, round_tokens

from .trace_samples import PARIS, ROME, text_round, tool_round, trace_of

CLOSED = _Verdict(answer_complete=True, need_tool=False, confidence=0.9)
OPEN = _Verdict(answer_complete=False, need_tool=True, confidence=0.9)


def decision(round_: int, branch: ControlBranch, *, stable: bool | None, verdict: _Verdict = OPEN) -> Decision:
    return Decision(
        round=round_, action=ControlAction.CONTINUE_INVOCATION, branch=branch, stable=stable, verdict=verdict
    )


def test_calls_errors_repeats_and_rounds_without_news() -> None:
    """Six rounds: news, the same again, an error, the same error, other news, the first call a third time."""
    shown = measure(
        trace_of(
            tool_round(),
            tool_round(),
            tool_round("no such city", arguments='{"city":"Atlantis"}', error=True),
            tool_round("no such city", arguments='{"city":"Atlantis"}', error=True),
            tool_round(ROME, arguments='{"city":"Rome"}'),
            tool_round(),
            final="Rome is larger.",
            correct=False,
        )
    )
    assert (shown.rounds, shown.tool_calls, shown.errors) == (6, 6, 2)
    assert shown.repeated_calls == 3
    assert shown.repeated_rounds == 2
    assert shown.idle_rounds == 3
    assert (shown.gate_checks, shown.stable_gates) == (5, 2)
    assert (shown.has_error_streak, shown.has_cycle, shown.has_monologue) == (True, False, False)
    assert shown.model_calls == 7
    assert shown.returned


def test_marks_say_what_each_round_shows() -> None:
    """A first result is news; the third time the same call gives the same is a cycle."""
    marks = mark_rounds(trace_of(*[tool_round()] * 3))
    assert [mark.news for mark in marks] == [True, False, False]
    assert [mark.idle for mark in marks] == [False, True, True]
    assert [mark.stable for mark in marks] == [None, True, True]
    assert [mark.detector for mark in marks] == [None, None, Detector.CYCLE]


def test_rounds_of_two_user_turns_are_not_compared() -> None:
    """The same call for a new question is no repeat, whether turns are recorded or follow from a reply in text."""
    recorded = measure(trace_of(tool_round(turn=0), tool_round(turn=1)))
    inferred = measure(trace_of(tool_round(), text_round("2.1 million. Anything else?"), tool_round()))
    for shown in (recorded, inferred):
        assert (shown.turns, shown.repeated_calls, shown.idle_rounds, shown.repeated_rounds) == (2, 0, 0, 0)
    assert recorded.gate_checks == 0


def test_a_model_that_talks_to_itself_is_one_turn() -> None:
    """The same text again is a monologue and a repeated answer; nobody answered in between."""
    shown = measure(trace_of(text_round("I am on it."), text_round("I am on it.")))
    assert (shown.turns, shown.has_monologue, shown.inter_repeat) == (1, True, True)


def test_a_final_answer_counts_as_an_answer_round() -> None:
    """A draft sent out again as the final answer repeats; the last round's own text is not counted twice."""
    assert measure(trace_of(text_round("Done."), tool_round(), final="Done.")).inter_repeat
    assert not measure(trace_of(tool_round(), text_round("Done."), final="Done.")).inter_repeat


def test_graph_closure_needs_a_good_end_an_answer_and_no_waiting_call() -> None:
    """Each of the three terms of eq. 13 can fail by itself."""
    waiting = TraceRound(calls=(ToolCall("lookup", "{}"),))
    assert measure(trace_of(tool_round(), final="2.1 million")).returned
    assert not measure(trace_of(tool_round())).returned
    assert not measure(trace_of(tool_round(), waiting)).returned
    failed = Trace(id="1", source="s", model="m", request="q", rounds=(), final="x", completed=False)
    assert not measure(failed).returned


def test_recorded_decisions_give_gate_checks_stops_and_closure() -> None:
    """Three decisions: the first has no round before it, the second goes on, the third stops on stability."""
    outcome = LoopOutcome(
        stop_reason=StopReason.ANSWERED,
        model_calls=3,
        verifier_calls=2,
        synthesis_calls=1,
        decisions=(
            decision(1, ControlBranch.NEED_TOOL_ROUND, stable=None),
            decision(2, ControlBranch.NEED_TOOL_ROUND, stable=False),
            decision(3, ControlBranch.STOP_REPLANNING, stable=True, verdict=CLOSED),
        ),
    )
    trace = Trace(id="1", source="s", model="m", request="q", rounds=(tool_round(),) * 3, outcome=outcome)
    shown = measure(trace)
    assert (shown.recorded_checks, shown.recorded_stops, shown.closed, shown.model_calls) == (2, 1, True, 6)
    assert measure(trace_of(tool_round())).recorded_checks is None


def test_tokens_are_those_recorded_and_estimated_elsewhere() -> None:
    """A recorded planning call counts as recorded; another as a quarter of the characters it read and wrote."""
    first = tool_round(PARIS)
    second = TraceRound(text="x" * 40, usage=RequestUsage(prompt_tokens=70, completion_tokens=7))
    trace = trace_of(first, second)
    written = len("lookup") + len('{"city":"Paris"}')
    assert round_tokens(trace) == [(len("How many people?") + written) // 4, 77]
    third = trace_of(first, text_round("x" * 40))
    assert round_tokens(third)[1] == (len("How many people?") + written + len(PARIS) + 40) // 4


def test_rounds_after_the_best_reward_are_in_vain() -> None:
    """0, 0.5, 1, 1: the third reaches the best, one more follows; without any progress all were in vain."""
    rounds = [tool_round(f"r{i}", reward=reward) for i, reward in enumerate((0.0, 0.5, 1.0, 1.0))]
    shown = measure(trace_of(*rounds, correct=True))
    assert (shown.best_reward, shown.redundant_rounds, shown.rewards_show_it) == (1.0, 1, True)
    assert measure(trace_of(tool_round(reward=0.0), tool_round(reward=0.0), correct=False)).redundant_rounds == 2
    assert measure(trace_of(tool_round())).redundant_rounds is None
