"""What the tests of trace formats share: reading documents back, and small runs in each form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from agentloop_autogen.diagnostics.loading import load_traces
from agentloop_autogen.diagnostics.trace import Trace

__all__ = [
    "ASK",
    "CALLING",
    "CHAT",
    "ROUNDS",
    "SYSTEM",
    "THEIRS",
    "Load",
    "asks",
    "chat_spans",
    "llm_call",
    "otlp",
    "pairs",
    "shape",
    "span",
    "tells",
    "turns",
]


class Load:
    """Writes documents as lines of a file and reads them back."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.jsonl"

    def text(self, text: str) -> list[Trace]:
        """The traces of a text, of which nothing may be skipped."""
        self.path.write_text(text)
        with load_traces(self.path, on_skip=lambda _: None) as reader:
            found = list(reader)
        assert reader.skipped == []
        return found

    def __call__(self, *documents: object) -> list[Trace]:
        """The traces of documents, one a line."""
        return self.text("".join(f"{json.dumps(document)}\n" for document in documents))

    def one(self, *documents: object) -> Trace:
        """The only trace of documents."""
        (trace,) = self(*documents)
        return trace


Shape = list[tuple[str, list[tuple[str, str]], list[tuple[str, str, bool]]]]


def shape(trace: Trace) -> Shape:
    """The rounds without what differs from form to form: text, calls, and results with the name of their call."""
    return [
        (
            round_.text,
            [(call.name, call.arguments) for call in round_.calls],
            [(item.call.name, item.content, item.is_error) for item in round_.results],
        )
        for round_ in trace.rounds
    ]


def turns(trace: Trace) -> list[int | None]:
    """The turn of each round."""
    return [round_.turn for round_ in trace.rounds]


ASK: dict[str, Any] = {"role": "user", "content": "How many?"}
SYSTEM: dict[str, Any] = {"role": "developer", "content": "Be brief."}


def asks(*names: str, text: str | None = None) -> dict[str, Any]:
    """An assistant message with calls whose ids are their names."""
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def tells(name: str, content: object, **fields: object) -> dict[str, Any]:
    """The result of such a call."""
    return {"role": "tool", "tool_call_id": name, "content": content, **fields}


CHAT = [
    SYSTEM,
    ASK,
    {**asks("a", "b", text="I look."), "reasoning_content": "secret"},
    tells("b", "two", is_error=True),
    tells("a", [{"type": "text", "text": "one"}, {"type": "image_url"}]),
    {"role": "assistant", "content": "Three."},
]
ROUNDS: Shape = [
    ("I look.", [("a", "{}"), ("b", "{}")], [("b", "two", True), ("a", "one\n[image]", False)]),
    ("Three.", [], []),
]


THEIRS: Shape = [
    (
        "I look.",
        [("population", '{"city": "A"}'), ("boom", "{}")],
        [("population", "A has 48,210 inhabitants", False), ("boom", "no", True)],
    ),
    ("It is 48,210.", [], []),
]


def llm_call(messages: list[dict[str, Any]], content: str, agent: str = "a/1") -> dict[str, Any]:
    """An event of the log."""
    response = {"model": "m", "choices": [{"message": {"role": "assistant", "content": content}}]}
    counts = {"prompt_tokens": 10, "completion_tokens": 5}
    return {"type": "LLMCall", "messages": messages, "response": response, "agent_id": agent, **counts}


def otlp(*spans: dict[str, Any], service: str = "shop") -> dict[str, Any]:
    """An OTLP document as a collector writes it."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def any_value(value: object) -> dict[str, Any]:
    """A typed value of OTLP."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(item) for item in cast("list[object]", value)]}}
        case dict():
            return {"kvlistValue": {"values": pairs(cast("dict[str, Any]", value))}}
        case _:
            return {"stringValue": value}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes of OTLP."""
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def span(
    name: str, start: int, end: int, *, trace: str = "ab", parent: str = "root", **attributes: object
) -> dict[str, Any]:
    """A span in OTLP's JSON; underscores in attribute names stand for dots behind `gen_ai`."""
    return {
        "traceId": trace,
        "spanId": f"{name}{start}",
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": str(start * 10**9),
        "endTimeUnixNano": str(end * 10**9),
        "attributes": pairs(
            {"gen_ai.operation.name": name, **{_dotted(key): value for key, value in attributes.items()}}
        ),
        "status": {},
    }


def _dotted(name: str) -> str:
    return name.replace("__", ".")


def spoken(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """A message of the conventions."""
    return {"role": role, "parts": list(parts)}


def words(text: str) -> dict[str, Any]:
    """A part with text."""
    return {"type": "text", "content": text}


USER = spoken("user", words("How many?"))
CALLING = spoken(
    "assistant",
    {"type": "reasoning", "content": "secret"},
    words("I look."),
    {"type": "tool_call", "id": "1", "name": "population", "arguments": {"city": "A"}},
    {"type": "tool_call", "id": "2", "name": "boom", "arguments": {}},
)
ANSWERING = {**spoken("assistant", words("It is 48,210.")), "finish_reason": "stop"}
TOLD = [
    spoken("tool", {"type": "tool_call_response", "id": "1", "response": "A has 48,210 inhabitants"}),
    spoken("tool", {"type": "tool_call_response", "id": "2", "result": "no"}),
]


def chat_spans(encode: Callable[[object], object]) -> list[dict[str, Any]]:
    """A run as three kinds of spans tell it, content included; children first, out of order."""
    tokens: dict[str, Any] = {
        "gen_ai__usage__input_tokens": 10,
        "gen_ai__usage__output_tokens": 5,
        "gen_ai__request__model": "gpt",
    }
    failed = span("execute_tool", 2, 4, gen_ai__tool__name="boom", gen_ai__tool__call__id="2", error__type="ValueError")
    return [
        span(
            "chat",
            5,
            6,
            **tokens,
            gen_ai__input__messages=encode([USER, CALLING, *TOLD]),
            gen_ai__output__messages=encode([ANSWERING]),
        ),
        {**failed, "status": {"code": 2, "message": "no"}},
        span("execute_tool", 2, 3, gen_ai__tool__name="population", gen_ai__tool__call__id="1"),
        span(
            "chat", 1, 2, **tokens, gen_ai__input__messages=encode([USER]), gen_ai__output__messages=encode([CALLING])
        ),
        span("invoke_agent", 0, 7, parent="", gen_ai__agent__name="agent"),
    ]
