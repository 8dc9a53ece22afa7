"""Models, verifiers and servers that fail: every fault ends in a reply, and time is bounded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.models import CreateResult

from agentloop_autogen import ControlBranch, LoopConfig, SlotVerifier, StopReason, Verdict
from agentloop_autogen.testing import ScriptedVerifier

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
    result,
)


def find(number: int = 1) -> str:
    """Find."""
    return f"finding {number}: word{number * 31}"


class OddError(BaseException):
    """Something that is no `Exception`."""


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_fault_is_tried_once_more(stream: bool) -> None:
    """One failed planning call is repeated, and the run goes on as if nothing had been."""
    model = ScriptedModel([ConnectionError("lost"), "done"])
    agent = agent_of(model, model_client_stream=stream)
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "done"
    assert outcome_of(agent).model_calls == 2
    assert outcome_of(agent).rounds == 1
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "error", [ValueError("no such model"), asyncio.CancelledError(), OddError("odd"), TimeoutError()]
)
async def test_a_model_that_stays_down_is_named_in_the_reply(error: BaseException, stream: bool) -> None:
    """Two failed planning calls end as `failed` with a text that says what failed and what is known."""
    model = ScriptedModel([call("find", {"number": 2}), error, error])
    agent = agent_of(model, [open_verdict("total")], tools=[find], model_client_stream=stream)
    done = await asyncio.wait_for(agent.run(task="go"), 5)
    message = done.messages[-1]
    assert isinstance(message, TextMessage)
    assert "the model could not be called" in message.content
    assert "word62" in message.content
    assert "total" in message.content
    assert message.metadata["agentloop.stop_reason"] == "failed"
    assert outcome_of(agent).stop_reason is StopReason.FAILED
    assert outcome_of(agent).error
    assert await dangling(agent.model_context) == []


async def test_a_draft_survives_a_model_that_goes_down() -> None:
    """What the model wrote before it failed is part of the reply."""
    model = ScriptedModel(["Paris has 2102650 people", ValueError("down"), ValueError("down")])
    agent = agent_of(model, [open_verdict("area")])
    done = await agent.run(task="go")
    assert "Paris has 2102650 people" in done.messages[-1].to_text()


async def test_an_error_never_shows_a_key() -> None:
    """What looks like a key in an error message is left out of reply and outcome."""
    error = PermissionError("Incorrect API key provided: sk-abcdef1234567890 with Bearer abcdefghij")
    agent = agent_of(ScriptedModel([error, error]))
    done = await agent.run(task="go")
    for text in (done.messages[-1].to_text(), outcome_of(agent).error):
        assert "abcdef" not in text
        assert "Incorrect API key" in text


async def test_a_stream_that_ends_without_a_result_is_a_fault() -> None:
    """A stream that stops after some chunks is tried again and then reported."""

    class Endless(ScriptedModel):
        """Streams chunks only."""

        async def create_stream(self, *_: Any, **__: Any) -> AsyncGenerator[str | CreateResult, None]:
            """Stream."""
            yield "half"

    agent = agent_of(Endless([]), model_client_stream=True)
    done = await agent.run(task="go")
    assert "without a result" in done.messages[-1].to_text()


@pytest.mark.parametrize("empty", ["", "   ", "<think>nothing</think>", "still thinking</think>"])
async def test_blank_replies_for_ever_end_in_an_answer_call(empty: str) -> None:
    """A model that says nothing is asked again a few times, and the reply is never empty."""
    model = ScriptedModel([call("find"), *[empty] * 20])
    agent = agent_of(model, [open_verdict("total")], tools=[find])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text().strip()
    assert "word31" in done.messages[-1].to_text()
    assert len(model.requests) <= 8
    assert outcome_of(agent).stop_reason in {StopReason.BUDGET, StopReason.EXHAUSTED}


async def test_blank_replies_after_results_are_made_good() -> None:
    """A blank reply after a tool result is sent back, and the text that follows is the reply."""
    model = ScriptedModel([call("find"), "", "", "it is word31"])
    agent = agent_of(model, [open_verdict(), CLOSED], tools=[find])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "it is word31"


@pytest.mark.parametrize("finish", ["stop", "function_calls", "unknown"])
async def test_an_empty_list_of_calls_is_an_empty_text(finish: str) -> None:
    """`content=[]` makes no empty tool round: no empty event is sent and the model is asked again."""
    model = ScriptedModel([result([], finish_reason=finish), "done"])
    agent = agent_of(model, [CLOSED], tools=[find])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "done"
    assert not [m for m in done.messages if isinstance(m, (ToolCallRequestEvent, ToolCallExecutionEvent))]


async def test_what_a_model_thinks_is_no_draft() -> None:
    """A keyword inside the thinking does not count, and neither verifier nor reply sees the thinking."""
    verifier = ScriptedVerifier([CLOSED])
    agent = agent_of(ScriptedModel(["I would say TERMINATE</think>It is 42."]), verifier)
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "It is 42."
    assert verifier.calls[0].draft == "It is 42."


@pytest.mark.parametrize(
    "markup",
    [
        '<tool_call>{"name": "find", "arguments": {"number": 3}}</tool_call>',
        'Let me see.\n<tool_call>\n{"name": "find", "arguments": {"number": 3}}\n',
        '{"name": "find", "parameters": {"number": 3}}',
        '[TOOL_CALLS][{"name": "find", "arguments": {"number": 3}}]',
        '<function=find>{"number": 3}</function>',
    ],
)
async def test_a_call_written_as_text_is_no_answer(markup: str) -> None:
    """Tool-call markup in the text is never the reply: the model is told, and after a few times the run ends."""
    model = ScriptedModel([markup, "done"])
    agent = agent_of(model, [CLOSED], tools=[find])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "done"
    assert "written as text" in model.requests[1].text
    endless = ScriptedModel([markup], repeat_last=True)
    agent = agent_of(endless, [CLOSED], tools=[find])
    done = await agent.run(task="go")
    assert "find" not in done.messages[-1].to_text()
    assert len(endless.requests) <= 8


class Bad(SlotVerifier):
    """A verifier that does something else than it should."""

    def __init__(self, what: Any) -> None:
        self.what = what

    async def verify(self, *_: Any, **__: Any) -> Verdict:
        """Return junk, raise or hang."""
        if isinstance(self.what, BaseException):
            raise self.what
        if self.what == "hang":
            await asyncio.sleep(30)
        if self.what == "deaf":
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                try:
                    await asyncio.sleep(0.5)
                except asyncio.CancelledError:
                    continue
        return cast("Verdict", self.what)


_BAD = [ValueError("boom"), asyncio.CancelledError(), OddError("odd"), None, 1, "true", True, {"answer_complete": True}]


@pytest.mark.parametrize("what", [*_BAD, "hang", "deaf"])
async def test_without_a_verdict_the_draft_is_returned_as_unverified(what: Any) -> None:
    """A verifier that raises, hangs or returns no verdict closes nothing: the draft goes out as `failed`."""
    agent = agent_of(ScriptedModel(["the draft"]), Bad(what), loop=LoopConfig(verifier_timeout_s=0.1))
    started = time.monotonic()
    done = await agent.run(task="go")
    assert time.monotonic() - started < 2
    assert done.messages[-1].to_text() == "the draft"
    outcome = outcome_of(agent)
    assert outcome.stop_reason is StopReason.FAILED
    assert outcome.decisions[-1].branch is ControlBranch.NO_VERDICT
    assert outcome.error
    assert outcome.verifier_calls == 1


async def test_without_a_verdict_a_tool_round_goes_on() -> None:
    """A verifier fault after a tool round does not end the run: the model may still write its draft."""
    model = ScriptedModel([call("find"), "the draft"])
    agent = agent_of(model, [ValueError("boom"), CLOSED], tools=[find])
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "the draft"
    assert outcome_of(agent).stop_reason is StopReason.ANSWERED


_HANGING: dict[str, tuple[list[Item], Any]] = {
    "model": ([HANG], [CLOSED]),
    "second planning call": ([call("find"), HANG], [open_verdict()]),
    "tool": ([call("wait"), "known so far"], [open_verdict()]),
    "verifier": ([call("find"), "known so far", "known so far"], Bad("hang")),
    "answer": ([call("find"), HANG, HANG], [UNWRITTEN]),
    "deaf model": ([call("find"), Slow(1.6, deaf=True)], [open_verdict()]),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", _HANGING)
async def test_the_timeout_bounds_whatever_hangs_and_a_reply_still_comes(where: str, stream: bool) -> None:
    """`timeout_s` holds over a hanging model, tool, verifier or answer call, and the run ends in a text."""

    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(30)
        return "never"

    script, verdicts = _HANGING[where]
    agent = agent_of(
        ScriptedModel(script, repeat_last=True),
        verdicts,
        tools=[find, wait],
        loop=LoopConfig(timeout_s=0.3),
        model_client_stream=stream,
    )
    started = time.monotonic()
    done = await agent.run(task="go")
    assert time.monotonic() - started < 2.8
    assert isinstance(done.messages[-1], TextMessage)
    assert done.messages[-1].content.strip()
    assert outcome_of(agent).stop_reason in {StopReason.BUDGET, StopReason.SYNTHESISED, StopReason.FAILED}
    assert await dangling(agent.model_context) == []


async def test_time_that_runs_out_is_called_by_its_name() -> None:
    """A run whose time is over says `budget`, also where the time ran out before the draft was verified."""

    def reply(_: object) -> str:
        time.sleep(0.2)
        return "a draft"

    agent = agent_of(ScriptedModel([reply], repeat_last=True), [CLOSED], loop=LoopConfig(timeout_s=0.2))
    done = await agent.run(task="go")
    assert outcome_of(agent).stop_reason is StopReason.BUDGET
    assert done.messages[-1].to_text()


async def test_a_hanging_synchronous_tool_does_not_hold_the_run() -> None:
    """A tool that blocks its thread is left behind when the time is over."""
    release = threading.Event()

    def block() -> str:
        """Block."""
        release.wait(20)
        return "late"

    model = ScriptedModel([[call("block", call_id="1"), call("find", call_id="2")], "answer"])
    agent = agent_of(model, [open_verdict()], tools=[block, find], loop=LoopConfig(timeout_s=0.4))
    started = time.monotonic()
    done = await agent.run(task="go")
    release.set()
    assert time.monotonic() - started < 2.5
    (executed,) = [m for m in done.messages if isinstance(m, ToolCallExecutionEvent)]
    assert [item.is_error for item in executed.content] == [True, False]
    assert done.messages[-1].to_text().startswith("answer")


async def test_a_call_left_behind_adds_nothing_later() -> None:
    """A tool that ignores its cancellation cannot add messages to a response that is already out."""
    woke = asyncio.Event()

    async def deaf() -> str:
        """Ignore."""
        for _ in range(2):
            try:
                await asyncio.sleep(1.6)
            except asyncio.CancelledError:
                continue
        woke.set()
        return "late"

    model = ScriptedModel([call("deaf"), "answer"])
    agent = agent_of(model, [open_verdict()], tools=[deaf], loop=LoopConfig(timeout_s=0.2))
    response = await agent.on_messages([TextMessage(content="go", source="user")], CancellationToken())
    before = len(response.inner_messages or ())
    await asyncio.wait_for(woke.wait(), 5)
    await asyncio.sleep(0.05)
    assert len(response.inner_messages or ()) == before
    assert await dangling(agent.model_context) == []


async def test_twenty_agents_share_one_verifier() -> None:
    """Verdicts of runs at the same time are not mixed up, nor is what they cost."""

    class Echoing(SlotVerifier):
        """Names the request it judged as what is missing."""

        async def verify(self, request: str, draft: str, evidence: Any, *, cancellation_token: Any = None) -> Verdict:
            """Judge."""
            await asyncio.sleep(0.01 * (hash(request) % 3))
            return open_verdict(f"slot of {request}") if draft != "second" else CLOSED

    verifier = Echoing()

    async def one(number: int) -> str:
        model = ScriptedModel(["first", Slow(0.01, "second")])
        agent = agent_of(model, verifier, name=f"a{number}")
        await agent.run(task=f"task {number}")
        outcome = outcome_of(agent)
        assert outcome.verifier_calls == 2
        assert outcome.decisions[0].verdict is not None
        return outcome.decisions[0].verdict.missing[0]

    assert await asyncio.gather(*map(one, range(20))) == [f"slot of task {n}" for n in range(20)]


async def test_blank_replies_do_not_reach_a_team() -> None:
    """In a team no empty message is ever broadcast."""
    agent = agent_of(ScriptedModel([""], repeat_last=True), [CLOSED])
    done = await RoundRobinGroupChat([agent], max_turns=2).run(task="go")
    assert all(message.to_text().strip() for message in done.messages)
