"""Gathers what a report shows in one pass over the traces: figures of all of them, timelines of a chosen few."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.diagnostics.loop_run import Replayed
from agentloop_autogen.diagnostics.measures import measure
from agentloop_autogen.diagnostics.metric import Metric
from agentloop_autogen.diagnostics.replay import Verdicts, replays, with_verdicts
from agentloop_autogen.diagnostics.report.data import Distribution, FrontierPoint, GroupRow, ReportData
from agentloop_autogen.diagnostics.report.timelines import timeline_of
from agentloop_autogen.diagnostics.summary import GROUPS, needs_polars
from agentloop_autogen.diagnostics.sweep import STANDARD_SWEEP, frontier
from agentloop_autogen.diagnostics.trace import Trace

if TYPE_CHECKING:
    import polars as pl

    from agentloop_autogen.diagnostics.savings import Savings
    from agentloop_autogen.diagnostics.summary import SummaryRow
    from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["MOST_TIMELINES", "collect_report"]

MOST_TIMELINES: Final = 200
"""Requests shown round by round unless told otherwise."""
_Key = tuple[int, ...]
_Kept = tuple[Trace, Replayed]
_BATCH: Final = 512
_DEFAULT: Final = "this setting"


def collect_report(
    traces: Iterable[Trace],
    loop: LoopConfig | None = None,
    *,
    title: str = "Agent runs",
    verdicts: Verdicts | SlotVerifier = "mechanical",
    settings: Mapping[str, LoopConfig] | None = None,
    timelines: int = MOST_TIMELINES,
    skipped: Callable[[], str] = str,
) -> ReportData:
    """Measure and replay traces and put together what a report shows.

    Args:
        traces: Any number; they are read once, a few hundred at a time.
        loop: The setting to replay; None: the defaults.
        title: Heading of the page.
        verdicts: Who judges the rounds of the replay; see `replay`.
        settings: What the frontier compares the setting with, by label; None: `STANDARD_SWEEP`. Empty: no frontier.
        timelines: How many requests are shown round by round, at most: half of them the same requests in every group,
            the rest those where the loop loses or saves most.
        skipped: Says, once all are read, what could not be read of the input; empty: nothing.

    Returns:
        The data, bounded in size.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    config = loop or LoopConfig()
    tried = STANDARD_SWEEP if settings is None else settings
    collected = _Collected(timelines)
    left = with_verdicts(traces) if verdicts == "recorded" else iter(traces)
    # Rivals meet the same verdicts; a verifier is too dear to be asked again for each of them.
    rivals: Verdicts = "recorded" if verdicts == "recorded" else "mechanical"
    while batch := list(islice(left, _BATCH)):
        found = list(replays(batch, config, verdicts=verdicts))
        collected.add(batch, found)
        for label, other in tried.items():
            if other != config:
                collected.add_rival(label, replays(batch, other, verdicts=rivals))
    notes = tuple(filter(None, [skipped()]))
    return collected.report(config, title=title, notes=notes, settings=tried)


@dataclass
class _Collected:
    most: int
    """Timelines to keep."""
    measures: list[pl.DataFrame] = field(default_factory=list["pl.DataFrame"])
    saved: list[pl.DataFrame] = field(default_factory=list["pl.DataFrame"])
    rows: list[pl.DataFrame] = field(default_factory=list["pl.DataFrame"])
    rivals: dict[str, list[pl.DataFrame]] = field(default_factory=dict[str, "list[pl.DataFrame]"])
    seen: int = 0

    def __post_init__(self) -> None:
        self._shared = _Chosen(self.most // 2)
        self._notable = _Chosen(self.most - self.most // 2)

    def add(self, batch: Sequence[Trace], found: Sequence[Replayed]) -> None:
        """Take in traces with their replays under the setting of the report."""
        with needs_polars():
            from agentloop_autogen.diagnostics.aggregation import frame_of
            from agentloop_autogen.diagnostics.savings import frame_of_rows, sums_of
        rows = [one.row for one in found]
        self.measures.append(frame_of(map(measure, batch)))
        self.rows.append(frame_of_rows(rows).select("source", "model", "solved", "calls_saved"))
        self.saved.append(sums_of(rows))
        for kept in zip(batch, found, strict=True):
            self.seen += 1
            self._choose(kept)

    def add_rival(self, label: str, found: Iterable[Replayed]) -> None:
        """Take in replays of the same traces under another setting."""
        from agentloop_autogen.diagnostics.savings import sums_of

        self.rivals.setdefault(label, []).append(sums_of(one.row for one in found))

    def _choose(self, kept: _Kept) -> None:
        # By the hash of the request alone, so that the runs of different models on one request are shown together.
        request = kept[0].request.encode("utf-8", "surrogatepass")
        left_out = self._shared.offer(tuple(hashlib.sha256(request).digest()[:6]), kept)
        if left_out is not None:
            row = left_out[1].row
            lost = bool(row.solved) and row.solved_after is not True
            self._notable.offer((int(lost), row.calls_saved, row.calls), left_out)

    def report(
        self, loop: LoopConfig, *, title: str, notes: Sequence[str], settings: Mapping[str, LoopConfig]
    ) -> ReportData:
        """Put everything together."""
        if not self.seen:
            return _empty(loop, title, notes)
        import polars as pl

        from agentloop_autogen.diagnostics.aggregation import aggregate
        from agentloop_autogen.diagnostics.savings import sum_up

        measures = pl.concat(self.measures)
        savings = sum_up(self.saved, by=GROUPS)
        groups = tuple(_group(row, saved) for row, saved in zip(aggregate(measures, by=GROUPS), savings, strict=True))
        notes = (*notes, *_remarks(groups))
        shown = tuple(timeline_of(*kept) for kept in (*self._shared, *self._notable))
        left_out = self.seen - len(shown)
        more = (f"{len(shown)} of {self.seen:,} requests can be looked at round by round.",) if left_out else ()
        return ReportData(
            title=title,
            loop=loop_words(loop),
            groups=groups,
            distributions=_distributions(measures, pl.concat(self.rows)),
            frontier=self._frontier(loop, settings),
            timelines=shown,
            notes=(*notes, *more),
        )

    def _frontier(self, loop: LoopConfig, settings: Mapping[str, LoopConfig]) -> tuple[FrontierPoint, ...]:
        from agentloop_autogen.diagnostics.savings import sum_up

        if not settings:
            return ()
        own = next((label for label, other in settings.items() if other == loop), _DEFAULT)
        parts = {own: self.saved, **self.rivals}
        points: list[FrontierPoint] = []
        for by in ((), GROUPS):
            found = {label: {(s.source, s.model): s for s in sum_up(sums, by=by)} for label, sums in parts.items()}
            for group in found[own]:
                members = {label: of_label[group] for label, of_label in found.items()}
                best = frontier(list(members.values()))
                points += [
                    _point(label, settings.get(label, loop), one, best=one in best, is_default=label == own)
                    for label, one in members.items()
                ]
        return tuple(points)


class _Chosen:
    """Keeps the entries with the highest keys offered, at most so many, in the order they came."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._order = count()
        self._heap: list[tuple[_Key, int, _Kept]] = []

    def offer(self, key: _Key, kept: _Kept) -> _Kept | None:
        """Keep an entry if its key is among the highest so far; returns the entry that is left out, if one is."""
        entry = (key, next(self._order), kept)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
            return None
        return heapq.heappushpop(self._heap, entry)[2] if self._most else kept

    def __iter__(self) -> Iterator[_Kept]:
        return iter(kept for _, _, kept in sorted(self._heap, key=lambda entry: entry[1]))


def loop_words(loop: LoopConfig) -> str:
    """Return a setting in words: its policy, and what differs from the defaults."""
    changed = loop.model_dump(mode="json", exclude_defaults=True)
    policy = changed.pop("policy", LoopConfig().model_dump(mode="json")["policy"])
    return ", ".join(
        [f"policy {policy}", *(f"{name}={value}" for name, value in changed.items())]
        if changed
        else [f"policy {policy}, otherwise the defaults"]
    )


def _empty(loop: LoopConfig, title: str, notes: Sequence[str]) -> ReportData:
    return ReportData(
        title=title, loop=loop_words(loop), groups=(), distributions=(), frontier=(), timelines=(), notes=tuple(notes)
    )


def _group(row: SummaryRow, saved: Savings) -> GroupRow:
    calls_low, calls_high = saved.calls_saved_interval or (None, None)
    lost_low, lost_high = saved.lost_interval or (None, None)
    reduced = saved.redundant_step_reduction
    reduced_share = reduced / saved.redundant_rounds if reduced is not None and saved.redundant_rounds else None
    extra = (
        Metric(
            name="calls_saved",
            value=saved.calls_saved_share if saved.calls else None,
            count=saved.calls_saved,
            of=saved.calls,
            low=calls_low,
            high=calls_high,
        ),
        _part("tokens_saved", saved.tokens_saved, saved.tokens),
        Metric(
            name="lost",
            value=saved.lost_share if saved.solved else None,
            count=saved.lost,
            of=saved.solved,
            low=lost_low,
            high=lost_high,
        ),
        _part("unknown", saved.unknown, saved.solved),
        Metric(name="redundant_step_reduction", value=reduced_share),
        Metric(name="progress_degradation", value=saved.progress_degradation),
    )
    return GroupRow(
        source=row.group["source"],
        model=row.group["model"],
        requests=row.requests,
        metrics=(*row.metrics.values(), *extra),
    )


def _remarks(groups: Sequence[GroupRow]) -> list[str]:
    """Say where a figure says nothing because the log does not."""
    found: list[str] = []
    for group in groups:
        of = {metric.name: metric for metric in group.metrics}
        name = f"{group.source} · {group.model}"
        if not of["gcr"].count:
            found.append(f"{name}: no answer is recorded, so its GCR of 0 says nothing of the agent.")
        if of["without_content"].count:
            words = "calls without arguments and results; figures that compare rounds say nothing of them."
            found.append(f"{name}: {of['without_content'].count:,.0f} requests are recorded with {words}")
    return found


def _part(name: str, count: float, of: float) -> Metric:
    return Metric(name=name, value=count / of if of else None, count=count, of=of)


def _point(label: str, loop: LoopConfig, one: Savings, *, best: bool, is_default: bool) -> FrontierPoint:
    return FrontierPoint(
        label=label,
        settings=loop_words(loop),
        source=one.source or "",
        model=one.model or "",
        calls=one.calls,
        calls_saved=one.calls_saved,
        solved=one.solved,
        lost=one.lost,
        unknown=one.unknown,
        on_frontier=best,
        is_default=is_default,
    )


def _distributions(measures: pl.DataFrame, rows: pl.DataFrame) -> tuple[Distribution, ...]:
    """Count the values of each quantity, rounded to two figures so that there are few of them."""
    import polars as pl

    key = ("quantity", "source", "model", "solved")
    counted = (
        _quantities(measures, rows)
        .drop_nulls("value")
        .with_columns(pl.col("value").round_sig_figs(2))
        .group_by(*key, "value")
        .len("count")
        .sort(*key, "value", nulls_last=True)
        .group_by(*key, maintain_order=True)
        .agg("value", "count")
    )
    return tuple(
        Distribution(
            quantity=row["quantity"],
            source=row["source"],
            model=row["model"],
            solved=row["solved"],
            values=tuple(row["value"]),
            counts=tuple(row["count"]),
        )
        for row in counted.to_dicts()
    )


def _quantities(measures: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return one line for each trace and quantity."""
    import polars as pl

    group = ("source", "model", "solved")
    tokens = pl.coalesce(pl.col("input_tokens") + pl.col("output_tokens"), pl.col("estimated_tokens"))
    measured = measures.select(
        pl.col("source").cast(pl.String),
        pl.col("model").cast(pl.String),
        pl.col("correct").alias("solved"),
        *(pl.col(name).cast(pl.Float64) for name in ("rounds", "tool_calls", "elapsed_s")),
        tokens.cast(pl.Float64).alias("tokens"),
    )
    saved = rows.select(*group, pl.col("calls_saved").cast(pl.Float64))
    tables = (table.unpivot(index=group, variable_name="quantity", value_name="value") for table in (measured, saved))
    return pl.concat(tables)
