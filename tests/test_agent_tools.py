"""What models and tools do to a round of calls, and what the conversation holds afterwards."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import (
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.tools import AgentTool
from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, ToolOverride
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams  # pyright: ignore[reportMissingTypeStubs] - has none
from pydantic import BaseModel

from agentloop_autogen import AgentLoopAssistantAgent, LoopConfig, Policy, StopReason
from agentloop_autogen.testing import ScriptedVerifier

from .scripted_model import (
    CLOSED,
    ClosedByDraft,
    Item,
    ScriptedModel,
    agent_of,
    call,
    dangling,
    open_verdict,
    outcome_of,
)


def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


def of_type(messages: Sequence[Any], kind: type[Any]) -> list[Any]:
    """The messages of one type."""
    return [message for message in messages if isinstance(message, kind)]


async def kept_calls(agent: AgentLoopAssistantAgent) -> list[FunctionCall]:
    """All calls in the conversation of the agent."""
    messages = await agent.model_context.get_messages()
    return [
        call_
        for message in messages
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
        for call_ in message.content
    ]


async def kept_results(agent: AgentLoopAssistantAgent) -> list[str]:
    """The contents of all results in the conversation of the agent."""
    messages = await agent.model_context.get_messages()
    return [
        item.content
        for message in messages
        if isinstance(message, FunctionExecutionResultMessage)
        for item in message.content
    ]


async def one_round(calls: Item, *tools: Any, **options: Any) -> tuple[AgentLoopAssistantAgent, list[Any]]:
    """Run one round of calls and a closing text, and check that the conversation is whole."""
    model = ScriptedModel([calls, "done"])
    agent = agent_of(model, ClosedByDraft(), tools=list(tools), **options)
    done = await asyncio.wait_for(agent.run(task="go"), 10)
    assert await dangling(agent.model_context) == []
    assert done.messages[-1].to_text().startswith("done")
    return agent, list(done.messages)


async def test_calls_of_a_round_run_at_the_same_time() -> None:
    """Calls of one reply run in parallel, and their results keep the order of the calls."""
    barrier: list[str] = []
    everybody = asyncio.Event()

    async def meet(name: str) -> str:
        """Meet."""
        barrier.append(name)
        if len(barrier) == 3:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), 2)
        return f"met {name}"

    calls = [call("meet", {"name": name}, call_id=name) for name in "abc"]
    agent, messages = await one_round(calls, meet)
    (executed,) = of_type(messages, ToolCallExecutionEvent)
    assert [(item.call_id, item.content) for item in executed.content] == [(n, f"met {n}") for n in "abc"]
    assert outcome_of(agent).tool_calls == 3


async def test_a_nested_agent_streams_its_messages() -> None:
    """An agent used as a tool sends its own messages through the stream, and its answer is one result."""
    inner = agent_of(ScriptedModel(["inner answer"]), name="inner", description="d")
    verifier = ScriptedVerifier([open_verdict(), CLOSED])
    model = ScriptedModel([call("inner", {"task": "sub task"}), "done"])
    agent = agent_of(model, verifier, tools=[AgentTool(inner, return_value_as_last_message=True)])
    done = await agent.run(task="go")
    texts = [(message.source, message.to_text()) for message in of_type(done.messages, TextMessage)]
    assert texts == [("user", "go"), ("user", "sub task"), ("inner", "inner answer"), ("agent", "done")]
    assert [len(seen.evidence) for seen in verifier.calls] == [1, 1]
    assert {seen.request for seen in verifier.calls} == {"go"}
    assert outcome_of(agent).rounds == 2


async def test_two_parallel_calls_of_one_nested_agent_do_not_interleave() -> None:
    """The second of two parallel calls of one nested agent is an error result, and the first is unharmed."""
    inner = agent_of(ScriptedModel(["first", "second"]), name="inner", description="d")
    calls = [call("inner", {"task": f"t{n}"}, call_id=f"c{n}") for n in (1, 2)]
    tool = AgentTool(inner, return_value_as_last_message=True)
    _, messages = await one_round(calls, tool)
    (executed,) = of_type(messages, ToolCallExecutionEvent)
    assert [item.is_error for item in executed.content] == [False, True]
    assert "already running" in executed.content[1].content


async def test_an_unknown_tool_is_an_error_that_names_the_known_ones() -> None:
    """A hallucinated tool name runs nothing and is answered with the names there are."""
    agent, messages = await one_round([call("nope", {"x": 1}, call_id="a"), call("add", {"a": 1}, call_id="b")], add)
    (executed,) = of_type(messages, ToolCallExecutionEvent)
    assert [item.is_error for item in executed.content] == [True, False]
    assert "nope" in executed.content[0].content
    assert "add" in executed.content[0].content
    assert outcome_of(agent).tool_calls == 1


async def test_a_renamed_tool_that_cannot_be_called_ends_the_search() -> None:
    """A tool that is advertised under a name its workbench does not know is no progress, not an endless retry."""
    workbench = StaticStreamWorkbench(
        [FunctionTool(add, description="d")], tool_overrides={"add": ToolOverride(name="plus")}
    )
    model = ScriptedModel([lambda r: call("plus", {"a": 1}) if r.tools else "no sum"], repeat_last=True)
    agent = agent_of(model, [open_verdict("sum")], workbench=workbench, max_tool_iterations=10)
    await agent.run(task="add")
    assert outcome_of(agent).rounds < 10


@pytest.mark.parametrize("name", ["", "no such", "a" * 90, "add<|channel|>commentary", "功能"])
async def test_names_no_server_accepts_do_not_stay_in_the_conversation(name: str) -> None:
    """A made-up name with illegal characters is kept in a legal spelling, paired with its error result."""
    agent, _ = await one_round([call(name, {"x": 1})], add)
    (kept,) = await kept_calls(agent)
    assert kept.name
    assert len(kept.name) <= 64
    assert kept.name.replace("_", "a").replace("-", "a").isalnum()
    assert kept.name.isascii()
    messages = await agent.model_context.get_messages()
    results = [m for m in messages if isinstance(m, FunctionExecutionResultMessage)]
    assert [item.name for item in results[0].content] == [kept.name]


async def test_the_name_of_a_known_tool_is_kept_as_it_is() -> None:
    """A tool whose name is no ASCII keeps it in the conversation, so that the model recognises it."""
    tool = FunctionTool(add, name="足し算", description="d")
    agent, _ = await one_round([call("足し算", {"a": 1, "b": 2})], tool)
    assert [kept.name for kept in await kept_calls(agent)] == ["足し算"]
    assert await kept_results(agent) == ["3"]


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        ("", True),
        ("null", True),
        ("  {}  ", True),
        ('"{\\"a\\": 1, \\"b\\": 2}"', True),
        ("[1]", False),
        ("7", False),
        ('"text"', False),
        ("{'a': 1}", False),
        ('{"a": 1', False),
        ('{"a": NaN}', False),
        ('{"a": Infinity}', False),
        ("[" * 100_000, False),
        ('{"a": ' + "9" * 5000 + "}", False),
    ],
)
async def test_odd_arguments_never_stay_in_the_conversation(arguments: str, runs: bool) -> None:
    """Whatever a model writes as arguments, the conversation holds a JSON object, and only an object is run."""
    ran: list[tuple[int, int]] = []

    def note(a: int = 0, b: int = 0) -> str:
        """Note."""
        ran.append((a, b))
        return "noted"

    agent, _ = await one_round([call("note", arguments)], note)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    (kept,) = await kept_calls(agent)
    assert isinstance(json.loads(kept.arguments, parse_constant=refuse), dict)
    assert bool(ran) is runs
    assert outcome_of(agent).tool_calls == int(runs)


@pytest.mark.parametrize("arguments", ['{"a":1,  "b":2}', '{"a": 1, "text": "\\ud800"}', '{"text": "東京", "a": 1}'])
async def test_valid_arguments_are_kept_to_the_letter(arguments: str) -> None:
    """Arguments that are an object stay exactly as the model wrote them, as a prefix cache needs it."""
    agent, _ = await one_round([call("add", arguments)], add)
    (kept,) = await kept_calls(agent)
    assert kept.arguments == arguments
    kept.arguments.encode()


@pytest.mark.parametrize("field", ["id", "name", "arguments"])
async def test_calls_with_missing_fields_are_survived(field: str) -> None:
    """A server that leaves out id, name or arguments of a call costs a round at most."""
    broken = call("add", {"a": 1})
    setattr(broken, field, None)
    agent, _ = await one_round([broken], add)
    assert len(await kept_calls(agent)) == 1


@pytest.mark.parametrize(
    "ids", [["c", "c", "c"], ["", "", ""], ["", "call_0", "call_0"], ["a", "a_2", "a"], ["call_1", "", "x"]]
)
async def test_every_call_of_a_round_gets_an_id_of_its_own(ids: list[str]) -> None:
    """Repeated or missing ids within a reply are made distinct, in events and in the conversation alike."""
    calls = [call("add", {"a": n}, call_id=identity) for n, identity in enumerate(ids)]
    agent, messages = await one_round(calls, add)
    kept = [item.id for item in await kept_calls(agent)]
    assert len(set(kept)) == 3
    assert all(kept)
    (asked,) = of_type(messages, ToolCallRequestEvent)
    (executed,) = of_type(messages, ToolCallExecutionEvent)
    assert [item.id for item in asked.content] == [item.call_id for item in executed.content] == kept
    assert [item.content for item in executed.content] == ["0", "1", "2"]


async def test_ids_that_recur_across_rounds_are_five_observations() -> None:
    """Ids are unique within a reply only: five rounds with the same id are five results."""
    model = ScriptedModel([call("add", {"a": n * 10, "b": n}, call_id="c0") for n in range(1, 6)] + ["done"])
    verifier = ScriptedVerifier([open_verdict()] * 5 + [CLOSED])
    agent = agent_of(model, verifier, tools=[add])
    await agent.run(task="go")
    assert [piece.finding for piece in verifier.calls[-1].evidence] == ["11", "22", "33", "44", "55"]
    assert await kept_results(agent) == ["11", "22", "33", "44", "55"]
    assert await dangling(agent.model_context) == []


async def test_a_raising_tool_is_an_error_result() -> None:
    """What a tool raises is told to the model as an error, and the run goes on."""

    def boom() -> str:
        """Boom."""
        raise ZeroDivisionError("by zero")

    agent, messages = await one_round([call("boom")], boom)
    (executed,) = of_type(messages, ToolCallExecutionEvent)
    assert executed.content[0].is_error
    assert "by zero" in executed.content[0].content
    assert outcome_of(agent).tool_calls == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit(), type("Odd", (BaseException,), {})()])
async def test_a_tool_that_raises_what_nobody_catches_ends_its_own_call_only(error: BaseException) -> None:
    """A tool that raises CancelledError or another BaseException gives an error result instead of a hang."""

    async def odd() -> str:
        """Odd."""
        raise error

    _, messages = await one_round([call("odd", call_id="1"), call("add", {"a": 5}, call_id="2")], odd, add)
    (executed,) = of_type(messages, ToolCallExecutionEvent)
    assert [item.is_error for item in executed.content] == [True, False]


class Point(BaseModel):
    """A pydantic result."""

    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ({"k": "v"}, "{'k': 'v'}"),
        ([1, 2], "[1, 2]"),
        (Point(x=1), '{"x": 1}'),
        (True, "True"),
        ("東京は晴れ", "東京は晴れ"),
    ],
)
async def test_results_of_any_type_become_text(value: Any, text: str) -> None:
    """None, dict, list, model and CJK text come back as AutoGen turns them into text."""

    def give() -> Any:
        """Give."""
        return value

    agent, _ = await one_round([call("give")], give)
    assert await kept_results(agent) == [text]


async def test_a_lone_surrogate_in_a_result_does_not_break_the_next_request() -> None:
    """Undecodable file names and the like are replaced, since no request could carry them."""

    def listing() -> str:
        """List."""
        return "report\udcff.txt and 東京"

    agent, messages = await one_round([call("listing")], listing)
    (kept,) = await kept_results(agent)
    assert kept.encode().decode() == kept
    assert "東京" in kept
    for message in messages:
        message.model_dump_json()


async def test_five_megabytes_of_output_are_compacted() -> None:
    """A huge result is shown in full in the event, and enters conversation, evidence and verifier bounded and fast."""
    verifier = ScriptedVerifier([open_verdict(), CLOSED])

    def dump() -> str:
        """Dump."""
        return "BEGIN " + "row 123 abc; " * 400_000 + "END"

    model = ScriptedModel([call("dump"), "done"])
    agent = agent_of(model, verifier, tools=[dump])
    started = time.monotonic()
    done = await agent.run(task="go")
    assert time.monotonic() - started < 3
    (executed,) = of_type(done.messages, ToolCallExecutionEvent)
    assert len(executed.content[0].content) > 5_000_000
    (kept,) = await kept_results(agent)
    assert len(kept) < 6_200
    assert kept.startswith("BEGIN")
    assert kept.endswith("END")
    assert len(verifier.calls[0].evidence[0].finding) < 1_300


async def test_base64_is_replaced_by_a_mark() -> None:
    """An inlined image never reaches prompt, evidence or verifier as base64."""
    blob = base64.b64encode(bytes(range(256)) * 800).decode()
    verifier = ScriptedVerifier([open_verdict(), CLOSED])

    def shot() -> str:
        """Shot."""
        return f'{{"caption": "a chart", "image": "data:image/png;base64,{blob}"}}'

    model = ScriptedModel([call("shot"), "done"])
    agent = agent_of(model, verifier, tools=[shot])
    await agent.run(task="go")
    for seen in (model.requests[1].text, verifier.calls[0].evidence[0].finding, *await kept_results(agent)):
        assert blob[:300] not in seen
        assert "a chart" in seen
    assert "image/png" in verifier.calls[0].evidence[0].finding


async def test_twenty_identical_calls_in_one_round_run_a_few_times_only() -> None:
    """Twenty identical calls of one reply are executed three times, and every id gets its result."""
    ran: list[int] = []

    def count() -> str:
        """Count."""
        ran.append(1)
        return f"count {len(ran)}"

    calls = [call("count", call_id=f"c{n}") for n in range(20)]
    agent, messages = await one_round(calls, count)
    assert len(ran) == 3
    (executed,) = of_type(messages, ToolCallExecutionEvent)
    assert [item.call_id for item in executed.content] == [f"c{n}" for n in range(20)]
    assert not any(item.is_error for item in executed.content)
    assert outcome_of(agent).tool_calls == 3


async def test_identical_calls_count_once_each_against_the_budget() -> None:
    """A budget of four calls runs three of twenty identical ones and the different one behind them."""
    ran: list[str] = []

    def step(name: str) -> str:
        """Step."""
        ran.append(name)
        return f"did {name}"

    calls = [call("step", {"name": "same"}, call_id=f"c{n}") for n in range(20)]
    model = ScriptedModel([[*calls, call("step", {"name": "other"}, call_id="z")], "done"])
    agent = agent_of(model, [CLOSED], tools=[step], loop=LoopConfig(max_tool_calls=4))
    await agent.run(task="go")
    assert sorted(ran) == ["other", "same", "same", "same"]


async def test_the_paper_policy_runs_every_call() -> None:
    """Without the additions identical calls of a round all run."""
    ran: list[int] = []

    def count() -> str:
        """Count."""
        ran.append(1)
        return "x"

    calls = [call("count", call_id=f"c{n}") for n in range(20)]
    await one_round(calls, count, loop=LoopConfig(policy=Policy.PAPER))
    assert len(ran) == 20


async def test_a_call_that_cannot_run_costs_no_budget() -> None:
    """Unknown tools and broken arguments use up none of `max_tool_calls`."""
    calls = [call("nope", call_id="1"), call("add", "[", call_id="2"), call("add", {"a": 7}, call_id="3")]
    model = ScriptedModel([calls, "done"])
    agent = agent_of(model, [CLOSED], tools=[add], loop=LoopConfig(max_tool_calls=1))
    await agent.run(task="go")
    assert (await kept_results(agent))[2] == "7"
    assert outcome_of(agent).tool_calls == 1


async def test_tools_that_change_between_rounds_are_listed_anew() -> None:
    """A tool that a workbench gains during the run is offered and callable in the next round."""

    class Growing(StaticStreamWorkbench):
        """Gains a tool after the first listing."""

        asked = 0

        async def list_tools(self) -> Any:
            """List."""
            self.asked += 1
            listed = await super().list_tools()
            return listed if self.asked > 1 else listed[:1]

    def late() -> str:
        """Late."""
        return "late result"

    workbench = Growing([FunctionTool(add, description="d"), FunctionTool(late, description="d")])
    model = ScriptedModel([call("add", {"a": 1}), call("late"), "done"])
    agent = agent_of(model, [open_verdict(), open_verdict(), CLOSED], workbench=workbench)
    await agent.run(task="go")
    assert [request.tool_names for request in model.requests] == [["add"], ["add", "late"], ["add", "late"]]
    assert await kept_results(agent) == ["1", "late result"]


async def test_a_workbench_that_cannot_list_its_tools_ends_in_a_reply() -> None:
    """A tool server that is gone is named in the reply instead of being raised."""

    class Gone(StaticStreamWorkbench):
        """Cannot list."""

        async def list_tools(self) -> Any:
            """List."""
            raise ConnectionError("tool server gone")

    agent = agent_of(ScriptedModel(["x"]), workbench=Gone([]))
    done = await agent.run(task="go")
    assert "tool server gone" in done.messages[-1].to_text()
    assert "the model could not be called" not in done.messages[-1].to_text()
    assert outcome_of(agent).stop_reason is StopReason.FAILED


_MCP_SERVER = '''
from mcp.server.fastmcp import FastMCP

server = FastMCP("test")


@server.tool()
def shout(text: str) -> str:
    """Shout."""
    return text.upper() + "!"


@server.tool()
def broken() -> str:
    """Broken."""
    raise ValueError("the server cannot do that")


server.run()
'''


async def test_an_mcp_server_serves_as_workbench(tmp_path: Path) -> None:
    """Tools of a real MCP server on standard input run, and what they raise is an error result."""
    script = tmp_path / "server.py"
    script.write_text(_MCP_SERVER)
    parameters = StdioServerParams(command=sys.executable, args=[str(script)], read_timeout_seconds=20)
    async with McpWorkbench(parameters) as workbench:
        calls = [call("shout", {"text": "hey"}, call_id="1"), call("broken", call_id="2")]
        model = ScriptedModel([calls, "HEY!"])
        verifier = ScriptedVerifier([open_verdict(), CLOSED])
        agent = agent_of(model, verifier, workbench=workbench)
        done = await agent.run(task="shout")
    assert done.messages[-1].to_text() == "HEY!"
    assert [piece.is_error for piece in verifier.calls[0].evidence] == [False, True]
    assert verifier.calls[0].evidence[0].finding == "HEY!"
    assert "cannot do that" in verifier.calls[0].evidence[1].finding
