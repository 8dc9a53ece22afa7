"""Chats, run logs and mixtures of forms: what is read from them, and what is left open."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_autogen import ControlAction, StopReason
from agentloop_autogen.diagnostics.loading import load_traces
from agentloop_autogen.diagnostics.trace import TraceRound

from .trace_forms import ASK, CHAT, ROUNDS, SYSTEM, Load, asks, chat_spans, llm_call, otlp, shape, tells, turns


@pytest.fixture(name="load")
def _load(tmp_path: Path) -> Load:
    return Load(tmp_path)


# --- chats of OpenAI's form ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("documents", [[{"messages": CHAT}], [CHAT], CHAT])
def test_a_chat_is_a_document_an_array_or_lines(load: Load, documents: Sequence[object]) -> None:
    """The same chat reads the same in its three shapes; parallel results find their calls by id."""
    trace = load.one(*documents)
    assert (trace.request, trace.final, shape(trace), turns(trace)) == ("How many?", "Three.", ROUNDS, [0, 0])


def test_a_chat_document_says_more_about_itself(load: Load) -> None:
    """Id, model, tokens and judgement of a document count; a response is the last message."""
    completion = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "Two."}}]}
    trace = load.one(
        {
            "id": 7,
            "messages": [ASK],
            "response": {**completion, "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
            "usage": {"input_tokens": 4, "output_tokens": 2},
            "correct": 1,
        }
    )
    assert (trace.id, trace.model, trace.final, trace.correct) == ("7", "m", "Two.", True)
    assert trace.usage is not None
    assert trace.rounds[0].usage is not None
    assert (trace.usage.total, trace.rounds[0].usage.total) == (6, 4)


def test_old_function_calls_are_calls(load: Load) -> None:
    """`function_call` and the role `function` are a call and its result, paired by name."""
    asked = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"q": 1}'}}
    trace = load.one(ASK, asked, {"role": "function", "name": "look", "content": "seen"})
    assert shape(trace) == [("", [("look", '{"q": 1}')], [("look", "seen", False)])]
    assert (trace.final, trace.has_pending_call) == ("", False)


def test_content_blocks_are_read(load: Load) -> None:
    """Blocks of Anthropic's form are calls and results, with their flag; thinking is not text."""
    used = {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": "ü"}}
    returned = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "no"}],
        "is_error": True,
    }
    thinking = {"type": "thinking", "thinking": "secret"}
    trace = load.one(
        {
            "messages": [
                ASK,
                {"role": "assistant", "content": [thinking, {"type": "text", "text": "I look."}, used]},
                {"role": "user", "content": [returned]},
                {"role": "assistant", "content": [{"type": "text", "text": "None."}]},
            ]
        }
    )
    assert shape(trace) == [("I look.", [("look", '{"q": "ü"}')], [("look", "no", True)]), ("None.", [], [])]
    assert turns(trace) == [0, 0]


def test_words_make_no_error(load: Load) -> None:
    """A result is an error only where a field says so, whatever its words are."""
    trace = load.one(ASK, asks("a", "b"), tells("a", "Error: no such thing"), tells("b", "x", status="error"))
    assert [item.is_error for item in trace.rounds[0].results] == [False, True]


def test_a_call_at_the_end_is_pending(load: Load) -> None:
    """A chat that ends in a call has no answer and a call that waits, whatever was said before."""
    trace = load.one(ASK, {"role": "assistant", "content": "Hm."}, {**ASK, "content": "Well?"}, asks("a"))
    assert (trace.final, trace.has_pending_call, turns(trace)) == ("", True, [0, 1])


def test_a_system_message_begins_the_next_chat(load: Load) -> None:
    """Among lines a system message ends a trace; other users' messages are turns of one."""
    reply = {"role": "assistant", "content": "Two."}
    first, second = load(SYSTEM, ASK, reply, ASK, reply, SYSTEM, ASK, reply)
    assert (turns(first), turns(second)) == ([0, 1], [0])
    assert (first.id, second.id) == (f"{load.path}:1", f"{load.path}:6")


def test_neighbouring_arrays_are_chats_of_their_own(load: Load) -> None:
    """Arrays one a line, or within one array, do not run into each other."""
    reply = {"role": "assistant", "content": "Two."}
    assert len(load([ASK, reply], [ASK, reply])) == 2
    assert len(load([[ASK, reply], [ASK, reply]])) == 2
    assert len(load(ASK, reply, [ASK, reply], ASK, reply)) == 3


def test_results_without_ids_pair_in_order(load: Load) -> None:
    """Clients that give calls no ids have their results in the order of the calls; an id nobody knows is a surplus."""
    bare = {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": {"n": 1}}} for name in "ab"]}
    trace = load.one(ASK, bare, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, tells("zz", "3"))
    assert shape(trace)[0][1:] == (
        [("a", '{"n": 1}'), ("b", '{"n": 1}')],
        [("a", "1", False), ("b", "2", False), ("", "3", False)],
    )


def test_an_id_used_again_is_the_later_call(load: Load) -> None:
    """Some models number their calls anew in every round."""
    trace = load.one(ASK, asks("a"), tells("a", "1"), asks("a"), tells("a", "2"))
    assert [round_.results[0].content for round_ in trace.rounds] == ["1", "2"]


# --- our own run log, and mixtures -----------------------------------------------------------------------------------


def test_a_run_log_is_read(load: Load) -> None:
    """What the command prints gives its record with the outcome and the verdict on the scenario."""
    outcome = {"stop_reason": "failed", "rounds": 1, "elapsed_s": 2.5}
    head: dict[str, Any] = {"scenario": "polling", "passed": True, "answer": "Done.", "outcome": outcome, "checks": []}
    with_trace = load.one({**head, "trace": {"id": "x", "request": "r", "rounds": [{"text": "Done."}], "model": "m"}})
    assert (with_trace.id, with_trace.source, with_trace.model) == ("x", "polling", "m")
    assert (with_trace.correct, with_trace.completed, with_trace.final) == (True, False, "Done.")
    assert with_trace.rounds == (TraceRound(text="Done."),)
    bare = load.one(head)
    assert (bare.rounds, bare.final, bare.elapsed_s) == ((), "Done.", 2.5)
    assert bare.outcome is not None
    assert bare.outcome.stop_reason is StopReason.FAILED


def test_a_file_may_mix_all_forms(load: Load) -> None:
    """Forms are told document by document, in whatever order they come."""
    spoken = [("user", "Is it?"), ("agent", "Yes.")]
    messages = [{"type": "TextMessage", "source": source, "content": content} for source, content in spoken]
    done = {"messages": messages, "stop_reason": None}
    found = load(
        {"rounds": []},
        *CHAT,
        {"messages": CHAT},
        *messages,
        done,
        llm_call([ASK], "One."),
        otlp(*chat_spans(json.dumps)),
        {"scenario": "s", "passed": False, "outcome": None},
        *CHAT,
    )
    assert [trace.final for trace in found] == [
        "",
        "Three.",
        "Three.",
        "Yes.",
        "",
        "Three.",
        "One.",
        "It is 48,210.",
    ]


def test_a_decision_ends_nothing_by_itself(load: Load) -> None:
    """A decision among the lines of a stream belongs to the round before it, whatever it says."""
    decision = {"round": 1, "action": "answer_synthesis", "branch": "exhausted_break"}
    trace = load.one(
        {"type": "TextMessage", "source": "user", "content": "Who?"},
        {"type": "ControlEvent", "source": "a", "decision": decision},
    )
    assert trace.rounds[0].decision is not None
    assert trace.rounds[0].decision.action is ControlAction.ANSWER_SYNTHESIS
    assert trace.final == ""


PAGE = (Path(__file__).parent.parent / "docs" / "traces.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_are_read(load: Load, example: str) -> None:
    """Every example of a form on the page about traces is one trace, and nothing of it is skipped."""
    assert len(load.text(example)) == 1


# --- faults in fields ---------------------------------------------------------------------------------------------

WHOLE: list[Any] = [
    {"id": "a", "rounds": [{"text": "", "calls": [{"name": "n", "arguments": "{}"}], "results": [{"content": "c"}]}]},
    {"messages": CHAT, "response": "x"},
    CHAT,
    otlp(*chat_spans(json.dumps)),
    llm_call(CHAT[:-1], "Three."),
    {
        "messages": [
            {"type": "TextMessage", "source": "user", "content": "q", "created_at": "2026-01-01T00:00:00Z"},
            {"type": "ToolCallRequestEvent", "source": "a", "content": [{"id": "1", "name": "n", "arguments": "{}"}]},
            {
                "type": "ToolCallExecutionEvent",
                "source": "a",
                "content": [{"call_id": "1", "name": "n", "content": ""}],
            },
            {"type": "ControlEvent", "source": "a", "decision": {"round": 1}, "usage": {"agent": {}}},
            {"type": "TextMessage", "source": "a", "content": "f", "metadata": {"agentloop.stop_reason": "answered"}},
        ]
    },
    {"scenario": "s", "passed": True, "outcome": {"stop_reason": "failed"}, "trace": {"rounds": []}},
]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["[[1]]", "{}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places_of(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything within a document."""
    if path:
        yield path
    items = cast("dict[Any, object]", value).items() if isinstance(value, dict) else ()
    items = enumerate(cast("list[object]", value)) if isinstance(value, list) else items
    for key, item in items:
        yield from places_of(item, (*path, key))


@given(st.sampled_from(WHOLE), st.data())
@settings(max_examples=400, deadline=None)
def test_a_field_of_any_type_never_raises(document: Any, data: st.DataObject) -> None:
    """Whatever stands in whichever field of a document, reading goes on, and nothing is lost without a reason."""
    broken = deepcopy(document)
    *path, last = data.draw(st.sampled_from(list(places_of(document))))
    inner = broken
    for key in path:
        inner = inner[key]
    inner[last] = data.draw(ODD)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.jsonl")
        path.write_text(f"{json.dumps(broken)}\n{json.dumps({'id': 'last', 'rounds': []})}\n")
        reader = load_traces(path, on_skip=lambda _: None)
        found = list(reader)
    assert "last" in [trace.id for trace in found]
    assert len(found) + reader.skipped_count >= 2
    assert all(item.reason.isprintable() for item in reader.skipped)
