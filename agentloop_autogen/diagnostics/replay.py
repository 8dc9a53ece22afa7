"""Counterfactual replay: where a loop setting would have ended recorded runs, and what that saves and loses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.diagnostics.judges import judged, mechanical_judge, recorded_judge
from agentloop_autogen.diagnostics.loop_run import Replayed, ReplayRow, replay_with
from agentloop_autogen.diagnostics.summary import needs_polars
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.errors import TraceError, UsageError

if TYPE_CHECKING:
    from agentloop_autogen.diagnostics.savings import Savings
    from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["ReplayResult", "Verdicts", "replay", "replays", "with_verdicts"]

Verdicts = Literal["mechanical", "recorded"]
"""Who judges the rounds of a replay, where no verifier does."""


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """What a loop setting would have done with many traces."""

    loop: LoopConfig
    rows: tuple[ReplayRow, ...]
    """One for each trace, in their order."""

    def savings(self, *, by: Sequence[str] = ("source", "model")) -> tuple[Savings, ...]:
        """Return what is saved and lost, by group.

        Args:
            by: What makes a group: `source`, `model`, both, or nothing for one row over all.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        with needs_polars():
            from agentloop_autogen.diagnostics.savings import savings_of
        return savings_of(self.rows, by=by)

    def to_dict(self) -> dict[str, object]:
        """Return plain data: the setting, and what is saved and lost by model, and by source and model.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        return {
            "loop": self.loop.model_dump(mode="json"),
            "by_model": {group.model: group.to_dict() for group in self.savings(by=("model",))},
            "rows": [group.to_dict() for group in self.savings()],
        }


def replay(
    traces: Iterable[Trace], loop: LoopConfig | None = None, *, verdicts: Verdicts | SlotVerifier = "mechanical"
) -> ReplayResult:
    """Run a loop setting over recorded traces and say where it would have ended each.

    A forced end counts as the end of the trace at that round. What the model would have done after a nudge no record
    can tell: nudges are reported and change nothing.

    Args:
        traces: Any number; they are read once, one at a time.
        loop: The setting; None: the defaults.
        verdicts: Who judges the rounds. `mechanical`: nobody; only what needs no judge ends a trace, which is the
            stability gate under `paper`, two strikes under `extended`, and the budgets. `recorded`: the verdicts that
            the traces hold; a trace without any is replayed mechanically. A verifier: it is asked, for a few traces at
            a time, in a thread of its own.

    Returns:
        One row for each trace, and what is saved and lost by group.

    Raises:
        TraceError: `recorded` was asked for, and no trace records a verdict.
        UsageError: `verdicts` is something else.
    """
    config = loop or LoopConfig()
    watched = with_verdicts(traces) if verdicts == "recorded" else traces
    return ReplayResult(loop=config, rows=tuple(one.row for one in replays(watched, config, verdicts=verdicts)))


def replays(traces: Iterable[Trace], loop: LoopConfig, *, verdicts: Verdicts | SlotVerifier) -> Iterator[Replayed]:
    """Give one replay for each trace, with its decisions; see `replay`."""
    if not isinstance(verdicts, str):
        yield from judged(traces, loop, verdicts)
    elif verdicts == "mechanical":
        judge = mechanical_judge(loop)
        yield from (replay_with(trace, loop, judge) for trace in traces)
    elif verdicts == "recorded":
        yield from (replay_with(trace, loop, recorded_judge(trace) or mechanical_judge(loop)) for trace in traces)
    else:
        raise UsageError(f"verdicts={verdicts!r} is none of 'mechanical', 'recorded' and a SlotVerifier")


def with_verdicts(traces: Iterable[Trace]) -> Iterator[Trace]:
    """Pass traces on, and see at their end that at least one of them records a verdict.

    Raises:
        TraceError: None does.
    """
    seen = recorded = 0
    for trace in traces:
        seen, recorded = seen + 1, recorded + (recorded_judge(trace) is not None)
        yield trace
    if seen and not recorded:
        raise TraceError(f"none of the {seen} traces records a verdict: replay them with verdicts='mechanical'")
