"""Reading traces out of files: what counts as a file, what is skipped and why, and what memory it takes."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop_autogen.diagnostics import byte_source, json_values
from agentloop_autogen.diagnostics.formats import place
from agentloop_autogen.diagnostics.loading import Skipped, TraceReader, load_traces
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.errors import TraceError


def record(name: str = "a", **fields: object) -> str:
    """One record as a line of JSON."""
    return json.dumps({"id": name, "request": "what?", "rounds": [], **fields})


def loaded(path: Path | str) -> tuple[list[Trace], TraceReader]:
    """The traces of a path and the reader, nothing logged."""
    reader = load_traces(path, on_skip=lambda _: None)
    return list(reader), reader


def read(
    tmp_path: Path, content: str | bytes, name: str = "log.jsonl"
) -> tuple[list[str], list[tuple[int | None, str]]]:
    """Write a file and read it: ids of the traces, and line and reason of what was skipped."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    traces, reader = loaded(path)
    return [trace.id for trace in traces], [(item.line, item.reason) for item in reader.skipped]


A, B, C = record("a"), record("b"), record("c")
PRETTY = json.dumps(json.loads(record("p", rounds=[{"text": "x"}])), indent=4)


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        (f"{A}\n{B}\n", "ab"),
        (f"{A}\n\n   \n{B}", "ab"),
        (f"{A}\r\n{B}\r\n", "ab"),
        (f"\ufeff{A}\n{B}\n", "ab"),
        (f"[{A},{B}]", "ab"),
        (f"\ufeff[{A},\n{B}]", "ab"),
        (f"[\n  {A},\n  {B}\n]\n", "ab"),
        (f"[\n{PRETTY},\n{PRETTY}\n]\n{A}", "ppa"),
        (f"{PRETTY}\n{PRETTY}\n{A}\n", "ppa"),
        (f"{PRETTY}{PRETTY}", "pp"),
        (f"{A}{B} {C}\n", "abc"),
        (f"{A},\n{B},\n", "ab"),
        (f"[{A}]\n[{B}][{C}]\n", "abc"),
        ("", ""),
        ("[]\n", ""),
    ],
)
@pytest.mark.parametrize("name", ["log.jsonl", "log.json", "log", "log.json.gz", "log.bin"])
def test_the_content_decides(tmp_path: Path, name: str, content: str, ids: str) -> None:
    """Lines, arrays, pretty-printed and concatenated values are read under any name, packed or not."""
    data = content.encode()
    assert read(tmp_path, gzip.compress(data) if name.endswith((".gz", ".bin")) else data, name) == (list(ids), [])


DEEP = "[" * 100_000
NOTHING: dict[str, object] = {}
BROKEN = [
    ("{'id': 'x', 'rounds': []}", "expected JSON: Expecting property name enclosed in double quotes (column 2)"),
    ('{"id": "x", "rounds": [', "expected JSON: Expecting ',' delimiter (column 1 of line 3 of the object)"),
    ('{"id": "x", "rounds": [{"te', "expected JSON: Unterminated string starting at (column 25)"),
    ('{"id": "x\0y", "rounds": []}', "expected JSON: Invalid control character at (column 10)"),
    ("\0\0\0\x7fELF\1\2", "expected JSON: Expecting value (column 1)"),
    ("2026-01-01 INFO started", "expected JSON: Extra data (column 5)"),
    ("[INFO] started", "expected JSON: Expecting value (column 2)"),
    ("42", "expected a trace in one of the known forms, found a number"),
    ('"text"', "expected a trace in one of the known forms, found a text"),
    ("null", "expected a trace in one of the known forms, found null"),
    ("{}", "expected a trace in one of the known forms, found an empty object"),
    ('{"a": 1}', "expected a trace in one of the known forms, found an object with 'a'"),
    (
        record(rounds={"a": 1}),
        "expected a trace in one of the known forms, found an object with 'id', 'request', 'rounds'",
    ),
    (f'{{"rounds": {DEEP}', "expected a trace in JSON, found JSON that is nested too deeply"),
    (f'{{"rounds": [], "usage": {"9" * 5000}}}', "expected JSON with numbers of a sensible length"),
    (record(request=[]), "`request` is an array, expected a text"),
    (record(rounds=[7]), "element 1 of `rounds` is a number, expected an object"),
    (record(rounds=[{"calls": NOTHING}]), "`calls` of round 1 is an empty object, expected an array"),
    (record(rounds=[{"calls": [NOTHING]}]), "`name` of a call of round 1 is missing, expected a text"),
    (record(rounds=[{"turn": -1}]), "`turn` of round 1 is a number, expected a whole number from 0"),
    (record(rounds=[{"text": 5}]), "`text` of round 1 is a number, expected a text"),
    (record(correct="yes"), "`correct` is a text, expected true, false or null"),
    (record(elapsed_s=-1), "`elapsed_s` is -1, expected a number not under 0 or null"),
    (record(elapsed_s=10**400), "`elapsed_s` is inf, expected a number not under 0 or null"),
    (record(id=[]).replace('"a"', "[]", 1), "`id` is an array, expected a text"),
    (record(usage=[]), "`usage` is an array, expected an object with token counts"),
    (record(outcome={"stop_reason": "tired"}), "`outcome` is no LoopOutcome: stop_reason: Input should be"),
    (record(rounds=[{"decision": NOTHING}]), "`decision` of round 1 is no Decision: round: Field required"),
    ('{"messages": [7]}', "expected a trace in one of the known forms, found an object with 'messages'"),
    ('{"messages": [{"role": "user"}, 7]}', "element 2 of `messages` is a number, expected an object"),
    ('{"role": "wizard"}', "`role` of a message is 'wizard', expected system, user, assistant or tool"),
    ('{"role": 5}', "`role` of a message is a number, expected a text"),
    ('{"resourceSpans": [5]}', "element 1 of `resourceSpans` is a number, expected an object"),
    ('{"resourceSpans": []}', "expected spans in `resourceSpans`, found none"),
    ('{"traceId": "a", "spanId": "b"}', "a span has no start time"),
    ('{"type": "LLMStreamEnd", "response": {}}', "the LLMStreamEnd event has no LLMStreamStart event before it"),
    ('{"scenario": "s", "passed": true, "trace": 5}', "`trace` is a number, expected a record"),
]


@pytest.mark.parametrize(("line", "reason"), BROKEN)
def test_a_bad_line_costs_itself_alone(tmp_path: Path, line: str, reason: str) -> None:
    """Whatever is wrong with a line, it is skipped once with its number and a reason, and its neighbours are read."""
    ids, skipped = read(tmp_path, f"{A}\n{line}\n{B}\n{C}\n")
    assert ids == ["a", "b", "c"]
    ((number, said),) = skipped
    assert number == 2
    assert said.startswith(reason)


@pytest.mark.parametrize(
    ("line", "reason"),
    [item for item in BROKEN if item[0].startswith("{") and item[0].count("{") == item[0].count("}")],
)
def test_a_bad_element_costs_itself_alone(tmp_path: Path, line: str, reason: str) -> None:
    """The same within an array: the element is named, the others are read."""
    ids, skipped = read(tmp_path, f"[{A},\n{line},\n{B}]\n")
    assert ids == ["a", "b"]
    ((number, said),) = skipped
    assert number == 2
    assert said.startswith("element 2 of the array: ")
    assert reason.partition(" (")[0].removeprefix("expected JSON: ")[:60] in said


@pytest.mark.parametrize(
    ("content", "ids", "reason"),
    [
        (f"[{A},{B}", "ab", "expected an array that is closed: it is cut off before its closing bracket"),
        (f"[{A},\n{B[:9]}", "a", "expected an array that is closed: it is cut off inside element 2"),
        (f"[{A} {B}]", "ab", "expected a comma or the end of the array behind element 1"),
        (
            f"[{A}, 5, {B}]\n",
            "ab",
            "element 2 of the array: expected a trace in one of the known forms, found a number",
        ),
        (f"[{A},\n5, {B}]\n", "ab", "element 2 of the array is no object"),
        (f"{A}\n{B} tail\n", "ab", "expected JSON: Extra data"),
        (f"{A}\n{B[:-1]}", "a", "expected JSON: Expecting ',' delimiter"),
        (f"{PRETTY[:-2]}\n", "", "expected an object that is closed: it is cut off"),
        (f"{PRETTY[:-2]}\n{A}\n{B}\n", "ab", "expected JSON: Expecting"),
        (f'[{{"role": "user", "content": "x\n[{A}]\n', "a", "element 1 of the array: a text in it is cut off"),
    ],
)
def test_what_stands_around_a_break_is_kept(tmp_path: Path, content: str, ids: str, reason: str) -> None:
    """A break inside an array or a spread object is reported, what is whole before and behind it is read."""
    found, skipped = read(tmp_path, content)
    assert found == list(ids)
    assert skipped[0][1].startswith(reason)


def test_invalid_unicode_is_replaced(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 and halves of surrogate pairs become replacement characters, pairs stay what they are."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(rb'{"id": "\ud83d\ude00 \ud83d \udc00", "rounds": [], "request": "' + b'\xff"}')
    (trace,), reader = loaded(path)
    assert (trace.id, trace.request, reader.skipped) == ("\U0001f600 \ufffd \ufffd", "\ufffd", [])


def test_what_is_missing_is_made_up_or_left_open(tmp_path: Path) -> None:
    """Without an id, a source, a model and a judgement a record gets its place, the file's stem, and nothing."""
    path = tmp_path / "runs.2026.jsonl.gz"
    path.write_bytes(
        gzip.compress(b'\n{"rounds": [{"calls": [{"name": "t", "arguments": {"b": "\xc3\xbc", "a": 1}}]}]}')
    )
    (trace,), _ = loaded(path)
    assert (trace.id, trace.source, trace.model, trace.correct) == (f"{path}:2", "runs.2026", "", None)
    assert trace.rounds[0].calls[0].arguments == '{"a": 1, "b": "ü"}'
    assert trace.has_pending_call


@pytest.mark.parametrize(("given", "expected"), [(1, True), (0, False), (1.0, True), (None, None), (True, True)])
def test_a_judgement_may_be_a_digit(tmp_path: Path, given: object, expected: bool | None) -> None:
    """`correct` may be 0 or 1 as well."""
    (tmp_path / "log.jsonl").write_text(record(correct=given))
    (trace,), _ = loaded(tmp_path / "log.jsonl")
    assert trace.correct is expected


def test_a_surplus_result_belongs_to_a_call_nobody_knows(tmp_path: Path) -> None:
    """Results pair with calls by their place; one too many keeps its content under a call without a name."""
    rounds = [{"calls": [{"name": "t"}], "results": [{"content": "x"}, {"content": {"k": 1}, "is_error": True}]}]
    (tmp_path / "log.jsonl").write_text(record(rounds=rounds))
    (trace,), _ = loaded(tmp_path / "log.jsonl")
    assert [(r.call.name, r.content, r.is_error) for r in trace.rounds[0].results] == [
        ("t", "x", False),
        ("", '{"k": 1}', True),
    ]


# --- gzip ------------------------------------------------------------------------------------------------------------


def test_a_gzip_that_is_cut_off_keeps_what_came_before(tmp_path: Path) -> None:
    """Of a truncated gzip all whole lines are read, and the break is one skip."""
    packed = gzip.compress(
        "".join(f"{record(str(number), request=os.urandom(200).hex())}\n" for number in range(500)).encode()
    )
    ids, skipped = read(tmp_path, packed[: len(packed) // 2])
    assert 200 < len(ids) < 300
    assert [reason for _, reason in skipped] == ["the gzip is cut off; what came before was read"]


@pytest.mark.parametrize("behind", [gzip.compress(b"")[:10] + b"\xff" * 64, gzip.compress(b"x")[:-8] + bytes(8)])
def test_a_damaged_gzip_keeps_what_came_before(tmp_path: Path, behind: bytes) -> None:
    """Of a gzip with a fault in its blocks or its checksum the lines before it are read, and the fault is one skip."""
    packed = gzip.compress(f"{A}\n{B}\n".encode())
    ids, skipped = read(tmp_path, packed + behind)
    assert ids == ["a", "b"]
    assert [reason for _, reason in skipped] == ["the gzip is damaged; what came before was read"]


def test_a_gzip_may_have_several_members(tmp_path: Path) -> None:
    """Gzips put one behind the other, and zeros behind them, are one file."""
    packed = gzip.compress(f"{A}\n".encode()) + gzip.compress(B.encode()) + bytes(1000)
    assert read(tmp_path, packed, "log.gz") == (["a", "b"], [])


@pytest.mark.parametrize("data", [b"\x1f\x8b", b"\x1f\x8bnonsense", b"\x1f"])
def test_a_gzip_of_nothing_is_one_skip(tmp_path: Path, data: bytes) -> None:
    """A file that only begins like a gzip is a skip, not an error."""
    ids, skipped = read(tmp_path, data)
    assert (ids, len(skipped)) == ([], 1)


# --- paths -----------------------------------------------------------------------------------------------------------


def test_a_directory_is_read_to_the_bottom_in_order(tmp_path: Path) -> None:
    """All trace files below a directory are read by name; others are not looked at, and one bad file costs itself."""
    (tmp_path / "sub").mkdir()
    for name, text in {"b.json": B, "a.ndjson": A, "sub/c.jsonl": C, "readme.md": "{", "sub/x.py": "{"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(record("d").encode()))
    (tmp_path / "e.jsonl").symlink_to("nowhere")
    traces, reader = loaded(tmp_path)
    assert [trace.id for trace in traces] == ["a", "b", "d", "c"]
    assert [Path(item.file).name for item in reader.skipped] == ["e.jsonl"]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` is standard input, packed or not, and is left open."""
    stream = io.BufferedReader(io.BytesIO(gzip.compress(f"{A}\n{{}}\n".encode())))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    with load_traces("-", on_skip=lambda _: None) as reader:
        assert [(trace.id, trace.source) for trace in reader] == [("a", "stdin")]
    assert (reader.skipped[0].file, reader.skipped[0].line, stream.closed) == ("-", 2, False)


@pytest.mark.parametrize("name", ["missing.jsonl", "nul\0byte", "x" * 5000])
def test_a_missing_path_is_said_at_once(tmp_path: Path, name: str) -> None:
    """A path that is not there raises when it is given, not when the first trace is asked for."""
    with pytest.raises(TraceError, match=r"there is no file|cannot be opened") as caught:
        load_traces(f"{tmp_path}/{name}")
    assert str(caught.value).isprintable()


def test_a_file_that_cannot_be_read_on_is_a_skip(tmp_path: Path) -> None:
    """A fault of the medium ends a file like a break in it."""

    class Failing(io.RawIOBase):
        def __init__(self) -> None:
            self.pieces = [f"{A}\n".encode()]

        def read(self, size: int = -1) -> bytes:
            if self.pieces:
                return self.pieces.pop()
            raise OSError(5, "Input/output error")

    skipped: list[str] = []
    values = json_values.JsonValues(
        byte_source.ByteSource(Failing()),  # pyright: ignore[reportArgumentType] - all it needs of a stream
        "f",
        lambda _, reason: skipped.append(reason),
    )
    assert len(list(values)) == 1
    assert skipped == ["the file cannot be read any further (Input/output error); what came before was read"]
    assert tmp_path.exists()


def test_a_reader_can_be_closed_early(tmp_path: Path) -> None:
    """After `close` nothing more comes, and closing again does no harm."""
    (tmp_path / "log.jsonl").write_text(f"{A}\n{B}\n")
    with load_traces(tmp_path / "log.jsonl") as reader:
        assert next(reader).id == "a"
    reader.close()
    assert list(reader) == []
    assert reader.read == 1
    load_traces(tmp_path / "log.jsonl").close()


# --- what is said about skips ----------------------------------------------------------------------------------------


def test_skips_are_logged_up_to_twenty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a listener the first twenty skips are warnings, one more says that the rest is only counted."""
    (tmp_path / "log.jsonl").write_text("{}\n" * 150)
    with caplog.at_level(logging.WARNING, "agentloop_autogen.diagnostics"):
        reader = load_traces(tmp_path / "log.jsonl")
        assert list(reader) == []
    assert (reader.read, reader.skipped_count, len(reader.skipped)) == (0, 150, 100)
    assert len(caplog.messages) == 21
    assert caplog.messages[0].startswith(f"skipped {tmp_path}/log.jsonl:1: expected a trace")
    assert caplog.messages[-1] == "more was skipped and is only counted from here on"


def test_a_listener_gets_every_skip(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With a listener nothing is logged."""
    (tmp_path / "log.jsonl").write_text("{}\n" * 30)
    told: list[Skipped] = []
    assert list(load_traces(tmp_path / "log.jsonl", on_skip=told.append)) == []
    assert [item.line for item in told] == list(range(1, 31))
    assert caplog.messages == []


def test_control_characters_never_reach_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Escapes in the name of a file and in its keys are shown clean, on one line of bounded length."""
    path = tmp_path / "a\x1b[31m\nb\udcff.jsonl"
    path.write_text(json.dumps({f"\x1b]0;title\x07\u202e{'k' * 5000}": 1}))
    assert list(load_traces(path)) == []
    (message,) = caplog.messages
    assert message.isprintable()
    assert len(message) < 1200


# --- bounds ----------------------------------------------------------------------------------------------------------


def big_line() -> bytes:
    """A line above the bound used in these tests."""
    return record("big", request="x" * 4_000_000).encode()


def spread(line: bytes) -> bytes:
    """The same object over several lines."""
    return line.replace(b", ", b",\n ")


@pytest.mark.parametrize("spreads", [False, True])
@pytest.mark.parametrize("in_array", [False, True])
def test_what_is_too_large_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_array: bool, spreads: bool
) -> None:
    """A line, an object or an element over the bound is skipped once, and what follows it is read."""
    monkeypatch.setattr(json_values, "MAX_BYTES", 3_000_000)
    big = record("big", request="x" * 4_000_000)
    lines = [A, big.replace(", ", ",\n ") if spreads else big, B]
    ids, skipped = read(tmp_path, "[" + ",\n".join(lines) + "]" if in_array else "\n".join(lines))
    assert ids == ["a", "b"]
    ((number, reason),) = skipped
    where = "element 2 of the array is" if in_array else "an object" if spreads else "a line"
    assert (number, reason.partition(" larger")[0]) == (2, where)


PEAK = """
import sys
from agentloop_autogen.diagnostics.loading import load_traces
reader = load_traces(sys.argv[1], on_skip=lambda _: None)
for _ in reader: pass
peak_kib = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(reader.read, reader.skipped_count, int(peak_kib) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc")
@pytest.mark.parametrize("kind", ["one line", "one text that never ends", "many lines", "one array"])
def test_memory_stays_bounded(tmp_path: Path, kind: str) -> None:
    """200 MB, packed into little, is read or refused within 150 MB of memory."""
    line = record("a", request="x" * 10_000).encode() + b"\n"
    path = tmp_path / "log.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        for number in range(200):
            megabyte = {
                "one line": b"x" * 2**20,
                "one text that never ends": b"[{" * (not number) + b'"' * (not number) + b"y" * 2**20,
                "many lines": line * 100,
                "one array": (b"," if number else b"[") + b",".join([line.strip()] * 100),
            }[kind]
            packed.write(megabyte)
    command = [sys.executable, "-c", PEAK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=55, check=True)  # noqa: S603 - our own code
    traces, skipped, peak_mib = map(int, done.stdout.split())
    assert (traces, skipped) == {"many lines": (20_000, 0), "one array": (20_000, 1)}.get(kind, (0, 1))
    assert peak_mib < 150


def test_the_bound_is_the_documented_one() -> None:
    """A document may have 64 MiB."""
    assert place.MAX_BYTES == 64 * 2**20
