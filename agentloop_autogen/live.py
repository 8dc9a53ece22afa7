"""The view of a run on a terminal: a block per round with its slot table, a line that says what is running, a panel."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from typing_extensions import assert_never

from agentloop_autogen.console.text import clean, one_line
from agentloop_autogen.console.view import (
    CallView,
    Heading,
    RoundView,
    RunReport,
    action_words,
    call_text,
    cost_lines,
    ending_words,
    known_so_far,
    reason_words,
    score_words,
    slots_of,
)
from agentloop_autogen.core.records import ControlAction, Decision, LoopOutcome, Slot, SlotState

__all__ = ["LiveView", "round_block", "state_mark"]

_MAX_WIDTH = 110
_NAME_SHARE = 0.6


class LiveView:
    """Shows a run on a terminal.

    Args:
        console: The terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, style="dim"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", start=False, visible=False)

    @property
    def _width(self) -> int:
        return min(self._console.width, _MAX_WIDTH)

    def start(self, heading: Heading) -> None:
        """Show what the run is about and start the line that says what is running."""
        title = Text.assemble((heading.name, "bold"), ("  ", ""), (heading.title, ""))
        facts = [
            ("request", Text(clean(heading.request), style="italic")),
            ("model", Text(clean(f"{heading.model}, policy {heading.policy}"))),
        ]
        if heading.expected:
            facts.append(("expected", Text(clean(heading.expected))))
        if heading.known:
            facts.append(("like it", Text(clean(f"needed {heading.known}"))))
        self._print(Group(title, _facts(*facts)))
        self._progress.start()

    def doing(self, what: str) -> None:
        """Show what is running now, and for how long."""
        width = max(10, self._console.width - 14)
        self._progress.reset(self._task, description=one_line(what, width), visible=True, start=True)

    def round(self, shown: RoundView) -> None:
        """Show a round."""
        self._print(round_block(shown, self._width))

    def finish(self, report: RunReport) -> None:
        """Show how the run ended."""
        self.close()
        if report.stopped_after is not None:
            self._print(Text(f"Stopped by you after round {report.stopped_after}.", style="yellow"))
            self._print(_facts(*((label, Text(clean(words))) for label, words in known_so_far(report))))
        if report.answer:
            self._print(_answer_panel(report))
        if report.outcome is not None:
            self._print(_outcome_block(report.outcome, report))

    def close(self) -> None:
        """Take the line that says what is running away and show the cursor again."""
        self._progress.stop()

    def _print(self, block: RenderableType) -> None:
        self._console.print(block, width=self._width)


def round_block(shown: RoundView, width: int) -> RenderableType:
    """Lay out one round.

    Args:
        shown: The round.
        width: Columns to fill.

    Returns:
        Its block.
    """
    tokens = f"  {shown.tokens:,} tokens" if shown.tokens else ""
    speaker = f"  {clean(shown.speaker)}" if shown.speaker else ""
    rule = Rule(
        Text.assemble((f"round {shown.number}", "bold"), (speaker, "cyan"), (tokens, "dim")), align="left", style="dim"
    )
    parts: list[RenderableType] = [Text(), rule]
    for call in shown.calls:
        parts.extend(_call_lines(call, width))
    if shown.thought:
        parts.append(_line("thought  ", shown.thought, width, style="italic"))
    if shown.draft:
        parts.append(_line("sent back  ", shown.draft, width, style="italic"))
    if shown.decision is not None:
        slots = slots_of(shown.decision)
        if slots:
            parts.append(Padding(_slot_table(slots, width), (0, 0, 0, 2)))
        parts.extend(_decision_lines(shown.decision, width))
    return Group(*parts)


def _call_lines(call: CallView, width: int) -> Iterator[Text]:
    yield _line("→ ", call_text(call), width, style="cyan")
    if call.result is not None:
        mark = "✗ " if call.failed else "← "
        yield _line(f"  {mark}", call.result, width, style="red" if call.failed else "")


def _slot_table(slots: tuple[Slot, ...], width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    room = width - 2 - 3 - 14 - 6
    name_room = max(8, min(max(len(slot.name) for slot in slots), int(room * _NAME_SHARE)))
    for slot in slots:
        mark, style = state_mark(slot.state)
        quote = f"“{slot.quote}”" if slot.quote else ""
        table.add_row(
            Text(mark, style=style),
            Text(one_line(slot.name, name_room)),
            Text(slot.state.value, style=style),
            Text(one_line(quote, max(8, room - name_room)), style="dim"),
        )
    return table


def state_mark(state: SlotState) -> tuple[str, str]:
    """Choose how a slot's state looks.

    Args:
        state: The state.

    Returns:
        Its symbol and its style; no two states share a symbol, so colour is never needed to tell them apart.
    """
    match state:
        case SlotState.SUPPORTED:
            return "✓", "green"
        case SlotState.UNSYNTHESISED:
            return "◐", "cyan"
        case SlotState.MISSING:
            return "○", "yellow"
        case SlotState.CONFLICTING:
            return "≠", "magenta"
        case SlotState.EXHAUSTED:
            return "✗", "red"
        case _:
            assert_never(state)


def _decision_lines(decision: Decision, width: int) -> Iterator[RenderableType]:
    head = Text.assemble(
        ("  ▸ ", _action_style(decision.action)),
        (action_words(decision.action), f"bold {_action_style(decision.action)}"),
        (f"  {decision.branch.value}", ""),
    )
    head.truncate(width, overflow="ellipsis")
    yield head
    if scores := score_words(decision):
        yield Padding(Text(scores, style="dim"), (0, 0, 0, 4))
    if why := reason_words(decision):
        yield Padding(Text(" ".join(clean(why).split()), style="dim"), (0, 0, 0, 4))


def _action_style(action: ControlAction) -> str:
    match action:
        case ControlAction.CONTINUE_INVOCATION:
            return "yellow"
        case ControlAction.ANSWER_SYNTHESIS:
            return "cyan"
        case ControlAction.TERMINATE_ITERATION:
            return "green"
        case _:
            assert_never(action)


def _answer_panel(report: RunReport) -> RenderableType:
    style = "green" if report.passed else "yellow"
    text = Text(clean(report.answer))
    return Group(Text(), Panel(text, title="answer", title_align="left", border_style=style, padding=(0, 1)))


def _outcome_block(outcome: LoopOutcome, report: RunReport) -> RenderableType:
    verdict = Text("yes", style="bold green") if report.passed else Text("no", style="bold red")
    facts = (
        ("left open", Text(clean(", ".join(outcome.unresolved)) or "nothing")),
        ("ended", Text(clean(f"{outcome.stop_reason.value}: {ending_words(outcome)}"))),
        *((label, Text(clean(line))) for label, line in zip(("cost", "tokens"), cost_lines(outcome), strict=True)),
        ("as expected", verdict),
    )
    failed = [check for check in report.checks if not check.passed]
    lines = [Text(clean(f"✗ wanted {check.wanted}; seen: {check.seen}"), style="red") for check in failed]
    return Group(_facts(*facts), *(Padding(line, (0, 0, 0, 2)) for line in lines))


def _facts(*facts: tuple[str, Text]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in facts:
        table.add_row(label, value)
    return table


def _line(lead: str, text: str, width: int, *, style: str) -> Text:
    room = max(8, width - len(lead) - 2)
    return Text.assemble((f"  {lead}", "dim"), (one_line(text, room), style))
