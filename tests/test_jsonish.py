"""JSON in text: what is an object, where it ends, and how loosely it may be written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen.jsonish import find_objects, json_objects, object_at_start, without_fence

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, null]}',
        '{"a": [1, null,],}',
        "{'a': [1, None]}",
        "{'a': [1, null]}",
        "{'a': (1, None)}",
        'Here: {"a": [1, null]} as asked',
        '```json\n{"a": [1, null]}\n```',
    ],
)
def test_an_object_is_read_however_it_is_written(text: str) -> None:
    """JSON, JSON with trailing commas and Python spelling, alone, fenced or in prose, give the same strict JSON."""
    assert [json.loads(found) for found in json_objects(text)] == [{"a": [1, None]}]


@pytest.mark.parametrize("text", ["{1, 2}", "{'a': {1, 2}}", "{'a': b'x'}", "{'a': ...}", "{'a': print(1)}", "[1]", ""])
def test_what_is_no_json_object_is_none(text: str) -> None:
    """Sets, bytes, code and lists are no objects, and nothing is evaluated."""
    assert list(json_objects(text)) == []
    assert object_at_start(text) is None


def test_objects_come_in_order_and_cut_ones_are_told_apart() -> None:
    """Each object is one find, those inside it are none, and one the text breaks off in is no complete object."""
    text = '{"a": {"b": 1}} and {"c": 2} and {"d": "on'
    assert [(found.value, found.whole) for found in find_objects(text)] == [
        ({"a": {"b": 1}}, True),
        ({"c": 2}, True),
        ({"d": "on"}, False),
    ]
    assert list(json_objects(text)) == ['{"a": {"b": 1}}', '{"c": 2}']


def test_the_object_at_the_start_may_be_followed_by_text() -> None:
    """Only an object that starts the text and ends counts, whatever stands behind it and however long it is."""
    long = {"text": "x" * 100_000}
    assert object_at_start(f"{json.dumps(long)} it's {{done}}") == long
    assert object_at_start('so {"a": 1}') is None
    assert object_at_start('{"a": 1') is None


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ("```\nplain", "plain"),
        ("no ```fence``` here", "no ```fence``` here"),
    ],
)
def test_a_fence_around_everything_comes_off(text: str, inside: str) -> None:
    """A text that is one code block loses its fence, any other stays."""
    assert without_fence(text) == inside


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=3), st.text(alphabet="ab \n.,:[]", max_size=10))
def test_valid_json_is_read_as_it_is(value: dict[str, object], around: str) -> None:
    """Whatever JSON allows comes back unchanged, with prose before and behind it."""
    text = json.dumps(value)
    assert [json.loads(found) for found in json_objects(f"{around}{text}{around}")] == [value]
    assert object_at_start(f"{text}{around}") == value
