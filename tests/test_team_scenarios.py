"""The scenarios of teams, each run from its file through the code behind `agentloop run`, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentloop_autogen.cli import main
from agentloop_autogen.console.models import RunModel
from agentloop_autogen.console.options import RunSettings
from agentloop_autogen.console.running import loop_settings, run_scenario
from agentloop_autogen.console.view import PlainView, RunReport
from agentloop_autogen.core.records import ControlBranch, StopReason
from agentloop_autogen.scenario import Scenario, find_scenario, load_scenario

from .fake_openai import FakeOpenAI, Reply
from .scripted_model import Item, ModelRequest, ScriptedModel, call

FERRY, PRICE, OPEN_UNTIL = "08:25", "adults 9.40 crowns", "open 10:00 to 18:30"
TOWN, SURVEY = "Town register: Tarn Bridge, total length 412 m", "Engineering survey: Tarn Bridge, total length 389 m"


def verdict_on(quotes: dict[str, str], answer: str) -> Callable[[ModelRequest], str]:
    """A verifier's model that looks for quotes in what it is shown, and for the answer."""

    def judge(request: ModelRequest) -> str:
        text = request.text
        written = answer in text

        def state(quote: str) -> str:
            return "missing" if quote not in text else "supported" if written else "unsynthesised"

        slots: list[dict[str, Any]] = [
            {"name": name, "state": state(quote), "quote": quote, "evidence": []} for name, quote in quotes.items()
        ]
        missing = [slot["name"] for slot in slots if slot["state"] == "missing"]
        return json.dumps(
            {
                "slots": slots,
                "missing": missing,
                "failure": "ok" if written else "answer_incomplete",
                "need_tool": bool(missing),
                "answer_complete": written,
                "confidence": 0.9,
            }
        )

    return judge


def told(scenario: str, planner: Callable[[ModelRequest], Item], judge: Callable[[ModelRequest], str]) -> Any:
    """Run a shipped scenario and return it, its report, and the lines it showed."""
    shipped = load_scenario(find_scenario(scenario))
    lines: list[str] = []
    model = RunModel(
        planner=ScriptedModel([planner], repeat_last=True),
        verifier=ScriptedModel([judge], repeat_last=True),
        name="scripted",
        label="scripted",
    )
    view = PlainView(lines.append)
    report = asyncio.run(run_scenario(shipped, model, view, loop=loop_settings(shipped, RunSettings())))
    view.finish(report)
    return shipped, report, lines


def assert_as_expected(shipped: Scenario, report: RunReport, lines: list[str]) -> None:
    """Every expectation of the scenario's file is met, and the last line says so."""
    assert [check for check in report.checks if not check.passed] == []
    assert shipped.expect is not None
    assert report.checks
    assert lines[-1] == "as expected: yes"


def test_a_researcher_and_a_writer_in_turns() -> None:
    """The writer's first turn is the answer: no planning call, and the team stops behind it."""
    answer = "The first ferry leaves at 08:25, and an adult pays 9.40 crowns."

    def planner(request: ModelRequest) -> Item:
        if request.tools:
            day, sight = {"day": "Saturday"}, {"sight": "castle garden"}
            return [call("ferry_timetable", day, call_id="1"), call("ticket_price", sight, call_id="2")]
        assert "for the traveller" in request.text
        return answer

    shown = told("team-round-robin", planner, verdict_on({"first ferry": FERRY, "ticket": PRICE}, answer))
    assert_as_expected(*shown)
    _, report, lines = shown
    assert (report.outcome.model_calls, report.outcome.synthesis_calls, report.outcome.tool_calls) == (1, 1, 2)
    assert [line for line in lines if line.startswith("round ")] == ["round 1, researcher", "round 2, writer"]
    assert report.answer == answer


def test_a_selector_team_with_a_synthesiser() -> None:
    """The selector's model is asked once; the writer gets the turn by the verdict."""
    answer = "The register says 412 m, the survey 389 m."
    selections: list[str] = []

    def planner(request: ModelRequest) -> Item:
        if "Read the above conversation" in request.text or "select the next role" in request.text:
            selections.append("researcher")
            return "researcher"
        if request.tools:
            bridge = {"structure": "Tarn Bridge"}
            return [call("town_register", bridge, call_id="1"), call("engineering_survey", bridge, call_id="2")]
        return answer

    shown = told("team-selector", planner, verdict_on({"register": TOWN, "survey": SURVEY}, answer))
    assert_as_expected(*shown)
    assert selections == ["researcher"]


def test_a_swarm_that_hands_over_to_the_user() -> None:
    """Two handoffs, the second to the person who asked: there the team stops and waits, and nothing was looked up."""

    def planner(request: ModelRequest) -> Item:
        clerk = "ferry_timetable" in request.tool_names
        return call("transfer_to_user" if clerk else "transfer_to_clerk")

    shown = told("team-swarm", planner, verdict_on({"choice": "chosen"}, "booked"))
    assert_as_expected(*shown)
    _, report, lines = shown
    assert report.outcome.stop_reason is StopReason.HANDOFF
    assert report.answer == "Transferred to user, adopting the role of user immediately."
    assert [line for line in lines if line.startswith("round ")] == ["round 1, planner", "round 2, clerk"]


def test_a_diamond_of_four_agents() -> None:
    """Two agents find one fact each at the same time; the last writes both down without looking anything up."""
    answer = "The first ferry leaves at 08:25; the garden is open until 18:30."

    def planner(request: ModelRequest) -> Item:
        system = str(request.messages[0].content)
        if "Repeat the questions" in system:
            return "The first ferry and the closing time."
        if request.tools and "Call ferry_timetable" in system:
            return call("ferry_timetable", {"day": "Saturday"})
        if request.tools:
            return call("opening_hours", {"sight": "castle garden", "day": "Saturday"})
        return answer

    shown = told("team-graph", planner, verdict_on({"first ferry": FERRY, "closing time": OPEN_UNTIL}, answer))
    assert_as_expected(*shown)
    _, report, _ = shown
    assert (report.outcome.model_calls, report.outcome.synthesis_calls, report.outcome.tool_calls) == (3, 1, 2)
    assert report.outcome.decisions[-1].branch is ControlBranch.INTEGRATE_ANSWER_RETRY_BREAK
    assert [decision.round for decision in report.outcome.decisions] == list(
        range(1, len(report.outcome.decisions) + 1)
    )


def test_a_team_scenario_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """`agentloop run team-swarm` on a server exits as its expectations say, with one JSON document."""

    with FakeOpenAI([Reply("I cannot do that.")] * 60) as server:
        status = main(["run", "team-swarm", "--base-url", server.base_url, "--model", "fake-model", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert status == 1
    assert (shown["scenario"], shown["passed"]) == ("team-swarm", False)
    assert shown["outcome"]["stop_reason"] in {"budget", "exhausted", "failed"}


def test_ctrl_c_stops_a_team_without_a_traceback() -> None:
    """One Ctrl-C in a member's turn ends with status 130; AutoGen's log of it stays out of the terminal."""
    asked = threading.Event()

    def never(_: dict[str, Any]) -> Reply:
        asked.set()
        return Reply(hang=True)

    with FakeOpenAI([never] * 9) as server:
        arguments = ["run", "team-round-robin", "--base-url", server.base_url, "--model", "fake-model"]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", "import sys; from agentloop_autogen.cli import main; sys.exit(main())", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert asked.wait(40)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out.splitlines()[-1] == "stopped by you after round 0"
    assert err == ""
