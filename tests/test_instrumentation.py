"""What can be watched from outside: events on a logger, and the same on the current span."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentloop_autogen import AgentLoopTermination, Detector
from agentloop_autogen.instrumentation import EVENT_LOGGER_NAME, DecisionEvent, EndingEvent
from agentloop_autogen.testing import ScriptedVerifier

from .deltas import said, started
from .scripted_model import CLOSED, ScriptedModel, agent_of, call, open_verdict

PRIVATE = "the quick brown fox"


def look() -> str:
    """Look."""
    return PRIVATE


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The event logger, listened to."""
    caplog.set_level(logging.INFO, EVENT_LOGGER_NAME)
    return caplog


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Spans that ended; those AutoGen starts for its agents are among them, in this test alone."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr("autogen_core._telemetry._genai.trace.get_tracer", provider.get_tracer)
    yield kept
    provider.shutdown()


def span_of(exporter: InMemorySpanExporter) -> ReadableSpan:
    """The span AutoGen made for the agent."""
    (span,) = (span for span in exporter.get_finished_spans() if "invoke_agent" in span.name)
    return span


async def test_every_decision_and_the_end_are_logged_as_json(log: pytest.LogCaptureFixture) -> None:
    """Each event is an object whose text is one line of JSON; none holds any text of the conversation."""
    agent = agent_of(ScriptedModel([call("look"), PRIVATE]), [open_verdict(), CLOSED], tools=[look])
    await agent.run(task=PRIVATE)
    told = [record.msg for record in log.records if record.name == EVENT_LOGGER_NAME]
    assert [type(event) for event in told] == [DecisionEvent, DecisionEvent, EndingEvent]
    first, second, end = (json.loads(str(event)) for event in told)
    assert (first["action"], first["branch"], first["depth"]) == ("continue_invocation", "need_tool_round", 1)
    assert (first["confidence"], first["closed"], first["open_slots"]) == (0.9, False, 1)
    assert (second["s_call"], second["stable"], second["tokens"]) == (0.0, False, 30)
    assert second["detector"] == Detector.NOTHING_NEW.value
    assert (end["stop_reason"], end["source"], end["scope"], end["tool_calls"]) == ("answered", "agent", "agent", 1)
    assert PRIVATE not in "".join(map(str, told))


async def test_the_current_span_gets_the_same(exporter: InMemorySpanExporter) -> None:
    """Events and attributes stand on the span the run is in: AutoGen starts one for each run of an agent."""
    agent = agent_of(ScriptedModel([call("look"), "done"]), [open_verdict(), CLOSED], tools=[look])
    await agent.run(task="x")
    span = span_of(exporter)
    assert [event.name for event in span.events] == ["agentloop.decision", "agentloop.decision", "agentloop.ending"]
    attributes = dict(span.events[1].attributes or {})
    assert attributes["agentloop.branch"] == "skip_decode_output_break"
    assert attributes["agentloop.confidence"] == 0.95
    assert attributes["agentloop.action"] == "terminate_iteration"
    assert attributes["agentloop.depth"] == 2
    final = dict(span.attributes or {})
    assert (final["agentloop.stop_reason"], final["agentloop.branch"]) == ("answered", "skip_decode_output_break")
    assert final["agentloop.tokens"] == 30


async def test_a_team_is_told_of_as_a_team(log: pytest.LogCaptureFixture) -> None:
    """The condition's decisions and its stop are events too, by turns."""
    term = AgentLoopTermination(ScriptedVerifier([open_verdict(), CLOSED]))
    await started(term)
    await term(said("5"))
    await term(said("48,210", tokens=7))
    told = [json.loads(str(record.msg)) for record in log.records]
    assert [(event["type"], event["scope"], event["depth"]) for event in told] == [
        ("DecisionEvent", "team", 1),
        ("DecisionEvent", "team", 2),
        ("EndingEvent", "team", 2),
    ]
    assert told[-1]["tokens"] == 7


async def test_in_a_team_the_spans_are_those_of_autogen(exporter: InMemorySpanExporter) -> None:
    """Inside a team an agent's decisions land on AutoGen's own span for that agent."""
    agent = agent_of(ScriptedModel(["done"]), [CLOSED])
    await RoundRobinGroupChat([agent], termination_condition=AgentLoopTermination()).run(task="x")
    assert dict(span_of(exporter).attributes or {})["agentloop.stop_reason"] == "answered"


async def test_unwatched_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no logger at that level and no recording span no event is built."""
    monkeypatch.setattr(logging.getLogger(EVENT_LOGGER_NAME), "level", logging.WARNING)
    monkeypatch.setattr("agentloop_autogen.instrumentation.DecisionEvent", None)
    assert not trace.get_current_span().is_recording()
    agent = agent_of(ScriptedModel(["done"]), [CLOSED])
    await agent.run(task="x")
    assert agent.last_outcome is not None
