"""Adds up the measures of many traces, in Polars: narrow columns, filled in batches, so that a million requests fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import polars as pl

from agentloop_autogen.diagnostics.intervals import Interval, mean_interval, ratio_interval, wilson
from agentloop_autogen.diagnostics.measures import Measures
from agentloop_autogen.diagnostics.metric import Metric
from agentloop_autogen.diagnostics.summary import GROUPS, SummaryRow

__all__ = ["aggregate", "frame_of"]

_BATCH: Final = 4_096
_COUNTS: Final = (
    "rounds",
    "turns",
    "tool_calls",
    "errors",
    "repeated_calls",
    "repeated_rounds",
    "idle_rounds",
    "gate_checks",
    "stable_gates",
    "recorded_checks",
    "recorded_stops",
    "model_calls",
    "redundant_rounds",
)
_SIZES: Final = ("input_tokens", "output_tokens", "estimated_tokens", "idle_tokens")
_FLAGS: Final = (
    "has_cycle",
    "has_error_streak",
    "has_monologue",
    "correct",
    "inter_repeat",
    "intra_repeat",
    "without_content",
    "returned",
    "closed",
    "verdict_label",
    "rewards_show_it",
)
_AMOUNTS: Final = ("elapsed_s", "first_token_s", "verifier_s", "best_reward")
_SUM: Final = "{}:{}"


def frame_of(measures: Iterable[Measures]) -> pl.DataFrame:
    """Return one row for each request, with the fields of `Measures` as columns."""
    schema = {
        **dict.fromkeys(GROUPS, pl.Categorical()),
        **dict.fromkeys(_COUNTS, pl.UInt32()),
        **dict.fromkeys(_SIZES, pl.UInt64()),
        **dict.fromkeys(_FLAGS, pl.Boolean()),
        **dict.fromkeys(_AMOUNTS, pl.Float64()),
    }
    batches = [pl.DataFrame(columns, schema=schema) for columns in _batches(iter(measures), tuple(schema))]
    return pl.concat(batches) if batches else pl.DataFrame(schema=schema)


def _batches(rows: Iterator[Measures], names: Sequence[str]) -> Iterator[dict[str, list[object]]]:
    while batch := list(islice(rows, _BATCH)):
        yield {name: [getattr(row, name) for row in batch] for name in names}


def aggregate(frame: pl.DataFrame, *, by: Sequence[str]) -> tuple[SummaryRow, ...]:
    """Return the metrics of measures in a frame, one row for each group, in the order of their names."""
    known = frame.with_columns(_step_rewards().alias("has_steps"))
    plan = [pl.len().alias("requests"), *_share_sums(), *_ratio_sums(), *_mean_sums()]
    table = known.group_by(list(by)).agg(plan) if by else known.select(plan)
    rows = [_row(sums, by) for sums in table.to_dicts() if sums["requests"]]
    return tuple(sorted(rows, key=lambda row: [row.group[name] for name in by]))


def _step_rewards() -> pl.Expr:
    """Whether the rewards of a source say when requests were solved: then those of its failed ones can be believed."""
    return pl.col("rewards_show_it").any(ignore_nulls=True).over("source", "model")


def _shares() -> dict[str, pl.Expr]:
    """Shares of requests: true or false for each, null where the trace does not say."""
    c = pl.col
    failed_after_tools = (c("tool_calls") > 0) & ~c("correct")
    repeats = c("inter_repeat") | c("intra_repeat")
    flagged = failed_after_tools | repeats
    return {
        "solved": c("correct"),
        "lgr": flagged,
        "post_tool_failure": failed_after_tools,
        "repetition": repeats,
        "failure_share": pl.when(flagged).then(~repeats),
        "gcr": c("returned"),
        "without_content": c("without_content"),
        "cycles": c("has_cycle"),
        "error_streaks": c("has_error_streak"),
        "monologues": c("has_monologue"),
        "slot_closure": c("closed"),
        "stable_hit": c("recorded_checks") > 0,
        "stable_stop": c("recorded_stops") > 0,
        "verifier_precision": pl.when(c("closed")).then(c("verdict_label")),
        "verifier_recall": pl.when(c("verdict_label")).then(c("closed")),
    }


def _ratios() -> dict[str, tuple[pl.Expr, pl.Expr]]:
    """Parts of wholes summed over requests: the part, the whole; a request where either is null counts in neither."""
    c = pl.col
    flagged = ((c("tool_calls") > 0) & ~c("correct")) | c("inter_repeat") | c("intra_repeat")
    return {
        "lgts": (pl.when(flagged).then(c("tool_calls")).when(flagged.is_not_null()).then(0), c("tool_calls")),
        "duplicate_calls": (c("repeated_calls"), c("tool_calls")),
        "error_results": (c("errors"), c("tool_calls")),
        "repeated_rounds": (c("repeated_rounds"), c("rounds")),
        "idle_rounds": (c("idle_rounds"), c("rounds")),
        "stable_gates": (c("stable_gates"), c("gate_checks")),
        "stssr": (c("recorded_stops"), c("recorded_checks")),
        "redundant_tokens": (c("idle_tokens"), c("estimated_tokens")),
        "verifier_share": (c("verifier_s"), c("elapsed_s")),
    }


def _means() -> dict[str, tuple[pl.Expr, tuple[float, ...]]]:
    """Averages over requests, each with the quantiles wanted of it."""
    c = pl.col
    return {
        "rounds": (c("rounds"), ()),
        "model_calls": (c("model_calls"), ()),
        "tool_calls": (c("tool_calls"), ()),
        "input_tokens": (c("input_tokens"), ()),
        "output_tokens": (c("output_tokens"), ()),
        "estimated_tokens": (c("estimated_tokens"), ()),
        "latency_s": (c("elapsed_s"), (0.5, 0.9)),
        "first_token_s": (c("first_token_s"), (0.5, 0.9)),
        "verifier_s": (c("verifier_s"), ()),
        "redundant_steps": (pl.when(c("has_steps")).then(c("redundant_rounds")), ()),
        "best_reward": (pl.when(c("has_steps")).then(c("best_reward")), ()),
    }


def _share_sums() -> list[pl.Expr]:
    sums: list[pl.Expr] = []
    for name, flag in _shares().items():
        sums += [flag.sum().alias(_SUM.format(name, "y")), flag.is_not_null().sum().alias(_SUM.format(name, "n"))]
    return sums


def _ratio_sums() -> list[pl.Expr]:
    sums: list[pl.Expr] = []
    for name, (part, whole) in _ratios().items():
        both = part.is_not_null() & whole.is_not_null()
        y, x = (pl.when(both).then(value.cast(pl.Float64)) for value in (part, whole))
        terms = {"y": y.sum(), "x": x.sum(), "yy": (y * y).sum(), "xy": (x * y).sum(), "xx": (x * x).sum()}
        terms["n"] = both.sum()
        sums += [term.alias(_SUM.format(name, key)) for key, term in terms.items()]
    return sums


def _mean_sums() -> list[pl.Expr]:
    sums: list[pl.Expr] = []
    for name, (value, quantiles) in _means().items():
        terms = {"mean": value.mean(), "std": value.std(), "n": value.is_not_null().sum()}
        terms |= {f"p{q:.0%}".rstrip("%"): value.quantile(q, "linear") for q in quantiles}
        sums += [term.alias(_SUM.format(name, key)) for key, term in terms.items()]
    return sums


def _row(sums: Mapping[str, Any], by: Sequence[str]) -> SummaryRow:
    metrics = [_share(name, sums) for name in _shares()]
    metrics += [_ratio(name, sums) for name in _ratios()]
    metrics += [metric for name, (_, quantiles) in _means().items() for metric in _mean(name, quantiles, sums)]
    named = {metric.name: metric for metric in metrics}
    named["verifier_f1"] = _f1(named["verifier_precision"], named["verifier_recall"])
    return SummaryRow(group={name: str(sums[name] or "") for name in by}, requests=sums["requests"], metrics=named)


def _share(name: str, sums: Mapping[str, Any]) -> Metric:
    count, of = sums[_SUM.format(name, "y")], sums[_SUM.format(name, "n")]
    return _metric(name, count / of if of else None, wilson(count, of), count=count, of=of)


def _ratio(name: str, sums: Mapping[str, Any]) -> Metric:
    y, x, yy, xy, xx, n = (sums[_SUM.format(name, key)] for key in ("y", "x", "yy", "xy", "xx", "n"))
    interval = ratio_interval(parts=y, wholes=x, part2=yy, cross=xy, whole2=xx, n=n)
    # LGTS, STSSR and their like are 0, not unknown, where requests are recorded but hold no call or check.
    value = (y / x if x else 0.0) if n else None
    return _metric(name, value, interval, count=y, of=x)


def _mean(name: str, quantiles: Sequence[float], sums: Mapping[str, Any]) -> list[Metric]:
    base, unit = (name[:-2], "_s") if name.endswith("_s") else (name, "")
    mean, std, n = (sums[_SUM.format(name, key)] for key in ("mean", "std", "n"))
    interval = mean_interval(mean, std, n) if mean is not None else None
    found = [_metric(f"{base}_mean{unit}", mean, interval, of=n)]
    for quantile in quantiles:
        key = f"p{quantile:.0%}".rstrip("%")
        found.append(Metric(name=f"{base}_{key}{unit}", value=sums[_SUM.format(name, key)], of=n))
    return found


def _f1(precision: Metric, recall: Metric) -> Metric:
    p, r = precision.value, recall.value
    value = None if p is None or r is None else (2 * p * r / (p + r) if p + r else 0.0)
    return Metric(name="verifier_f1", value=value)


def _metric(
    name: str, value: float | None, interval: Interval | None, *, count: float | None = None, of: float | None = None
) -> Metric:
    low, high = interval if value is not None and interval is not None else (None, None)
    return Metric(name=name, value=value, count=count, of=of, low=low, high=high)
