"""What a run shows: rounds read from messages, plain lines, and the view on a terminal."""

from __future__ import annotations

import io

import pytest
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult
from autogen_core.models import RequestUsage as ModelUsage
from rich.cells import cell_len
from rich.console import Console

from agentloop_autogen.console.checks import Check
from agentloop_autogen.console.run_log import RunLog
from agentloop_autogen.console.text import clean, one_line
from agentloop_autogen.console.view import (
    CallView,
    Heading,
    PlainView,
    RoundView,
    RunReport,
    RunView,
    SilentView,
    action_words,
    ending_words,
    score_words,
)
from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    Detector,
    LoopOutcome,
    RequestUsage,
    Slot,
    SlotState,
    StopReason,
    Verdict,
)
from agentloop_autogen.live import LiveView, state_mark
from agentloop_autogen.messages import ControlEvent

EVIL = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\ [bold]x[/bold]\r\nnext\x00\x08\x9b1m\u202eabc"

SLOTS = tuple(Slot(name=f"the {state.value} item", state=state, quote="as it says") for state in SlotState)


def decision(number: int = 1, *, last: bool = False) -> Decision:
    return Decision(
        round=number,
        action=ControlAction.ANSWER_SYNTHESIS if last else ControlAction.CONTINUE_INVOCATION,
        branch=ControlBranch.EXHAUSTED_BREAK if last else ControlBranch.NEED_TOOL_ROUND,
        verdict=Verdict(answer_complete=False, need_tool=True, confidence=0.5, slots=SLOTS),
        s_call=0.5 if last else None,
        s_result=0.25 if last else None,
        stable=False if last else None,
        detector=Detector.SAME_ERROR if last else None,
        fruitless=3 if last else 0,
        reason="Because of this and that, which takes more than one line on a narrow terminal to be said in full.",
    )


OUTCOME = LoopOutcome(
    stop_reason=StopReason.EXHAUSTED,
    unresolved=("the price",),
    rounds=2,
    model_calls=2,
    verifier_calls=2,
    synthesis_calls=1,
    tool_calls=1,
    usage={"agent": RequestUsage(prompt_tokens=1000, completion_tokens=34)},
    elapsed_s=12.34,
)
CHECKS = (Check(wanted="nothing left open", passed=False, seen="the price"), Check(wanted="x", passed=True, seen="x"))
HEADING = Heading(
    name="mine", title="A test", request="How many, and for how much?", model="m", policy="extended", expected="Both."
)
ROUNDS = (
    RoundView(
        number=1,
        calls=(
            CallView(name="count", arguments='what="lamps"', result="There are 37 of them. " * 12),
            CallView(name="price", arguments='what="[b]x[/b]"', result="Error: 503", failed=True),
            CallView(name="pending", arguments=""),
        ),
        tokens=1234,
        decision=decision(),
    ),
    RoundView(number=2, thought="Hm", draft="37 I think", tokens=2345, decision=decision(2, last=True)),
)


def show(view: RunView, report: RunReport) -> None:
    view.start(HEADING)
    for shown in ROUNDS:
        view.doing("round 1: asking the model")
        view.round(shown)
    view.finish(report)
    view.close()


def plain(report: RunReport) -> str:
    lines = list[str]()
    show(PlainView(lines.append), report)
    return "\n".join(lines)


def live(report: RunReport, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, record=True)
    show(LiveView(console), report)
    lines = console.export_text(styles=False).splitlines()
    return "\n".join(line for line in lines if "asking the model" not in line)


def test_text_of_tools_and_models_cannot_steer_the_terminal() -> None:
    """Escapes, control and direction characters vanish; the words and the line ends stay."""
    assert clean(EVIL) == "red  [bold]x[/bold]\nnext1mabc"
    assert clean("a\tb\x1b") == "a\tb"
    assert clean("\x1b]0;never closed") == ""


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        ("a  b\nc", 9, "a b c"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("日本語日本語", 7, "日本語…"),
        ("", 5, ""),
    ],
)
def test_a_line_is_cut_to_its_columns(text: str, width: int, line: str) -> None:
    """A text on one line never takes more columns than it was given, wide characters counted as two."""
    assert one_line(text, width) == line
    assert cell_len(line) <= width


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_live_view_fits_the_terminal(width: int) -> None:
    """No line is wider than the terminal, and nothing of what matters is missing, at any width."""
    text = live(RunReport(answer="37; the price could not be had.", outcome=OUTCOME, checks=CHECKS), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    for part in (
        "round 1",
        "round 2",
        "count(",
        "← There are 37",
        "✗ Error: 503",
        "need_tool_round",
        "write the answer",
    ):
        assert part in text
    for part in ("calls 0.50 alike", "37; the price could not be had.", "the price", "12.3 s", "1,034 tokens", "no"):
        assert part in " ".join(text.split())
    for state in SlotState:
        assert f"{state_mark(state)[0]}  the {state.value}"[:14] in text


def test_every_state_of_a_slot_has_a_symbol_of_its_own() -> None:
    """The symbols alone tell the states apart, for those who see no colour."""
    assert len({state_mark(state)[0] for state in SlotState}) == len(SlotState)


def test_markup_of_models_and_tools_is_shown_as_it_is() -> None:
    """Square brackets in arguments and answers are text, not styling."""
    text = live(RunReport(answer="[red]37[/red] [/nonsense]", outcome=OUTCOME), 100)
    assert "[b]x[/b]" in text
    assert "[red]37[/red] [/nonsense]" in text


def test_plain_lines_carry_the_same_facts_without_colour_or_boxes() -> None:
    """The plain view says everything in ASCII labels, one fact a line, without escapes or box drawing."""
    text = plain(RunReport(answer="37\n" + EVIL, outcome=OUTCOME, checks=CHECKS))
    assert "\x1b" not in text
    assert not any("─" <= char <= "╿" for char in text)
    for line in (
        "scenario mine: A test",
        "expected: Both.",
        '  call count(what="lamps")',
        "    error: Error: 503",
        '  slot missing: the missing item "as it says"',
        "  decision: another round (need_tool_round); 1,234 tokens so far",
        "  signs: calls 0.50 alike, results 0.25 alike, still changing, same error, fruitless rounds in a row: 3",
        "  thought: Hm",
        "  draft sent back: 37 I think",
        "answer: 37",
        "answer: red  [bold]x[/bold]",
        "left open: the price",
        "not as expected: wanted nothing left open; seen: the price",
        "as expected: no",
    ):
        assert line in text.splitlines()


def test_a_run_that_showed_what_was_expected_says_yes() -> None:
    """A run whose checks all pass ends with a plain yes in both views."""
    report = RunReport(answer="37", outcome=OUTCOME, checks=CHECKS[1:])
    assert plain(report).endswith("as expected: yes")
    assert " ".join(live(report, 80).split()).endswith("as expected yes")


def test_a_stopped_run_says_after_which_round() -> None:
    """A run the user stopped shows where it stood, what was known and what was open, and claims nothing more."""
    report = RunReport(answer="", outcome=None, stopped_after=2, last_decision=decision(2))
    assert not report.passed
    for text in (plain(report), live(report, 80)):
        assert "topped by you after round 2" in text
        assert "as expected" not in text
        after = " ".join(text.partition("topped by you")[2].replace(":", "").split())
        assert 'known the supported item, "as it says"' in after
        assert "still open the missing item" in after


def test_the_silent_view_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The view behind `--json` writes to no stream."""
    show(SilentView(), RunReport(answer="37", outcome=OUTCOME))
    assert capsys.readouterr() == ("", "")


def test_every_action_and_stop_reason_has_words() -> None:
    """No action and no stop reason is shown by its code name alone."""
    assert len({action_words(action) for action in ControlAction}) == len(ControlAction)
    endings = {ending_words(LoopOutcome(stop_reason=reason)) for reason in StopReason}
    assert len(endings) == len(StopReason)
    assert ending_words(LoopOutcome(stop_reason=StopReason.FAILED, error="gone")).endswith("(gone)")
    assert score_words(decision()) == ""
    stable = Decision(round=2, action=ControlAction.CONTINUE_INVOCATION, branch=ControlBranch.KEEP_DECODE, stable=True)
    assert score_words(stable) == "stable"


def request(*calls: tuple[str, str, str]) -> ToolCallRequestEvent:
    return ToolCallRequestEvent(
        source="a", content=[FunctionCall(id=ident, name=name, arguments=args) for ident, name, args in calls]
    )


def result(ident: str, name: str, content: str, *, failed: bool = False) -> ToolCallExecutionEvent:
    return ToolCallExecutionEvent(
        source="a", content=[FunctionExecutionResult(content=content, name=name, call_id=ident, is_error=failed)]
    )


def test_messages_become_rounds() -> None:
    """Calls, results, thoughts and the decision between two control events make one round."""
    log = RunLog()
    usage = {"agent": RequestUsage(prompt_tokens=5, completion_tokens=2), "verifier": RequestUsage(prompt_tokens=3)}
    assert log.feed(TextMessage(source="user", content="go")) == ()
    assert log.feed(ThoughtEvent(source="a", content="Let me\nsee")) == ()
    assert log.feed(request(("1", "count", '{"what": "lámps", "n": 2}'), ("2", "odd", "[not json"))) == ()
    assert log.doing == "round 1: running count, odd"
    log.feed(result("1", "count", EVIL))
    log.feed(result("2", "odd", "boom", failed=True))
    assert log.doing == "round 1: checking what the request still needs"
    assert [shown.number for shown in log.pending()] == [1]
    (shown,) = log.feed(ControlEvent(source="a", decision=decision(), usage=usage))
    assert shown.calls == (
        CallView(name="count", arguments='what="lámps", n=2', result="red [bold]x[/bold] next1mabc"),
        CallView(name="odd", arguments="[not json", result="boom", failed=True),
    )
    assert (shown.thought, shown.tokens, shown.number) == ("Let me see", 10, 1)
    assert log.doing == "round 2: asking the model"
    assert log.pending() == ()
    log.feed(ControlEvent(source="a", decision=decision(2, last=True), usage=usage))
    assert log.doing == "writing the answer"
    log.feed(TextMessage(source="a", content="Done."))
    log.feed(TaskResult(messages=[]))
    assert (log.answer, dict(log.tools)) == ("Done.", {"count": 1, "odd": 1})


def test_a_draft_that_is_sent_back_belongs_to_the_round_before() -> None:
    """The agent sends a rejected draft after the decision on it: it is shown with that round, not with the next."""
    log = RunLog()
    draft = ThoughtEvent(source="a", content="Four?", models_usage=ModelUsage(prompt_tokens=1, completion_tokens=1))
    assert log.feed(ControlEvent(source="a", decision=decision())) == ()
    (first,) = log.feed(draft)
    assert (first.number, first.draft) == (1, "Four?")
    assert log.feed(ControlEvent(source="a", decision=decision(2))) == ()
    (second,) = log.feed(ThoughtEvent(source="a", content="Let me see"))
    assert (second.number, second.draft) == (2, "")
    assert log.feed(request(("1", "count", "{}"))) == ()
    (third,) = log.feed(ControlEvent(source="a", decision=decision(3)))
    assert third.thought == "Let me see"
    assert log.feed(ControlEvent(source="a", decision=decision(4))) == ()
    assert [shown.number for shown in log.flush()] == [4]
    assert [shown.number for shown in log.rounds] == [1, 2, 3, 4]


def test_arguments_that_are_no_object_are_shown_as_they_are() -> None:
    """Arguments a model mangled are shown as text, not dropped."""
    log = RunLog()
    log.feed(request(("1", "count", '"20"')))
    (shown,) = log.feed(ControlEvent(source="a", decision=decision()))
    assert shown.calls == (CallView(name="count", arguments='"20"'),)


def test_an_answer_nobody_checked_is_not_called_supported() -> None:
    """Without slot control the reply is the model's own text, and the summary says that nobody checked it."""
    decision = Decision(round=1, action=ControlAction.TERMINATE_ITERATION, branch=ControlBranch.MODEL_TEXT_BREAK)
    outcome = LoopOutcome(stop_reason=StopReason.ANSWERED, decisions=(decision,))
    assert "nobody checked" in ending_words(outcome)
    assert "supported" in ending_words(LoopOutcome(stop_reason=StopReason.ANSWERED))
