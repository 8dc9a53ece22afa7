"""Guided tool calling: the schema, the prompt, and the reading of replies, with no model and no network."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen.errors import UsageError
from agentloop_autogen.models.guided import (
    AnswerStream,
    ChoiceKind,
    GuidedCall,
    GuidedRung,
    Role,
    ToolChoice,
    ToolReply,
    ToolSpec,
    Turn,
    parse_reply,
    plan_call,
    reply_schema,
    response_format,
)
from agentloop_autogen.models.guided.prompts import result_text, tools_text

WEATHER = ToolSpec(
    name="get_weather",
    description="Current weather\n of a city.",
    parameters={
        "type": "object",
        "title": "Weather",
        "properties": {
            "city": {"type": "string", "title": "City", "description": "name of the city"},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
    },
)
CLOCK = ToolSpec(name="clock", description="", parameters={})
NAMES = ("get_weather", "clock")
CALL = '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Köln"}}]}'


def pairs(reply: str, **options: Any) -> list[tuple[str, Any]]:
    """The names and decoded arguments of the calls in a reply."""
    return [(call.name, json.loads(call.arguments)) for call in parse_reply(reply, **options).calls]


def alternatives(choice: ChoiceKind, name: str = "") -> list[str]:
    """The keys of the alternatives a schema allows."""
    schema = reply_schema([WEATHER, CLOCK], ToolChoice(kind=choice, name=name))
    return [next(iter(option["properties"])) for option in schema.get("anyOf", [schema])]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ChoiceKind.AUTO, ["tool_calls", "final_answer"]),
        (ChoiceKind.REQUIRED, ["tool_calls"]),
        (ChoiceKind.NONE, ["final_answer"]),
        (ChoiceKind.NAMED, ["tool_calls"]),
    ],
)
def test_the_schema_allows_what_the_choice_allows(choice: ChoiceKind, expected: list[str]) -> None:
    """Each tool choice leaves exactly its own alternatives open."""
    assert alternatives(choice, "clock") == expected


def test_the_schema_binds_each_name_to_its_arguments() -> None:
    """A call is a constant name with that tool's own arguments, one to eight of them."""
    calls = reply_schema([WEATHER, CLOCK], ToolChoice())["anyOf"][0]["properties"]["tool_calls"]
    assert (calls["minItems"], calls["maxItems"]) == (1, 8)
    weather, clock = (option["properties"] for option in calls["items"]["anyOf"])
    assert weather["name"] == {"const": "get_weather"}
    assert weather["arguments"]["properties"] == {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}}
    assert clock["arguments"] == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_named_choice_allows_one_call_of_that_tool() -> None:
    """A named choice leaves no other tool and no second call."""
    schema = reply_schema([WEATHER, CLOCK], ToolChoice(kind=ChoiceKind.NAMED, name="clock"))
    calls = schema["properties"]["tool_calls"]
    assert calls["maxItems"] == 1
    assert calls["items"]["properties"]["name"] == {"const": "clock"}


def test_references_are_resolved_and_recursion_ends() -> None:
    """A tool's definitions are put in place, a recursive one accepts anything the second time."""
    node = {
        "type": "object",
        "properties": {"title": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}},
    }
    parameters = {"type": "object", "properties": {"head": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    spec = ToolSpec(name="walk", description="", parameters=parameters)
    schema = reply_schema([spec], ToolChoice(kind=ChoiceKind.REQUIRED))
    head = schema["properties"]["tool_calls"]["items"]["properties"]["arguments"]["properties"]["head"]
    assert head == {"type": "object", "properties": {"title": {"type": "string"}, "next": {}}}
    assert "$ref" not in json.dumps(schema)


def test_a_pattern_grammars_refuse_is_left_out() -> None:
    """Only a pattern anchored at both ends, without look-around, is kept."""
    loose, ahead = {"type": "string", "pattern": "x+"}, {"type": "string", "pattern": "^(?=x)x+$"}
    properties = {"a": loose, "c": ahead, "b": {"type": "string", "pattern": "^x+$"}}
    spec = ToolSpec(name="t", description="", parameters={"type": "object", "properties": properties})
    schema = reply_schema([spec], ToolChoice(kind=ChoiceKind.REQUIRED))
    arguments = schema["properties"]["tool_calls"]["items"]["properties"]["arguments"]
    assert [field.get("pattern") for field in arguments["properties"].values()] == [None, None, "^x+$"]


def test_each_rung_asks_less_firmly() -> None:
    """The format goes from the schema over any object to nothing."""
    schema = {"type": "object"}
    formats = [response_format(schema, rung) for rung in GuidedRung]
    assert formats[0] == {"type": "json_schema", "json_schema": {"name": "agentloop_reply", "schema": schema}}
    assert formats[1:] == [{"type": "json_object"}, None]


def test_the_prompt_lists_each_tool_on_a_line() -> None:
    """Name, arguments and description stand on one line, argument notes below it."""
    text = tools_text([WEATHER, CLOCK])
    assert '- get_weather(city: string, unit?: "C"|"F"): Current weather of a city.' in text
    assert "    city: name of the city" in text
    assert "- clock()\n" in text


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({}, "any"),
        ({"type": "array", "items": {"type": "integer"}}, "[integer, ...]"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string|null"),
        ({"type": ["string", "null"]}, "string|null"),
        ({"const": "x"}, '"x"'),
        ({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}, "{a: number}"),
        (True, "any"),
    ],
)
def test_types_are_shown_briefly(schema: Any, shown: str) -> None:
    """Each kind of schema has a short rendering."""
    spec = ToolSpec(name="t", description="", parameters={"properties": {"x": schema}, "required": ["x"]})
    assert f"- t(x: {shown})\n" in tools_text([spec])


def test_a_result_names_its_call() -> None:
    """A result starts with the call it belongs to, says when it failed, and cuts arguments that are long."""
    assert result_text("f", '{"a": 1}', "fine", is_error=False) == 'Result of f({"a": 1}): fine'
    assert result_text("f", "{}", "bad", is_error=True) == "Result of f() (failed): bad"
    assert len(result_text("f", "x" * 9999, "", is_error=False)) < 400


def conversation() -> list[Turn]:
    """A conversation with two system turns, two calls and their results."""
    return [
        Turn(role=Role.SYSTEM, content="Be kind."),
        Turn(role=Role.USER, content="Weather?", source="anna"),
        Turn(
            role=Role.ASSISTANT,
            source="bot",
            calls=[
                GuidedCall(id="1", name="get_weather", arguments='{"city": "Köln"}'),
                GuidedCall(id="2", name="clock", arguments=""),
            ],
        ),
        Turn(role=Role.SYSTEM, content="Remember: metric."),
        Turn(
            role=Role.RESULT,
            results=[ToolReply(call_id="1", content="18 °C"), ToolReply(call_id="2", content="noon", is_error=True)],
        ),
        Turn(role=Role.USER, content="Well?"),
    ]


def test_history_becomes_text_the_model_can_read() -> None:
    """One system turn comes first, calls are the JSON the model writes, results are user text in raw Unicode."""
    system, question, calls, results = plan_call(conversation(), tools=[WEATHER, CLOCK]).turns
    assert str(system.content).startswith("Be kind.\n\nRemember: metric.\n\n# Tools")
    assert (question.content, question.source) == ("Weather?", "anna")
    assert calls.content == (
        '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Köln"}}, {"name": "clock", "arguments": ""}]}'
    )
    assert results.content == (
        'Result of get_weather({"city": "Köln"}): 18 °C\nResult of clock() (failed): noon\n\nWell?'
    )


def test_the_system_text_does_not_depend_on_the_choice() -> None:
    """A tool choice is stated in a closing line, so that the server's prefix cache keeps serving the tools."""
    plans = [
        plan_call(conversation(), tools=[WEATHER, CLOCK], choice=ToolChoice(kind=kind, name="clock"))
        for kind in ChoiceKind
    ]
    assert len({plan.turns[0].content for plan in plans}) == 1
    assert len({plan.turns[-1].content for plan in plans}) == len(ChoiceKind)


def test_a_structured_answer_has_its_schema() -> None:
    """The schema of the answer takes the place of the string, in the format and in the prompt."""
    answer = {"type": "object", "properties": {"city": {"type": "string"}}}
    plan = plan_call(conversation(), tools=[WEATHER], answer_schema=answer)
    assert plan.schema is not None
    assert plan.schema["anyOf"][1]["properties"]["final_answer"] == answer
    assert '"city"' in str(plan.turns[0].content)


def test_a_choice_of_an_unknown_tool_is_refused() -> None:
    """Naming a tool that is not on offer is a mistake of the caller."""
    with pytest.raises(UsageError, match="'nothing'"):
        plan_call(conversation(), tools=[WEATHER], choice=ToolChoice(kind=ChoiceKind.NAMED, name="nothing"))


def test_user_turns_with_parts_are_left_alone() -> None:
    """A turn with images is not merged with its neighbour."""
    image = Turn(role=Role.USER, content=[{"type": "image_url"}])
    plan = plan_call([image, Turn(role=Role.USER, content="What is it?")], tools=[CLOCK])
    assert [turn.content for turn in plan.turns[1:]] == [[{"type": "image_url"}], "What is it?"]


@pytest.mark.parametrize(
    "reply",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"```\n{CALL}",
        f"<think>hm, {{}}</think>\n{CALL}",
        f"I will look it up.\n{CALL}",
        f"Sure:\n```json\n{CALL}\n```\nDone.",
        f"{CALL} I hope that helps",
        '{"tool_calls": [{"name": "get_weather", "arguments": "{\\"city\\": \\"Köln\\"}"}]}',
        '{"tool_calls": {"name": "get_weather", "parameters": {"city": "K\\u00f6ln"}}}',
        '{"tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}]}',
        '{"tool_calls": "[{\\"name\\": \\"get_weather\\", \\"arguments\\": {\\"city\\": \\"Köln\\"}}]"}',
        '{"name": "get_weather", "arguments": {"city": "Köln"}}',
        '[{"name": "get_weather", "arguments": {"city": "Köln"}}]',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>',
        json.dumps({"final_answer": CALL}),
        "{'tool_calls': [{'name': 'get_weather', 'arguments': {'city': 'Köln',},},]}",
        f"<THINKING>hm</Thinking>{CALL}",
        CALL.removesuffix("]}"),
        CALL.removesuffix("}}]}"),
    ],
)
def test_all_spellings_of_a_call_are_read(reply: str) -> None:
    """Fences, thoughts, prose, other keys, double encoding and missing brackets do not hide a call."""
    assert pairs(reply, tool_names=NAMES) == [("get_weather", {"city": "Köln"})]


def test_a_thought_is_kept_apart() -> None:
    """What stands before the last closing think tag is the thought."""
    reply = parse_reply('<think>a</think>b</think>{"final_answer": "c"}')
    assert (reply.thought, reply.text) == ("ab", "c")
    assert parse_reply("<think>never ends").text == ""


def test_a_call_that_was_cut_off_is_dropped() -> None:
    """With the output cap reached, whole calls stay and the unfinished one is not run with half its arguments."""
    cut = '{"tool_calls": [{"name": "clock", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "Kö'
    assert pairs(cut, truncated=True) == [("clock", {})]
    alone = '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Kö'
    reply = parse_reply(alone, truncated=True)
    assert (reply.calls, reply.text) == ((), "")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ('{"final_answer": "It is 18 °C.\\nWarm."}', "It is 18 °C.\nWarm."),
        ('{"final_answer": "raw\nbreak"}', "raw\nbreak"),
        ('{"final_answer": "cut o', "cut o"),
        ('{"final_answer": {"city": "Köln"}}', '{"city": "Köln"}'),
        ('{"final_answer": 42}', "42"),
        ("Just prose.", "Just prose."),
        ('{"city": "Köln"}', '{"city": "Köln"}'),
        ('{"name": "Anna", "arguments": {}}', '{"name": "Anna", "arguments": {}}'),
        ("[1, 2]", "[1, 2]"),
        ('{"tool_calls": []}', ""),
        ('{"tool_calls": oh dear', ""),
        ('```json\n{"final_answer": ', ""),
        ("", ""),
        ('{"final_answer": "half \\ud83d emoji"}', "half \ufffd emoji"),
    ],
)
def test_everything_else_is_text(reply: str, text: str) -> None:
    """An answer loses its envelope, prose and other JSON stay as they are, wrecks become nothing."""
    found = parse_reply(reply, tool_names=NAMES)
    assert (found.text, list(found.calls)) == (text, [])


def test_calls_that_are_not_allowed_vanish() -> None:
    """Where the caller forbade calls, a call is neither returned nor shown as text."""
    reply = parse_reply(CALL, allow_calls=False)
    assert (list(reply.calls), reply.text) == ([], "")


@pytest.mark.parametrize("arguments", ['"20"', "[1]", "null", "7", '"\\"20\\""'])
def test_arguments_are_always_an_object(arguments: str) -> None:
    """Arguments that are no object become an empty one."""
    assert pairs(f'{{"tool_calls": [{{"name": "clock", "arguments": {arguments}}}]}}') == [("clock", {})]


@given(st.text(max_size=60), st.booleans())
def test_no_reply_breaks_the_reader(text: str, truncated: bool) -> None:
    """Any text, alone or inside an envelope, is read without an exception, and what comes out can be encoded."""
    for reply in (text, '{"tool_calls": [' + text, '{"final_answer": "' + text, "{" * 5 + text):
        found = parse_reply(reply, tool_names=NAMES, truncated=truncated)
        found.text.encode()
        for call in found.calls:
            assert isinstance(json.loads(call.arguments), dict)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(1, 5), st.booleans())
def test_streaming_shows_the_answer_once(answer: str, size: int, ascii_only: bool) -> None:
    """However a reply is cut into pieces, what is streamed adds up to the answer."""
    reply = json.dumps({"final_answer": answer}, ensure_ascii=ascii_only)
    stream = AnswerStream()
    shown = "".join(stream.feed(reply[start : start + size]) for start in range(0, len(reply), size))
    shown += stream.finish(parse_reply(reply).text)
    assert shown == parse_reply(reply).text


def test_streaming_shows_text_before_the_end() -> None:
    """An answer is shown while it is written, but never its envelope or a call."""
    stream = AnswerStream()
    assert stream.feed('{"final_answer": "It is') == "It is"
    assert stream.feed(" warm") == " warm"
    assert stream.feed('"}') == ""
    calls = AnswerStream()
    assert calls.feed(CALL) == ""
