"""`agentloop bench`: its arguments, its exit status, what it writes where, and how it is interrupted."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentloop_autogen.bench.records import Attempt, CountedModelCall
from agentloop_autogen.bench.results import read_attempts
from agentloop_autogen.bench.runner import RunProgress
from agentloop_autogen.bench.systems.registry import SYSTEMS
from agentloop_autogen.bench.tasks import families
from agentloop_autogen.bench.tasks.task import Half
from agentloop_autogen.cli import main
from agentloop_autogen.console.bench_view import BarWatcher

from .bench_tasks import CODE, code_family
from .cli_process import ROOT, environment
from .fake_openai import FakeOpenAI, Refuse, Reply, tool_call

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


def reply(body: dict[str, Any]) -> Reply:
    """Call the tool once, then say what it said."""
    if CODE in json.dumps(body["messages"]):
        return Reply(content=f"The code is {CODE}. ACCEPT", usage=(100, 10))
    return Reply(tool_calls=[tool_call("look_up", {"door": "blue"})], usage=(100, 10))


@pytest.fixture(autouse=True)
def codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put the small family in place of the real ones, and let results go to a fresh folder."""
    monkeypatch.setattr(families, "FAMILIES", {"codes": code_family()})
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Generator[FakeOpenAI]:
    with FakeOpenAI([reply], served="m") as running:
        yield running


def words(server: FakeOpenAI, *more: str, systems: str = "autogen,fc-reflection") -> list[str]:
    model = ["--base-url", server.base_url, "--model", "m"]
    return ["bench", "--systems", systems, "--tasks", "codes", *model, *more]


def test_a_run_writes_results_says_how_it_goes_and_does_nothing_twice(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command works without naming a subcommand; repeated, it finds everything done."""
    assert main(words(server, "--limit", "2")) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "4 attempts, 0 of them done before"
    assert told[-1].startswith("4/4 ")
    assert "solved: " in told[-1]
    assert "autogen 2/2" in told[-1]
    found = read_attempts(["bench.jsonl"])
    assert [one.correct for one in found] == [True] * 4
    assert {one.system for one in found} == {"autogen", "fc-reflection"}
    asked = len(server.bodies)
    assert main(words(server, "--limit", "2")) == 0
    assert capsys.readouterr().out.splitlines() == ["4 attempts, 4 of them done before"]
    assert len(server.bodies) == asked
    assert main(["bench", "run", *words(server, "--limit", "3")[1:]]) == 0
    assert len(read_attempts(["bench.jsonl"])) == 6


def test_json_prints_one_document_and_nothing_else(server: FakeOpenAI, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json standard out holds one document that sums the run up, and standard error nothing."""
    assert main(words(server, "--limit", "2", "--json", "--out", "r.jsonl")) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert err == ""
    assert (told["file"], told["attempts"], told["failed"]) == ("r.jsonl", 4, 0)
    assert told["systems"]["autogen"] == {"attempts": 2, "solved": 2}
    assert told["tokens"] == sum(
        call.prompt_tokens + call.completion_tokens for one in read_attempts(["r.jsonl"]) for call in one.model_calls
    )


def test_seeds_halves_and_limits_choose_the_attempts(server: FakeOpenAI) -> None:
    """Each seed is an attempt of its own; a half and a limit choose the tasks."""
    assert main(words(server, "--limit", "2", "--seeds", "0,5", "--half", "held_out", systems="autogen")) == 0
    found = read_attempts(["bench.jsonl"])
    assert sorted({one.seed for one in found}) == [0, 5]
    assert {one.half.value for one in found} == {"held_out"}
    assert len(found) == 4
    assert {body["seed"] for body in server.bodies} == {0, 5}


def test_limits_reach_the_model_and_the_results_are_bound_to_them(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    """Changed limits are other settings: the same file is refused in one line, and left as it is."""
    assert main(words(server, "--limit", "1", "--max-completion-tokens", "64", "--temperature", "0.5")) == 0
    assert {(body["max_tokens"], body["temperature"]) for body in server.bodies} == {(64, 0.5)}
    before = Path("bench.jsonl").read_bytes()
    assert main(words(server, "--limit", "1")) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "bench.jsonl holds attempts made with other settings" in told
    assert Path("bench.jsonl").read_bytes() == before


def test_failed_attempts_are_kept_and_made_again_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """A failed attempt does not stop the run; --retry-failed makes it again and replaces it."""
    script = [Reply(status=500, message="out of order"), reply]
    with FakeOpenAI(script, served="m") as server:
        one = words(server, "--limit", "2", systems="autogen")
        assert main(one) == 0
        assert sum(found.error is not None for found in read_attempts(["bench.jsonl"])) == 1
        assert "failed: InternalServerError" in capsys.readouterr().out
        assert main(one) == 0
        assert main([*one, "--retry-failed"]) == 0
    assert [found.error for found in read_attempts(["bench.jsonl"])] == [None, None]


def test_requests_fan_out_over_several_servers(server: FakeOpenAI) -> None:
    """Several base URLs share the attempts between them."""
    with FakeOpenAI([reply], served="m") as second:
        urls = f"{server.base_url},{second.base_url}"
        more = ["--base-url", urls, "--model", "m", "--concurrency", "2", "--limit", "6"]
        assert main(["bench", "--systems", "autogen", "--tasks", "codes", *more]) == 0
    assert server.bodies
    assert second.bodies
    assert len(read_attempts(["bench.jsonl"])) == 6


def test_guided_tool_calls_work_with_a_server_that_has_none() -> None:
    """With --tool-mode guided every system gets tool calls from a server that cannot make any."""

    def guided(body: dict[str, Any]) -> Reply:
        if CODE in json.dumps(body["messages"]):
            return Reply(content=json.dumps({"final_answer": f"It is {CODE}. ACCEPT"}))
        return Reply(content=json.dumps({"tool_calls": [{"name": "look_up", "arguments": {"door": "blue"}}]}))

    with FakeOpenAI([guided], served="m", refuse=[Refuse.TOOLS_WITHOUT_PARSER]) as server:
        assert main(words(server, "--limit", "1", "--tool-mode", "guided", systems="autogen,langgraph")) == 0
    assert [one.correct for one in read_attempts(["bench.jsonl"])] == [True, True]
    assert server.refusals == []


def test_systems_and_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each system and family stands on a line with what it is; as JSON, too."""
    assert main(["bench", "systems"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(SYSTEMS)
    assert main(["bench", "tasks"]) == 0
    assert capsys.readouterr().out.startswith("codes")
    assert main(["bench", "systems", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)["systems"]} == set(SYSTEMS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--systems", "autogem"], "there is no system 'autogem'"),
        (["--tasks", "spyder"], "there is no task family 'spyder'"),
        (["--limit", "0"], "'0' is no whole number from 1"),
        (["--rate", "-1"], "'-1' is no number above 0"),
        (["--model", "other"], "has no model 'other'"),
        (["--out", "r.jsonl.gz"], "is compressed"),
        (["--out", "no/such/folder.jsonl"], "cannot be written"),
        (["--local"], "exclude each other"),
        (["--seeds", "a"], "'a' is no whole number from 0"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_is_wrong(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str], change: Sequence[str], says: str
) -> None:
    """What cannot be done is told before anything runs, in one line, with exit status 2."""
    assert main([*words(server), *change]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
    assert server.bodies == []


@pytest.mark.parametrize("missing", ["--systems", "--tasks"])
def test_what_to_run_must_be_said(server: FakeOpenAI, capsys: pytest.CaptureFixture[str], missing: str) -> None:
    """Without systems or tasks there is nothing to run, and the message names the option."""
    given = words(server)
    place = given.index(missing)
    assert main([*given[:place], *given[place + 2 :]]) == 2
    assert missing in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is run, nothing is written, and the exit status says that the run failed."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    model = ["--base-url", f"http://127.0.0.1:{port}/v1", "--model", "m"]
    assert main(["bench", "--systems", "autogen", "--tasks", "codes", *model]) == 1
    assert "no model server answers" in capsys.readouterr().err
    assert not Path("bench.jsonl").exists()


def test_a_server_that_goes_away_stops_the_run_and_the_same_command_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An outage ends the run with status 1 after a few attempts; none of them is taken for a failure."""
    server = FakeOpenAI([reply, reply, reply, reply, Reply(status=503, message="gone")], served="m")
    with server:
        assert main(words(server, systems="autogen")) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "3 attempts in a row (2 of 20 attempts are in bench.jsonl)" in err
    assert [one.error for one in read_attempts(["bench.jsonl"])] == [None, None]
    with FakeOpenAI([reply], served="m") as back:
        assert main(words(back, systems="autogen")) == 0
    assert len(read_attempts(["bench.jsonl"])) == 20


def test_on_a_terminal_a_bar_shows_how_far_it_is_and_failures_stay() -> None:
    """The bar tells attempts, time left, tokens and solved tasks per system; a failed attempt keeps its line."""
    drawn = io.StringIO()
    watcher = BarWatcher(Console(file=drawn, force_terminal=True, width=160, color_system=None, highlight=False))
    progress = RunProgress((), total=3)
    with watcher.bar:
        watcher.begun(progress)
        for task, error in (("one", None), ("two", "timeout: [red]no answer")):
            made = attempt(task, error=error)
            progress.add(made)
            watcher.finished(made, progress)
    shown = drawn.getvalue()
    assert "2/3" in shown
    assert "left, 24 tokens, 1 failed; solved: autogen 1/2" in shown
    assert "autogen codes/two failed: timeout: [red]no answer" in shown


def attempt(task: str, *, error: str | None) -> Attempt:
    return Attempt(
        system="autogen",
        family="codes",
        task=task,
        half=Half.DEVELOPMENT,
        model="m",
        settings="s",
        request="?",
        correct=error is None,
        error=error,
        began_at="2026-01-01T00:00:00+00:00",
        elapsed_s=1.0,
        model_calls=(CountedModelCall(began_s=0, ended_s=1, prompt_tokens=10, completion_tokens=2),),
    )


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    """The first Ctrl-C ends the run with status 130 and a line with the command that goes on."""
    script = tmp_path / "bench.py"
    script.write_text(PATCHED, encoding="utf-8")

    def slow(body: dict[str, Any]) -> Reply:
        return replace(reply(body), delay_s=0.2)

    with FakeOpenAI([slow], served="m") as server:
        given = [sys.executable, str(script), *words(server, systems="fc-reflection")]
        running = subprocess.Popen(  # noqa: S603 - our own interpreter
            given, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("2/20"):
                running.send_signal(signal.SIGINT)
                break
        _, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert err.count("\n") == 1
    assert "of 20 attempts in bench.jsonl; to go on: agentloop bench --systems fc-reflection --tasks codes" in err
    found = read_attempts([tmp_path / "bench.jsonl"])
    assert 2 <= len(found) < 20
    assert all(one.error is None for one in found)


PATCHED = f"""
import sys

sys.path.insert(0, {str(ROOT)!r})
from agentloop_autogen.bench.tasks import families
from agentloop_autogen.bench.tasks.task import Half
from agentloop_autogen.cli import main
from agentloop_autogen.console.bench_view import BarWatcher
from tests.bench_tasks import code_family

families.FAMILIES = {{"codes": code_family()}}
sys.exit(main())
"""
