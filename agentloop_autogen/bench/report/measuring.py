"""What the report knows of each attempt, and the figures of all attempts of one system at one family of tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.report.statistics import Floats, column, ratio_bootstrap
from agentloop_autogen.bench.timing import split_time
from agentloop_autogen.diagnostics.formats.bench_attempt import trace_of_attempt
from agentloop_autogen.diagnostics.intervals import mean_interval, ratio_interval
from agentloop_autogen.diagnostics.measures import Measures, measure
from agentloop_autogen.diagnostics.metric import Metric
from agentloop_autogen.diagnostics.summary import needs_polars

__all__ = ["Cell", "measure_cells"]

_VERIFIER: Final = "verifier"
_MEANS: Final = (
    "model_calls",
    "tool_calls",
    "duplicate_calls",
    "tokens",
    "model_s",
    "tool_s",
    "control_s",
    "waiting_s",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One system at one family of tasks."""

    family: str
    system: str
    tasks: tuple[tuple[str, int], ...]
    """Task and seed of each attempt, in order."""
    columns: Mapping[str, Floats]
    """Per attempt, in the order of `tasks`; NaN where it is not known."""
    figures: Mapping[str, Metric]
    """By key, those of `summarize` and the benchmark's own."""

    def value(self, key: str) -> float | None:
        """Return a figure; None where nothing says."""
        return self.figures[key].value


def measure_cells(attempts: Iterable[Attempt]) -> tuple[Cell, ...]:
    """Return the figures of each system at each family.

    Args:
        attempts: Attempts that may be compared, each system, family, task and seed at most once.

    Returns:
        In the order of family, then system.

    Raises:
        MissingExtraError: Polars or SciPy is not installed.
    """
    grouped: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        grouped.setdefault((attempt.family, attempt.system), []).append(attempt)
    return tuple(_cell(family, system, members) for (family, system), members in sorted(grouped.items()))


def _cell(family: str, system: str, attempts: Sequence[Attempt]) -> Cell:
    with needs_polars():
        from agentloop_autogen.diagnostics.aggregation import aggregate, frame_of
    measured = [measure(trace_of_attempt(attempt)) for attempt in attempts]
    (summary,) = aggregate(frame_of(measured), by=())
    rows = [_row(attempt, one) for attempt, one in zip(attempts, measured, strict=True)]
    columns = {name: column([row[name] for row in rows]) for name in rows[0]}
    own = [_mean(name, columns[name]) for name in _MEANS]
    own += [_tokens_per_solved(columns), _ratio("verifier_token_share", columns["verifier_tokens"], columns["tokens"])]
    failed = int(columns["failed"].sum())
    own.append(Metric(name="failed", value=failed / len(rows), count=failed, of=len(rows)))
    return Cell(
        family=family,
        system=system,
        tasks=tuple((attempt.task, attempt.seed) for attempt in attempts),
        columns=columns,
        figures={**summary.metrics, **{metric.name: metric for metric in own}},
    )


def _row(attempt: Attempt, measured: Measures) -> dict[str, float]:
    split = split_time(attempt)
    input_tokens, output_tokens = measured.input_tokens or 0, measured.output_tokens or 0
    usage = attempt.outcome.usage if attempt.outcome is not None else None
    first_token_s = measured.first_token_s
    failed_after_tools = measured.tool_calls > 0 and not attempt.correct
    return {
        "solved": float(attempt.correct),
        "failed": float(attempt.error is not None),
        "low_value": float(failed_after_tools or measured.inter_repeat or measured.intra_repeat),
        "rounds": measured.rounds,
        "model_calls": len(attempt.model_calls),
        "tool_calls": len(attempt.tool_calls),
        "duplicate_calls": measured.repeated_calls,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "tokens": input_tokens + output_tokens,
        "verifier_tokens": math.nan if usage is None else usage[_VERIFIER].total if _VERIFIER in usage else 0,
        "latency_s": attempt.elapsed_s,
        "first_token_s": math.nan if first_token_s is None else first_token_s,
        "model_s": split.model_s,
        "tool_s": split.tool_s,
        "control_s": split.control_s,
        "waiting_s": split.waiting_s,
    }


def _mean(name: str, values: Floats) -> Metric:
    count = len(values)
    mean = float(values.mean())
    interval = mean_interval(mean, float(values.std(ddof=1)) if count > 1 else None, count)
    low, high = interval or (None, None)
    return Metric(name=f"{name}_mean", value=mean, of=count, low=low, high=high)


def _tokens_per_solved(columns: Mapping[str, Floats]) -> Metric:
    tokens, solved = columns["tokens"], columns["solved"]
    found = ratio_bootstrap(
        lambda picks: tokens[picks].sum(axis=-1), lambda picks: solved[picks].sum(axis=-1), len(tokens)
    )
    low, high = found or (None, None)
    spent, count = float(tokens.sum()), float(solved.sum())
    value = spent / count if count else math.inf
    return Metric(name="tokens_per_solved", value=value, count=spent, of=count, low=low, high=high)


def _ratio(name: str, parts: Floats, wholes: Floats) -> Metric:
    """Return a share summed over the attempts that tell it; None where none does, or the whole is 0."""
    known = ~np.isnan(parts)
    y, x = parts[known], wholes[known]
    part, whole = float(y.sum()), float(x.sum())
    interval = ratio_interval(
        parts=part,
        wholes=whole,
        part2=float((y * y).sum()),
        cross=float((x * y).sum()),
        whole2=float((x * x).sum()),
        n=len(y),
    )
    low, high = interval or (None, None)
    return Metric(name=name, value=part / whole if whole else None, count=part, of=whole, low=low, high=high)
