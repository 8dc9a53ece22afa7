"""The tables of one family of tasks, one row for each system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from agentloop_autogen.bench.report.collect import on_frontier
from agentloop_autogen.bench.report.comparing import SUBJECT, Comparison, Delta, is_baseline
from agentloop_autogen.bench.report.measuring import Cell
from agentloop_autogen.bench.report.numbers import (
    UNKNOWN,
    amount,
    ends,
    metric_amount,
    metric_share,
    p_value,
    share,
    told,
)

__all__ = ["Table", "tables_of"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts, not yet escaped for anything."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """What its figures mean."""
    text_columns: int = 1
    """How many columns from the left hold words; the others hold numbers."""


_Column = tuple[str, Callable[[Cell], str]]


def _amount(key: str) -> Callable[[Cell], str]:
    return lambda cell: amount(cell.value(key))


def _amount_with_interval(key: str) -> Callable[[Cell], str]:
    return lambda cell: metric_amount(cell.figures[key])


def _share(key: str) -> Callable[[Cell], str]:
    return lambda cell: share(cell.value(key))


def _share_with_counts(key: str) -> Callable[[Cell], str]:
    return lambda cell: metric_share(cell.figures[key])


_SOLVED: Final[tuple[_Column, ...]] = (
    ("Tasks", lambda cell: str(len(cell.tasks))),
    ("Accuracy (Wilson)", _share_with_counts("solved")),
    ("Rounds", _amount("rounds_mean")),
    ("LLM calls", _amount("model_calls_mean")),
    ("Tool calls", _amount("tool_calls_mean")),
    ("of them exact duplicates", _amount("duplicate_calls_mean")),
    ("Failed attempts", lambda cell: _failed(cell)),
)
_TOKENS: Final[tuple[_Column, ...]] = (
    ("Input", _amount("input_tokens_mean")),
    ("Output", _amount("output_tokens_mean")),
    ("Total (normal)", _amount_with_interval("tokens_mean")),
    ("Per solved task (bootstrap)", _amount_with_interval("tokens_per_solved")),
    ("Redundant, estimate", _share("redundant_tokens")),
)
_TIME: Final[tuple[_Column, ...]] = (
    ("Mean s (normal)", _amount_with_interval("latency_mean_s")),
    ("P50 s", _amount("latency_p50_s")),
    ("P90 s", _amount("latency_p90_s")),
    ("Model s", _amount("model_s_mean")),
    ("Tool s", _amount("tool_s_mean")),
    ("Control s", _amount("control_s_mean")),
    ("Waiting s", _amount("waiting_s_mean")),
    ("First token, mean s", lambda cell: _first_token(cell, "first_token_mean_s")),
    ("First token, P90 s", lambda cell: _first_token(cell, "first_token_p90_s")),
)
_LOW_VALUE: Final[tuple[_Column, ...]] = (
    ("LGR (Wilson)", _share_with_counts("lgr")),
    ("LGTS (linearised)", _share_with_counts("lgts")),
    ("Failed after tools", _share("post_tool_failure")),
    ("Repeated answers", _share("repetition")),
    ("Rounds with no news", _share("idle_rounds")),
)
_CONTROL: Final[tuple[_Column, ...]] = (
    ("Slot closure (Wilson)", _share_with_counts("slot_closure")),
    ("Stable hit", _share_with_counts("stable_hit")),
    ("Stable stop", _share_with_counts("stable_stop")),
    ("STSSR", _share("stssr")),
    ("Verifier, share of tokens", _share("verifier_token_share")),
    ("Verifier, share of time", _share("verifier_share")),
    ("Verifier s", _amount("verifier_mean_s")),
)
_COMPARED: Final = ("solved", "tokens", "tokens_per_solved", "tool_calls", "model_calls", "rounds", "latency_s")


def tables_of(cells: Sequence[Cell], comparisons: Sequence[Comparison]) -> tuple[Table, ...]:
    """Return the tables of one family; those without rows are left out.

    Args:
        cells: The systems at the family.
        comparisons: The subject against the others there.
    """
    controlled = [cell for cell in cells if cell.value("stable_hit") is not None]
    baselines = [one for one in comparisons if is_baseline(one.other)]
    variants = [one for one in comparisons if not is_baseline(one.other)]
    tables = (
        _table("Accuracy and depth", cells, _SOLVED, "Means per task; a failed attempt counts as not solved."),
        _table("Tokens", cells, _TOKENS, "Means per task, all model calls counted: planning, verifier, answer."),
        _table("Time", cells, _TIME, _time_note(cells)),
        _table("Low-value work", cells, _LOW_VALUE, "LGR and LGTS as in the paper: shares of tasks and of tool calls."),
        _table("Control and verification", controlled, _CONTROL, "Over the attempts whose decisions are recorded."),
        _comparison("Paired comparison with the baselines", baselines),
        _comparison("Ablation: the whole system against its variants", variants),
        _frontier(cells),
    )
    return tuple(table for table in tables if table.rows)


def _failed(cell: Cell) -> str:
    """Return how many attempts of a system failed as such."""
    return f"{cell.figures['failed'].count or 0:.0f}"


def _table(title: str, cells: Sequence[Cell], columns: Sequence[_Column], note: str) -> Table:
    rows = tuple((cell.system, *(tell(cell) for _, tell in columns)) for cell in cells)
    return Table(title=title, columns=("System", *(name for name, _ in columns)), rows=rows, note=note)


def _first_token(cell: Cell, key: str) -> str:
    metric = cell.figures[key]
    if metric.value is None:
        return "not streamed"
    part = "" if metric.of == len(cell.tasks) else f" ({metric.of or 0:.0f} of {len(cell.tasks)})"
    return f"{amount(metric.value)}{part}"


def _time_note(cells: Sequence[Cell]) -> str:
    note = (
        "Model, tool, control and waiting time add up to the mean. First token: of the last reply without tool calls."
    )
    if any(cell.figures["first_token_mean_s"].value is None for cell in cells):
        note += " It is known only of streamed replies."
    return note


def _comparison(title: str, comparisons: Sequence[Comparison]) -> Table:
    first = [one.deltas for one in comparisons]
    keys = [key for key in _COMPARED if any(key in deltas for deltas in first)]
    labels = [next(deltas[key].compared.label for deltas in first if key in deltas) for key in keys]
    columns = ("Against", "Tasks of both", *(f"{label[0].upper()}{label[1:]}" for label in labels), "McNemar p")
    rows = tuple(
        (one.other, str(one.tasks), *(_delta(one.deltas.get(key)) for key in keys), _exact_p(one))
        for one in comparisons
    )
    note = (
        f"{SUBJECT} against each: difference of accuracy, ratio of everything else (below 1: {SUBJECT} takes less); "
        "95 % intervals by the paired percentile bootstrap, p of the exact McNemar test."
    )
    return Table(title=title, columns=columns, rows=rows, note=note)


def _delta(delta: Delta | None) -> str:
    if delta is None:
        return UNKNOWN
    interval = ends(delta)
    return f"{told(delta)} ({interval})" if interval else told(delta)


def _exact_p(comparison: Comparison) -> str:
    found = comparison.deltas.get("solved")
    return UNKNOWN if found is None or found.p_value is None else p_value(found.p_value)


def _frontier(cells: Sequence[Cell]) -> Table:
    best = on_frontier(cells)
    ordered = sorted(cells, key=lambda cell: cell.value("tokens_mean") or 0.0)
    rows = tuple(
        (
            cell.system,
            amount(cell.value("tokens_mean")),
            share(cell.value("solved")),
            "yes" if cell.system in best else "no",
        )
        for cell in ordered
    )
    note = "On the frontier: no other system solves as much for fewer tokens, or more for as many."
    return Table(
        title="Accuracy against tokens",
        columns=("System", "Tokens", "Accuracy", "On the frontier"),
        rows=rows,
        note=note,
    )
