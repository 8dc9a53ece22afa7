"""Signs of a loop that goes in circles."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentloop_autogen import Detector
from agentloop_autogen.core.patterns import PatternTracker
from agentloop_autogen.core.rounds import Round, RoundKey, ToolCall, ToolResult


def call(name: str, content: str = "same", *, arguments: str = "{}", error: bool = False) -> Round:
    return Round("", (ToolResult(ToolCall(name, arguments), content, is_error=error),))


def detected(rounds: Sequence[Round]) -> list[Detector | None]:
    tracker = PatternTracker()
    return [tracker.observe(RoundKey.of(round_)) for round_ in rounds]


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_a_cycle_of_up_to_five_rounds_is_seen_when_it_has_run_twice(length: int) -> None:
    """A,B,A,B and longer cycles are seen at the end of their second turn, not before."""
    seen = detected([call(f"tool{i % length}") for i in range(2 * length)])
    assert seen == [None] * (2 * length - 1) + [Detector.CYCLE]


def test_one_round_repeated_is_a_cycle_at_the_third_time() -> None:
    """Twice the same may be a retry; three times is a loop."""
    assert detected([call("a")] * 3) == [None, None, Detector.CYCLE]


def test_a_cycle_whose_results_change_is_none() -> None:
    """Asking the same in turn while the answers move on is work, not a loop."""
    rounds = [call("a" if i % 2 else "b", f"row {i}") for i in range(12)]
    assert detected(rounds) == [None] * 12


def test_a_cycle_whose_results_change_in_their_times_alone_is_one() -> None:
    """A new timestamp does not hide a loop."""
    rounds = [call("a", f"quiet at 10:00:0{i}") for i in range(3)]
    assert detected(rounds)[-1] is Detector.CYCLE


def test_the_same_error_for_other_arguments_is_a_streak() -> None:
    """Rewriting the arguments does not hide that the outcome is the same failure."""
    rounds = [
        call("query", f"no such table: {name}", arguments=f'{{"table": "{name}"}}', error=True)
        for name in ("cities", "towns", "places", "villages", "hamlets")
    ]
    assert detected(rounds) == [None, *[Detector.SAME_ERROR] * 4]


def test_another_error_or_a_success_ends_the_streak() -> None:
    """Only the same kind of error in a row counts."""
    rounds = [
        call("query", "no such table", error=True),
        call("query", "syntax wrong near select", error=True),
        call("query", "3 rows"),
        call("query", "syntax wrong near select", error=True),
    ]
    assert detected(rounds) == [None] * 4


def test_identical_replies_with_nothing_between_are_a_monologue() -> None:
    """Saying the same twice without a call between is a monologue; another text is not."""
    assert detected([Round("I am on it."), Round("I am  on it.")])[-1] is Detector.MONOLOGUE
    assert detected([Round("I am on it."), Round("Nearly there.")])[-1] is None
    assert detected([Round("I am on it."), call("a"), Round("I am on it.")])[-1] is None


def test_many_identical_calls_in_one_round_are_seen() -> None:
    """Twenty identical calls inside one round are a pattern, three are not."""
    twenty = Round("", call("a").results * 20)
    three = Round("", call("a").results * 3)
    assert detected([twenty]) == [Detector.REPEATED_IN_ROUND]
    assert detected([three]) == [None]
