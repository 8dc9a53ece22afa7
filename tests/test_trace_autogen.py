"""Runs of AutoGen, recorded as messages or in the event log of its core: what is read from them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import EVENT_LOGGER_NAME, FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient

from agentloop_autogen import LoopConfig, StopReason, Verdict
from agentloop_autogen.diagnostics.formats.autogen import trace_of
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.diagnostics.writing import to_record

from .fake_openai import FakeOpenAI, Reply, tool_call
from .scripted_model import CLOSED, UNWRITTEN, Item, ScriptedModel, agent_of, call, open_verdict, outcome_of, result
from .trace_forms import ASK, THEIRS, Load, asks, llm_call, shape, turns


@pytest.fixture(name="load")
def _load(tmp_path: Path) -> Load:
    return Load(tmp_path)


def population(city: str) -> str:
    """Look up a population."""
    return f"{city} has 48,210 inhabitants"


def boom() -> str:
    """Fail."""
    raise ValueError("no")


TOOLS: list[Any] = [population, boom]
INFO: Any = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "x"}


def replied(content: str | list[FunctionCall], **fields: Any) -> CreateResult:
    """A reply of ten and five tokens."""
    kind: Any = "stop" if isinstance(content, str) else "function_calls"
    return CreateResult(finish_reason=kind, content=content, usage=RequestUsage(10, 5), cached=False, **fields)


def their_agent(*replies: CreateResult | str, **options: Any) -> AssistantAgent:
    """AutoGen's own agent over replies."""
    model = ReplayChatCompletionClient(list(replies), model_info=INFO)
    return AssistantAgent("agent", model, tools=TOOLS, max_tool_iterations=9, **options)


def two_calls() -> CreateResult:
    """A reply with a thought and two calls, one of a tool that fails."""
    calls = [call("population", {"city": "A"}, call_id="1"), call("boom", call_id="2")]
    return replied(calls, thought="I look.")


def dumped(done: TaskResult) -> dict[str, Any]:
    """A task result as a program would log it."""
    return json.loads(done.model_dump_json())


async def test_a_task_result_of_autogen_is_read(load: Load) -> None:
    """A real run of AutoGen's agent gives its rounds, errors, answer, tokens and time, in all shapes alike."""
    done = await their_agent(two_calls(), replied("It is 48,210.")).run(task="How many?")
    document = dumped(done)
    for documents in ([document], [document["messages"]], document["messages"], [*document["messages"], document]):
        trace = load.one(*documents)
        assert (trace.request, trace.final, shape(trace)) == ("How many?", "It is 48,210.", THEIRS)
        assert trace.usage is not None
        assert (trace.usage.prompt_tokens, trace.usage.completion_tokens) == (20, 10)
        assert [round_.usage and round_.usage.total for round_ in trace.rounds] == [15, 15]
        assert trace.elapsed_s is not None
        assert (trace.outcome, turns(trace), trace.completed) == (None, [0, 0], True)


async def test_a_program_makes_traces_of_its_own_runs(load: Load) -> None:
    """`trace_of` gives what the dump of the same run gives, with what only the program knows."""
    done = await their_agent(two_calls(), replied("It is 48,210.")).run(task="How many?")
    trace = trace_of(done, model="replay", source="nightly", correct=True)
    assert (trace.id, trace.model, trace.source, trace.correct) == (done.messages[0].id, "replay", "nightly", True)
    assert shape(trace) == THEIRS
    assert load.one(to_record(trace)) == trace


async def test_a_stream_is_read_line_by_line(load: Load) -> None:
    """A log of `run_stream` holds one trace a run, tells when the answer began, and its last line adds no trace."""
    agent = their_agent("First answer.", "Second answer.", model_client_stream=True)
    lines: list[str] = []
    for task in ("One?", "Two?"):
        lines += [message.model_dump_json() async for message in agent.run_stream(task=task)]
    first, second = load.text("\n".join(lines))
    assert [(trace.request, trace.final, len(trace.rounds)) for trace in (first, second)] == [
        ("One?", "First answer.", 1),
        ("Two?", "Second answer.", 1),
    ]
    assert first.first_token_s is not None
    assert first.elapsed_s is not None
    assert first.first_token_s <= first.elapsed_s


async def test_a_human_in_the_loop_begins_a_turn(load: Load) -> None:
    """What a human was asked for goes on with the same request, as the next turn."""
    human = UserProxyAgent("human", input_func=lambda _: "More, please.")
    team = RoundRobinGroupChat([their_agent("First.", "Second."), human], max_turns=3)
    lines = [message.model_dump_json() async for message in team.run_stream(task="One?")]
    trace = load.one(*map(json.loads, lines))
    assert (shape(trace), turns(trace)) == ([("First.", [], []), ("Second.", [], [])], [0, 1])


async def test_a_summary_of_results_is_no_round(load: Load) -> None:
    """Where AutoGen replies with the results themselves, that is the answer but no round."""
    model = ReplayChatCompletionClient([two_calls()], model_info=INFO)
    done = await AssistantAgent("agent", model, tools=TOOLS).run(task="How many?")
    trace = load.one(dumped(done))
    assert (shape(trace), trace.final) == (THEIRS[:1], "A has 48,210 inhabitants\nno")


async def our_run(items: Sequence[Item], verdicts: Sequence[Verdict], **options: Any) -> tuple[Trace, Trace, Any]:
    """A run of our agent: as its messages tell it, as `trace_of` with its outcome has it, and that outcome."""
    loop = LoopConfig(emit_control_events=True)
    agent = agent_of(ScriptedModel(items), verdicts, loop=loop, tools=TOOLS, **options)
    done = await agent.run(task="How many?")
    return trace_of(done), trace_of(done, outcome=agent.last_outcome), outcome_of(agent)


@pytest.mark.parametrize(
    ("items", "verdicts", "expected"),
    [
        (
            [result([call("population", {"city": "A"})], thought="look"), "draft one", "draft two"],
            [open_verdict(), open_verdict(), CLOSED],
            [
                ("look", 1, "continue_invocation"),
                ("draft one", 0, "continue_invocation"),
                ("draft two", 0, "terminate_iteration"),
            ],
        ),
        (
            [call("population", {"city": "A"}), "the answer"],
            [UNWRITTEN],
            [("", 1, "answer_synthesis")],
        ),
        (
            ["draft", call("population", {"city": "A"}), "the answer"],
            [open_verdict(), UNWRITTEN],
            [("draft", 0, "continue_invocation"), ("", 1, "answer_synthesis")],
        ),
        (["draft", "the answer"], [UNWRITTEN], [("draft", 0, "answer_synthesis")]),
    ],
)
async def test_decisions_belong_to_their_rounds(
    items: Sequence[Item], verdicts: Sequence[Verdict], expected: list[tuple[str, int, str]]
) -> None:
    """Control events give each round its decision and its tokens, whether a draft was taken or an answer written."""
    told, known, outcome = await our_run(items, verdicts)
    shown = [
        (round_.text, len(round_.calls), round_.decision and round_.decision.action.value) for round_ in told.rounds
    ]
    assert shown == expected
    assert [round_.usage and round_.usage.total for round_ in told.rounds] == [15] * len(expected)
    assert turns(told) == [0] * len(expected)
    assert known.outcome is outcome
    assert (known.elapsed_s, known.verifier_s) == (outcome.elapsed_s, outcome.verifier_s or None)
    assert told.outcome is not None
    for field in ("stop_reason", "rounds", "unresolved", "slots", "verifier_calls", "synthesis_calls", "tool_calls"):
        assert getattr(told.outcome, field) == getattr(outcome, field), field
    assert told.outcome.decisions == outcome.decisions
    assert told.outcome.usage == outcome.usage
    assert told.usage is not None
    assert told.usage.total == 15 * len(items)


async def test_the_reply_alone_tells_how_the_loop_ended() -> None:
    """Without control events the outcome has the reason, the open slots and the count of rounds."""
    done = await agent_of(ScriptedModel([call("population", {"city": "A"}), "It is."]), [UNWRITTEN], tools=TOOLS).run(
        task="How many?"
    )
    trace = trace_of(done)
    assert trace.outcome is not None
    assert (trace.outcome.stop_reason, trace.outcome.rounds) == (StopReason.SYNTHESISED, 1)
    assert trace.outcome.decisions == ()


async def test_drafts_that_were_not_taken_are_rounds_without_events_as_well() -> None:
    """A draft the loop sent back is a round of its own even where no control event tells of it."""
    items = [call("population", {"city": "A"}), "draft one", "draft two"]
    done = await agent_of(ScriptedModel(items), [open_verdict(), open_verdict(), CLOSED], tools=TOOLS).run(task="Who?")
    trace = trace_of(done)
    assert [(text, len(calls)) for text, calls, _ in shape(trace)] == [("", 1), ("draft one", 0), ("draft two", 0)]
    assert (trace.final, turns(trace)) == ("draft two", [0, 0, 0])


async def test_a_failed_run_is_not_completed() -> None:
    """A loop that ended because nothing could be had marks its trace as a fault of the run."""
    done = await agent_of(ScriptedModel([RuntimeError("down")], repeat_last=True), tools=TOOLS).run(task="How many?")
    assert trace_of(done).completed is False


def test_messages_of_other_types_are_passed_over(load: Load) -> None:
    """Handoffs, memory and unknown types change nothing; images and objects in replies become text."""
    source = {"source": "agent"}
    trace = load.one(
        {"type": "TextMessage", "source": "user", "content": "Who?"},
        {"type": "MemoryQueryEvent", **source, "content": [{"content": "x"}]},
        {"type": "HandoffMessage", **source, "target": "b", "content": "over"},
        {"type": "SelectSpeakerEvent", **source, "content": ["b"]},
        {"type": "OneOfMine", **source, "anything": 1},
        {"type": "StructuredMessage", **source, "content": {"b": "ü", "a": 1}},
        {"type": "MultiModalMessage", **source, "content": ["see", {"data": "..."}]},
        {"type": "StopMessage", **source, "content": "Done."},
    )
    assert shape(trace) == [('{"a": 1, "b": "ü"}', [], []), ("see\n[image]", [], [])]
    assert trace.final == "Done."


# --- the event log of AutoGen's core ---------------------------------------------------------------------------------


@pytest.fixture(name="events")
def _events() -> Iterator[list[str]]:
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger(EVENT_LOGGER_NAME), Collect()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_event_log_is_read(load: Load, events: list[str], stream: bool) -> None:
    """A real log of two requests gives two traces with calls, results of failed tools, answers and tokens."""
    script = [
        Reply(tool_calls=[tool_call("population", {"city": "A"}), tool_call("boom", {})], finish_reason="tool_calls"),
        "It is 48,210.",
        "Nothing else.",
    ]
    with FakeOpenAI(script) as server:
        model = OpenAIChatCompletionClient(
            model="fake-model", model_info=INFO, base_url=server.base_url, api_key="none", include_name_in_message=False
        )
        agent = AssistantAgent("agent", model, tools=TOOLS, max_tool_iterations=9, model_client_stream=stream)
        await agent.run(task="How many?")
        await agent.on_reset(None)  # pyright: ignore[reportArgumentType] - the token is not looked at
        await agent.run(task="What else?")
        await model.close()
    first, second = load.text("\n".join(events))
    assert (first.request, first.final) == ("How many?", "It is 48,210.")
    assert [(calls, [(name, told) for name, told, _ in results]) for _, calls, results in shape(first)] == [
        (THEIRS[0][1], [(name, told) for name, told, _ in THEIRS[0][2]]),
        ([], []),
    ]
    assert not any(item.is_error for item in first.rounds[0].results), "OpenAI's form has no word for it"
    assert (second.request, second.final, len(second.rounds)) == ("What else?", "Nothing else.", 1)
    assert first.usage is not None


def test_agents_are_told_apart_and_a_repeated_request_is_another(load: Load) -> None:
    """Traces are per agent; the same question over again is a new trace, a longer prompt goes on with the old one."""
    reply = {"role": "assistant", "content": "One."}
    found = load(
        llm_call([ASK], "One."),
        llm_call([ASK], "Of b.", "b/1"),
        {"type": "Message", "payload": "{}", "sender": "a/1"},
        llm_call([ASK, reply, {"role": "user", "content": "And?"}], "Two."),
        llm_call([ASK], "Again."),
    )
    assert sorted(
        [(round_.text, round_.turn, round_.usage and round_.usage.total) for round_ in t.rounds] for t in found
    ) == [
        [("Again.", 0, 15)],
        [("Of b.", 0, 15)],
        [("One.", 0, 15), ("Two.", 1, 15)],
    ]


def test_a_tool_behind_the_last_call_is_its_result(load: Load) -> None:
    """Results that no further prompt shows come from the tool's own events."""
    event = llm_call([ASK], "")
    event["response"]["choices"][0]["message"] = asks("look")
    trace = load.one(
        event, {"type": "ToolCall", "tool_name": "look", "arguments": {}, "result": "seen", "agent_id": "a/1"}
    )
    assert shape(trace) == [("", [("look", "{}")], [("look", "seen", False)])]
