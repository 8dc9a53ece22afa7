"""What counts as new evidence, and what does not."""

from __future__ import annotations

import json

import pytest

from agentloop_autogen.core.normalise import words
from agentloop_autogen.core.novelty import NoveltyTracker
from agentloop_autogen.core.rounds import ToolCall, ToolResult


def news(*contents: str, arguments: str = "{}") -> list[bool]:
    """Return for each result, given one after the other to the same call, whether it was new."""
    tracker = NoveltyTracker()
    return [tracker.observe(ToolResult(ToolCall("tool", arguments), content)).news for content in contents]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"state": "queued", "ts": "2026-01-05T10:00:00Z"}', '{"state": "queued", "ts": "2026-01-05T10:00:09Z"}'),
        ("queued at 10:00:00", "queued at 10:00:09"),
        ("queued, took 12 ms", "queued, took 345 ms"),
        ("queued after 0.53s", "queued after 1.7s"),
        ('{"state": "queued", "elapsed": 12}', '{"state": "queued", "elapsed": 13}'),
        ('{"state": "queued", "request_id": 812}', '{"state": "queued", "request_id": 813}'),
        ("queued req-1a2b3c", "queued req-9f8e7d"),
        ("queued 123e4567-e89b-12d3-a456-426614174000", "queued 987e6543-e21b-12d3-a456-426614174999"),
        ("object at 0x7f3a2b10 queued", "object at 0x7f3a9c44 queued"),
        ('{"state": "queued", "updated_at": 1767600000}', '{"state": "queued", "updated_at": 1767600009}'),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
        ('{"city": "北京", "n": 5}', '{"city": "\\u5317\\u4eac", "n": 5}'),
        ("the same\ntext", "the  same text"),
    ],
)
def test_a_change_of_volatile_fields_or_of_spelling_is_not_new(first: str, second: str) -> None:
    """Times, durations, ids, addresses, key order, escapes and layout do not make a result new."""
    assert news(first, second) == [True, False]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"progress": 10, "ts": "2026-01-05T10:00:00Z"}', '{"progress": 40, "ts": "2026-01-05T10:00:09Z"}'),
        ("job is 10% complete", "job is 40% complete"),
        ("status: running", "status: done"),
        ("[(3, 'Ann')]", "[(3, 'Bob')]"),
        ("page 1: alpha, beta", "page 2: gamma, delta"),
        ("人口 2154万", "人口 2487万"),
    ],
)
def test_progress_is_new_however_alike_it_looks(first: str, second: str) -> None:
    """An advancing job, another row and the next page are new evidence."""
    assert news(first, second) == [True, True]


def test_a_known_number_in_a_new_row_is_new_and_a_reordered_row_is_not() -> None:
    """A row of figures that were all seen before is still a finding; the same row turned round is not."""
    assert news("[(5, 3)]", "[(5,)]", "[(3,)]", "[(3, 5)]") == [True, True, True, False]


def test_news_in_the_middle_of_a_long_result_is_seen() -> None:
    """Of a long result the part that changed is read, wherever it is."""
    log = [f"line {i}: all quiet on channel {i % 7}" for i in range(200)]
    changed = [*log[:100], "line 100: reactor temperature 921", *log[101:]]
    assert news("\n".join(log), "\n".join(changed)) == [True, True]


@pytest.mark.parametrize(
    "content", ["", "  ", "None", "null", "[]", "{}", '""', "No results found.", "Nothing matched."]
)
def test_an_empty_result_is_never_new(content: str) -> None:
    """Blank results, empty containers and sentences saying that there is nothing are no evidence."""
    assert news(content) == [False]


def test_an_error_is_never_new() -> None:
    """An error is no evidence, whatever it says."""
    error = ToolResult(ToolCall("t", "{}"), "no such table: city7", is_error=True)
    novelty = NoveltyTracker().observe(error)
    assert (novelty.news, novelty.changed) == (False, False)


def test_a_failure_is_new_once() -> None:
    """An error met before is told from one that was not, whatever its request id says."""
    tracker = NoveltyTracker()
    texts = [
        "no such table: cities (request 4f1c2a9e-77aa-4d0e-9b58-0d0f5f3f7a11)",
        "no such column: name (request 1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed)",
        "no such table: cities (request 9c858901-8a57-4791-81fe-4c455b099bc9)",
    ]
    seen = [tracker.observe(ToolResult(ToolCall("t", "{}"), text, is_error=True)).new_failure for text in texts]
    assert seen == [True, True, False]


def test_an_echo_of_the_arguments_is_not_new() -> None:
    """A result that merely repeats what was asked for brings nothing."""
    tracker = NoveltyTracker()
    for wanted in ("zanzibar", "timbuktu"):
        call = ToolCall("search", json.dumps({"q": wanted}))
        assert tracker.observe(ToolResult(call, f"No results found for {wanted!r}")).news is False


def test_an_acknowledgement_is_progress_once_for_each_call() -> None:
    """Three different uploads that all return `true` are three steps; the same one again is none."""
    tracker = NoveltyTracker()
    uploads = [ToolCall("upload", json.dumps({"file": name})) for name in ("a", "b", "c", "c")]
    assert [tracker.observe(ToolResult(call, "true")).news for call in uploads] == [True, True, True, False]


def test_a_denial_is_no_acknowledgement() -> None:
    """A short refusal is not taken for a tool that did its work."""
    tracker = NoveltyTracker()
    tracker.observe(ToolResult(ToolCall("upload", '{"f": 0}'), "not accepted, failed"))
    assert tracker.observe(ToolResult(ToolCall("upload", '{"f": 1}'), "not accepted, failed")).news is False


def test_masking_leaves_ordinary_figures_alone() -> None:
    """Dates and ids are masked, amounts are not."""
    assert " ".join(words("Total: 1234 EUR on 2026-01-05 for 3 items")) == "total 1234 eur on \u2022 for 3 items"


@pytest.mark.parametrize("content", ["A", "no", "found a value"])
def test_a_result_too_terse_to_judge_by_its_words_is_new_once(content: str) -> None:
    """A letter, a bare yes or no, or a phrase of common words is news the first time and not the second."""
    assert news(content, content) == [True, False]


def test_a_text_that_differs_in_its_echo_alone_is_changed_though_not_new() -> None:
    """What a verifier has not seen is worth showing it, even where it brings no new finding."""
    tracker = NoveltyTracker()
    seen = [
        tracker.observe(ToolResult(ToolCall("lookup", json.dumps({"id": n})), f"record {n} is archived"))
        for n in (1, 2)
    ]
    assert [(novelty.news, novelty.changed) for novelty in seen] == [(True, True), (False, True)]
