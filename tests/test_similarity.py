"""ρ, S_call, S_result and the gate: hand-computed values and their properties."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen import LoopConfig
from agentloop_autogen.core.normalise import normalise_arguments, normalise_text, similarity_tokens
from agentloop_autogen.core.rounds import Round, RoundKey, ToolCall, ToolResult
from agentloop_autogen.core.similarity import CallKey, ResultKey, call_similarity, result_similarity, text_similarity
from agentloop_autogen.core.stability import check_stability

TEXT = st.text(max_size=40)
NAMES = st.sampled_from(["search", "visit", "calc"])
CALLS = st.lists(st.tuples(NAMES, TEXT), max_size=5)


def calls(*pairs: tuple[str, str]) -> tuple[CallKey, ...]:
    return tuple(CallKey(tool, normalise_arguments(arguments)) for tool, arguments in pairs)


def results(*items: tuple[str, str, bool]) -> tuple[ResultKey, ...]:
    return tuple(ResultKey(tool, "", is_error, text) for tool, text, is_error in items)


def key(*triples: tuple[str, str, str], draft: str = "", error: bool = False) -> RoundKey:
    made = tuple(ToolResult(ToolCall(tool, arguments), content, is_error=error) for tool, arguments, content in triples)
    return RoundKey.of(Round(draft, made))


def test_rho_of_two_short_texts_by_hand() -> None:
    """ρ("red cat", "red dog") = 0.55 · 4·2/14 + 0.45 · 1/3: "red " in common, one token of three."""
    assert text_similarity("red cat", "red dog") == pytest.approx(0.55 * 8 / 14 + 0.45 / 3)


def test_rho_of_disjoint_and_of_empty_texts_by_hand() -> None:
    """ρ is 0 for texts without a common letter, 1 for two empty ones, 0 for one empty."""
    assert text_similarity("abc", "xyz") == 0.0
    assert text_similarity("", "") == 1.0
    assert text_similarity("abc", "") == 0.0


def test_tokens_are_lower_cased_word_runs_and_single_cjk_characters() -> None:
    """Tokens ignore case and punctuation; CJK characters stand one by one."""
    assert similarity_tokens("Red, red-CAT 2.5") == {"red", "cat", "2", "5"}
    assert similarity_tokens("北京market") == {"北", "京", "market"}


@given(TEXT, TEXT)
def test_rho_is_symmetric_and_between_0_and_1(left: str, right: str) -> None:
    """ρ(x, y) = ρ(y, x) in [0, 1]."""
    value = text_similarity(left, right)
    assert 0.0 <= value <= 1.0
    assert value == pytest.approx(text_similarity(right, left))


@given(TEXT)
def test_rho_of_a_text_with_itself_is_1(text: str) -> None:
    """ρ(x, x) = 1."""
    assert text_similarity(text, text) == 1.0


def test_s_call_by_hand() -> None:
    """S_call is the mean of ρ over calls aligned by tool and arguments."""
    before = calls(("search", '{"q": "red cat"}'), ("visit", '{"u": 1}'))
    after = calls(("visit", '{"u": 1}'), ("search", '{"q": "red dog"}'))
    changed = text_similarity('{"q":"red cat"}', '{"q":"red dog"}')
    assert call_similarity(before, after) == pytest.approx((changed + 1.0) / 2)
    # {"q":"red cat"} and {"q":"red dog"}: 15 characters each, 12 in common; tokens q, red of q, red, cat, dog.
    assert changed == pytest.approx(0.55 * 24 / 30 + 0.45 * 2 / 4)


def test_s_call_at_its_edges() -> None:
    """Both empty: 1. One empty, other names, or another multiplicity: 0."""
    one = calls(("search", "{}"))
    assert call_similarity((), ()) == 1.0
    assert call_similarity(one, ()) == call_similarity((), one) == 0.0
    assert call_similarity(one, calls(("visit", "{}"))) == 0.0
    assert call_similarity(one, (*one, *one)) == 0.0


def test_s_result_at_its_edges() -> None:
    """Both empty: 1. One empty, other tools, or another error flag: 0. Else the mean of ρ."""
    ok, failed = results(("search", "red cat", False)), results(("search", "red cat", True))
    assert result_similarity((), ()) == 1.0
    assert result_similarity(ok, ()) == result_similarity((), ok) == 0.0
    assert result_similarity(ok, failed) == 0.0
    assert result_similarity(ok, results(("visit", "red cat", False))) == 0.0
    assert result_similarity(ok, results(("search", "red dog", False))) == pytest.approx(0.55 * 8 / 14 + 0.45 / 3)


@given(CALLS, CALLS, st.randoms(use_true_random=False))
def test_s_call_does_not_depend_on_the_order_of_calls(
    before: list[tuple[str, str]], after: list[tuple[str, str]], rng: random.Random
) -> None:
    """Shuffling the calls of a round changes nothing; the value stays in [0, 1] and is symmetric."""
    shuffled = list(after)
    rng.shuffle(shuffled)
    value = call_similarity(calls(*before), calls(*after))
    assert 0.0 <= value <= 1.0
    assert value == call_similarity(calls(*before), calls(*shuffled))
    assert value == pytest.approx(call_similarity(calls(*after), calls(*before)))


@given(CALLS)
def test_s_call_of_a_round_with_itself_is_1(made: list[tuple[str, str]]) -> None:
    """S_call(t, t) = 1."""
    assert call_similarity(calls(*made), calls(*made)) == 1.0


@given(
    st.dictionaries(TEXT, st.one_of(st.integers(), TEXT, st.booleans(), st.none()), max_size=5),
    st.randoms(use_true_random=False),
)
def test_arguments_do_not_depend_on_key_order_or_layout(arguments: dict[str, object], rng: random.Random) -> None:
    """The same arguments in another key order, layout or escaping are the same arguments."""
    items = list(arguments.items())
    rng.shuffle(items)
    spelled = json.dumps(dict(items), indent=2, ensure_ascii=True)
    assert normalise_arguments(json.dumps(arguments, ensure_ascii=False)) == normalise_arguments(spelled)


@given(
    st.lists(st.tuples(NAMES, TEXT, st.booleans()), max_size=5),
    st.lists(st.tuples(NAMES, TEXT, st.booleans()), max_size=5),
)
def test_s_result_is_symmetric_and_between_0_and_1(
    before: list[tuple[str, str, bool]], after: list[tuple[str, str, bool]]
) -> None:
    """S_result is symmetric, in [0, 1], and 1 for a round with itself."""
    value = result_similarity(results(*before), results(*after))
    assert 0.0 <= value <= 1.0
    assert value == pytest.approx(result_similarity(results(*after), results(*before)))
    assert result_similarity(results(*before), results(*before)) == 1.0


@pytest.mark.parametrize(
    ("raw", "escaped"),
    [
        ('{"city": "北京"}', '{"city": "\\u5317\\u4eac"}'),
        ("１２３ ｋｍ", "123 km"),
        ("café", "cafe\u0301"),
        ("a  b\n c", "a b c"),
    ],
)
def test_spellings_of_one_result_are_equal(raw: str, escaped: str) -> None:
    """Escaped and raw CJK, full-width digits, decomposed letters and layouts compare as equal."""
    assert normalise_text(raw) == normalise_text(escaped)


def test_the_first_round_is_not_checked() -> None:
    """There is no gate in the first round, and no event to count."""
    seen = check_stability(None, key(("search", "{}", "x")), LoopConfig(), masked=False)
    assert (seen.s_call, seen.s_result, seen.stable) == (None, None, None)


def test_two_rounds_without_calls_are_a_stable_pair() -> None:
    """Two text-only rounds in a row pass the gate: both call sets and both result sets are empty."""
    seen = check_stability(key(draft="a"), key(draft="b"), LoopConfig(), masked=False)
    assert (seen.s_call, seen.s_result, seen.stable) == (1.0, 1.0, True)


@pytest.mark.parametrize(
    ("config", "stable"),
    [
        (LoopConfig(tau_call=0.5, tau_result=0.5), True),
        (LoopConfig(tau_call=0.5, tau_result=0.5, call_similarity=False), False),
        (LoopConfig(tau_call=0.5, tau_result=0.5, result_similarity=False), False),
        (LoopConfig(tau_call=1.0, tau_result=0.5), False),
        (LoopConfig(tau_call=0.5, tau_result=1.0), False),
    ],
)
def test_thresholds_and_switches_of_the_gate(config: LoopConfig, stable: bool) -> None:
    """Similar calls and results pass only where their switch is on and their threshold is reached."""
    before, after = key(("search", '{"q": "red cat"}', "red cat")), key(("search", '{"q": "red dog"}', "red cats"))
    assert check_stability(before, after, config, masked=False).stable is stable


def test_equal_rounds_pass_the_gate_with_similarity_switched_off() -> None:
    """Exactly equal calls and results need no similarity, and key order or call order does not matter."""
    off = LoopConfig(call_similarity=False, result_similarity=False)
    before = key(("search", '{"a": 1, "b": 2}', "x"), ("visit", "{}", "y"))
    after = key(("visit", "{ }", "y"), ("search", '{"b":2,"a":1}', "x"))
    assert check_stability(before, after, off, masked=False).stable is True


def test_an_error_is_not_the_same_result() -> None:
    """The same text as error and as result does not pass the gate."""
    before, after = key(("search", "{}", "x")), key(("search", "{}", "x"), error=True)
    assert check_stability(before, after, LoopConfig(), masked=False).stable is False


def test_masking_makes_a_new_timestamp_no_change() -> None:
    """Results that differ in times alone are exactly equal once volatile fields are masked, and not before."""
    exact = LoopConfig(result_similarity=False)
    before = key(("poll", "{}", '{"state": "queued", "at": "2026-01-05T10:00:00Z"}'))
    after = key(("poll", "{}", '{"state": "queued", "at": "2026-01-05T10:00:09Z"}'))
    assert check_stability(before, after, exact, masked=False).stable is False
    assert check_stability(before, after, exact, masked=True).stable is True
