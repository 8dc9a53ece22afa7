"""The same scripted conversation through AutoGen's AssistantAgent and ours with `policy="off"`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import MultiModalMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, Image
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.models import SystemMessage
from PIL import Image as PilImage

from agentloop_autogen import AgentLoopAssistantAgent, LoopConfig, Policy

from .scripted_model import Item, ScriptedModel, call, chunks_of, result


def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


def boom() -> str:
    """Boom."""
    raise ValueError("it broke")


Make = Callable[..., AssistantAgent]


def theirs(script: Sequence[Item], **options: Any) -> AssistantAgent:
    """AutoGen's agent."""
    return AssistantAgent("agent", Tolerant(script), max_tool_iterations=9, **options)


def ours(script: Sequence[Item], **options: Any) -> AssistantAgent:
    """Ours, with its additions off."""
    loop = LoopConfig(policy=Policy.OFF)
    return AgentLoopAssistantAgent("agent", Tolerant(script), loop=loop, max_tool_iterations=9, **options)


class Tolerant(ScriptedModel):
    """Accepts the empty list of tools that AutoGen sends."""

    async def create(self, messages: Any, **options: Any) -> Any:
        """Create."""
        return await super().create(messages, **{**options, "tools": options.get("tools") or None})


def inner_agent() -> AgentTool:
    """An agent as a tool."""
    return AgentTool(AssistantAgent("inner", ScriptedModel(["inner text"]), description="d"))


_CONVERSATIONS: dict[str, list[Item]] = {
    "text": ["Paris is the capital."],
    "one tool": [call("add", {"a": 1, "b": 2}), "it is 3"],
    "two rounds": [call("add", {"a": 1}, call_id="1"), call("add", {"a": 2}, call_id="2"), "1 and 2"],
    "parallel": [[call("add", {"a": 1}, call_id="1"), call("add", {"a": 2}, call_id="2")], "1 and 2"],
    "thoughts": [result([call("add", {"a": 1})], thought="I add"), result("it is 1", thought="done")],
    "thought and text": [result("Paris", thought="easy")],
    "failing tool": [call("boom"), "it broke"],
    "null arguments": [call("add", "null"), call("add", {"a": 1}), "1"],
    "nested agent": [call("inner", {"task": "sub"}), "as inner says"],
    "usage": [result("Paris is the capital.", finish_reason="stop")],
}


def plain(done: TaskResult) -> list[dict[str, Any]]:
    """The messages of a run without what differs from run to run, and without our metadata."""
    return [
        {
            "kind": type(message).__name__,
            **message.model_dump(exclude={"id", "created_at", "metadata", "full_message_id"}),
        }
        for message in done.messages
    ]


async def stream_of(agent: AssistantAgent) -> tuple[list[Any], TaskResult]:
    """Everything a stream yields, and its result."""
    items = [item async for item in agent.run_stream(task="go")]
    assert isinstance(items[-1], TaskResult)
    return items[:-1], items[-1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", _CONVERSATIONS)
async def test_a_conversation_yields_the_same_messages(name: str, stream: bool) -> None:
    """Types, contents, order and usage of all messages are AutoGen's, chunks included."""

    async def messages(make: Make) -> list[dict[str, Any]]:
        agent = make(_CONVERSATIONS[name], tools=[add, boom, inner_agent()], model_client_stream=stream)
        items, done = await stream_of(agent)
        return plain(TaskResult(messages=items)) + plain(done)

    assert await messages(ours) == await messages(theirs)


@pytest.mark.parametrize("name", ["text", "one tool", "parallel", "failing tool"])
async def test_a_conversation_leaves_the_same_history(name: str) -> None:
    """What the model context holds after a run is what AutoGen's agent leaves there."""

    async def history(make: Make) -> list[dict[str, Any]]:
        agent = make(_CONVERSATIONS[name], tools=[add, boom])
        await agent.run(task="go")
        return [message.model_dump() for message in await agent.model_context.get_messages()]

    assert await history(ours) == await history(theirs)


@pytest.mark.parametrize("make", [ours, theirs])
@pytest.mark.parametrize("name", ["text", "one tool", "thought and text"])
async def test_chunks_carry_the_id_of_the_message_they_become(make: Make, name: str) -> None:
    """The chunks of the last text share one `full_message_id`, that of the reply or of the thought before it."""
    items, done = await stream_of(make(_CONVERSATIONS[name], tools=[add], model_client_stream=True))
    ids = {message.id for message in done.messages}
    chunks = chunks_of(items)
    assert chunks
    assert {chunk.full_message_id for chunk in chunks} <= ids
    assert len({chunk.full_message_id for chunk in chunks}) == 1
    assert "".join(chunk.content for chunk in chunks) == done.messages[-1].to_text()


async def test_prompts_are_the_same_without_feedback() -> None:
    """With the additions off the model reads what AutoGen would show it."""

    async def prompts(make: Make) -> list[Any]:
        agent = make(_CONVERSATIONS["two rounds"], tools=[add], system_message="Be brief.")
        model = agent._model_client  # pyright: ignore[reportPrivateUsage] - the scripted client is the one observer
        assert isinstance(model, ScriptedModel)
        await agent.run(task="go")
        return [[message.model_dump() for message in request.messages] for request in model.requests]

    assert await prompts(ours) == await prompts(theirs)


async def test_a_memory_sends_the_same_event() -> None:
    """A memory's contents are announced as AutoGen does."""

    async def messages(make: Make) -> list[dict[str, Any]]:
        memory = ListMemory()
        await memory.add(MemoryContent(content="metric", mime_type=MemoryMimeType.TEXT))
        return plain(await make(["Paris"], memory=[memory]).run(task="go"))

    assert await messages(ours) == await messages(theirs)


async def test_a_picture_is_passed_on_alike() -> None:
    """A multi-modal task reaches a model without vision as text in both."""
    picture = Image.from_pil(PilImage.new("RGB", (2, 2)))

    async def prompt(make: Make) -> Any:
        agent = make(["Paris"])
        model = agent._model_client  # pyright: ignore[reportPrivateUsage] - the scripted client is the one observer
        assert isinstance(model, ScriptedModel)
        await agent.run(task=MultiModalMessage(content=["what?", picture], source="user"))
        return [m.model_dump() for m in model.requests[0].messages if not isinstance(m, SystemMessage)]

    assert await prompt(ours) == await prompt(theirs)


async def test_a_team_of_both_runs_as_one() -> None:
    """Our agent and AutoGen's take turns in one team without registering anything."""
    pair = [
        AgentLoopAssistantAgent("mine", ScriptedModel(["from mine"]), loop=LoopConfig(policy=Policy.OFF)),
        AssistantAgent("stock", Tolerant(["from stock"])),
    ]
    done = await RoundRobinGroupChat(list(pair), max_turns=2).run(task="go")
    assert [(m.source, m.to_text()) for m in done.messages] == [
        ("user", "go"),
        ("mine", "from mine"),
        ("stock", "from stock"),
    ]


async def test_run_and_on_messages_agree() -> None:
    """`on_messages` returns the response whose messages `run` lists."""
    agent = ours(_CONVERSATIONS["one tool"], tools=[add])
    response = await agent.on_messages([TextMessage(content="go", source="user")], CancellationToken())
    again = await ours(_CONVERSATIONS["one tool"], tools=[add]).run(task="go")
    kinds = [type(message).__name__ for message in [*(response.inner_messages or ()), response.chat_message]]
    assert kinds == [type(message).__name__ for message in again.messages[1:]]


def test_every_keyword_of_autogens_agent_is_taken() -> None:
    """The constructor has all parameters of AutoGen's with the same defaults, except where None means "the loop's"."""
    stock = inspect.signature(AssistantAgent.__init__).parameters
    mine = inspect.signature(AgentLoopAssistantAgent.__init__).parameters
    assert set(stock) <= set(mine)
    assert set(mine) - set(stock) == {"verifier", "loop", "slot_store"}
    differing = {name for name, parameter in stock.items() if mine[name].default != parameter.default}
    assert differing == {"max_tool_iterations"}
    assert all(mine[name].kind == parameter.kind for name, parameter in stock.items())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tools": [add, add]}, ValueError),
        ({"tools": [add], "handoffs": ["add"]}, ValueError),
        ({"tools": ["no tool"]}, ValueError),
        ({"handoffs": ["b", "b"]}, ValueError),
        ({"memory": "no list"}, TypeError),
        ({"name": "no identifier"}, ValueError),
    ],
)
def test_wrong_use_is_refused_alike(options: dict[str, Any], error: type[Exception]) -> None:
    """What AutoGen's constructor refuses ours refuses with the same error."""
    name = options.pop("name", "agent")
    messages: list[str] = []
    for kind in (AssistantAgent, AgentLoopAssistantAgent):
        with pytest.raises(error) as raised:
            kind(name, ScriptedModel(["x"]), **options)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
