"""The SQL store of past requests, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from autogen_core import ComponentLoader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentloop_autogen.core.records import ControlBranch, SlotState, StopReason
from agentloop_autogen.core.similarity import text_similarity
from agentloop_autogen.errors import UsageError
from agentloop_autogen.slots.lines import export_lines, import_lines
from agentloop_autogen.slots.records import RuntimeStateObject, SlotTrace, ToolTrace
from agentloop_autogen.slots.sql import SQLSlotStateStore
from agentloop_autogen.slots.sql.terms import plan_probes

from .slot_samples import everything, state, states

TOWNS = states(
    "How many inhabitants has Vennholm?",
    "How many inhabitants has Ostby?",
    "Which hotels in Ostby have a free room on Friday?",
    "Translate the letter of Ada Ostson into plain words",
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Where an empty store is, on each of the databases."""
    if request.param == "sqlite":
        return str(tmp_path / "slots.sqlite3")
    return request.getfixturevalue("postgres_server").new_database(uuid.uuid4().hex)


async def similar_ids(store: SQLSlotStateStore, request: str, k: int = 3) -> list[str]:
    """The ids of what is found, in order."""
    return [one.state.id for one in await store.similar(request, k)]


async def test_what_is_put_comes_back_whole(place: str) -> None:
    """Every field, the request with its odd characters and the moment with its time zone included."""
    odd = state("ü-1", "Wie viele 東京 👩‍👩‍👧\x00\x1b[31m?\n").model_copy(
        update={"created_at": datetime(2026, 3, 1, 1, 2, 3, 456789, tzinfo=timezone(timedelta(hours=5, minutes=30)))}
    )
    await SQLSlotStateStore(place).put([odd])
    assert await everything(SQLSlotStateStore(place)) == [odd]


async def test_an_object_with_a_known_id_is_replaced(place: str) -> None:
    """Putting twice changes nothing, and of several objects with one id the last one counts."""
    store = SQLSlotStateStore(place)
    await store.put(TOWNS)
    await store.put(TOWNS)
    newer = state("0", "Is the bridge of Kelstad open?", minutes=9)
    await store.put([state("0", "not this one"), newer])
    assert await everything(store) == [*TOWNS[1:], newer]
    assert (await store.stats()).objects == 4
    assert await similar_ids(store, "Is the bridge of Kelstad open?", 1) == ["0"]
    assert "0" not in await similar_ids(store, TOWNS[0].request or "")


async def test_the_most_similar_requests_come_first(place: str) -> None:
    """They are in the order of ρ, which each of them carries, and no more than were asked for."""
    store = SQLSlotStateStore(place)
    await store.put(TOWNS)
    asked = "How many inhabitants has Vennholm today?"
    found = await store.similar(asked, 2)
    assert [one.state for one in found] == TOWNS[:2]
    assert [one.similarity for one in found] == [text_similarity(asked, one.state.request or "") for one in found]


@pytest.mark.parametrize("request_", ["", "???", "zzz yyy", "\x00", "x" * 100_000])
async def test_a_request_like_no_other_finds_nothing(place: str, request_: str) -> None:
    """No word in common means no similar request, however odd the request is."""
    store = SQLSlotStateStore(place)
    assert await store.similar(request_) == []
    await store.put(TOWNS)
    assert await store.similar(request_) == []


async def test_of_equally_similar_requests_the_newest_comes_first(place: str) -> None:
    """The same request asked again and again is found in its latest form."""
    store = SQLSlotStateStore(place)
    await store.put([state(str(number), "Same words", minutes=number % 7) for number in range(14)])
    assert await similar_ids(store, "Same words", 3) == ["13", "6", "12"]


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("東京の人口は何人ですか", "東京の人口"),
        ("STRASSE und Öl", "strasse öl"),
        ('a "quoted" OR NEAR(x) * ^ word: -thing', "near quoted"),
        ("'); DROP TABLE agentloop_slot_objects; --", "drop table"),
        ("O'Brien \\ & | ! <-> (tickets)", "brien tickets"),
    ],
)
async def test_no_text_is_taken_for_a_query(place: str, kept: str, asked: str) -> None:
    """Scripts without spaces are found, and characters that mean something to the index do no harm."""
    store = SQLSlotStateStore(place)
    await store.put([state("odd", kept), *TOWNS])
    assert (await similar_ids(store, asked))[0] == "odd"
    assert (await similar_ids(store, kept))[0] == "odd"


@pytest.mark.parametrize("k", [0, -1])
async def test_fewer_than_one_similar_request_cannot_be_asked_for(place: str, k: int) -> None:
    """The message says what mends it."""
    with pytest.raises(UsageError, match="ask for 1 or more"):
        await SQLSlotStateStore(place).similar("x", k)


async def test_what_is_forgotten_is_not_found_any_more(place: str) -> None:
    """It is gone from the objects, from the index and from the counts; unknown ids are no error."""
    store = SQLSlotStateStore(place)
    await store.put(TOWNS)
    assert await store.forget(["0", "0", "nobody"]) == 1
    assert await store.forget(["0"]) == 0
    assert await everything(store) == TOWNS[1:]
    assert (await store.stats()).objects == 3
    assert "0" not in await similar_ids(store, TOWNS[0].request or "")
    assert await store.forget([]) == 0


async def test_all_before_a_moment_is_forgotten(place: str) -> None:
    """The moment itself is not before it, and no moment means all."""
    store = SQLSlotStateStore(place)
    await store.put(TOWNS)
    assert await store.forget_before(TOWNS[2].created_at) == 2
    assert await everything(store) == TOWNS[2:]
    assert await store.forget_before(None) == 2
    assert await everything(store) == []


async def test_an_export_is_in_the_order_of_time_over_many_pages(place: str) -> None:
    """However many there are, each comes once, the oldest first; of one moment in the order of their ids."""
    store = SQLSlotStateStore(place)
    put = [state(f"{number:04}", f"request {number}", minutes=-(number // 3)) for number in range(1_201)]
    await store.put(put)
    assert await everything(store) == sorted(put, key=lambda one: (one.created_at, one.id))
    assert [one.id for one in await store.newest(2)] == ["0002", "0001"]


async def test_the_number_of_objects_is_bounded(place: str) -> None:
    """Beyond `max_objects` the oldest go, whatever the order in which they are put."""
    store = SQLSlotStateStore(place, max_objects=2)
    await store.put(TOWNS)
    assert await everything(store) == TOWNS[2:]
    await store.put([state("late", minutes=-5)])
    assert await everything(store) == TOWNS[2:]
    assert (await store.stats()).objects == 2


async def test_a_store_that_is_far_too_large_shrinks_bit_by_bit(place: str) -> None:
    """No single write has to remove everything."""
    await SQLSlotStateStore(place).put([state(f"{number:05}", "x", minutes=number) for number in range(1_600)])
    store = SQLSlotStateStore(place, max_objects=10)
    await store.put([state("new", minutes=9_999)])
    assert (await store.stats()).objects == 600
    await store.put([state("newer", minutes=9_999)])
    assert (await store.stats()).objects == 10


async def test_old_objects_go_and_are_not_found_meanwhile(place: str) -> None:
    """Past `max_age_days` an object is no hint, even before a write removes it."""
    now = datetime.now(timezone.utc)
    old, young = (
        state(name, request).model_copy(update={"created_at": now - timedelta(days=days)})
        for name, request, days in (("old", "an old request", 8), ("young", "a young request", 6))
    )
    await SQLSlotStateStore(place).put([old, young])
    store = SQLSlotStateStore(place, max_age_days=7)
    assert await similar_ids(store, "a request") == ["young"]
    await store.put([])
    assert await everything(store) == [old, young]
    await store.put([young])
    assert await everything(store) == [young]


async def test_a_hook_says_what_may_be_kept(place: str) -> None:
    """What it returns is kept, None keeps nothing, and an import goes through it as well."""

    def redact(one: RuntimeStateObject) -> RuntimeStateObject | None:
        if one.request is None or "Ada" in one.request:
            return None
        return one.model_copy(update={"request": one.request.replace("Ostby", "[town]")})

    store = SQLSlotStateStore(place, redact=redact)
    await store.put(TOWNS)
    assert await import_lines(store, [TOWNS[3].model_dump_json()]) == 1
    assert [one.request for one in await everything(store)] == [
        "How many inhabitants has Vennholm?",
        "How many inhabitants has [town]?",
        "Which hotels in [town] have a free room on Friday?",
    ]
    assert "2" not in await similar_ids(store, "Ostby")


async def test_without_text_similar_requests_are_found_by_hashed_words(place: str) -> None:
    """The objects come back without their requests, ranked by the share of words they have in common."""
    store = SQLSlotStateStore(place, keep_request_text=False)
    await store.put(TOWNS)
    found = await store.similar("How many inhabitants has Vennholm?")
    assert [(one.state.id, one.similarity) for one in found][:2] == [("0", 1.0), ("1", pytest.approx(4 / 6))]
    assert [one.request for one in await everything(store)] == [None] * 4
    assert (await store.stats()).with_text == 0


async def test_objects_with_and_without_text_stand_side_by_side(place: str) -> None:
    """Turning the option on or off leaves what is there to be found."""
    await SQLSlotStateStore(place, keep_request_text=False).put(TOWNS[:1])
    await SQLSlotStateStore(place).put(TOWNS[1:])
    for keep in (True, False):
        found = await SQLSlotStateStore(place, keep_request_text=keep).similar("How many inhabitants has Vennholm?", 2)
        assert [one.state.id for one in found] == ["0", "1"]


async def test_an_object_that_never_had_text_is_kept_and_not_found(place: str) -> None:
    """There is nothing to find it by."""
    store = SQLSlotStateStore(place)
    await store.put([state("bare", None)])
    assert await everything(store) == [state("bare", None)]
    assert await store.similar("How many inhabitants has Vennholm?") == []


async def test_a_dump_shows_neither_text_nor_password(place: str) -> None:
    """A component comes back whole by its provider, and its JSON holds no password."""
    store = SQLSlotStateStore(place, keep_request_text=False, max_age_days=3.5, max_objects=7, timeout_s=9.5)
    text = store.dump_component().model_dump_json()
    assert "not-to-be-shown" not in text + store.place + repr(store)
    assert "not-to-be-shown" not in repr(store.dump_component())
    again = ComponentLoader.load_component(json.loads(text), SQLSlotStateStore)
    assert again.dump_component().model_dump_json() == text
    assert again.place == store.place.replace(":***@", "@")


def test_a_store_with_a_hook_is_not_saved_without_it(place: str) -> None:
    """A dump that lost the hook would keep what must not be kept."""
    store = SQLSlotStateStore(place, redact=lambda one: one)
    with pytest.raises(UsageError, match=r"cannot be saved: `redact` is a function; leave it out and give it again"):
        store.dump_component()


async def test_lines_come_back_as_they_were(place: str) -> None:
    """What is exported can be imported anywhere, twice without harm, with empty lines and as bytes."""
    store = SQLSlotStateStore(place)
    await store.put(TOWNS)
    lines = [line async for line in export_lines(store)]
    assert all(line.isascii() and "\n" not in line for line in lines)
    await store.forget_before(None)
    for _ in range(2):
        assert await import_lines(store, ["", *(f"{line}\r\n".encode() for line in lines), "\n"]) == 4
    assert await everything(store) == TOWNS


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "Invalid JSON"),
        ('{"id": "secret value"}', "stop_reason: Field required"),
        (b"\xff\xfe", "Invalid JSON"),
        (state("x").model_dump_json().replace("0.85", "7"), "confidence: Input should be less than or equal to 1"),
        (state("x").model_dump_json().replace('"id":"x"', '"id":""'), "id: "),
    ],
)
async def test_a_line_that_is_no_object_is_named_and_nothing_before_it_is_lost(
    place: str, bad: str | bytes, words: str
) -> None:
    """The message gives its number and the reason, not its content; once it is mended the import goes through."""
    store = SQLSlotStateStore(place)
    good = [one.model_dump_json() for one in TOWNS]
    with pytest.raises(UsageError) as refused:
        await import_lines(store, [*good[:2], "", bad, *good[2:]], name="old.jsonl")
    message = str(refused.value)
    assert message.startswith("line 4 of old.jsonl is no Runtime State Object (")
    assert words in message
    assert message.endswith("the 2 before it are kept")
    assert message.isprintable()
    assert "secret value" not in message
    assert await everything(store) == TOWNS[:2]
    assert await import_lines(store, good) == 4
    assert await everything(store) == TOWNS


def test_one_store_serves_several_event_loops_one_after_another(place: str) -> None:
    """Nothing in it belongs to the loop it was first used in, nor has it to be closed."""
    store = SQLSlotStateStore(place)
    for one in TOWNS:
        asyncio.run(store.put([one]))
    assert asyncio.run(similar_ids(store, "Vennholm", 1)) == ["0"]
    asyncio.run(store.close())
    assert asyncio.run(similar_ids(store, "Vennholm", 1)) == ["0"]


def test_one_store_serves_several_threads_at_once(place: str) -> None:
    """Each has a loop of its own, and nothing is lost."""
    store = SQLSlotStateStore(place, timeout_s=30)
    done: list[int] = []

    def work(number: int) -> None:
        for step in range(5):
            asyncio.run(store.put([state(f"{number}-{step}", f"request {number} {step}")]))
            asyncio.run(store.similar(f"request {number} {step}"))
        done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=50)
    assert sorted(done) == [0, 1, 2, 3]
    assert asyncio.run(store.stats()).objects == 20


async def test_many_operations_at_once(place: str) -> None:
    """One loop may do everything side by side."""
    store = SQLSlotStateStore(place, timeout_s=30)
    await asyncio.gather(*(store.put([state(f"{number}", f"town {number}")]) for number in range(20)))
    found = await asyncio.gather(*(similar_ids(store, f"town {number}", 1) for number in range(20)))
    assert found == [[f"{number}"] for number in range(20)]


@pytest.mark.parametrize(
    ("settings_", "problem"),
    [
        ({"max_objects": 0}, "max_objects"),
        ({"max_age_days": 0}, "max_age_days"),
        ({"timeout_s": float("inf")}, "timeout_s"),
    ],
)
def test_a_setting_out_of_range_is_refused(tmp_path: Any, settings_: dict[str, Any], problem: str) -> None:
    """The error names it."""
    with pytest.raises(ValidationError, match=problem):
        SQLSlotStateStore(tmp_path / "x", **settings_)


_NAMES = st.text(min_size=0, max_size=12)
_SLOTS = st.builds(SlotTrace, name=_NAMES, state=st.sampled_from(SlotState), closed_by=st.tuples(_NAMES))
_TOOLS = st.builds(ToolTrace, name=_NAMES, calls=st.integers(0, 9), errors=st.integers(0, 9))
_ZONES = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_MOMENTS = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2999, 1, 1), timezones=_ZONES)
_OBJECTS = st.builds(
    RuntimeStateObject,
    id=st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=40),
    request=st.none() | st.text(max_size=80),
    slots=st.lists(_SLOTS, max_size=3).map(tuple),
    tools=st.lists(_TOOLS, max_size=3).map(tuple),
    stop_reason=st.sampled_from(StopReason),
    stop_branch=st.sampled_from(ControlBranch),
    confidence=st.floats(0, 1),
    rounds=st.integers(0, 99),
    model=_NAMES,
    created_at=_MOMENTS,
)


@given(wanted=st.lists(_OBJECTS, max_size=12))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_objects_survive_put_export_forget_and_import(place: str, wanted: Sequence[RuntimeStateObject]) -> None:
    """Whatever they hold, they come back equal, once each, and can be found by their own request."""

    async def check() -> None:
        store = SQLSlotStateStore(place)
        await store.forget_before(None)
        await store.put(wanted)
        expected = {one.id: one for one in wanted}
        assert {one.id: one for one in await everything(store)} == expected
        lines = [line async for line in export_lines(store)]
        assert len(lines) == len(expected)
        assert await store.forget(list(expected)) == len(expected)
        assert await everything(store) == []
        await import_lines(store, lines)
        assert {one.id: one for one in await everything(store)} == expected
        for one in expected.values():
            found = await store.similar(one.request or "")
            assert all(left.similarity >= right.similarity for left, right in pairwise(found))
            assert not found or found[0].similarity == 1.0

    asyncio.run(check())


@given(entries=st.dictionaries(st.text("abcdef", min_size=2, max_size=5), st.integers(1, 5_000_000), max_size=60))
def test_the_work_of_a_search_is_bounded_whatever_the_words(entries: dict[str, int]) -> None:
    """Neither the entries read one by one nor those walked through in pairs grow with the store."""
    probes = plan_probes(entries, 5_000_000)
    assert sum(min(probe.limit, entries[probe.terms[0]]) for probe in probes if len(probe.terms) == 1) <= 2_000
    assert sum(entries[term] for probe in probes if len(probe.terms) == 2 for term in probe.terms) <= 12 * 40_000
    assert bool(probes) == bool(entries)
