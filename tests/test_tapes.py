"""The scenarios that come with the package, played back from recordings of real runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentloop_autogen.cli import main
from agentloop_autogen.scenario import load_scenario

SCENARIOS = Path(__file__).parent.parent / "scenarios"
NAMES = sorted(path.stem for path in SCENARIOS.glob("*.yaml") if load_scenario(path).team is None)


def test_every_scenario_of_one_agent_has_a_recording_that_names_its_model_and_day() -> None:
    """Seven scenarios, each with a tape of a real run."""
    assert len(NAMES) == 7
    for name in NAMES:
        tape = json.loads((SCENARIOS / "recorded" / f"{name}.json").read_text())
        assert tape["model"] == "qwen2.5-coder-1.5b-instruct"
        assert len(tape["recorded"]) == len("2026-01-31")


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_scenario_shows_what_it_should(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Played back without a model, the run takes the same turns and its answer meets the scenario's expectations."""
    assert main(["run", name, "--recorded", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["passed"] is True
    assert shown["scenario"] == name
    assert shown["answer"]
