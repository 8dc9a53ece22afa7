"""Many loop settings over the same traces, and which of them save most at what loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.diagnostics.replay import Verdicts, replays, with_verdicts
from agentloop_autogen.diagnostics.summary import needs_polars
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from agentloop_autogen.diagnostics.savings import Savings

__all__ = ["STANDARD_SWEEP", "SweepPoint", "frontier", "sweep"]

_BATCH: Final = 512

STANDARD_SWEEP: Final[Mapping[str, LoopConfig]] = {
    "exact gate": LoopConfig(policy="paper", call_similarity=False, result_similarity=False),
    "paper gate": LoopConfig(policy="paper"),
    **{f"paper gate, tau {tau:.2f}": LoopConfig(policy="paper", tau_call=tau, tau_result=tau) for tau in (0.8, 0.95)},
    **{f"extended, patience {patience}": LoopConfig(patience=patience) for patience in (1, 2, 3, 4, 5, 6)},
    "extended, no novelty": LoopConfig(novelty=False),
    "extended, no patterns": LoopConfig(patterns=False),
    "6 rounds": LoopConfig(policy="off", max_rounds=6),
}
"""What a sweep tries unless told otherwise: the gates, the patience of two strikes, and a plain limit on rounds."""


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """What one setting saves and loses over all groups or one."""

    label: str
    loop: LoopConfig
    savings: Savings
    on_frontier: bool
    """Whether no other setting saves more of the group's calls at no higher loss."""


def sweep(
    traces: Iterable[Trace],
    settings: Mapping[str, LoopConfig] | None = None,
    *,
    verdicts: Verdicts = "mechanical",
    by: Sequence[str] = ("source", "model"),
) -> tuple[SweepPoint, ...]:
    """Replay every setting over the traces, in one pass over them.

    Args:
        traces: Any number; they are read once, a few hundred at a time.
        settings: The settings by label; None: `STANDARD_SWEEP`.
        verdicts: As for `replay`; a verifier is too dear for a sweep.
        by: What makes a group: `source`, `model`, both, or nothing for all traces together.

    Returns:
        One point for each setting and group, in the order of the groups, then of the settings.

    Raises:
        MissingExtraError: Polars is not installed.
        TraceError: `recorded` was asked for, and no trace records a verdict.
        UsageError: There are no settings.
    """
    tried = STANDARD_SWEEP if settings is None else settings
    if not tried:
        raise UsageError("a sweep needs at least one setting")
    with needs_polars():
        from agentloop_autogen.diagnostics.savings import sum_up, sums_of
    sums: dict[str, list[pl.DataFrame]] = {label: [] for label in tried}
    left = with_verdicts(traces) if verdicts == "recorded" else iter(traces)
    # A batch meets all settings before the next is read: its rounds are put into comparable form only once.
    while batch := list(islice(left, _BATCH)):
        for label, loop in tried.items():
            sums[label].append(sums_of(one.row for one in replays(batch, loop, verdicts=verdicts)))
    found = [(label, savings) for label, parts in sums.items() if parts for savings in sum_up(parts, by=by)]
    return tuple(_points(found, tried))


def _points(found: Sequence[tuple[str, Savings]], tried: Mapping[str, LoopConfig]) -> Iterator[SweepPoint]:
    groups = {(savings.source, savings.model) for _, savings in found}
    for group in sorted(groups, key=lambda names: (names[0] or "", names[1] or "")):
        members = [(label, savings) for label, savings in found if (savings.source, savings.model) == group]
        best = frontier([savings for _, savings in members])
        for label, savings in members:
            yield SweepPoint(label=label, loop=tried[label], savings=savings, on_frontier=savings in best)


def frontier(found: Sequence[Savings]) -> list[Savings]:
    """Return those that no other one beats: none saves more calls at no higher loss, or as much at a lower one.

    A solved trace of which nothing says whether it stays solved counts as lost here.
    """

    def beaten(one: Savings, other: Savings) -> bool:
        loss, other_loss = one.lost + one.unknown, other.lost + other.unknown
        no_worse = other.calls_saved >= one.calls_saved and other_loss <= loss
        return no_worse and (other.calls_saved > one.calls_saved or other_loss < loss)

    return [one for one in found if not any(beaten(one, other) for other in found)]
