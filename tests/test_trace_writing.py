"""Writing traces, and that what was written reads back."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    LoopOutcome,
    RequestUsage,
    Slot,
    SlotState,
    StopReason,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics.loading import load_traces
from agentloop_autogen.diagnostics.trace import Trace, TraceRound
from agentloop_autogen.diagnostics.writing import TraceFormat, to_record, write_traces
from agentloop_autogen.errors import TraceError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
UNIT = st.floats(0, 1)
SECONDS = st.none() | st.floats(0, 1e6)
USAGE = st.builds(RequestUsage, prompt_tokens=st.integers(0, 10**9), completion_tokens=st.integers(0, 10**9))
CALL = st.builds(ToolCall, NAME, TEXT)
VERDICT = st.builds(
    Verdict,
    answer_complete=st.booleans(),
    need_tool=st.booleans(),
    confidence=UNIT,
    missing=st.lists(TEXT, max_size=2).map(tuple),
    slots=st.lists(st.builds(Slot, name=TEXT, state=st.sampled_from(SlotState)), max_size=2).map(tuple),
)
DECISION = st.builds(
    Decision,
    round=st.integers(1, 99),
    action=st.sampled_from(ControlAction),
    branch=st.sampled_from(ControlBranch),
    verdict=st.none() | VERDICT | st.builds(UnavailableVerdict, cause=TEXT),
    s_call=st.none() | UNIT,
    reason=TEXT,
)
OUTCOME = st.builds(
    LoopOutcome,
    stop_reason=st.sampled_from(StopReason),
    usage=st.dictionaries(st.sampled_from(["agent", "verifier"]), USAGE),
    decisions=st.lists(DECISION, max_size=2).map(tuple),
    elapsed_s=st.floats(0, 1e6),
)
ROUND = st.builds(
    TraceRound,
    text=TEXT,
    calls=st.lists(CALL, max_size=3).map(tuple),
    results=st.lists(st.builds(ToolResult, CALL, TEXT, st.booleans(), st.booleans()), max_size=3).map(tuple),
    reward=st.none() | UNIT,
    turn=st.none() | st.integers(0, 3),
    decision=st.none() | DECISION,
    usage=st.none() | USAGE,
)
TRACE = st.builds(
    Trace,
    id=NAME,
    source=NAME,
    model=TEXT,
    request=TEXT,
    rounds=st.lists(ROUND, max_size=4).map(tuple),
    final=TEXT,
    correct=st.none() | st.booleans(),
    completed=st.booleans(),
    outcome=st.none() | OUTCOME,
    usage=st.none() | USAGE,
    elapsed_s=SECONDS,
    first_token_s=SECONDS,
    verifier_s=SECONDS,
    verdict_label=st.none() | st.booleans(),
)


@st.composite
def plain_rounds(draw: st.DrawFn, *, decided: bool) -> tuple[TraceRound, ...]:
    """Rounds as any form can carry them: each result has its own call, and turns follow one another."""
    rounds: list[TraceRound] = []
    turn = 0
    for _ in range(draw(st.integers(0, 4))):
        turn += bool(rounds) and draw(st.booleans())
        calls = tuple(draw(st.lists(CALL, max_size=3)))
        kept = draw(st.integers(0, len(calls)))
        results = tuple(ToolResult(call, draw(TEXT), draw(st.booleans())) for call in calls[:kept])
        decision = draw(DECISION) if decided else None
        rounds.append(
            TraceRound(
                text=draw(TEXT),
                calls=calls,
                results=results,
                turn=turn,
                decision=decision,
                usage=draw(USAGE) if decided else None,
            )
        )
    return tuple(rounds)


@st.composite
def plain_traces(draw: st.DrawFn, *, usage: bool = False) -> Trace:
    """Traces of what every form can carry; the answer, where there is one, is the text of the last round."""
    rounds = draw(plain_rounds(decided=False))
    if usage:
        rounds = tuple(replace(round_, usage=draw(USAGE)) for round_ in rounds)
    is_text = bool(rounds) and not rounds[-1].calls
    return Trace(
        id=draw(NAME),
        source=draw(NAME),
        model=draw(TEXT),
        request=draw(TEXT),
        rounds=rounds,
        final=rounds[-1].text if is_text else "",
        correct=draw(st.none() | st.booleans()),
    )


def through(traces: list[Trace], form: TraceFormat = TraceFormat.RECORD, name: str = "t.jsonl") -> list[Trace]:
    """Write traces and read them back; nothing may be skipped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        assert write_traces(traces, path, form=form) == len(traces)
        with load_traces(path) as reader:
            found = list(reader)
        assert reader.skipped == []
        return found


@given(st.lists(TRACE, max_size=3))
@settings(max_examples=150, deadline=None)
def test_a_record_reads_back_equal(traces: list[Trace]) -> None:
    """Whatever a trace knows survives being written as a record and read again."""
    assert through(traces) == traces


@given(plain_traces())
@settings(max_examples=150, deadline=None)
def test_a_chat_reads_back_equal(trace: Trace) -> None:
    """Request, rounds, turns, errors, answer and judgement survive as a chat of OpenAI's form."""
    assert through([trace], TraceFormat.OPENAI) == [trace]


@given(plain_traces(usage=True))
@settings(max_examples=150, deadline=None)
def test_a_task_result_reads_back_equal(trace: Trace) -> None:
    """The same, and the tokens of each round, survive as a task result of AutoGen's form."""
    (found,) = through([trace], TraceFormat.AUTOGEN)
    total = sum((round_.usage or RequestUsage() for round_ in trace.rounds), RequestUsage())
    assert found == replace(trace, usage=total if trace.rounds else None)


@given(plain_rounds(decided=True))
@settings(max_examples=100, deadline=None)
def test_decisions_survive_in_a_task_result(rounds: tuple[TraceRound, ...]) -> None:
    """Every round of a task result keeps its decision, drafts that were not taken among them."""
    trace = Trace(id="t", source="s", model="m", request="r", rounds=rounds)
    (found,) = through([trace], TraceFormat.AUTOGEN)
    assert [(r.text, r.calls, r.decision) for r in found.rounds] == [(r.text, r.calls, r.decision) for r in rounds]


@given(plain_traces(usage=True), st.none() | st.integers(1, 10**6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_spans_read_back_equal(trace: Trace, milliseconds: int | None, completed: bool) -> None:
    """The same, the time it took and whether it failed survive as spans of OpenTelemetry."""
    elapsed_s = None if milliseconds is None else milliseconds / 1000
    trace = replace(trace, elapsed_s=elapsed_s, completed=completed)
    (found,) = through([trace], TraceFormat.OTEL)
    total = sum((round_.usage or RequestUsage() for round_ in trace.rounds), RequestUsage())
    kept_model = trace.model if trace.rounds else ""
    assert found == replace(trace, usage=total if trace.rounds else None, model=kept_model)


@pytest.mark.parametrize("form", TraceFormat)
def test_an_answer_behind_the_last_call_is_kept(form: TraceFormat) -> None:
    """An answer that was no round of its own is the answer in every form; chats and task results show it as a round."""
    round_ = TraceRound(calls=(call := ToolCall("look", "{}"),), results=(ToolResult(call, "seen"),), turn=0)
    trace = Trace(id="t", source="s", model="", request="what?", rounds=(round_,), final="this")
    (found,) = through([trace], form)
    assert found.final == "this"
    assert found.rounds[0] == round_


@pytest.mark.parametrize("form", TraceFormat)
def test_hostile_text_passes_through_as_text(form: TraceFormat) -> None:
    """Markup, terminal escapes and line separators are text like any other in every form."""
    evil = "<script>alert(1)</script>\x1b[31m\u2028\x00{{7*7}}\r\n\u202e"
    round_ = TraceRound(text=evil, calls=(call := ToolCall("t", evil),), results=(ToolResult(call, evil),), turn=0)
    trace = Trace(id="t", source="s", model="m", request=evil, rounds=(round_,))
    assert through([trace], form) == [trace]


def test_half_a_surrogate_pair_is_replaced() -> None:
    """Text that no file can hold is written with a replacement character instead of failing."""
    (found,) = through([Trace(id="t", source="s", model="", request="a\ud800b", rounds=())])
    assert found.request == "a\ufffdb"


def test_a_name_that_ends_in_gz_is_packed(tmp_path: Path) -> None:
    """A target named `.gz` holds a gzip, the same bytes for the same traces."""
    trace = Trace(id="t", source="s", model="m", request="r", rounds=())
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_traces([trace], tmp_path / name)
    packed = (tmp_path / "a.jsonl.gz").read_bytes()
    assert packed == (tmp_path / "b.jsonl.gz").read_bytes()
    assert json.loads(gzip.decompress(packed))["id"] == "t"


def test_a_stream_is_written_to_and_left_open() -> None:
    """A text stream gets the lines and stays open."""
    stream = io.StringIO()
    trace = Trace(id="t", source="s", model="m", request="ü", rounds=())
    assert write_traces([trace, trace], stream) == 2
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [to_record(trace)] * 2


def test_a_crash_leaves_the_old_file(tmp_path: Path) -> None:
    """If the traces end in an error, the file that was there before is untouched and nothing else is left."""
    path = tmp_path / "t.jsonl"
    path.write_text("before")

    def breaking() -> Iterator[Trace]:
        yield Trace(id="t", source="s", model="m", request="r", rounds=())
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write_traces(breaking(), path)
    assert path.read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["t.jsonl"]


@pytest.mark.parametrize("name", ["no/t.jsonl", "."])
def test_a_target_that_cannot_be_written_is_a_usage_error(tmp_path: Path, name: str) -> None:
    """A missing directory, or a directory as the target, is said in one line."""
    with pytest.raises(TraceError, match="cannot be written"):
        write_traces([], tmp_path / name)


def test_a_record_names_only_what_is_known() -> None:
    """A record of a trace that knows little is little."""
    record = to_record(Trace(id="t", source="s", model="m", request="r", rounds=(TraceRound(text="a"),)))
    assert record["rounds"] == [{"text": "a", "calls": [], "results": []}]
    assert set(record) == {"id", "source", "model", "request", "rounds", "final", "correct", "completed"}


def test_penalties_are_no_worse_than_nothing(tmp_path: Path) -> None:
    """A reward under 0 reads as 0, one above 1 is of another scale: its trace is skipped with a reason."""
    path = tmp_path / "t.jsonl"
    rounds = [{"rounds": [{"reward": reward}]} for reward in (-0.3, 0.5, 7, float("nan"), "high")]
    path.write_text("\n".join(json.dumps(item) for item in rounds))
    reader = load_traces(path, on_skip=lambda _: None)
    assert [trace.rounds[0].reward for trace in reader] == [0.0, 0.5]
    assert [item.reason for item in reader.skipped] == [
        "`reward` of round 1 is 7, expected a number not over 1 or null",
        "`reward` of round 1 is nan, expected a number not over 1 or null",
        "`reward` of round 1 is a text, expected a number or null",
    ]
