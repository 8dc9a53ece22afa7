"""Scenarios that run a request first: the run itself finds it in its slot store, and shows what it made of that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentloop_autogen.cli import main
from agentloop_autogen.errors import ScenarioError
from agentloop_autogen.scenario import load_scenario

from .fake_openai import FakeOpenAI, Reply, tool_call

SCENARIO = """\
name: bridge
title: What a similar request needed
warm_up: What is known of the Tarn Bridge, its length and its condition?
request: What is known of the Tarn Bridge?
tools: survey
expect:
  words: The condition is in the answer, too.
  stop_reasons: [answered, synthesised]
  answer_contains: ["412", "good"]
"""
LENGTH = {"name": "length", "quote": "total length 412 m", "evidence": ["e1"], "state": "unsynthesised"}
CONDITION = {"name": "condition", "quote": "condition good", "evidence": ["e2"], "state": "unsynthesised"}


def verdict(*slots: Mapping[str, Any]) -> str:
    """A verdict on these slots."""
    missing = [slot["name"] for slot in slots if slot["state"] == "missing"]
    return json.dumps(
        {
            "slots": slots,
            "missing": missing,
            "failure": "answer_incomplete",
            "need_tool": bool(missing),
            "answer_complete": False,
            "confidence": 0.9,
        }
    )


def reply(body: Mapping[str, Any]) -> Reply:
    """A model that looks up what it is asked for in so many words, and a verifier that overlooks the rest."""
    prompt = json.dumps(body["messages"])
    both = "its length and its condition" in prompt.replace("past-", "")
    if body.get("tools"):
        register = tool_call("town_register", {"structure": "Tarn Bridge"})
        survey = tool_call("engineering_survey", {"structure": "Tarn Bridge"}, call_id="s")
        if "Still open: condition" in prompt:
            return Reply(tool_calls=[survey])
        return Reply(tool_calls=[register, survey] if both else [register])
    if body.get("response_format"):
        surveyed = "condition good" in prompt
        if "<past-" in prompt:
            return Reply(content=verdict(LENGTH, {**CONDITION, "quote": "", "evidence": [], "state": "missing"}))
        return Reply(content=verdict(LENGTH, CONDITION) if surveyed else verdict(LENGTH))
    return Reply(content="The Tarn Bridge is 412 m long" + (", condition good." if "condition good" in prompt else "."))


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """The scenario as a file."""
    path = tmp_path / "bridge.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_the_second_run_is_sent_on_for_what_the_first_one_needed(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both runs are shown, with what the store knows between them, and the hint costs one round and brings the item."""
    with FakeOpenAI([reply]) as server:
        assert main(["run", str(scenario), "--base-url", server.base_url, "--model", "fake-model"]) == 0
    first, second = capsys.readouterr().out.split("scenario bridge: What a similar request needed")
    assert "first, with an empty store" in first
    assert "round 2" not in first
    assert "requests like this needed: length (closed by town_register); condition (closed by engineering_sur" in second
    assert "needed condition" in second
    assert "round 2" in second
    assert "engineering_survey(" in second


def test_a_recording_holds_both_runs(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Played back it takes the same turns, and a changed first request makes it another recording."""
    tape = scenario.parent / "recorded" / "bridge.json"
    with FakeOpenAI([reply]) as server:
        arguments = ["--record", str(tape), "--base-url", server.base_url, "--model", "fake-model", "--json"]
        assert main(["run", str(scenario), *arguments]) == 0
    recorded = json.loads(capsys.readouterr().out)
    assert main(["run", str(scenario), "--recorded", "--json"]) == 0
    played = json.loads(capsys.readouterr().out)
    assert played["answer"] == recorded["answer"]
    assert played["outcome"]["rounds"] == 2
    scenario.write_text(SCENARIO.replace("is known of the Tarn Bridge, its", "of the Tarn Bridge, its"), "utf-8")
    assert main(["run", str(scenario), "--recorded"]) == 2
    assert "records another request" in capsys.readouterr().err


def test_a_team_has_no_warm_up(scenario: Path) -> None:
    """What would not work is refused with the place and the mend."""
    team = "team:\n  kind: round-robin\n  members: [{name: a}, {name: b}]\n"
    scenario.write_text(SCENARIO + team, encoding="utf-8")
    with pytest.raises(ScenarioError, match="`warm_up` is for one agent"):
        load_scenario(scenario)
