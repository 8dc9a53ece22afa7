"""What replays save and lose, by group, added up in Polars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import polars as pl

from agentloop_autogen.diagnostics.intervals import Interval, ratio_interval, wilson
from agentloop_autogen.diagnostics.loop_run import ReplayRow
from agentloop_autogen.diagnostics.measures import SOLVED
from agentloop_autogen.diagnostics.summary import checked_groups

__all__ = ["Savings", "frame_of_rows", "savings_of", "sum_up", "sums_of"]

_BATCH: Final = 4_096
_SCHEMA: Final = {
    "source": pl.String,
    "model": pl.String,
    "stopped_at": pl.UInt32,
    "rounds": pl.UInt32,
    "rounds_saved": pl.UInt32,
    "calls": pl.UInt32,
    "calls_saved": pl.UInt32,
    "tokens": pl.UInt64,
    "tokens_saved": pl.UInt64,
    "solved": pl.Boolean,
    "solved_after": pl.Boolean,
    "best_reward": pl.Float64,
    "best_reward_after": pl.Float64,
    "redundant_rounds": pl.UInt32,
    "redundant_rounds_after": pl.UInt32,
}


@dataclass(frozen=True, kw_only=True)
class Savings:
    """What a loop setting would have saved and lost in one group of traces."""

    source: str | None
    """None: the group spans sources."""
    model: str | None
    traces: int
    cut: int
    """Traces that the loop ends before their own end."""
    rounds: int
    rounds_saved: int
    calls: int
    calls_saved: int
    calls_saved_interval: Interval | None
    """95 % interval of the share of calls saved."""
    tokens: int
    tokens_saved: int
    solved: int
    """Traces that were solved."""
    lost: int
    """Solved traces that their rewards show unsolved at the stop."""
    unknown: int
    """Solved traces cut short of which nothing says whether they stay solved."""
    lost_interval: Interval | None
    """95 % interval of the share of solved traces lost."""
    progress_degradation: float | None
    """How much mean best reward the stops cost (after arXiv 2505.17616); None: no rewards say when one is solved."""
    redundant_rounds: float | None
    """Mean number of rounds after the best reward was reached; None as above."""
    redundant_step_reduction: float | None
    """How many of them the stops save, on average; None as above."""

    @property
    def calls_saved_share(self) -> float:
        """Calls saved of all calls; 0 for none."""
        return self.calls_saved / self.calls if self.calls else 0.0

    @property
    def lost_share(self) -> float:
        """Solved traces lost of all solved ones; 0 for none."""
        return self.lost / self.solved if self.solved else 0.0

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        group = {name: value for name, value in (("source", self.source), ("model", self.model)) if value is not None}
        return {
            **group,
            "traces": self.traces,
            "cut": self.cut,
            "rounds": self.rounds,
            "rounds_saved": self.rounds_saved,
            "calls": self.calls,
            "calls_saved": self.calls_saved,
            "calls_saved_share": self.calls_saved_share,
            "calls_saved_interval": self.calls_saved_interval,
            "tokens": self.tokens,
            "tokens_saved": self.tokens_saved,
            "solved": self.solved,
            "lost": self.lost,
            "unknown": self.unknown,
            "lost_share": self.lost_share,
            "lost_interval": self.lost_interval,
            "progress_degradation": self.progress_degradation,
            "redundant_rounds": self.redundant_rounds,
            "redundant_step_reduction": self.redundant_step_reduction,
        }


def savings_of(rows: Iterable[ReplayRow], *, by: Sequence[str]) -> tuple[Savings, ...]:
    """Return what the replayed traces save and lose, one row for each group, in the order of their names."""
    return sum_up([sums_of(rows)], by=by)


def sums_of(rows: Iterable[ReplayRow]) -> pl.DataFrame:
    """Return the sums over rows by source and model; frames of them can be put together by `sum_up`."""
    left = iter(rows)
    batches = iter(lambda: list(islice(left, _BATCH)), [])
    parts = [frame_of_rows(batch).group_by("source", "model").agg(_sums()) for batch in batches]
    return pl.concat(parts) if parts else frame_of_rows(()).group_by("source", "model").agg(_sums())


def frame_of_rows(rows: Sequence[ReplayRow]) -> pl.DataFrame:
    """Return one line for each row, with what is added up as columns."""
    return pl.DataFrame({name: [getattr(row, name) for row in rows] for name in _SCHEMA}, schema=_SCHEMA)


def sum_up(parts: Sequence[pl.DataFrame], *, by: Sequence[str]) -> tuple[Savings, ...]:
    """Return the savings in frames of sums, one row for each group."""
    groups = checked_groups(by)
    table = pl.concat(parts).with_columns(pl.when(_rewards_tell()).then(pl.col("rewarded")).otherwise(0))
    sums = pl.exclude("source", "model").sum()
    grouped = table.group_by(list(groups)).agg(sums) if groups else table.select(sums)
    found = [_savings(row) for row in grouped.to_dicts() if row["traces"]]
    return tuple(sorted(found, key=lambda one: (one.source or "", one.model or "")))


def _sums() -> list[pl.Expr]:
    c = pl.col
    calls, saved = c("calls").cast(pl.Float64), c("calls_saved").cast(pl.Float64)
    plain = ("rounds", "rounds_saved", "calls", "calls_saved", "tokens", "tokens_saved")
    return [
        pl.len().cast(pl.UInt64).alias("traces"),
        (c("rounds_saved") > 0).sum().alias("cut"),
        *(c(name).sum().cast(pl.UInt64).alias(name) for name in plain),
        (saved * saved).sum().alias("saved2"),
        (saved * calls).sum().alias("cross"),
        (calls * calls).sum().alias("calls2"),
        c("solved").sum().alias("solved"),
        (c("solved") & ~c("solved_after")).sum().alias("lost"),
        (c("solved") & c("solved_after").is_null()).sum().alias("unknown"),
        (c("solved") & (c("best_reward") >= SOLVED)).sum().alias("shown"),
        c("best_reward").is_not_null().sum().alias("rewarded"),
        (c("best_reward") - c("best_reward_after")).sum().alias("degradation"),
        c("redundant_rounds").sum().cast(pl.UInt64).alias("redundant"),
        c("redundant_rounds_after").sum().cast(pl.UInt64).alias("redundant_after"),
    ]


def _rewards_tell() -> pl.Expr:
    """Whether the rewards of a source say when requests were solved; then those of its failed ones are believed."""
    return (pl.col("shown").sum() > 0).over("source", "model") | ((pl.col("solved").sum() == 0).over("source", "model"))


def _savings(sums: Mapping[str, Any]) -> Savings:
    interval = ratio_interval(
        parts=sums["calls_saved"],
        wholes=sums["calls"],
        part2=sums["saved2"],
        cross=sums["cross"],
        whole2=sums["calls2"],
        n=sums["traces"],
    )
    rewarded = sums["rewarded"]
    return Savings(
        source=sums.get("source"),
        model=sums.get("model"),
        **{name: sums[name] for name in ("traces", "cut", "rounds", "rounds_saved", "calls", "calls_saved")},
        calls_saved_interval=interval,
        **{name: sums[name] for name in ("tokens", "tokens_saved", "solved", "lost", "unknown")},
        lost_interval=wilson(sums["lost"], sums["solved"]),
        progress_degradation=sums["degradation"] / rewarded if rewarded else None,
        redundant_rounds=sums["redundant"] / rewarded if rewarded else None,
        redundant_step_reduction=(sums["redundant"] - sums["redundant_after"]) / rewarded if rewarded else None,
    )
