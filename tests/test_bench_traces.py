"""Result files of the benchmark as traces: what diagnosis, replay and report read of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.core.records import ControlAction, ControlBranch, Decision, LoopOutcome, RequestUsage, StopReason
from agentloop_autogen.diagnostics import load_traces
from agentloop_autogen.diagnostics.formats.bench_attempt import trace_of_attempt

ASKS = {"name": "look", "arguments": '{"x":1}'}


def model_call(began_s: float, **fields: object) -> dict[str, object]:
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    return {"began_s": began_s, "ended_s": began_s + 0.5, "offers_tools": True, **usage, **fields}


def attempt(**fields: object) -> Attempt:
    """Two tool rounds, then a text; the second call came back as an error."""
    given: dict[str, object] = {
        "system": "autogen",
        "family": "spider",
        "task": "t1",
        "half": "held_out",
        "model": "m",
        "settings": "s",
        "request": "How many?",
        "answer": "Three.",
        "correct": True,
        "began_at": "2026-01-01T00:00:00+00:00",
        "elapsed_s": 4.0,
        "model_calls": [
            model_call(0, tool_calls=[ASKS]),
            model_call(1, tool_calls=[{"name": "look", "arguments": "{broken"}]),
            model_call(2, content="Three.", first_token_s=2.1, offers_tools=False),
        ],
        "tool_calls": [
            {"name": "look", "arguments": {"x": 1}, "began_s": 0.6, "ended_s": 0.7, "result": "3 rows"},
            {"name": "look", "arguments": {}, "began_s": 1.6, "ended_s": 1.7, "result": "no", "is_error": True},
        ],
    }
    return Attempt.model_validate({**given, **fields})


def test_rounds_are_replies_with_the_tools_that_ran_after_them() -> None:
    """Each reply is a round; results stand in it with the call as the model wrote it, where the two can be matched."""
    trace = trace_of_attempt(attempt())
    one, two, three = trace.rounds
    assert [(call.name, call.arguments) for call in one.calls] == [("look", '{"x":1}')]
    assert [(result.call, result.content, result.is_error) for result in one.results] == [
        (one.calls[0], "3 rows", False)
    ]
    assert [(result.call.arguments, result.is_error) for result in two.results] == [("{}", True)]
    assert (three.text, three.calls, three.results) == ("Three.", (), ())
    assert (trace.id, trace.source, trace.model) == ("autogen/spider/t1/0", "autogen on spider", "m")
    assert (trace.final, trace.correct, trace.completed) == ("Three.", True, True)
    assert trace.usage == RequestUsage(prompt_tokens=30, completion_tokens=6)
    assert (trace.elapsed_s, trace.first_token_s) == (4.0, 2.1)


def test_refused_requests_are_no_rounds_and_failed_attempts_are_not_completed() -> None:
    """A request without a reply is no round, though its tokens count; an attempt that failed did not complete."""
    calls = [model_call(0, status=499, estimated=True), model_call(1, content="x")]
    trace = trace_of_attempt(attempt(model_calls=calls, tool_calls=[], error="timeout", correct=False, answer=""))
    assert [round_.text for round_ in trace.rounds] == ["x"]
    assert not trace.completed
    assert trace.usage == RequestUsage(prompt_tokens=20, completion_tokens=4)


@pytest.mark.parametrize(("rounds", "decided"), [(2, [1, 2]), (3, [None, None])], ids=["in step", "out of step"])
def test_verdicts_and_answer_calls_of_loop_control_are_no_rounds(rounds: int, decided: list[int | None]) -> None:
    """Under loop control only planning replies are rounds; decisions stand with them where the two are in step."""
    decisions = tuple(
        Decision(round=number, action=ControlAction.CONTINUE_INVOCATION, branch=ControlBranch.KEEP_DECODE)
        for number in (1, 2)
    )
    outcome = LoopOutcome(stop_reason=StopReason.ANSWERED, rounds=rounds, decisions=decisions, verifier_s=0.4)
    trace = trace_of_attempt(attempt(outcome=outcome))
    assert len(trace.rounds) == 2
    assert [round_.decision.round if round_.decision else None for round_ in trace.rounds] == decided
    assert trace.verifier_s == 0.4


def test_result_files_are_read_like_any_other_traces(tmp_path: Path) -> None:
    """Lines of a result file, packed or not, are told by their content; a broken one is skipped with its reason."""
    lines = f"{attempt().model_dump_json()}\n{attempt(task='t2').model_dump_json()}\n"
    (tmp_path / "r.jsonl").write_text(lines, encoding="utf-8")
    broken = attempt(task="t3").model_dump_json().replace('"held_out"', '"middle"')
    (tmp_path / "s.jsonl.gz").write_bytes(gzip.compress(broken.encode()))
    skipped: list[str] = []
    traces = list(load_traces(tmp_path, on_skip=lambda what: skipped.append(what.reason)))
    assert [trace.id for trace in traces] == ["autogen/spider/t1/0", "autogen/spider/t2/0"]
    assert traces[0] == trace_of_attempt(attempt())
    assert len(skipped) == 1
    assert "half" in skipped[0]
