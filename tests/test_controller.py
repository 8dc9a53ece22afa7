"""The controller of a run: strikes, cheap verification, evidence, budgets, and what must not depend on the clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pydantic import ValidationError

import agentloop_autogen.core
from agentloop_autogen import (
    ControlAction,
    ControlBranch,
    Detector,
    LoopConfig,
    Policy,
    RequestUsage,
    Slot,
    SlotState,
    Verdict,
)
from agentloop_autogen.core.budget import Budget, Limit, Role
from agentloop_autogen.core.controller import LoopController
from agentloop_autogen.core.evidence import EvidenceLog, compress
from agentloop_autogen.core.rounds import Round, ToolCall, ToolResult

OPEN = Verdict(
    answer_complete=False,
    need_tool=True,
    confidence=0.9,
    missing=("population",),
    slots=(Slot(name="population", state=SlotState.MISSING),),
)
CLOSED = Verdict(answer_complete=True, need_tool=False, confidence=0.9)


def result(content: str = "No results.", *, arguments: str = "{}", error: bool = False) -> Round:
    return Round("", (ToolResult(ToolCall("search", arguments), content, is_error=error),))


def play(controller: LoopController, rounds: list[Round], verdict: Verdict = OPEN) -> list[str]:
    """Run the rounds through the controller and return the branches, asking for a verdict where it wants one."""
    branches: list[str] = []
    for round_ in rounds:
        controller.observe(round_)
        branches.append(controller.decide(verdict if controller.needs_verdict() else None).branch.value)
    return branches


def test_fruitless_rounds_lead_to_one_nudge_then_to_an_honest_end() -> None:
    """With patience 3: nudge after three fruitless rounds, end after two more, the open slot marked exhausted."""
    controller = LoopController(LoopConfig())
    branches = play(controller, [result()] * 5)
    assert branches == ["need_tool_round", "need_tool_round", "nudge", "need_tool_round", "exhausted_break"]
    last = controller.decisions[-1]
    assert last.action is ControlAction.ANSWER_SYNTHESIS
    assert last.verdict is not None
    assert [slot.state for slot in last.verdict.slots] == [SlotState.EXHAUSTED]
    assert last.verdict.unresolved == ("population",)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_patience_is_the_length_of_the_first_strike(patience: int) -> None:
    """`patience` fruitless rounds make the nudge and two more the end."""
    branches = play(LoopController(LoopConfig(patience=patience)), [result()] * (patience + 2))
    assert branches.index("nudge") == patience - 1
    assert branches[-1] == "exhausted_break"


def test_progress_clears_both_strikes() -> None:
    """A new finding after the nudge starts the count anew."""
    rounds = [*[result()] * 3, result("population register moved to Oldtown"), *[result()] * 5]
    branches = play(LoopController(LoopConfig()), rounds)
    assert branches[2] == "nudge"
    assert branches[6] == "nudge"
    assert branches[8] == "exhausted_break"


def test_an_advancing_job_is_never_struck() -> None:
    """Polling a job that moves on is progress, round after round."""
    rounds = [result(f'{{"progress": {i}, "at": "10:00:{i:02}"}}') for i in range(10, 20)]
    assert set(play(LoopController(LoopConfig()), rounds)) == {"need_tool_round"}


def test_a_stalled_job_is_struck_though_its_clock_runs() -> None:
    """Polling a job that stands still is fruitless whatever its timestamp says."""
    rounds = [result(f'{{"progress": 10, "at": "10:00:{i:02}"}}') for i in range(6)]
    assert play(LoopController(LoopConfig()), rounds)[-1] == "exhausted_break"


def test_creative_retries_of_one_failure_are_struck() -> None:
    """Other arguments each time and the same error each time are fruitless from the second time on."""
    tables = ("city", "town", "place", "village", "hamlet", "parish")
    rounds = [result(f"no such table: {name}", arguments=f'{{"table": "{name}"}}', error=True) for name in tables]
    controller = LoopController(LoopConfig(call_similarity=False))
    assert play(controller, rounds)[-1] == "exhausted_break"
    assert [decision.fruitless for decision in controller.decisions] == [0, 1, 2, 3, 4, 5]
    assert controller.decisions[-1].detector is Detector.SAME_ERROR


def test_a_failure_not_met_before_neither_counts_nor_clears_the_count() -> None:
    """An agent that repeats a call, then tries something else that fails in a new way, is still where it was."""
    rounds = [
        result("Paris has 2,100,000 inhabitants"),
        result("Paris has 2,100,000 inhabitants"),
        result("unknown column 'river'", arguments='{"sql": "select river"}', error=True),
        result("Paris has 2,100,000 inhabitants"),
        result("unknown column 'river'", arguments='{"sql": "select river"}', error=True),
    ]
    controller = LoopController(LoopConfig())
    play(controller, rounds)
    assert [decision.fruitless for decision in controller.decisions] == [0, 1, 1, 2, 3]
    assert controller.decisions[2].detector is None


def test_only_progress_takes_a_warning_back() -> None:
    """After the nudge a new failure buys a round, not a fresh start; a finding does."""
    failing = result("unknown column 'river'", arguments='{"sql": "select river"}', error=True)
    warned = [result("a first finding"), *[result("a first finding")] * 3, failing, *[result("a first finding")] * 2]
    assert play(LoopController(LoopConfig()), warned)[-1] == "exhausted_break"
    found = [*warned[:4], result("a second one: 77 rows"), *[result("a first finding")] * 2]
    assert play(LoopController(LoopConfig()), found)[-1] == "need_tool_round"


def test_alternating_calls_with_constant_results_are_struck() -> None:
    """A,B,A,B does not hide from a rule for neighbours."""
    rounds = [result("alpha 1", arguments='{"q": 1}'), result("beta 2", arguments='{"q": 2}')] * 4
    controller = LoopController(LoopConfig())
    assert "exhausted_break" in play(controller, rounds[:7])
    assert Detector.CYCLE in {decision.detector for decision in controller.decisions}


def test_a_strike_does_not_stop_a_closed_run() -> None:
    """Fruitless rounds do not turn a complete answer into an exhausted one."""
    controller = LoopController(LoopConfig())
    play(controller, [result()] * 2)
    controller.observe(Round("The population is 5."))
    assert controller.decide(CLOSED).branch is ControlBranch.SKIP_DECODE_OUTPUT_BREAK


def test_paper_goes_on_where_extended_stops() -> None:
    """The paper's table has no strikes: it asks for a tool round as long as the verifier does."""
    assert set(play(LoopController(LoopConfig(policy="paper")), [result()] * 30)) == {"need_tool_round"}


@pytest.mark.parametrize("config", [LoopConfig(two_strikes=False), LoopConfig(novelty=False, patterns=False)])
def test_strikes_can_be_switched_off(config: LoopConfig) -> None:
    """Without strikes, or without anything that sees fruitless rounds, the loop goes on."""
    assert set(play(LoopController(config), [result()] * 12)) == {"need_tool_round"}


@pytest.mark.parametrize("config", [LoopConfig(novelty=False), LoopConfig(patterns=False)])
def test_novelty_and_patterns_each_find_a_plain_loop_alone(config: LoopConfig) -> None:
    """Either addition is enough to end an agent that repeats one fruitless call."""
    assert "exhausted_break" in play(LoopController(config), [result()] * 8)


def test_the_verifier_is_not_asked_again_about_nothing_new() -> None:
    """The last verdict stands while neither evidence nor draft changed; new evidence or a new draft asks again."""
    controller = LoopController(LoopConfig(patience=9))
    asked: list[bool] = []
    for round_ in [
        result("alpha 1"),
        result("alpha 1"),
        result("", error=True),
        result("beta 2"),
        Round("a"),
        Round("a"),
        Round("b"),
    ]:
        controller.observe(round_)
        asked.append(controller.needs_verdict())
        controller.decide(OPEN if asked[-1] else None)
    assert asked == [True, False, False, True, True, False, True]
    assert [decision.verified for decision in controller.decisions] == asked


def test_cheap_first_can_be_switched_off_and_paper_does_not_have_it() -> None:
    """Without the addition the verifier is asked after every round."""
    for config in (LoopConfig(cheap_first=False), LoopConfig(policy="paper")):
        controller = LoopController(config)
        for _ in range(3):
            controller.observe(result())
            assert controller.needs_verdict()
            controller.decide(OPEN)


@pytest.mark.parametrize("config", [LoopConfig(policy="off"), LoopConfig(slot_control=False)])
def test_without_slot_control_the_first_text_is_the_reply(config: LoopConfig) -> None:
    """No verifier is asked; rounds with calls go on, the first text ends the loop."""
    controller = LoopController(config)
    controller.observe(result())
    assert not controller.needs_verdict()
    assert controller.decide(None).action is ControlAction.CONTINUE_INVOCATION
    controller.observe(Round("Done."))
    assert controller.decide(None).branch is ControlBranch.MODEL_TEXT_BREAK


def test_the_gate_is_not_checked_in_the_first_round_and_counted_after_it() -> None:
    """The first decision carries no similarities; the next ones do."""
    controller = LoopController(LoopConfig(policy="paper"))
    play(controller, [result(), result()])
    first, second = controller.decisions
    assert (first.s_call, first.s_result, first.stable) == (None, None, None)
    assert (second.s_call, second.s_result, second.stable) == (1.0, 1.0, True)


def test_news_is_never_stable() -> None:
    """A result that brings a new figure does not pass the extended gate, though it passes the paper's."""
    page = "rows 10 to 19 of the register, all from the district of Oldtown, the oldest first, entry number {}"
    for policy, stable in ((Policy.PAPER, True), (Policy.EXTENDED, False)):
        controller = LoopController(LoopConfig(policy=policy))
        play(controller, [result(page.format(417)), result(page.format(418))])
        assert controller.decisions[-1].stable is stable


def test_evidence_is_one_piece_a_result_and_bounded_in_total() -> None:
    """Ids never repeat, short results stay verbatim, and the total stays within its bound, oldest first to go."""
    log = EvidenceLog(LoopConfig(max_evidence_chars=1_000, max_finding_chars=200))
    added = [log.add(ToolResult(ToolCall("t", "{}"), f"{i} " + "x" * 150)) for i in range(50)]
    assert [piece.id for piece in added] == [f"e{i}" for i in range(1, 51)]
    assert added[0].finding == "0 " + "x" * 150
    assert sum(len(piece.finding) for piece in log.items) <= 1_000
    assert log.items[-1].id == "e50"


def test_a_long_result_keeps_its_head_and_tail_and_loses_its_base64() -> None:
    """Compressed evidence names what was left out and holds no blobs."""
    text = "BEGIN " + "word " * 2_000 + " END"
    kept = compress(text, 300)
    assert kept.startswith("BEGIN")
    assert kept.endswith("END")
    assert "characters left out" in kept
    assert len(kept) < 400
    assert "iVBOR" not in compress("picture: data:image/png;base64,iVBOR" + "A" * 2_000, 3_000)


def test_compressing_megabytes_takes_no_longer_than_its_bound() -> None:
    """A result of 5 MB is cut before it is looked at."""
    assert len(compress("x y " * 1_250_000, 1_200)) < 1_300


@pytest.mark.parametrize(
    ("config", "spent", "limit"),
    [
        (LoopConfig(max_rounds=2), {"rounds": 2}, Limit.ROUNDS),
        (LoopConfig(max_rounds=2), {"rounds": 1}, None),
        (LoopConfig(max_reflections=1), {"rounds": 1, "reflections": 1}, Limit.REFLECTIONS),
        (LoopConfig(max_reflections=0), {"rounds": 1}, Limit.REFLECTIONS),
        (LoopConfig(max_tool_calls=3), {"rounds": 1, "tool_calls": 3, "reflections": -1}, Limit.TOOL_CALLS),
        (LoopConfig(max_tool_calls=3), {"rounds": 1, "tool_calls": 2, "reflections": -1}, None),
    ],
)
def test_a_budget_ends_the_loop_exactly_at_its_limit(
    config: LoopConfig, spent: dict[str, int], limit: Limit | None
) -> None:
    """Counts at their limit forbid another round, one below do not."""
    budget = Budget(config)
    for name, count in spent.items():
        setattr(budget, name, count)
    assert budget.after_round(elapsed_s=0.0, reflects=True) is limit


def test_time_is_kept_back_for_the_answer() -> None:
    """The search ends before the timeout, by a quarter of it and at most 30 s."""
    assert Budget(LoopConfig(timeout_s=180)).search_s == 150
    assert Budget(LoopConfig(timeout_s=4)).search_s == 3
    assert Budget(LoopConfig(timeout_s=4)).after_round(elapsed_s=3.0, reflects=False) is Limit.TIME


def test_tokens_count_whether_or_not_the_server_counts_them() -> None:
    """The token budget ends a run by reported usage, and by the length of the text where none is reported."""
    reported, silent = Budget(LoopConfig(max_tokens=100)), Budget(LoopConfig(max_tokens=100))
    reported.spend_tokens(Role.AGENT, RequestUsage(prompt_tokens=90, completion_tokens=10), characters=4)
    silent.spend_tokens(Role.VERIFIER, RequestUsage(), characters=400)
    assert reported.after_round(elapsed_s=0, reflects=False) is Limit.TOKENS
    assert silent.after_round(elapsed_s=0, reflects=False) is Limit.TOKENS
    assert silent.usage[Role.VERIFIER] == RequestUsage()


@pytest.mark.parametrize(
    "wrong",
    [{"max_rounds": 0}, {"tau_gate": 1.1}, {"timeout_s": 0}, {"patience": 0}, {"policy": "papier"}, {"rounds": 3}],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, object]) -> None:
    """Values out of range and unknown names are refused, and the message names the setting."""
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        LoopConfig.model_validate(wrong)


def test_the_settings_survive_json() -> None:
    """A configuration comes back from JSON as it was, and cannot be changed."""
    config = LoopConfig(policy="paper", max_tokens=9, tau_call=0.5, emit_control_events=True)
    assert LoopConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValidationError, match="frozen"):
        config.max_rounds = 3  # type: ignore[misc]  # that it cannot be set is what is tested


FORBIDDEN = {
    "asyncio",
    "autogen_agentchat",
    "autogen_core",
    "autogen_ext",
    "datetime",
    "openai",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "sys",
    "threading",
    "time",
}


def test_the_core_imports_no_autogen_does_no_io_and_reads_no_clock() -> None:
    """No module of the core imports AutoGen, another room of this package, or anything that touches the world."""
    modules = sorted(Path(agentloop_autogen.core.__file__).parent.glob("*.py"))
    assert len(modules) > 10
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module.name}: relative import"
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"open", "print", "input", "eval", "exec", "__import__"}, module.name
            for name in names:
                assert name.split(".")[0] not in FORBIDDEN, f"{module.name} imports {name}"
                if name.startswith("agentloop_autogen"):
                    assert name.startswith("agentloop_autogen.core"), f"{module.name} imports {name}"
