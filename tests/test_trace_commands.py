"""`diagnose`, `replay`, `report` and `convert` as a user meets them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agentloop_autogen.cli import main
from agentloop_autogen.diagnostics import Trace, load_traces, write_traces

from .cli_process import command, environment
from .fake_openai import FakeOpenAI, Reply
from .trace_samples import scored, text_round, tool_round, trace_of

LATE = scored(*[0.0] * 6, 1.0, contents=["alpha 1"] * 6 + ["beta 2"])
LOOPING = trace_of(*[tool_round()] * 8, correct=False, model="n", final="I do not know.")
TRACES: tuple[Trace, ...] = (LATE, LOOPING)


@pytest.fixture
def traces(tmp_path: Path) -> str:
    """A file with two traces of two models."""
    path = tmp_path / "runs.jsonl"
    write_traces(TRACES, path)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Run the command and return its status and what it wrote."""
    status = main(list(args))
    out, err = capsys.readouterr()
    return status, out, err


def failed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run a command that must be refused: status 2, nothing on standard out, a last line that says why."""
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    lines = err.splitlines()
    assert lines[-1].startswith("agentloop: ")
    assert "Traceback" not in err
    return lines[-1]


def test_diagnose_prints_a_block_for_each_group(capsys: pytest.CaptureFixture[str], traces: str) -> None:
    """Each ratio stands beside its counts."""
    status, out, err = run(capsys, "diagnose", traces)
    assert (status, err) == (0, "")
    assert "s · m · 1 request\n" in out
    assert "100.0%  1 of 1" in next(line for line in out.splitlines() if "LGR" in line and "100" in line)
    assert "calls made before        87.5%  7 of 8" in out


def test_diagnose_json_is_one_document_with_counts(capsys: pytest.CaptureFixture[str], traces: str) -> None:
    """Standard out holds the rows of the contract, and how much was read."""
    status, out, _ = run(capsys, "diagnose", traces, "--json")
    data = json.loads(out)
    assert (status, data["traces"], data["skipped"]) == (0, 2, 0)
    m, n = data["rows"]
    assert (m["source"], m["model"], m["requests"], m["lgr"], m["lgts"], m["gcr"]) == ("s", "m", 1, 0.0, 0.0, 0.0)
    assert (n["model"], n["lgr"], n["lgts"], n["gcr"], n["lgr_of"]) == ("n", 1.0, 1.0, 1.0, 1)


@pytest.mark.parametrize(("by", "rows"), [("all", 1), ("source", 1), ("model", 2), ("source,model", 2)])
def test_diagnose_groups_as_asked(capsys: pytest.CaptureFixture[str], traces: str, by: str, rows: int) -> None:
    """`--by` says what makes a group."""
    _, out, _ = run(capsys, "diagnose", traces, "--json", "--by", by)
    assert len(json.loads(out)["rows"]) == rows


def test_replay_json_is_the_contract(capsys: pytest.CaptureFixture[str], traces: str) -> None:
    """By model: traces, calls, calls saved, solved, lost."""
    status, out, _ = run(capsys, "replay", traces, "--json")
    by_model = json.loads(out)["by_model"]
    keys = ("traces", "calls", "calls_saved", "solved", "lost")
    assert status == 0
    assert [by_model["m"][key] for key in keys] == [1, 7, 1, 1, 1]
    assert [by_model["n"][key] for key in keys] == [1, 8, 2, 0, 0]


def test_replay_takes_any_setting_of_the_loop(capsys: pytest.CaptureFixture[str], traces: str) -> None:
    """`--policy` and `--set` change what is replayed."""
    _, out, _ = run(capsys, "replay", traces, "--json", "--policy", "paper", "--set", "tau_call=0.5")
    data = json.loads(out)
    assert (data["loop"]["policy"], data["loop"]["tau_call"]) == ("paper", 0.5)
    assert data["by_model"]["n"]["calls_saved"] == 6


def test_replay_writes_a_line_for_each_trace(capsys: pytest.CaptureFixture[str], traces: str, tmp_path: Path) -> None:
    """`--rows` says where each trace would have ended."""
    rows = tmp_path / "rows.jsonl"
    assert run(capsys, "replay", traces, "--rows", str(rows))[0] == 0
    written = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert [(row["model"], row["stopped_at"], row["branch"]) for row in written] == [
        ("m", 5, "exhausted_break"),
        ("n", 5, "exhausted_break"),
    ]


def test_a_sweep_marks_the_best(capsys: pytest.CaptureFixture[str], traces: str) -> None:
    """Every standard setting is listed for each group, and the ones no other beats carry a star."""
    status, out, _ = run(capsys, "replay", traces, "--sweep", "--set", "patience=9")
    assert status == 0
    assert "* paper gate, tau 0.80" in out
    assert "as given" in out
    _, out, _ = run(capsys, "replay", traces, "--sweep", "--json")
    assert {point["model"] for point in json.loads(out)["points"]} == {"m", "n"}


def test_recorded_verdicts_are_used_where_they_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What `run --json` printed can be diagnosed and replayed on its own verdicts."""
    status, out, _ = run(capsys, "run", "several-slots", "--recorded", "--json")
    assert status == 0
    log = tmp_path / "run.json"
    log.write_text(out, encoding="utf-8")
    _, out, _ = run(capsys, "diagnose", str(log), "--json")
    (row,) = json.loads(out)["rows"]
    assert (row["source"], row["solved"], row["requests"]) == ("several-slots", 1.0, 1)
    assert row["tool_calls_mean"] >= 1
    assert row["slot_closure"] is not None
    assert run(capsys, "replay", str(log), "--verdicts", "recorded")[0] == 0


def test_a_model_can_give_the_verdicts(capsys: pytest.CaptureFixture[str], traces: str) -> None:
    """With `--verdicts model` the server is asked about recorded rounds, and its word ends them."""
    verdict: dict[str, object] = {
        "answer_complete": True,
        "need_tool": False,
        "confidence": 0.9,
        "failure": "ok",
        "missing": [],
        "slots": [],
    }
    with FakeOpenAI([lambda _: Reply(json.dumps(verdict))]) as server:
        status, out, err = run(
            capsys, "replay", traces, "--json", "--policy", "paper", "--verdicts", "model",
            "--base-url", server.base_url, "--model", "fake-model",
        )  # fmt: skip
    assert (status, err) == (0, "")
    assert json.loads(out)["by_model"]["n"]["calls_saved"] == 7


def test_a_report_is_one_file(capsys: pytest.CaptureFixture[str], traces: str, tmp_path: Path) -> None:
    """The page is written whole and named on standard out."""
    page = tmp_path / "report.html"
    status, out, _ = run(capsys, "report", traces, "-o", str(page), "--title", "Two runs", "--no-frontier")
    assert (status, out) == (0, f"wrote {page}\n")
    text = page.read_text(encoding="utf-8")
    assert "Two runs" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs.jsonl"]


@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_a_report_as_figures(
    capsys: pytest.CaptureFixture[str], traces: str, tmp_path: Path, form: str, magic: bytes
) -> None:
    """Each chart is a file of its own in the folder named."""
    folder = tmp_path / "figures"
    status, out, _ = run(capsys, "report", traces, "-o", str(folder), "--format", form)
    assert status == 0
    files = sorted(folder.iterdir())
    assert len(files) == len(out.splitlines()) >= 3
    assert all(path.read_bytes().startswith(magic) for path in files)


@pytest.mark.parametrize("form", ["record", "openai", "autogen", "otel"])
def test_convert_writes_what_can_be_read_again(
    capsys: pytest.CaptureFixture[str], traces: str, tmp_path: Path, form: str
) -> None:
    """Every form keeps the calls of every trace."""
    path = tmp_path / "out.jsonl.gz"
    status, out, _ = run(capsys, "convert", traces, "-o", str(path), "--form", form)
    assert (status, out) == (0, f"wrote 2 traces to {path}\n")
    assert sorted(trace.tool_calls for trace in load_traces(path)) == [7, 8]


def test_bad_lines_are_named_counted_and_left_out(
    capsys: pytest.CaptureFixture[str], traces: str, tmp_path: Path
) -> None:
    """The rest is read; ten are named, the others counted, and the total is said."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{]\n" * 15 + Path(traces).read_text(encoding="utf-8"), encoding="utf-8")
    status, out, err = run(capsys, "diagnose", str(bad))
    assert status == 0
    assert "2 traces read; 15 pieces of the input could not be read and are left out" in out
    assert err.count("skipped") == 11
    assert f"skipped {bad}:1: " in err
    assert "5 more were skipped" in err
    _, out, _ = run(capsys, "replay", str(bad), "--json")
    assert json.loads(out)["skipped"] == 15


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n\n  \n",
    "binary": bytes(range(256)) * 40,
    "nesting": b"[" * 100_000,
    "not an object": b"1\n2\nnull\n",
    "other JSON": b'{"hello": "world"}\n',
    "cut gzip": gzip.compress(b'{"id": "1"}\n' * 1_000)[:40],
    "escape": b'{"\x1b[31mred": "<script>alert(1)</script>"}\n',
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("command", ["diagnose", "replay", "report", "convert"])
def test_hostile_input_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, command: str
) -> None:
    """Exit status 2, a clear last line, no traceback, no control characters, and no file left behind."""
    path = tmp_path / "input"
    path.write_bytes(HOSTILE[name])
    output = tmp_path / "output"
    extra = ["-o", str(output)] if command in ("report", "convert") else []
    message = failed(capsys, command, str(path), *extra)
    assert "no trace in" in message
    assert message.isprintable()
    assert not output.exists()


def test_one_good_trace_among_hostile_files_is_enough(
    capsys: pytest.CaptureFixture[str], traces: str, tmp_path: Path
) -> None:
    """A folder is read whole, whatever lies in it."""
    for number, content in enumerate(HOSTILE.values()):
        (tmp_path / f"{number}.json").write_bytes(content)
    status, out, _ = run(capsys, "diagnose", str(tmp_path), "--json")
    data = json.loads(out)
    assert (status, data["traces"]) == (0, 2)
    assert data["skipped"] >= 5


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["diagnose"], "the following arguments are required: TRACES"),
        (["diagnose", "/no/such/file"], "/no/such/file"),
        (["diagnose", "-", "-"], "standard input can be read only once"),
        (["replay", "FILE", "--set", "patience"], "'patience' is no NAME=VALUE"),
        (["replay", "FILE", "--set", "patience=0"], "--set patience: Input should be greater than or equal to 1"),
        (["replay", "FILE", "--set", "patiense=2"], "--set patiense: no such setting; there are policy, "),
        (["replay", "FILE", "--policy", "none"], "invalid choice: 'none'"),
        (["replay", "FILE", "--model", "m"], "a model is asked only with --verdicts model"),
        (["replay", "FILE", "--verdicts", "model"], "say which model gives the verdicts"),
        (["replay", "FILE", "--sweep", "--verdicts", "model", "--local"], "--sweep asks no model"),
        (["replay", "FILE", "--sweep", "--rows", "x"], "--rows goes with one setting"),
        (["replay", "FILE", "--verdicts", "recorded"], "none of the 2 traces records a verdict"),
        (["replay", "FILE", "--rows", "/no/such/folder/rows"], "cannot be written"),
        (["report", "FILE"], "the following arguments are required: -o/--output"),
        (["report", "FILE", "-o", "/no/such/folder/page.html"], "there is no folder /no/such/folder"),
        (["report", "FILE", "-o", "."], ". is a folder: name the page, such as report.html"),
        (["report", "FILE", "-o", "FILE", "--format", "png"], "is a file: png figures go into a folder"),
        (["report", "FILE", "-o", "x.html", "--requests", "-1"], "'-1' is no whole number from 0"),
        (["convert", "FILE", "-o", "/no/such/folder/x.jsonl"], "/no/such/folder"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_mends_it(
    capsys: pytest.CaptureFixture[str], traces: str, args: list[str], words: str
) -> None:
    """Every mistake ends with status 2 and its reason."""
    assert words in failed(capsys, *[traces if arg == "FILE" else arg for arg in args])


def test_standard_input_is_read(traces: str) -> None:
    """A pipe works as a file does, packed or not."""
    for data in (Path(traces).read_bytes(), gzip.compress(Path(traces).read_bytes())):
        done = subprocess.run(  # noqa: S603 - our own interpreter
            command("diagnose", "-", "--json"),
            env=environment(),
            input=data,
            capture_output=True,
            timeout=50,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout)["traces"] == 2


def test_a_closed_pipe_ends_quietly(traces: str) -> None:
    """Whoever reads only the first line, as `head -1` does, leaves no traceback behind."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        command("replay", *[traces] * 40, "--sweep"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("s · m · ")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=30) in (0, 141)


def test_ctrl_c_stops_reading_at_once(tmp_path: Path) -> None:
    """An interrupt while a pipe is read ends with status 130 and one line."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        command("diagnose", str(fifo)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with fifo.open("wb") as writer:  # goes on once the command has opened its end, and stays open until it is gone
        writer.write(b'{"id": "1", "request": "q", "rounds": [], "final": "x"}\n')
        writer.flush()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "agentloop: stopped by you\n"


def test_a_text_answer_in_the_middle_of_a_log_is_no_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A dialogue of many turns is replayed turn by turn, so nothing is saved by stopping at the first reply."""
    path = tmp_path / "talk.jsonl"
    talk = [part for i in range(6) for part in (tool_round(f"row {i} north"), text_round(f"It is {i}."))]
    write_traces([trace_of(*talk)], path)
    _, out, _ = run(capsys, "replay", str(path), "--json", "--policy", "off")
    assert json.loads(out)["by_model"]["m"]["calls_saved"] == 0
