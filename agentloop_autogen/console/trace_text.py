"""Metrics and savings as plain lines: a block for each group, every ratio with its counts and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from agentloop_autogen.console.text import one_line

if TYPE_CHECKING:
    from agentloop_autogen.diagnostics import Metric, SummaryRow, SweepPoint
    from agentloop_autogen.diagnostics.intervals import Interval
    from agentloop_autogen.diagnostics.savings import Savings

__all__ = ["savings_lines", "summary_lines", "sweep_lines"]

_ROOM: Final = 24
_NAME_CHARS: Final = 100

_RATIOS: Final = {
    "solved": "solved",
    "lgr": "low-value (LGR)",
    "failure_share": "  of it mere failure",
    "lgts": "calls in them (LGTS)",
    "gcr": "ended in answer (GCR)",
    "repetition": "answer repeats",
    "without_content": "calls without content",
    "duplicate_calls": "calls made before",
    "error_results": "results are errors",
    "idle_rounds": "rounds with no news",
    "redundant_tokens": "tokens in them",
    "stable_gates": "gate would be stable",
    "cycles": "with a cycle",
    "error_streaks": "with error streak",
    "monologues": "with a monologue",
    "slot_closure": "slot closure",
    "stable_hit": "stable hit",
    "stable_stop": "stable stop",
    "stssr": "STSSR",
    "verifier_share": "time in verifier",
    "verifier_precision": "verifier precision",
    "verifier_recall": "verifier recall",
}
_MEANS: Final = {
    "verifier_f1": ("verifier F1", "{:.3f}"),
    "rounds_mean": ("rounds", "{:.2f}"),
    "model_calls_mean": ("model calls", "{:.2f}"),
    "tool_calls_mean": ("tool calls", "{:.2f}"),
    "redundant_steps_mean": ("rounds past the best", "{:.2f}"),
    "input_tokens_mean": ("input tokens", "{:,.0f}"),
    "output_tokens_mean": ("output tokens", "{:,.0f}"),
    "estimated_tokens_mean": ("planning tokens, est.", "{:,.0f}"),
    "latency_mean_s": ("seconds", "{:.2f}"),
    "latency_p50_s": ("seconds, median", "{:.2f}"),
    "latency_p90_s": ("seconds, P90", "{:.2f}"),
    "first_token_mean_s": ("s to first token", "{:.2f}"),
    "verifier_mean_s": ("s in verifier", "{:.3f}"),
}
_ZERO_SAYS_NOTHING: Final = frozenset(
    {"repetition", "without_content", "cycles", "error_streaks", "monologues", "failure_share"}
)
_REMARKS: Final = {
    "without_content": "figures that compare rounds say nothing of these",
    "gcr": "no answer is recorded",
}


def summary_lines(row: SummaryRow) -> list[str]:
    """Put the metrics of one group into words; what the traces do not say is left out.

    Args:
        row: The group.

    Returns:
        Its lines, an empty one at the end.
    """
    lines = [_heading(list(row.group.values()), row.requests, "requests")]
    for name, words in _RATIOS.items():
        metric = row.metrics[name]
        if metric.value is not None and not (name in _ZERO_SAYS_NOTHING and not metric.count):
            remarked = name == "without_content" or (name == "gcr" and not metric.count)
            lines.append(_ratio(words, metric) + (f"  {_REMARKS[name]}" if remarked else ""))
    for name, (words, form) in _MEANS.items():
        metric = row.metrics[name]
        if metric.value is not None:
            interval = "" if metric.low is None else f"  ({form.format(metric.low)} to {form.format(metric.high)})"
            lines.append(f"  {words:<{_ROOM}}{form.format(metric.value)}{interval}")
    return [*lines, ""]


def savings_lines(savings: Savings) -> list[str]:
    """Put into words what a setting saves and loses in one group.

    Args:
        savings: The group's figures.

    Returns:
        Its lines, an empty one at the end.
    """
    lines = [
        _heading([savings.source, savings.model], savings.traces, "traces"),
        _share("cut short", savings.cut, savings.traces, None),
        _share("calls saved", savings.calls_saved, savings.calls, savings.calls_saved_interval),
        _share("planning tokens saved", savings.tokens_saved, savings.tokens, None),
    ]
    if savings.solved:
        lines.append(_share("solved ones lost", savings.lost, savings.solved, savings.lost_interval))
    if savings.unknown:
        lines.append(_share("solved, fate unknown", savings.unknown, savings.solved, None))
    if savings.redundant_rounds is not None and savings.redundant_step_reduction is not None:
        saved = f"{savings.redundant_step_reduction:.2f} of {savings.redundant_rounds:.2f} a trace"
        lines.append(f"  {'rounds past best saved':<{_ROOM}}{saved}")
    if savings.progress_degradation is not None:
        lines.append(f"  {'best reward lost':<{_ROOM}}{savings.progress_degradation:.4f} a trace")
    return [*lines, ""]


def sweep_lines(points: Sequence[SweepPoint]) -> list[str]:
    """Put a sweep into words: a block for each group, a line for each setting, a star on those no other beats.

    Args:
        points: What the sweep found.

    Returns:
        The lines.
    """
    lines: list[str] = []
    for _, group in groupby(points, key=lambda point: (point.savings.source, point.savings.model)):
        members = list(group)
        first = members[0].savings
        lines.append(_heading([first.source, first.model], first.traces, "traces"))
        for point in members:
            one = point.savings
            unknown = f" (+{one.unknown:,} unknown)" if one.unknown else ""
            lost = f"{one.lost:,}{unknown} of {one.solved:,} solved lost" if one.solved else "none solved"
            star = "*" if point.on_frontier else " "
            lines.append(f"{star} {point.label:<{_ROOM}}{one.calls_saved_share:>6.1%} of calls saved, {lost}")
        lines.append("")
    return [*lines, "* no other setting saves more at no higher loss"]


def _heading(names: Sequence[str | None], count: int, what: str) -> str:
    known = [one_line(name, _NAME_CHARS) for name in names if name]
    return f"{' · '.join(known) or 'all'} · {count:,} {what if count != 1 else what.removesuffix('s')}"


def _ratio(words: str, metric: Metric) -> str:
    interval = (metric.low, metric.high) if metric.low is not None and metric.high is not None else None
    return _line(words, metric.count or 0, metric.of or 0, metric.value or 0.0, interval)


def _share(words: str, count: float, of: float, interval: Interval | None) -> str:
    return _line(words, count, of, count / of if of else 0.0, interval)


def _line(words: str, count: float, of: float, value: float, interval: tuple[float, float] | None) -> str:
    counts = f"{_number(count)} of {_number(of)}"
    ends = "" if interval is None else f"  ({interval[0]:.1%} to {interval[1]:.1%})"
    return f"  {words:<{_ROOM}}{value:>6.1%}  {counts}{ends}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
