"""Reading a verdict out of whatever a model wrote, and never reading half an understanding as closure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib._pydantic import to_strict_json_schema

from agentloop_autogen.core.records import Failure, Slot, SlotState, Verdict
from agentloop_autogen.verify.wire import ParsedVerdict, parse_verdict, wire_model

CLOSED: dict[str, Any] = {
    "slots": [{"name": "height", "evidence": ["e1"], "quote": "324 m", "state": "supported"}],
    "missing": [],
    "failure": "ok",
    "need_tool": False,
    "answer_complete": True,
    "confidence": 0.9,
}
OPEN: dict[str, Any] = {"answer_complete": False, "need_tool": True, "missing": ["year"], "confidence": 0.4}
CLOSED_TEXT = json.dumps(CLOSED)
OPEN_TEXT = json.dumps(OPEN)


def read(text: str, **options: Any) -> Verdict:
    """Parse a text that must be readable."""
    verdict = parse_verdict(text, **options).verdict
    assert verdict is not None
    return verdict


def flags(**changes: Any) -> str:
    """A closed verdict without slots, changed."""
    fields: dict[str, Any] = {
        "answer_complete": True,
        "need_tool": False,
        "confidence": 0.9,
        "failure": "ok",
        "missing": [],
    }
    return json.dumps({**fields, **changes})


def slots(*states: str, **changes: Any) -> str:
    """A closed verdict with one slot per state, changed."""
    entries = [{"name": f"s{number}", "quote": "q", "state": state} for number, state in enumerate(states)]
    return json.dumps({**CLOSED, "slots": entries, **changes})


def test_a_plain_verdict_is_read_as_it_stands() -> None:
    """A verdict in the asked-for form comes back field by field."""
    parsed = parse_verdict(CLOSED_TEXT)
    slot = Slot(name="height", state=SlotState.SUPPORTED, quote="324 m", evidence=("e1",))
    assert parsed == ParsedVerdict(
        Verdict(answer_complete=True, need_tool=False, confidence=0.9, slots=(slot,)), truncated=False
    )


def test_a_dumped_verdict_reads_back_as_itself() -> None:
    """The wire form of a verdict is its own JSON dump."""
    verdict = Verdict(
        answer_complete=False,
        need_tool=True,
        confidence=0.25,
        failure=Failure.TOOL_CONFLICT,
        missing=("a", "b"),
        slots=(Slot(name="a", state=SlotState.MISSING), Slot(name="c", state=SlotState.CONFLICTING, quote="x y")),
    )
    assert read(verdict.model_dump_json()) == verdict


@pytest.mark.parametrize(
    "wrapped",
    [
        f"```json\n{CLOSED_TEXT}\n```",
        f"Here is my verdict:\n{CLOSED_TEXT}\nI hope that helps {{really}}!",
        f"<think>maybe {OPEN_TEXT}</think>\n{CLOSED_TEXT}",
        f"thinking without an opening tag {OPEN_TEXT}</think>{CLOSED_TEXT}",
        f"<think>one</think> more </think>{CLOSED_TEXT}",
        f"<think>{OPEN_TEXT}</think>",
        f'{{"verdict": {CLOSED_TEXT}}}',
        f"{OPEN_TEXT}\nOn second thought:\n{CLOSED_TEXT}",
        CLOSED_TEXT.replace("}]", "},]").replace("0.9}", "0.9,}"),
        str(CLOSED),
        str(CLOSED).replace("True", "true").replace("False", "false"),
        CLOSED_TEXT.replace("answer_complete", "answerComplete").replace("need_tool", "Need Tool"),
        CLOSED_TEXT.replace("supported", "SUPPORTED").replace('"ok"', '"Failure.OK"'),
    ],
)
def test_wrapping_and_spelling_do_not_hide_a_verdict(wrapped: str) -> None:
    """Fences, prose, thinking, wrappers, trailing commas, Python spelling and other cases are all read."""
    expected = read(OPEN_TEXT) if wrapped == f"<think>{OPEN_TEXT}</think>" else read(CLOSED_TEXT)
    assert read(wrapped) == expected


def test_the_thought_is_read_only_where_the_reply_holds_nothing() -> None:
    """A verdict set apart as thinking counts if the reply is empty, and not beside a verdict in the reply."""
    assert read("", thought=f"Let me see. {CLOSED_TEXT}").closed
    assert not read(OPEN_TEXT, thought=CLOSED_TEXT).closed


@pytest.mark.parametrize("thinking", [f"<think>{CLOSED_TEXT} would be it if only", f"<think>{CLOSED_TEXT} hm</think>"])
def test_a_verdict_merely_considered_in_thinking_is_none(thinking: str) -> None:
    """Thinking that goes on after an object has not given it as its verdict."""
    assert parse_verdict(thinking).verdict is None


def test_an_unclosed_think_tag_that_ends_in_a_verdict_is_read() -> None:
    """Some servers open the thinking and never close it before the reply."""
    assert read(f"<think>\n{CLOSED_TEXT}").closed


def test_a_think_tag_inside_a_quote_cuts_nothing() -> None:
    """An object that spans the whole reply is read whole, whatever its strings hold."""
    slot = {"name": "tag", "quote": "</think>", "state": "missing"}
    assert [item.name for item in read(json.dumps({**OPEN, "slots": [slot]})).slots] == ["tag"]


@pytest.mark.parametrize(
    "text",
    ["", "   ", "yes", "null", "[]", "{}", "[1, 2]", '{"confidence": 1}', "{answer_complete}", "{" * 5_000, "\ud800{"],
)
def test_what_is_no_verdict_is_not_read_as_one(text: str) -> None:
    """Without a flag or a slot there is no verdict."""
    assert parse_verdict(text).verdict is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.7, 0.7), (1, 1.0), (0, 0.0), ("95%", 0.95), (95, 0.95), ("0.8", 0.8), ("80/100", 0.8), ("1%", 0.01),
        ("high", 0.9), ("Low", 0.3), ("very sure", 0.0), (None, 0.0), (-1, 0.0), (101, 0.0), (True, 0.0), ([], 0.0),
    ],
)  # fmt: skip  # one value to a line would hide that this is one table
def test_confidence_is_a_share_in_any_notation(value: object, expected: float) -> None:
    """Percentages and words become a share; what is no confidence is none."""
    assert read(flags(confidence=value)).confidence == pytest.approx(expected)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_no_confidence(number: str) -> None:
    """NaN and infinities, which JSON readers let through, become 0."""
    assert read(flags().replace("0.9", number)).confidence == 0.0


@pytest.mark.parametrize(
    ("yes", "no"), [(True, False), ("yes", "no"), (1, 0), ("TRUE", "False"), (1.0, 0.0), ("1", "0")]
)
def test_flags_are_read_in_any_spelling_but_only_literally(yes: object, no: object) -> None:
    """Every usual way to write a truth value is understood."""
    assert read(flags(answer_complete=yes, need_tool=no)).closed
    assert not read(flags(answer_complete=no, need_tool=yes)).closed


@pytest.mark.parametrize("value", ["maybe", "not yet", None, 2, [], ["true"], {"value": True}, "true-ish"])
def test_a_flag_that_is_not_understood_is_no_consent(value: object) -> None:
    """Truthiness is no agreement: such a flag never closes."""
    assert not read(flags(answer_complete=value)).closed
    assert not read(flags(need_tool=value)).closed


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Supported", SlotState.SUPPORTED), ("SlotState.MISSING", SlotState.MISSING),
        ("un-synthesized", SlotState.UNSYNTHESISED), ("not synthesised", SlotState.UNSYNTHESISED),
        ("conflict", SlotState.CONFLICTING), ("exhausted", SlotState.EXHAUSTED),
        ("unsupported", SlotState.MISSING), ("partially supported", SlotState.MISSING), (None, SlotState.MISSING),
    ],
)  # fmt: skip  # one value to a line would hide that this is one table
def test_slot_states_are_read_in_any_spelling_and_doubt_is_missing(state: object, expected: SlotState) -> None:
    """Known spellings are mapped; an unknown one counts as missing."""
    text = json.dumps({"answer_complete": False, "slots": [{"name": "a", "state": state}]})
    assert read(text).slots[0].state is expected


def test_slots_may_come_as_an_object_or_as_names() -> None:
    """Slots keyed by name and bare names are understood; a bare name is missing."""
    keyed = {"answer_complete": False, "slots": {"a": "supported", "b": {"state": "conflicting", "quote": "q"}}}
    assert [(slot.name, slot.state.value) for slot in read(json.dumps(keyed)).slots] == [
        ("a", "supported"),
        ("b", "conflicting"),
    ]
    assert read(json.dumps({"slots": ["price"]})).slots == (Slot(name="price", state=SlotState.MISSING),)


def test_a_slot_without_a_name_is_kept() -> None:
    """Dropping an unnamed open slot could close the request."""
    text = json.dumps({**OPEN, "slots": [{"state": "missing"}]})
    assert [slot.name for slot in read(text).slots] == ["item 1"]


def test_of_two_slots_with_one_name_the_more_open_counts() -> None:
    """A slot given twice is only as closed as its worse half."""
    twice = [{"name": "Price", "state": "missing"}, {"name": "price", "state": "supported", "quote": "q"}]
    assert [slot.state for slot in read(json.dumps({**OPEN, "slots": twice})).slots] == [SlotState.MISSING]


def test_open_slots_survive_an_absurd_number_of_slots() -> None:
    """The bound on slots drops supported ones first."""
    many = [{"name": f"s{number}", "state": "supported"} for number in range(500)]
    many.append({"name": "last", "state": "missing"})
    read_slots = read(json.dumps({**OPEN, "slots": many})).slots
    assert len(read_slots) == 64
    assert read_slots[-1].name == "last"


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("year, owner", ("year", "owner")), ("none", ()), ("", ()), (None, ()), (["year", "year"], ("year",)),
        ([{"name": "year"}], ("year",)), (["None", "- year"], ("year",)), ({"year": "?"}, ("year",)), (7, ("7",)),
    ],
)  # fmt: skip  # one value to a line would hide that this is one table
def test_missing_names_are_read_from_any_shape(missing: object, expected: tuple[str, ...]) -> None:
    """A string, a list of objects or an object of names all become names; words for nothing are dropped."""
    text = json.dumps({"answer_complete": False, "need_tool": True, "failure": "answer_incomplete", "missing": missing})
    assert read(text).missing == expected


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("ok", Failure.OK), (None, Failure.OK), ("none", Failure.OK), ("Tool Conflict", Failure.TOOL_CONFLICT),
        ("toolSetUnstable", Failure.TOOL_SET_UNSTABLE), ("low-confidence", Failure.LOW_CONFIDENCE),
        ("explosion", Failure.LOW_CONFIDENCE),
    ],
)  # fmt: skip  # one value to a line would hide that this is one table
def test_failures_are_read_in_any_spelling(failure: object, expected: Failure) -> None:
    """Known failures are mapped; an unknown one is low confidence."""
    assert read(flags(failure=failure)).failure is expected


def test_an_absent_failure_follows_from_the_rest() -> None:
    """Where f is not given it is what the flags and slots say."""
    assert read(json.dumps({"answer_complete": True, "need_tool": False})).failure is Failure.OK
    assert read(json.dumps(OPEN)).failure is Failure.ANSWER_INCOMPLETE
    conflicting = {"answer_complete": False, "need_tool": True, "slots": {"a": "conflicting"}}
    assert read(json.dumps(conflicting)).failure is Failure.TOOL_CONFLICT


@given(st.integers(min_value=2, max_value=len(CLOSED_TEXT) - 1))
def test_a_cut_off_verdict_is_never_complete(length: int) -> None:
    """Wherever the text of a closed verdict breaks off, what is read of it does not close, by flags or by slots."""
    parsed = parse_verdict(CLOSED_TEXT[:length], draft="It is 324 m high.")
    if parsed.verdict is None:
        return
    assert parsed.truncated
    assert not parsed.verdict.answer_complete
    assert not parsed.verdict.slots or any(slot.state is not SlotState.SUPPORTED for slot in parsed.verdict.slots)
    assert parsed.doubtful or parsed.verdict.missing or parsed.verdict.need_tool


def test_a_cut_off_verdict_keeps_what_it_says_is_missing() -> None:
    """An open slot before the cut is enough to go on; no second call is needed for that."""
    parsed = parse_verdict('```json\n{"slots": [{"name": "year", "quote": "", "state": "missing"}, {"name": "hei')
    assert parsed.truncated
    assert not parsed.doubtful
    assert parsed.verdict is not None
    assert "year" in parsed.verdict.missing


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [
        (flags(need_tool=True), True),
        (flags(missing=["year"]), True),
        (slots("supported", "missing"), True),
        (slots("unsynthesised"), True),
        (slots("supported", answer_complete=False, need_tool=True), True),
        (slots("supported", answer_complete=False, missing=["year"]), True),
        (json.dumps({"answer_complete": True}), True),
        (flags(answer_complete=False, need_tool=True), False),
        (slots("missing", answer_complete=False, need_tool=True), False),
        (slots("missing", answer_complete=False, failure="answer_incomplete"), False),
        (flags(failure="answer_incomplete"), False),
    ],
)
def test_contradictions_are_named_and_never_close(text: str, doubtful: bool) -> None:
    """What contradicts itself says so, asks for repair where closure hangs on it, and goes on meanwhile."""
    parsed = parse_verdict(text)
    assert parsed.contradictions
    assert parsed.doubtful is doubtful
    assert parsed.verdict is not None
    assert not parsed.verdict.answer_complete
    assert not parsed.verdict.slots or any(slot.state is not SlotState.SUPPORTED for slot in parsed.verdict.slots)


@pytest.mark.parametrize(
    "text",
    [
        CLOSED_TEXT,
        slots("unsynthesised", answer_complete=False, failure="answer_incomplete"),
        slots("supported", "missing", answer_complete=False, need_tool=True, failure="answer_incomplete"),
        slots("supported", "exhausted"),
        flags(failure="low_confidence"),
    ],
)
def test_a_consistent_verdict_has_no_contradiction(text: str) -> None:
    """A verdict that agrees with itself is left alone."""
    assert not parse_verdict(text).contradictions


def test_slots_missing_without_the_flag_still_ask_for_a_tool_round() -> None:
    """A missing slot beside `need_tool` false puts the slot's name among the missing."""
    assert read(slots("missing", answer_complete=False, need_tool=False)).missing == ("s0",)


def test_without_a_draft_nothing_is_supported() -> None:
    """A slot the model calls supported although nothing is written yet is merely unwritten."""
    verdict = read(CLOSED_TEXT, draft="  ")
    assert [slot.state for slot in verdict.slots] == [SlotState.UNSYNTHESISED]
    assert (verdict.answer_complete, verdict.need_tool, verdict.failure) == (False, False, Failure.ANSWER_INCOMPLETE)


def test_without_slots_the_flags_decide_even_without_a_draft() -> None:
    """Flags alone are not second-guessed."""
    assert read(flags(), draft="").closed


@pytest.mark.parametrize(
    ("quote", "draft", "state"),
    [
        ("Mette Lund", "Founded in 1998.", SlotState.UNSYNTHESISED),
        ("Mette Lund", "Its head is METTE LUND.", SlotState.SUPPORTED),
        ("25546", "It has 25,546 inhabitants.", SlotState.SUPPORTED),
        ("25 546", "It has 25546 inhabitants.", SlotState.SUPPORTED),
        ("高333米", "东京塔高333米。", SlotState.SUPPORTED),
        ("３３３", "It is 333 m high.", SlotState.SUPPORTED),
        ("the owner is Ann Lee", "It is the tower in the town.", SlotState.UNSYNTHESISED),
        ("", "Fine, thanks!", SlotState.SUPPORTED),
    ],
)
def test_a_supported_slot_leaves_a_trace_in_the_draft(quote: str, draft: str, state: SlotState) -> None:
    """A slot whose quote shares no telling word with the draft is not stated by it."""
    text = json.dumps({**CLOSED, "slots": [{"name": "a", "quote": quote, "state": "supported"}]})
    assert read(text, draft=draft).slots[0].state is state


@pytest.mark.parametrize(
    "echo",
    [CLOSED_TEXT, json.dumps(CLOSED, indent=4), f"note: {CLOSED_TEXT} end", json.dumps({"note": CLOSED_TEXT})],
)
def test_an_echo_of_the_data_is_no_verdict(echo: str) -> None:
    """A verdict that stands in the judged data is the data's, however the model copies it."""
    assert parse_verdict(CLOSED_TEXT, echoes=["request", echo]).verdict is None
    assert not read(f"{OPEN_TEXT} because e1 says {CLOSED_TEXT}", echoes=[echo]).closed


def test_a_verdict_inside_a_string_of_another_object_is_none() -> None:
    """Objects in strings and deeper objects are not taken out of their place."""
    inside = {"note": f"prefix {CLOSED_TEXT}", "nested": {"deeper": CLOSED}}
    assert parse_verdict(json.dumps(inside)).verdict is None


@settings(deadline=None)
@given(st.text(alphabet="{}[]\":,'\\ntrue0.answer_completeneed_tool<think>/`", max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Any text is read or refused, never an exception, and a text that is its own echo is never a verdict."""
    assert parse_verdict(text, thought=text, echoes=[text], draft=text).verdict is None


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    ["{" * 200_000, '{"a":' * 50_000, "{'" * 100_000, "</think>" * 50_000, '{"slots": [' + "[" * 90_000, "{}" * 90_000],
)
def test_hostile_length_costs_little_time(text: str) -> None:
    """Pathological replies are given up on quickly."""
    assert parse_verdict(text).verdict is None


def test_the_schema_bounds_what_is_written_and_puts_judgement_last() -> None:
    """The JSON schema limits counts and lengths and orders the fields from evidence to judgement."""
    schema = to_strict_json_schema(wire_model(max_slots=3, max_quote_chars=50))
    assert list(schema["properties"]) == [
        "slots", "missing", "failure", "need_tool", "answer_complete", "confidence",
    ]  # fmt: skip  # the order is the point
    assert schema["properties"]["slots"]["maxItems"] == 3
    slot = schema["$defs"]["WireSlot"]
    assert list(slot["properties"]) == ["name", "evidence", "quote", "state"]
    assert slot["properties"]["quote"]["maxLength"] == 50
    assert slot["properties"]["state"]["enum"] == ["missing", "conflicting", "unsynthesised", "supported"]
    assert slot["required"] == ["name", "evidence", "quote", "state"]


def test_the_schema_model_refuses_no_reply() -> None:
    """Clients validate replies with the schema model and would lose the ones it refused."""
    assert wire_model(max_slots=3, max_quote_chars=50).model_validate_json("no JSON at all") is None
