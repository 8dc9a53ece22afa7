"""Text that is cut, and reasoning that is set apart."""

from __future__ import annotations

import base64
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen.core.normalise import bounded_text, replace_blobs, split_thinking


@given(st.text(alphabet="ab\U0001f600東\u0301", max_size=400), st.integers(min_value=0, max_value=300))
def test_cutting_keeps_the_bound_and_whole_characters(text: str, limit: int) -> None:
    """A cut text is never longer than its limit, and what is kept of the tail starts with no combining mark."""
    short = bounded_text(text, limit)
    assert short == text or len(short) <= limit
    _, mark, tail = short.partition(" characters left out ...] ")
    assert not mark or not unicodedata.combining(tail[:1] or "a")


def test_cutting_keeps_head_and_tail() -> None:
    """Beginning and end survive, and the gap says how much is gone."""
    short = bounded_text("A" * 500 + "B" * 500, 200)
    assert short.startswith("AAAA")
    assert short.endswith("BBBB")
    assert "characters left out" in short


@pytest.mark.parametrize(
    ("text", "thought", "rest"),
    [
        ("plain", "", "plain"),
        ("<think>a</think>b", "a", "b"),
        ("a</Thinking> b", "a", "b"),
        ("<think>a</think>b</think>c", "ab", "c"),
        ("<think>never ends", "never ends", ""),
        ("an answer <think>with a tag", "", "an answer <think>with a tag"),
    ],
)
def test_reasoning_is_set_apart(text: str, thought: str, rest: str) -> None:
    """The last closing tag ends it, and an opening one that is never closed begins it only at the start."""
    assert split_thinking(text) == (thought, rest)


def test_base64_is_named_by_size_and_digest_and_a_ruler_is_left_alone() -> None:
    """Two different pictures leave two different marks, line-wrapped base64 is one blob, dashes are none."""
    one, other = (base64.b64encode(bytes(range(256)) * n).decode() for n in (2, 3))
    marks = {replace_blobs(f"picture: {blob} end") for blob in (one, other)}
    assert len(marks) == 2
    assert all("digest" in mark and mark.startswith("picture: [") and mark.endswith("] end") for mark in marks)
    wrapped = base64.encodebytes(bytes(range(256)) * 4).decode()
    assert replace_blobs(wrapped).count("[binary data") == 1
    ruler = "-" * 400
    assert replace_blobs(ruler) == ruler
