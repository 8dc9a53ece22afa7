"""Algorithm 2, and what counts as repetition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen.diagnostics import RiskRecord, low_value_risk
from agentloop_autogen.diagnostics.low_value import answer_repeats_itself, neighbours_repeat

RECORDS = st.lists(st.builds(RiskRecord, st.integers(0, 20), st.booleans(), st.booleans(), st.booleans()), max_size=30)


def test_algorithm_two_on_paper() -> None:
    """Five requests: failed after 4 calls, solved after 3, failed without a tool, repeating after 2, both after 1."""
    risk = low_value_risk(
        [
            RiskRecord(4, correct=False, inter_repeat=False, intra_repeat=False),
            RiskRecord(3, correct=True, inter_repeat=False, intra_repeat=False),
            RiskRecord(0, correct=False, inter_repeat=False, intra_repeat=False),
            RiskRecord(2, correct=True, inter_repeat=True, intra_repeat=False),
            RiskRecord(1, correct=False, inter_repeat=False, intra_repeat=True),
        ]
    )
    assert risk.flags == (True, False, False, True, True)
    assert risk.lgr == 3 / 5
    assert (risk.flagged_calls, risk.calls) == (4 + 2 + 1, 10)
    assert risk.lgts == 7 / 10


def test_no_requests_and_no_calls_give_zero() -> None:
    """Both shares are 0, not an error, where there is nothing to share."""
    assert (low_value_risk([]).lgr, low_value_risk([]).lgts) == (0.0, 0.0)
    assert low_value_risk([RiskRecord(0, correct=False, inter_repeat=True, intra_repeat=False)]).lgts == 0.0


@given(RECORDS)
def test_a_request_is_flagged_for_failing_after_tools_or_for_repeating(records: list[RiskRecord]) -> None:
    """The flags are eq. 8 to 10 for each request alone, and both ratios are shares."""
    risk = low_value_risk(records)
    expected = tuple((r.tool_calls > 0 and not r.correct) or r.inter_repeat or r.intra_repeat for r in records)
    assert risk.flags == expected
    assert 0.0 <= risk.lgr <= 1.0
    assert 0.0 <= risk.lgts <= 1.0


@pytest.mark.parametrize(
    ("answer", "repeats"),
    [
        ("The answer is 42. The answer is 42.", True),
        ("Paris. Paris.", True),
        ("It rains in Oslo today. Take a coat. It rains in  Oslo TODAY!", True),
        ("The capital is Paris. It lies on the Seine.", False),
        ("", False),
        ("Yes. I looked it up. Yes. It is so.", False),
        ("- Certificate left over: $250\n- Paid by card: $583\n- Certificate left over: $250", False),
        ("今日は雨です。今日は雨です。", True),
        ("| a | b |\n| --- | --- |\n| --- | --- |", False),
        ("It costs 2.50 and that one costs 2.50 too", False),
    ],
)
def test_an_answer_repeats_itself_by_whole_sentences(answer: str, *, repeats: bool) -> None:
    """A sentence said twice is repetition; a short word, a list item, a figure or a table rule is not."""
    assert answer_repeats_itself(answer) is repeats


def test_adjacent_answers_repeat_within_a_turn() -> None:
    """White space and case aside, the same answer twice running is repetition; across user turns it is not."""
    assert neighbours_repeat([(0, "It is done."), (0, "it  is done.")])
    assert not neighbours_repeat([(0, "It is done."), (1, "It is done.")])
    assert not neighbours_repeat([(0, "It is done."), (0, "Wait."), (0, "It is done.")])
    assert not neighbours_repeat([(0, ""), (0, " ")])
