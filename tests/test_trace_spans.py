"""Spans of OpenTelemetry: what is read from them, with content and without."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from agentloop_autogen.diagnostics.loading import load_traces

from .trace_forms import ASK, THEIRS, Load, asks, chat_spans, otlp, pairs, shape, span, turns


@pytest.fixture(name="load")
def _load(tmp_path: Path) -> Load:
    return Load(tmp_path)


@pytest.mark.parametrize("encode", [json.dumps, copy])
def test_spans_with_content_are_read_whole(load: Load, encode: Callable[[object], object]) -> None:
    """Messages as JSON or as structure give what the run did; a result its span does not tell is in a later prompt."""
    trace = load.one(otlp(*chat_spans(encode)))
    assert (trace.id, trace.source, trace.model, trace.elapsed_s) == ("ab", "shop", "gpt", 7.0)
    assert (trace.request, trace.final, trace.completed) == ("How many?", "It is 48,210.", True)
    told = [
        (text, [(name, json.loads(given)) for name, given in calls], sorted(results))
        for text, calls, results in shape(trace)
    ]
    assert told == [
        ("I look.", [("population", {"city": "A"}), ("boom", {})], [("boom", "no", True), THEIRS[0][2][0]]),
        ("It is 48,210.", [], []),
    ]
    assert trace.usage is not None
    assert (trace.usage.prompt_tokens, trace.usage.completion_tokens, turns(trace)) == (20, 10, [0, 0])


def test_traces_may_be_scattered_and_mixed(load: Load) -> None:
    """Spans of two traces in any order over documents, lines and bare spans come out as two traces, by their ids."""
    first = chat_spans(json.dumps)
    second = [{**item, "traceId": "cd"} for item in chat_spans(json.dumps)]
    mixed = [part for both in zip(first, second, strict=True) for part in both]
    found = load(otlp(*mixed[:3]), mixed[3], otlp(*mixed[4:7]), *mixed[7:])
    assert [(trace.id, trace.final, len(trace.rounds)) for trace in found] == [
        ("ab", "It is 48,210.", 2),
        ("cd", "It is 48,210.", 2),
    ]


def test_spans_without_content_still_tell_of_calls(load: Load) -> None:
    """Where content is hidden there are calls by name, errors, tokens and times, and turns are not known."""
    hidden = ("gen_ai.input.messages", "gen_ai.output.messages")
    spans = chat_spans(json.dumps)
    for item in spans:
        item["attributes"] = [pair for pair in item["attributes"] if pair["key"] not in hidden]
    trace = load.one(otlp(*spans))
    assert shape(trace) == [
        ("", [("boom", ""), ("population", "")], [("boom", "no", True), ("population", "", False)]),
        ("", [], []),
    ] or shape(trace)[0][1] == [("population", ""), ("boom", "")]
    assert (trace.request, trace.final, turns(trace)) == ("", "", [None, None])
    assert trace.usage is not None


def test_spans_of_autogen_itself_are_read(load: Load) -> None:
    """AutoGen's own spans tell of agents and tools only: tools at once are a round, one after the other are rounds."""
    tool = {"gen_ai__system": "autogen", "gen_ai__tool__name": "population"}
    failed = span("execute_tool", 5, 6, **tool, error__type="ValueError")
    failed["events"] = [{"name": "exception", "attributes": pairs({"exception.message": "no"})}]
    trace = load.one(
        otlp(
            span("execute_tool", 1, 3, **tool),
            span("execute_tool", 2, 4, **tool),
            {**failed, "status": {"code": "STATUS_CODE_ERROR"}},
            span("invoke_agent", 0, 7, parent=""),
            {"traceId": "ab", "spanId": "m", "name": "autogen process x", "startTimeUnixNano": "1"},
        )
    )
    assert [[item[1:] for item in results] for _, _, results in shape(trace)] == [
        [("", False), ("", False)],
        [("no", True)],
    ]


def test_printed_spans_of_the_sdk_are_read(load: Load) -> None:
    """What the Python SDK's console exporter prints, indented and one after the other, is read like OTLP."""
    printed = ""
    for item in chat_spans(json.dumps):
        attributes = {pair["key"]: next(iter(pair["value"].values())) for pair in item["attributes"]}
        tokens = {key: int(value) for key, value in attributes.items() if "usage" in key}
        start, end = (int(item[key]) // 10**9 for key in ("startTimeUnixNano", "endTimeUnixNano"))
        printed += json.dumps(
            {
                "name": item["name"],
                "context": {"trace_id": "0xAB", "span_id": f"0x{item['spanId']}", "trace_state": "[]"},
                "kind": "SpanKind.CLIENT",
                "parent_id": f"0x{item['parentSpanId']}" if item["parentSpanId"] else None,
                "start_time": f"2026-01-01T00:00:0{start}.000000Z",
                "end_time": f"2026-01-01T00:00:0{end}.000000Z",
                "status": {"status_code": "ERROR" if item["status"] else "UNSET"},
                "attributes": {**attributes, **tokens},
                "events": [],
                "links": [],
                "resource": {"attributes": {"service.name": "unknown_service"}},
            },
            indent=4,
        )
        printed += "\n"
    (trace,) = load.text(printed)
    assert (trace.id, trace.source, trace.elapsed_s, trace.final) == ("ab", "log", 7.0, "It is 48,210.")
    assert sorted(shape(trace)[0][2])[0] == ("boom", "no", True)


OLD_CALL = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("attributes", "events"),
    [
        ({"gen_ai.prompt": json.dumps([ASK]), "gen_ai.completion": json.dumps([asks("look", text="I look.")])}, []),
        (
            {
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "How many?",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "I look.",
                "gen_ai.completion.0.tool_calls.0.id": "1",
                "gen_ai.completion.0.tool_calls.0.name": "look",
                "gen_ai.completion.0.tool_calls.0.arguments": "{}",
            },
            [],
        ),
        (
            {},
            [
                ("gen_ai.system.message", {"content": "Be brief."}),
                ("gen_ai.user.message", {"content": "How many?"}),
                ("gen_ai.choice", {"message": json.dumps({"content": "I look.", "tool_calls": OLD_CALL})}),
            ],
        ),
        (
            {},
            [
                ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps([ASK])}),
                ("gen_ai.content.completion", {"gen_ai.completion": json.dumps([asks("look", text="I look.")])}),
            ],
        ),
    ],
)
def test_older_conventions_are_read(
    load: Load, attributes: dict[str, Any], events: list[tuple[str, dict[str, Any]]]
) -> None:
    """Prompts and completions as attributes, numbered attributes and events of spans tell the same."""
    old = span("chat", 0, 1, parent="")
    old["attributes"] += pairs({**attributes, "gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 5})
    old["events"] = [{"name": name, "attributes": pairs(about)} for name, about in events]
    trace = load.one(otlp(old))
    assert (trace.request, shape(trace)) == ("How many?", [("I look.", [("look", "{}")], [])])
    assert trace.usage is not None
    assert (trace.usage.total, trace.has_pending_call) == (15, True)


def test_a_failed_root_is_a_fault_of_the_run(load: Load) -> None:
    """A root span with an error is a run that did not complete; a model call that failed is no round."""
    root = {**span("invoke_agent", 0, 1, parent="", error__type="Timeout"), "status": {"code": 2}}
    trace = load.one(otlp(root, {**span("chat", 0, 1), "status": {"code": 2}}))
    assert (trace.completed, trace.rounds) == (False, ())


def test_traces_of_something_else_are_skipped(load: Load) -> None:
    """A trace without any call of a model, an agent or a tool is skipped, and the others of the file are read."""
    web: dict[str, Any] = {"traceId": "ef", "spanId": "1", "name": "GET /", "startTimeUnixNano": "1", "attributes": []}
    load.path.write_text(json.dumps(otlp(web, *chat_spans(json.dumps))))
    reader = load_traces(load.path, on_skip=lambda _: None)
    assert [trace.id for trace in reader] == ["ab"]
    assert [item.reason for item in reader.skipped] == [
        "trace ef: none of its spans is a call of a model, an agent or a tool (`gen_ai.operation.name`)"
    ]


def test_nothing_is_left_of_the_spans_put_aside(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a file of spans is read to its end or left half-way, no temporary file stays behind."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    for name in ("TMPDIR", "SQLITE_TMPDIR"):
        monkeypatch.setenv(name, str(folder))
    load.path.write_text(
        "".join(
            f"{json.dumps(otlp({**item, 'traceId': str(n)}))}\n" for n in range(20) for item in chat_spans(json.dumps)
        )
    )
    with load_traces(load.path) as reader:
        next(reader)
    assert len(list(load_traces(load.path))) == 20
    assert list(folder.iterdir()) == []


def test_spans_printed_by_the_real_sdk_are_read(tmp_path: Path) -> None:
    """What the SDK's console exporter prints, indented objects one after another, is one trace with its calls."""
    text = io.StringIO()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=text)))
    tracer = provider.get_tracer("test")
    asked = [{"role": "user", "parts": [{"type": "text", "content": "How many live in A?"}]}]
    calls = {"type": "tool_call", "id": "1", "name": "population", "arguments": {"city": "A"}}
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for parts in ([calls], [{"type": "text", "content": "It is 48,210."}]):
            told = [{"role": "assistant", "parts": parts}]
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt",
                "gen_ai.input.messages": json.dumps(asked),
                "gen_ai.output.messages": json.dumps(told),
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 5,
            }
            tracer.start_span("chat gpt", attributes=attributes).end()
            if parts[0] is calls:
                tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "population"}
                tool |= {"gen_ai.tool.call.id": "1", "gen_ai.tool.call.result": "A: 48,210"}
                tracer.start_span("execute_tool population", attributes=tool).end()
    provider.shutdown()
    log = tmp_path / "spans.json"
    log.write_text(text.getvalue(), encoding="utf-8")
    with load_traces(log) as reader:
        (trace,) = reader
    assert (reader.skipped_count, trace.model, trace.request, trace.final) == (
        0, "gpt", "How many live in A?", "It is 48,210.",
    )  # fmt: skip
    assert [(call.name, json.loads(call.arguments)) for call in trace.rounds[0].calls] == [
        ("population", {"city": "A"})
    ]
    assert [result.content for result in trace.rounds[0].results] == ["A: 48,210"]
    assert trace.usage is not None
    assert trace.usage.total == 30
