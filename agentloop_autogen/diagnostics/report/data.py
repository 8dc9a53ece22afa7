"""What a report shows, as plain data: bounded in size however many requests it is about."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentloop_autogen.diagnostics.metric import Metric

__all__ = [
    "Distribution",
    "FrontierPoint",
    "GroupRow",
    "Metric",
    "ReportData",
    "RoundCell",
    "SlotCell",
    "Timeline",
    "ToolCell",
]


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """The figures of one group of requests."""

    source: str
    model: str
    requests: int
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """How often each value of a quantity came up in one group; at most a few hundred points."""

    quantity: str
    """`rounds`, `tool_calls`, `tokens`, `elapsed_s` or `calls_saved`."""
    source: str
    model: str
    solved: bool | None
    values: tuple[float, ...]
    """Ascending."""
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """What one setting of the loop would have saved and lost."""

    label: str
    settings: str
    """The setting in words, such as `patience=2`."""
    source: str
    model: str
    calls: int
    calls_saved: int
    solved: int
    lost: int
    """Solved requests whose recorded rewards show them lost."""
    unknown: int
    """Solved requests cut short where the trace cannot say whether they stayed solved."""
    on_frontier: bool
    """Whether no other setting saves more of the group's calls at the same loss or less."""
    is_default: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolCell:
    """One call with what came back; texts are cut."""

    name: str
    arguments: str
    result: str | None
    """None: nothing came back."""
    is_error: bool = False


@dataclass(frozen=True, kw_only=True)
class SlotCell:
    """One slot as it stood after a round."""

    name: str
    state: str
    quote: str = ""


@dataclass(frozen=True, kw_only=True)
class RoundCell:
    """One round of a timeline."""

    text: str
    tools: tuple[ToolCell, ...]
    reward: float | None
    turn: int
    marks: tuple[str, ...]
    """What the round shows: `news`, `repeat`, `error`, `stable`, `same_error`, `cycle`, `monologue`, `nothing_new`."""
    action: str = ""
    """What the controller decided, recorded or replayed; empty: nobody decided."""
    branch: str = ""
    reason: str = ""
    slots: tuple[SlotCell, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One request, round by round."""

    id: str
    source: str
    model: str
    request: str
    answer: str
    solved: bool | None
    solved_after: bool | None
    """Whether it would still be solved where the loop stops it; None: the trace cannot say."""
    low_value: bool
    stopped_at: int | None
    """Index of the round where the loop would have ended it; None: not before its own end."""
    calls: int
    calls_saved: int
    rounds: tuple[RoundCell, ...]
    rounds_left_out: int = 0
    """Rounds beyond those shown."""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything on the page."""

    title: str
    loop: str
    """The setting replayed, in words."""
    groups: tuple[GroupRow, ...]
    distributions: tuple[Distribution, ...]
    frontier: tuple[FrontierPoint, ...]
    timelines: tuple[Timeline, ...]
    notes: tuple[str, ...] = field(default=())
    """What the reader must know about the input: lines skipped, requests not shown one by one."""
