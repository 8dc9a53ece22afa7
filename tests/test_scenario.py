"""Scenario files: what they may say, how they are found, and how a wrong one is refused."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from agentloop_autogen.console.checks import Check, check_run
from agentloop_autogen.core.records import LoopOutcome, StopReason
from agentloop_autogen.demo_tools import TOOLSETS
from agentloop_autogen.errors import ScenarioError
from agentloop_autogen.scenario import (
    Expectation,
    Scenario,
    ToolCount,
    find_scenario,
    load_scenario,
    scenario_folder,
    shipped_scenarios,
)

GOOD = """\
name: mine
title: A test
request: How tall is it?
tools: survey
"""
_TEAM = "team:\n  kind: {kind}\n  members: [{{name: a}}, {{name: b, {more}}}]\n"


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_eleven_scenarios_are_shipped_and_named_like_their_files() -> None:
    """Every shipped scenario loads, carries its file's name and says in words what a right run shows."""
    shipped = {path.stem: load_scenario(path) for path in shipped_scenarios()}
    assert sorted(shipped) == [
        "contradiction",
        "failing-tool",
        "long-output",
        "no-such-information",
        "polling",
        "several-slots",
        "team-graph",
        "team-round-robin",
        "team-selector",
        "team-swarm",
        "warm-store",
    ]
    for stem, scenario in shipped.items():
        assert scenario.name == stem
        assert scenario.expect is not None
        assert scenario.expect.words


def test_shipped_scenarios_only_expect_calls_of_tools_they_have() -> None:
    """A scenario never expects a call of a tool that its toolset lacks."""
    for path in shipped_scenarios():
        scenario = load_scenario(path)
        tools = {tool.__name__ for tool in TOOLSETS[scenario.tools]()}
        assert scenario.expect is not None
        assert set(scenario.expect.tools_called) <= tools


def test_a_scenario_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    """A shipped scenario is found by its name, any other by the path of its file."""
    assert find_scenario("polling") == scenario_folder() / "polling.yaml"
    mine = write(tmp_path, GOOD)
    assert find_scenario(str(mine)) == mine
    assert load_scenario(mine) == Scenario(name="mine", title="A test", request="How tall is it?", tools="survey")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("poling", "did you mean `polling`"),
        ("something-else-entirely", "agentloop run --list"),
        ("nowhere/mine.yaml", "check the path"),
        ("", "agentloop run --list"),
    ],
)
def test_a_scenario_that_is_not_there_is_refused_with_a_hint(wanted: str, words: str) -> None:
    """A name or path that leads nowhere is refused with what to do about it."""
    with pytest.raises(ScenarioError, match=words):
        find_scenario(wanted)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "colour: red\n", "`colour`: unknown key"),
        (GOOD + "team: {kind: circle, members: []}\n", "`team.kind`"),
        (GOOD + "team: {kind: swarm, members: [{name: a}]}\n", "`team.members`"),
        (GOOD + _TEAM.format(kind="swarm", more="handoffs: [c]"), "`handoffs` of `b` names `c`; there are: a, b, user"),
        (
            GOOD + _TEAM.format(kind="graph", more="handoffs: [a]"),
            "is for the kind `swarm`, and this team is a `graph`",
        ),
        (GOOD + _TEAM.format(kind="graph", more="after: [b]"), "`after` of `b` names `b`"),
        (GOOD + _TEAM.format(kind="graph", more="loop: {max_round: 1}"), "unknown key"),
        (GOOD + _TEAM.format(kind="graph", more="name: a").replace("name: b, ", ""), "two members have one name"),
        (GOOD + _TEAM.format(kind="selector", more="tools: true") + "  synthesiser: c\n", "`synthesiser` names `c`"),
        (GOOD + "expect: {min_round: 2}\n", "`expect.min_round`: unknown key"),
        (GOOD + "loop: {max_rounds: 0}\n", "`loop.max_rounds`"),
        (GOOD + "loop: {max_round: 3}\n", "`loop.max_round`: unknown key"),
        (GOOD + "expect: {stop_reasons: [done]}\n", "`expect.stop_reasons.0`"),
        (GOOD.replace("survey", "os.system"), "no toolset `os.system`; there are: archive"),
        (GOOD.replace("title: A test\n", ""), "`title`: is missing"),
        (GOOD + "title: Again\n", "line 5, column 1: is no valid YAML here: `title` is given twice"),
        ("name: [unclosed\n", "line 2, column 1"),
        ("a: &x [1]\nb: *x\n", "line 2, column 4: is no valid YAML here: aliases are not allowed"),
        ("- a\n- b\n", "holds no mapping"),
        ("", "holds no mapping"),
        ("name: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("? [a, b]\n: c\n", "line 1"),
        ("name: \x07\n", "is no YAML"),
        ("when: 2031-99-99\n", "is no scenario"),
        ("[" * 60_000, "column 13: is no valid YAML here: nested too deeply"),
        ("x: " + "y" * 70_000, "longer than 64,000 bytes"),
    ],
)
def test_a_wrong_file_is_refused_by_one_line_that_names_the_place(tmp_path: Path, text: str, words: str) -> None:
    """A file that is no scenario is refused by one line with the file, the place and what is wrong there."""
    assert words in refusal(write(tmp_path, text))


def test_several_problems_are_counted(tmp_path: Path) -> None:
    """With several problems the first is named and the others are counted."""
    assert "(and 2 more)" in refusal(write(tmp_path, "name: mine\n"))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A file in another encoding and a folder in a file's place are refused, not raised as they come."""
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: caf\xe9\n")
    assert "UTF-8" in refusal(latin)
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    assert "cannot be read" in refusal(folder)


def test_scenarios_of_an_installed_package_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside an installed package the scenarios are found in the package itself."""
    package = tmp_path / "agentloop_autogen"
    shutil.copytree(scenario_folder(), package / "_scenarios")
    monkeypatch.setattr("agentloop_autogen.scenario.__file__", str(package / "scenario.py"))
    assert scenario_folder() == package / "_scenarios"
    assert find_scenario("polling").parent == package / "_scenarios"


def test_the_state_of_tools_is_fresh_in_every_run() -> None:
    """A job that was polled to its end in one run starts anew in the next."""
    for _ in range(2):
        (job_status,) = TOOLSETS["export"]()
        states = [job_status("EX-77") for _ in range(5)]
        shown = [next(part for part in state.split() if part.isdigit()) for state in states]
        assert shown == ["10", "40", "80", "100", "100"]
        assert len({state.split()[0] for state in states}) == len(states)


def test_every_demo_tool_answers_or_fails_as_its_scenario_needs() -> None:
    """Each tool returns text for the right and for a wrong argument; only the failing one raises."""
    travel, archive, survey = TOOLSETS["travel"](), TOOLSETS["archive"](), TOOLSETS["survey"]()
    assert "08:25" in travel[0]("Saturday")
    assert "06:50" in travel[0]("Monday")
    assert "9.40" in travel[1]("Castle Garden")
    assert "18:30" in travel[2]("castle garden", "saturday")
    assert "16:45" in travel[2]("castle garden", "Monday")
    assert "4,310" in archive[0]("Quellmoor")
    assert "0 entries" in archive[1]("clock tower")
    assert "412" in survey[0]("Tarn Bridge")
    assert "389" in survey[1]("the bridge")
    for tool in (travel[1], archive[0], *survey):
        assert tool("x").startswith("No ")
    assert travel[2]("x", "Monday").startswith("No ")
    stock, price = TOOLSETS["warehouse"]()
    assert "37" in stock("Kestrel lantern")
    assert stock("x").startswith("No ")
    with pytest.raises(ConnectionError, match="unavailable"):
        price("Kestrel lantern")
    assert TOOLSETS["export"]()[0]("x").startswith("No ")


def test_long_results_hold_their_needle_once() -> None:
    """Both long results run to thousands of characters and hold what is asked for exactly once."""
    log, parts = TOOLSETS["station"]()
    text, table = log("Fennick"), parts(3)
    assert len(text) > 6_000
    assert text.count("shaft seal leaking") == 1
    assert len(table) > 4_000
    assert table.count("pump 3 | shaft seal | FS-2342-G") == 1
    assert log("x").startswith("No ")
    assert max(len(list(rows)) for _, rows in itertools.groupby(sorted(table.splitlines()))) == 1


OUTCOME = LoopOutcome(
    stop_reason=StopReason.EXHAUSTED,
    unresolved=("price of a lantern",),
    rounds=5,
    tool_calls=4,
    ungrounded_figures=("9",),
)


def checks(expectation: Expectation | None, answer: str = "There are 4,310; who knows.") -> dict[str, Check]:
    found = check_run(expectation, answer=answer, outcome=OUTCOME, tools={"stock_level": 3})
    return {check.wanted: check for check in found}


@pytest.mark.parametrize(
    ("expectation", "met"),
    [
        (Expectation(stop_reasons=(StopReason.EXHAUSTED, StopReason.ANSWERED)), True),
        (Expectation(stop_reasons=(StopReason.ANSWERED,)), False),
        (Expectation(answer_contains=("WHO  knows",)), True),
        (Expectation(answer_contains=(("4310", "4,310"),)), True),
        (Expectation(answer_contains=("4,310", "absent")), False),
        (Expectation(answer_lacks=("absent",)), True),
        (Expectation(answer_lacks=("who",)), False),
        (Expectation(min_rounds=5, max_rounds=5), True),
        (Expectation(min_rounds=6), False),
        (Expectation(max_rounds=4), False),
        (Expectation(unresolved="non-empty"), True),
        (Expectation(unresolved="empty"), False),
        (Expectation(unresolved_names=(("cost", "Price"),)), True),
        (Expectation(unresolved_names=("colour",)), False),
        (Expectation(tools_called={"stock_level": ToolCount(min=3, max=3)}), True),
        (Expectation(tools_called={"stock_level": ToolCount(max=2)}), False),
        (Expectation(tools_called={"supplier_price": ToolCount(min=1)}), False),
        (Expectation(max_tool_calls=4), True),
        (Expectation(max_tool_calls=3), False),
        (Expectation(figures_grounded=True), False),
        (Expectation(), True),
        (None, True),
    ],
)
def test_an_expectation_is_met_or_not(expectation: Expectation | None, met: bool) -> None:
    """Each kind of expectation is met by the run that shows it and by no other."""
    assert all(check.passed for check in checks(expectation).values()) is met


def test_a_failed_check_says_what_was_seen() -> None:
    """A check that failed names what the run showed instead; of many alternatives the first few are named."""
    failed = checks(Expectation(max_rounds=4, stop_reasons=(StopReason.ANSWERED,)))
    assert failed["at most 4 rounds"].seen == "5"
    assert failed["stop reason answered"].seen == "exhausted"
    assert "answer contains 'a1' or 'a2' or 'a3' or 'a4' or 2 others" in checks(
        Expectation(answer_contains=(("a1", "a2", "a3", "a4", "a5", "a6"),))
    )


def test_a_run_that_failed_meets_no_empty_expectation() -> None:
    """Without any expectation a run is right unless it failed, and then the error is named."""
    broken = LoopOutcome(stop_reason=StopReason.FAILED, error="server gone")
    (check,) = check_run(None, answer="", outcome=broken, tools={})
    assert not check.passed
    assert "server gone" in check.seen
