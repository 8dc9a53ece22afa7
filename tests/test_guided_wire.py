"""Guided tool calling on OpenAI request and response bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentloop_autogen.errors import UsageError
from agentloop_autogen.models.guided import from_guided_response, needs_guiding, to_guided_request

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def wire_body(**fields: Any) -> dict[str, Any]:
    """A request with one tool, a call and its result."""
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "18 °C"},
    ]
    return {"model": "m", "messages": messages, "tools": [WEATHER], **fields}


def test_a_wire_request_loses_its_tools() -> None:
    """Tools become prompt and schema; every other field stays, and the request is not changed in place."""
    body = wire_body(temperature=0.5, tool_choice="auto", parallel_tool_calls=False)
    before = json.dumps(body)
    request = to_guided_request(body)
    assert json.dumps(body) == before
    assert set(request) == {"model", "messages", "temperature", "response_format"}
    assert [message["role"] for message in request["messages"]] == ["system", "user", "assistant", "user"]
    assert request["messages"][3]["content"] == 'Result of get_weather({"city": "Köln"}): 18 °C'
    calls = request["response_format"]["json_schema"]["schema"]["anyOf"][0]["properties"]["tool_calls"]
    assert calls["maxItems"] == 1


def test_a_history_of_calls_without_tools_is_translated_too() -> None:
    """The answer after tool use, asked for without tools, is held to text."""
    body = wire_body()
    del body["tools"]
    assert needs_guiding(body)
    request = to_guided_request(body)
    assert list(request["response_format"]["json_schema"]["schema"]["properties"]) == ["final_answer"]
    own = to_guided_request({**body, "response_format": {"type": "json_object"}})
    assert own["response_format"] == {"type": "json_object"}
    assert "final_answer" not in own["messages"][-1]["content"]


def test_a_request_without_tools_keeps_its_messages() -> None:
    """Without tools nothing changes, except that system messages are put together in front."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hi", "name": "anna"}]
    body: dict[str, Any] = {"messages": messages, "seed": 1}
    assert not needs_guiding(body)
    assert to_guided_request(body) == body
    late = {
        "messages": [*body["messages"], {"role": "system", "content": "Late."}, {"role": "system", "content": "Er."}]
    }
    roles = [message["role"] for message in to_guided_request(late)["messages"]]
    assert roles == ["system", "user"]


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": ["hi"]},
        {"messages": [{"role": "wizard", "content": ""}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"tools": [{"type": "function"}]},
        {"tools": ["get_weather"]},
        {"tool_choice": "sometimes"},
        {"tool_choice": {"type": "function"}},
        {"tool_choice": {"type": "function", "function": {"name": "nothing"}}},
    ],
)
def test_malformed_requests_are_refused_in_words(fields: dict[str, Any]) -> None:
    """What cannot be translated is a mistake of the caller, told on one line."""
    with pytest.raises(UsageError) as caught:
        to_guided_request(wire_body(**fields))
    assert "\n" not in str(caught.value)


def test_a_wire_reply_gets_tool_calls_with_ids() -> None:
    """Calls come back in OpenAI's form with their finish reason and ids that differ."""
    two = '{"tool_calls": [{"name": "clock", "arguments": {}}, {"name": "clock", "arguments": {}}]}'
    message = {"role": "assistant", "content": two}
    reply = from_guided_response({"id": "x", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert len({call["id"] for call in choice["message"]["tool_calls"]}) == 2
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}


def test_a_wire_answer_is_plain_content() -> None:
    """An answer comes back as content with the server's own finish reason, a thought beside it."""
    message = {"role": "assistant", "content": '<think>hm</think>{"final_answer": "18 °C"}'}
    reply = from_guided_response({"choices": [{"finish_reason": "length", "message": message}]})
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {"role": "assistant", "content": "18 °C", "reasoning_content": "hm"}
