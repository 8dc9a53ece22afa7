"""Cancelling, breaking off, pausing and running twice: what stops, how fast, and what is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType, UpdateContextResult
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import LLMMessage

from agentloop_autogen import AgentLoopAssistantAgent, LoopConfig, SlotVerifier, StopReason, Verdict

from .scripted_model import (
    CLOSED,
    HANG,
    UNWRITTEN,
    Item,
    ScriptedModel,
    Slow,
    agent_of,
    call,
    dangling,
    open_verdict,
    outcome_of,
)


async def find(number: int = 1) -> str:
    """Find."""
    await asyncio.sleep(0)
    return f"finding {number}: word{number * 31}"


async def wait() -> str:
    """Wait."""
    await asyncio.sleep(30)
    return "never"


class Pausing(SlotVerifier):
    """A verifier that suspends, and asks for an answer call once there is evidence and a draft was tried."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    async def verify(self, request: str, draft: str, evidence: Any, *, cancellation_token: Any = None) -> Verdict:
        """Judge."""
        await asyncio.sleep(self.seconds)
        return UNWRITTEN if draft else open_verdict()


class SlowContext(UnboundedChatCompletionContext):
    """A context that suspends whenever it takes or gives a message, as one in a database does."""

    async def add_message(self, message: LLMMessage) -> None:
        """Add."""
        await asyncio.sleep(0)
        await super().add_message(message)
        await asyncio.sleep(0)

    async def get_messages(self) -> list[LLMMessage]:
        """Get."""
        await asyncio.sleep(0)
        return await super().get_messages()


class SlowMemory(ListMemory):
    """A memory that suspends."""

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Update."""
        await asyncio.sleep(0)
        return await super().update_context(model_context)


async def subject(*, stream: bool) -> AgentLoopAssistantAgent:
    """An agent that suspends at every kind of place, and whose first run takes a few dozen steps."""
    memory = SlowMemory()
    await memory.add(MemoryContent(content="metric", mime_type=MemoryMimeType.TEXT))
    pair = [call("find", {"number": 1}, call_id="a"), call("find", {"number": 2}, call_id="b")]
    return agent_of(
        ScriptedModel([pair, "a draft", "the answer", "the answer", "the answer", "the answer"], repeat_last=True),
        Pausing(),
        tools=[find],
        memory=[memory],
        model_context=SlowContext(),
        model_client_stream=stream,
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by", ["token", "task"])
async def test_a_run_can_be_cancelled_at_every_step(by: str, stream: bool) -> None:
    """At whatever step a run is cancelled it raises CancelledError at once and leaves a whole conversation behind."""
    finished = 0
    cancelled = 0
    for step in range(1, 400):
        agent = await subject(stream=stream)
        token = CancellationToken()
        task = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
        for _ in range(step):
            await asyncio.sleep(0)
        if task.done():
            finished += 1
            break
        token.cancel() if by == "token" else task.cancel()
        started = time.monotonic()
        try:
            await asyncio.wait_for(task, 2)
            finished += 1
        except asyncio.CancelledError:
            cancelled += 1
        assert time.monotonic() - started < 0.5
        assert await dangling(agent.model_context) == []
        again = await agent.run(task="again")
        assert again.messages[-1].to_text()
        assert await dangling(agent.model_context) == []
    assert finished
    assert cancelled > 20


_PLACES: dict[str, tuple[list[Item], Any]] = {
    "model": ([HANG], [CLOSED]),
    "tool": ([[call("wait", call_id="1"), call("find", call_id="2")]], [CLOSED]),
    "verifier": (["a draft"], Pausing(30)),
    "answer": ([call("find"), HANG], [UNWRITTEN]),
    "deaf model": ([Slow(1.5, deaf=True)], [CLOSED]),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", _PLACES)
async def test_cancelling_takes_effect_wherever_the_run_hangs(where: str, stream: bool) -> None:
    """A run that hangs in a model, a tool, a verifier or an answer call ends within two seconds of its cancelling."""
    script, verdicts = _PLACES[where]
    model = ScriptedModel(script)
    agent = agent_of(model, verdicts, tools=[find, wait], model_client_stream=stream)
    token = CancellationToken()
    task = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
    await asyncio.sleep(0.05)
    token.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 2
    asked = len(model.requests)
    assert agent.last_outcome is None
    assert await dangling(agent.model_context) == []
    await asyncio.sleep(0.02)
    assert len(model.requests) == asked
    if "deaf" not in where:
        assert model.active == 0


async def test_what_ran_before_the_cancelling_stays_known() -> None:
    """Of a cancelled round the finished result is kept, and the unfinished call says that it was stopped."""
    model = ScriptedModel([[call("wait", call_id="1"), call("find", call_id="2")]])
    agent = agent_of(model, tools=[find, wait])
    token = CancellationToken()
    task = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
    await asyncio.sleep(0.05)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    kept = (await agent.model_context.get_messages())[-1].content
    assert [getattr(item, "content", "") for item in kept] == [
        "Error: stopped, the run was cancelled",
        "finding 1: word31",
    ]


async def test_a_cancelled_token_ends_a_run_at_once() -> None:
    """A run that is given a token that was cancelled before makes no call."""
    model = ScriptedModel(["never"])
    agent = agent_of(model)
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await agent.run(task="go", cancellation_token=token)
    assert model.requests == []
    assert (await agent_of(ScriptedModel(["fine"])).run(task="go")).messages[-1].to_text() == "fine"


async def test_cancelling_from_the_reader_ends_the_stream() -> None:
    """A reader that cancels while it handles an event gets no further event."""
    agent = agent_of(ScriptedModel([call("find"), "done"]), [open_verdict(), CLOSED], tools=[find])
    token = CancellationToken()
    seen: list[Any] = []

    async def read() -> None:
        async for event in agent.run_stream(task="go", cancellation_token=token):
            seen.append(event)
            if isinstance(event, ToolCallRequestEvent):
                token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await read()
    assert isinstance(seen[-1], ToolCallRequestEvent)
    assert await dangling(agent.model_context) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("closing", [True, False])
async def test_a_stream_can_be_broken_off_at_every_event(closing: bool, stream: bool) -> None:
    """Leaving the stream early stops the run, and the agent can run again at once."""
    broken_off = 0
    for number in range(1, 60):
        agent = await subject(stream=stream)
        events: AsyncGenerator[Any, None] = agent.run_stream(task="go")
        seen = 0
        async for _ in events:
            seen += 1
            if seen == number:
                break
        else:
            break
        broken_off += 1
        if closing:
            await events.aclose()
        del events
        done = await agent.run(task="again")
        assert done.messages[-1].to_text()
        assert await dangling(agent.model_context) == []
    assert broken_off > 5


async def test_a_stream_broken_off_while_a_tool_hangs_can_be_run_again() -> None:
    """Breaking off cancels what runs in the background, the nested agent of a tool included."""
    inner = agent_of(ScriptedModel(["one", "two"]), name="inner", description="d")
    tool = AgentTool(inner, return_value_as_last_message=True)
    model = ScriptedModel(
        [[call("inner", {"task": "x"}, call_id="1"), call("wait", call_id="2")], call("inner", {"task": "y"}), "done"]
    )
    agent = agent_of(model, [open_verdict(), CLOSED], tools=[tool, wait])
    async for event in agent.run_stream(task="go"):
        if isinstance(event, TextMessage) and event.source == "inner":
            break
    done = await agent.run(task="again")
    assert done.messages[-1].to_text() == "done"
    (executed,) = [m for m in done.messages if isinstance(m, ToolCallExecutionEvent)]
    assert executed.content[0].content == "two"
    assert not executed.content[0].is_error


async def test_a_second_run_at_the_same_time_is_refused() -> None:
    """Running an agent that is running raises, and the first run is not disturbed."""
    agent = agent_of(ScriptedModel([Slow(0.05, "first"), "later"]))
    first = asyncio.ensure_future(agent.run(task="go"))
    await asyncio.sleep(0.01)
    with pytest.raises(RuntimeError, match="already running"):
        await agent.run(task="too early")
    assert (await first).messages[-1].to_text() == "first"
    assert "too early" not in str(await agent.model_context.get_messages())
    assert (await agent.run(task="now")).messages[-1].to_text() == "later"


async def test_a_response_taken_from_the_stream_frees_the_agent() -> None:
    """Whoever stops reading at the response, as `on_messages` does, can run the agent again."""
    agent = agent_of(ScriptedModel(["one", "two"]))
    for expected in ("one", "two"):
        response = await agent.on_messages([TextMessage(content="go", source="user")], CancellationToken())
        assert response.chat_message.to_text() == expected


async def test_a_pause_holds_the_next_call_and_stops_the_clock() -> None:
    """Paused during a tool, the run makes no further call until it is resumed, and the pause costs no time."""
    started, release = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        """Work."""
        started.set()
        await release.wait()
        return "a finding"

    model = ScriptedModel([call("work"), "done"])
    agent = agent_of(model, Pausing(), tools=[work], loop=LoopConfig(timeout_s=0.5, max_reflections=0))
    task = asyncio.ensure_future(agent.run(task="go"))
    await started.wait()
    await agent.on_pause(CancellationToken())
    release.set()
    await asyncio.sleep(0.6)
    assert len(model.requests) == 1
    assert not task.done()
    await agent.on_resume(CancellationToken())
    await task
    assert len(model.requests) >= 2
    assert outcome_of(agent).elapsed_s < 0.3
    assert outcome_of(agent).stop_reason is not StopReason.BUDGET


async def test_a_pause_before_the_run_holds_its_first_call() -> None:
    """An agent that was paused while idle makes no call until it is resumed, and can be cancelled meanwhile."""
    model = ScriptedModel(["done"])
    agent = agent_of(model)
    await agent.on_pause(CancellationToken())
    task = asyncio.ensure_future(agent.run(task="go"))
    await asyncio.sleep(0.02)
    assert model.requests == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await agent.on_resume(CancellationToken())
    assert (await agent.run(task="go")).messages[-1].to_text() == "done"


async def test_a_pause_stretches_the_time_of_a_call_under_way() -> None:
    """A verifier call that is under way when the run is paused is not timed out by the pause."""
    agent = agent_of(ScriptedModel(["a draft"]), Slowly(0.3), loop=LoopConfig(verifier_timeout_s=0.2))
    task = asyncio.ensure_future(agent.run(task="go"))
    await asyncio.sleep(0.05)
    await agent.on_pause(CancellationToken())
    await asyncio.sleep(0.3)
    await agent.on_resume(CancellationToken())
    await task
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED


class Slowly(SlotVerifier):
    """A verifier that takes its time and is content."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def verify(self, *_: Any, **__: Any) -> Verdict:
        """Judge."""
        await asyncio.sleep(self.seconds)
        return CLOSED
