"""The command line: its arguments, its exit status, what it writes where, and how it is interrupted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from agentloop_autogen.cli import main
from agentloop_autogen.console.preparation import WeightsBar
from agentloop_autogen.console.text import clean

from .cli_process import command, environment
from .fake_openai import FakeOpenAI, Reply, tool_call

SCENARIO = """\
name: bridge
title: One fact
request: How long is the Tarn Bridge?
tools: survey
expect:
  words: The length is in the answer.
  stop_reasons: [answered, synthesised]
  answer_contains: ["412"]
  unresolved: empty
  tools_called: {town_register: {min: 1, max: 1}}
"""

VERDICT = {
    "slots": [
        {"name": "length", "quote": "total length 412 m", "evidence": ["e1"], "state": "unsynthesised"},
    ],
    "missing": [],
    "failure": "answer_incomplete",
    "need_tool": False,
    "answer_complete": False,
    "confidence": 0.9,
}


def reply(body: Mapping[str, Any]) -> Reply:
    """Call the tool first, find the evidence complete, then write the answer."""
    if body.get("tools"):
        return Reply(tool_calls=[tool_call("town_register", {"structure": "Tarn Bridge"})], usage=(100, 10))
    if body.get("response_format"):
        return Reply(content=json.dumps(VERDICT), usage=(100, 10))
    return Reply(content="The Tarn Bridge is 412 m long.", usage=(100, 10))


@contextmanager
def chat_server(answer: Callable[[dict[str, Any]], Reply] = reply, *, api_key: str | None = None) -> Generator[str]:
    with FakeOpenAI([answer], api_key=api_key) as server:
        yield server.base_url


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "bridge.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return str(path)


def answering(page: httpx.Response) -> Callable[..., httpx.Response]:
    return lambda *_args, **_options: page


def one_line(text: str) -> str:
    assert text.startswith("agentloop: ")
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["walk"], "invalid choice: 'walk'"),
        (["run", "polling"], "say which model runs it"),
        (["run", "polling", "--local", "--recorded"], "--local and --recorded exclude each other"),
        (["run", "polling", "--base-url", "http://x/v1"], "--base-url needs --model NAME"),
        (["run", "polling", "--local", "--model", "m"], "--model goes with --base-url"),
        (["run", "polling", "--recorded", "--weights", "x"], "--weights goes with --local"),
        (["run", "polling", "--local", "--api-key-env", "X"], "--api-key-env goes with --base-url"),
        (["run", "polling", "--recorded", "--record", "x"], "--record needs a model"),
        (["run", "poling", "--recorded"], "did you mean `polling`"),
        (["run", "no/file.yaml", "--recorded"], "check the path"),
        (["run", "--local"], "which scenario?"),
        (["run", "--list", "--policy", "off"], "which scenario?"),
        (["run", "polling", "--recorded", "--policy", "wild"], "'wild' is none of extended, paper, off"),
        (["run", "polling", "--recorded", "--timeout", "0"], "'0' is no number of seconds above 0"),
        (["run", "polling", "--recorded", "--timeout", "inf"], "'inf' is no number"),
        (["run", "polling", "--recorded", "--timeout", "x"], "'x' is no number"),
        (["run", "polling", "--recorded", "--colour"], "unrecognized arguments: --colour"),
        (["run", "polling", "--base-url", "x", "--model", "m"], "is no web address"),
        (["run", "polling", "--base-url", "http://[", "--model", "m"], "no model server answers"),
        (["serve-local", "--port", "70000"], "is no port"),
        (["serve-local", "--port", "-1"], "is no port"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong arguments end with status 2, one line on standard error that says what to do, and nothing else."""
    status = main(args)
    out, err = capsys.readouterr()
    assert words in one_line(err)
    assert out == ""
    assert status == (1 if "no model server answers" in words else 2)


def test_help_and_version_end_with_0_and_need_no_autogen() -> None:
    """Help is there at once: none of AutoGen is imported for it."""
    code = (
        "import sys; from agentloop_autogen.cli import main; found = [main(['--help']), main(['--version'])];"
        "found += [name for name in sys.modules if name.startswith(('autogen_', 'rich', 'yaml', 'openai'))];"
        "sys.exit(any(found))"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "serve-local" in done.stdout


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a scenario, and with `--list`, the shipped ones are listed."""
    assert main(["run"]) == 0
    bare = capsys.readouterr().out
    assert main(["run", "--list"]) == 0
    assert capsys.readouterr().out == bare
    assert "several-slots        Three facts from three tools" in bare
    assert main(["run", "--list", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["scenarios"]]
    assert "polling" in names


def test_a_run_prints_its_rounds_and_ends_with_0(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A run on a server shows call, result, slots, decision and answer as plain lines where there is no terminal."""
    with chat_server() as url:
        assert main(["run", scenario, "--base-url", url, "--model", "fake-model"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert '  call town_register(structure="Tarn Bridge")' in lines
    assert "    result: Town register: Tarn Bridge, total length 412 m, opened 1958." in lines
    assert '  slot unsynthesised: length "total length 412 m"' in lines
    assert "answer: The Tarn Bridge is 412 m long." in lines
    assert lines[-1] == "as expected: yes"
    assert "\x1b" not in out
    assert err == ""


def test_json_is_one_document_and_nothing_else(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--json` standard out holds one document with the contract's keys; nothing is shown elsewhere."""
    with chat_server() as url:
        assert main(["run", scenario, "--json", "--base-url", url, "--model", "fake-model"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["scenario"], document["passed"]) == ("bridge", True)
    assert document["answer"] == "The Tarn Bridge is 412 m long."
    assert document["outcome"]["stop_reason"] == "synthesised"
    assert document["outcome"]["usage"]["agent"]["prompt_tokens"] == 100
    assert err == ""


def test_an_unmet_expectation_ends_with_1(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that shows something else than expected ends with status 1 and says what was missing."""
    path = Path(scenario)
    path.write_text(SCENARIO.replace('"412"', '"399"'), encoding="utf-8")
    with chat_server() as url:
        assert main(["run", scenario, "--base-url", url, "--model", "fake-model"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert main(["run", scenario, "--json", "--base-url", url, "--model", "fake-model"]) == 1
    assert "not as expected: wanted answer contains '399'; seen: not there" in lines
    assert lines[-1] == "as expected: no"
    assert json.loads(capsys.readouterr().out)["passed"] is False


def test_policy_and_timeout_reach_the_loop(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy of the command line wins over the scenario's."""
    with chat_server(lambda _: Reply(content="It is 412 m long.")) as url:
        arguments = ["--base-url", url, "--model", "fake-model", "--policy", "off", "--timeout", "30"]
        assert main(["run", scenario, *arguments]) == 1
    out = capsys.readouterr().out
    assert "policy: off" in out
    assert "wanted 1 to 1 calls of town_register; seen: 0" in out


def test_a_recorded_run_repeats_the_run_it_was_made_from(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A recorded run plays back without a server and ends like the run it was recorded from."""
    tape = Path(scenario).parent / "recorded" / "bridge.json"
    with chat_server() as url:
        assert main(["run", scenario, "--json", "--record", str(tape), "--base-url", url, "--model", "fake-model"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["run", scenario, "--json", "--recorded"]) == 0
    second = json.loads(capsys.readouterr().out)
    for document in (first, second):
        del document["outcome"]["elapsed_s"], document["outcome"]["verifier_s"], document["trace"]["id"]
        document["trace"].pop("elapsed_s", None)
    assert second == first


def test_a_run_that_leaves_its_recording_is_reported(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that leaves its recording ends with status 1 and says where; a changed request is refused."""
    tape = Path(scenario).parent / "recorded" / "bridge.json"
    assert main(["run", scenario, "--recorded"]) == 2
    line = one_line(capsys.readouterr().err)
    assert "has no recording" in line
    assert f"--record {tape}" in line
    with chat_server() as url:
        assert main(["run", scenario, "--record", str(tape), "--base-url", url, "--model", "fake-model"]) == 0
    assert "recorded in" in capsys.readouterr().err
    data = json.loads(tape.read_text(encoding="utf-8"))
    data["replies"].append(data["replies"][-1])
    tape.write_text(json.dumps(data), encoding="utf-8")
    assert main(["run", scenario, "--recorded", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "1 of 4 replies unused" in one_line(err)
    assert out == ""
    Path(scenario).write_text(SCENARIO.replace("How long", "How wide"), encoding="utf-8")
    assert main(["run", scenario, "--recorded"]) == 2
    assert "records another request" in one_line(capsys.readouterr().err)


def test_a_server_that_is_not_there_is_found_out_at_once(
    scenario: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server, a wrong model name and a refused key are each told before the run, with the mend."""
    with chat_server() as url:
        pass
    assert main(["run", scenario, "--base-url", url, "--model", "fake-model"]) == 1
    assert "start it, or correct --base-url" in one_line(capsys.readouterr().err)
    for page, words in (
        (httpx.Response(200, json={"data": [{"id": "fake-model"}]}), "give --model one of fake-model"),
        (httpx.Response(401), "--api-key-env"),
    ):
        monkeypatch.setattr(httpx, "get", answering(page))
        assert main(["run", scenario, "--base-url", "http://host/v1", "--model", "other"]) == 2
        assert words in one_line(capsys.readouterr().err)


def test_the_key_comes_from_the_environment_and_is_never_shown(
    scenario: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is read from the variable that was named; it is in no output, and a variable not set is refused."""
    with chat_server(api_key="s3cret-key") as url:
        arguments = ["run", scenario, "--base-url", url, "--model", "fake-model", "--api-key-env", "MY_MODEL_KEY"]
        monkeypatch.delenv("MY_MODEL_KEY", raising=False)
        assert main(arguments) == 2
        assert "MY_MODEL_KEY is not set" in one_line(capsys.readouterr().err)
        monkeypatch.setenv("MY_MODEL_KEY", "s3cret-key")
        assert main(arguments) == 0
    assert "s3cret" not in "".join(capsys.readouterr())


def test_a_server_that_breaks_down_ends_the_run_with_1(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A server whose replies are useless ends in a failed run that says so, not in a traceback."""
    with chat_server(lambda _: Reply(content="")) as url:
        assert main(["run", scenario, "--base-url", url, "--model", "fake-model", "--timeout", "20"]) == 1
    out, err = capsys.readouterr()
    assert "as expected: no" in out
    assert "Traceback" not in out + err


class SlowServer:
    """Never writes the answer, and says when it was asked to."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __call__(self, body: Mapping[str, Any]) -> Reply:
        answer = reply(body)
        if answer.content is None or body.get("response_format"):
            return answer
        self.asked.set()
        return Reply(hang=True)


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_stops_the_run_and_says_what_was_known(scenario: str, as_json: bool) -> None:
    """Ctrl-C while the answer is written ends with status 130, what was known by then, and no traceback."""
    slow = SlowServer()
    with chat_server(slow) as url:
        extra = ["--json"] if as_json else []
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command("run", scenario, "--base-url", url, "--model", "fake-model", *extra),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert slow.asked.wait(40)
            started = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 130
    assert time.monotonic() - started < 5
    assert "Traceback" not in out + err
    if as_json:
        assert out == ""
        assert one_line(err) == "agentloop: stopped by you after round 1\n"
        return
    lines = out.splitlines()
    assert "stopped by you after round 1" in lines
    assert 'known: length, "total length 412 m"' in lines
    assert not any(line.startswith("as expected") for line in lines)


@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_that_leaves_early_is_no_error(scenario: str, lines: int) -> None:
    """`agentloop run ... | head -1` ends quietly, whether the reader leaves before the run or during it."""
    with chat_server() as url:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command("run", scenario, "--base-url", url, "--model", "fake-model"),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(30) == 141
        process.stderr.close()


def test_a_terminal_that_knows_few_characters_still_gets_the_list() -> None:
    """With an ASCII standard out nothing fails: what cannot be written is replaced."""
    done = subprocess.run(  # noqa: S603 - our own interpreter
        command("run", "--list"),
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert b"several-slots" in done.stdout


STUBBORN = """
import asyncio, contextlib, sys
from agentloop_autogen.cli import main
from agentloop_autogen.console import running

class Stubborn:
    last_outcome = None
    async def run_stream(self, **_):
        sys.stderr.write("running\\n"); sys.stderr.flush()
        for _ in range(600):
            {wait}
        yield None

running._GRACE_S = {grace}
running._agent = lambda *_: Stubborn()
sys.exit(main())
"""
IGNORES_ALL = "with contextlib.suppress(asyncio.CancelledError): await asyncio.sleep(0.05)"
ASKED_IN_VAIN = "await asyncio.sleep(0.05)"


@pytest.mark.parametrize(("wait", "grace", "presses"), [(ASKED_IN_VAIN, 0.1, 1), (IGNORES_ALL, 60.0, 2)])
def test_what_does_not_stop_is_stopped(scenario: str, wait: str, grace: float, presses: int) -> None:
    """A run that ignores the first Ctrl-C is cut off after a grace period, or at once by the second."""
    with chat_server() as url:
        code = STUBBORN.format(wait=wait, grace=grace)
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", code, "run", scenario, "--base-url", url, "--model", "fake-model"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "running\n"
            for _ in range(presses):
                process.send_signal(signal.SIGINT)
                time.sleep(0.5)
            out, err = process.communicate(timeout=10)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in out + err


def on_terminal(*args: str, **variables: str) -> tuple[int, str]:
    """Run the command with a terminal of 70 columns as its output; return its status and what it wrote."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 70, 0, 0))
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        command(*args), env=environment(**{"TERM": "xterm-256color", **variables}), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # Linux ends a terminal whose last writer left with an error.
        while chunk := os.read(ours, 4096):
            written += chunk
    os.close(ours)
    return process.wait(30), written.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_gets_the_live_view(scenario: str) -> None:
    """On a terminal a run is shown in colour with boxes, and the cursor is shown again at the end."""
    with chat_server() as url:
        status, text = on_terminal("run", scenario, "--base-url", url, "--model", "fake-model")
    assert status == 0
    assert "╭─ answer" in clean(text)
    assert "\x1b[32m" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_plain_terminal_gets_plain_lines(scenario: str, variable: dict[str, str]) -> None:
    """With NO_COLOR, a dumb terminal or an encoding without the symbols, a terminal gets the plain lines."""
    with chat_server() as url:
        status, text = on_terminal("run", scenario, "--base-url", url, "--model", "fake-model", **variable)
    assert status == 0
    assert "answer: The Tarn Bridge is 412 m long." in text
    assert "\x1b" not in text
    assert text.isascii()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_json_on_a_terminal_is_shown_beside_the_progress(scenario: str) -> None:
    """With `--json` on a terminal the progress goes to standard error; the answer panel is left to the document."""
    with chat_server() as url:
        status, text = on_terminal("run", scenario, "--json", "--base-url", url, "--model", "fake-model")
    assert status == 0
    assert "round 1" in text
    assert "╭─ answer" not in clean(text)
    assert '"passed": true' in text


class FakeServer:
    model_id = "tiny"
    base_url = "http://127.0.0.1:1/v1"

    def wait(self) -> None:
        raise KeyboardInterrupt


def test_serve_local_says_where_it_serves_and_ends_with_ctrl_c(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve-local` prints the address and how to use it, and Ctrl-C is the ordinary way to end it."""
    asked = list[object]()

    @contextmanager
    def serving(weights: Path | None, *, host: str, port: int) -> Generator[FakeServer]:
        asked.extend([weights, host, port])
        yield FakeServer()

    monkeypatch.setattr("agentloop_autogen.console.models.serving", serving)
    assert main(["serve-local", "--port", "0"]) == 0
    assert asked == [None, "127.0.0.1", 0]
    assert "serving tiny at http://127.0.0.1:1/v1" in capsys.readouterr().out


def test_weights_that_are_not_there_are_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path without weights is one line on standard error, for the run and for the server."""
    missing = str(tmp_path / "missing.gguf")
    for args in (["run", "polling", "--local"], ["serve-local"]):
        assert main([*args, "--weights", missing]) == 2
        assert "no weights file at" in one_line(capsys.readouterr().err)


def test_other_weights_end_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not the model this command runs is a fault, told without an option the command lacks."""
    other = tmp_path / "other.gguf"
    other.write_bytes(b"another model")
    assert main(["serve-local", "--weights", str(other)]) == 1
    line = one_line(capsys.readouterr().err)
    assert "has the SHA-256" in line
    assert "sha256" not in line


def test_a_bar_shows_how_far_the_weights_are() -> None:
    """Each stage of finding the weights gets a bar of its own, with the bytes done."""
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system=None, record=True)
    bar = WeightsBar(console)
    with bar.progress:
        bar("verifying", 0, 0)
        bar("assembling", 500_000_000, 1_000_000_000)
        bar.progress.refresh()
        text = console.export_text(styles=False)
    assert "checking the weights" in text
    assert "putting the weights together" in text
    assert "0.5/1.0 GB" in text
