"""Fits the defaults of `extended` on half of the requests of recorded traces and reports the other half.

    python bench/choose_defaults.py TRACES.jsonl.gz ...

Requests are split by the hash of their text, so all runs of one question fall into the same half. Searched are the
patience of the two strikes and the length of a same-error streak; fitted is what saves the most tool calls while losing
at most `--loss` of the solved traces. A solved trace cut short of which nothing says whether it stays solved counts as
lost. The other half is only reported, by source and model.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from agentloop_autogen import LoopConfig
from agentloop_autogen.core import patterns
from agentloop_autogen.diagnostics import Trace, load_traces, replay
from agentloop_autogen.diagnostics.savings import Savings

PATIENCE = range(1, 7)
STREAKS = (2, 3, 4, 5)
GATES = {
    "exact gate": LoopConfig(policy="paper", call_similarity=False, result_similarity=False),
    "paper gate": LoopConfig(policy="paper"),
}


@dataclass(frozen=True)
class Setting:
    """One point of the search."""

    patience: int
    streak: int

    def __str__(self) -> str:
        return f"patience {self.patience}, error streak {self.streak}"


@contextmanager
def error_streak(length: int) -> Generator[None, None, None]:
    """Let so many errors of one kind in a row be a pattern; it is no setting of the package."""
    with mock.patch.object(patterns, "ERROR_STREAK", length):
        yield


def in_first_half(trace: Trace) -> bool:
    """Return whether the request of a trace falls into the half that is fitted on."""
    return hashlib.sha256(trace.request.encode()).digest()[0] % 2 == 0


def savings(traces: Sequence[Trace], loop: LoopConfig, *, streak: int | None = None) -> tuple[Savings, ...]:
    """Return what a setting saves and loses by source and model, the sum over all last."""
    with error_streak(streak or patterns.ERROR_STREAK):
        result = replay(traces, loop)
    return (*result.savings(), *result.savings(by=()))


def line(cells: Sequence[object]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def figures(one: Savings) -> str:
    """Return what is saved and lost, with the counts."""
    unknown = f" (+{one.unknown}?)" if one.unknown else ""
    return f"{one.calls_saved_share:.1%} saved, {one.lost}{unknown} of {one.solved} lost"


def search(traces: Sequence[Trace], *, loss: float) -> Setting:
    """Print the whole search on `traces` and return the setting that saves the most within `loss`."""
    print(line(["setting", "calls saved", "solved traces lost", "within"]))
    print(line(["---"] * 4))
    best: tuple[int, Setting] | None = None
    for patience in PATIENCE:
        for streak in STREAKS:
            setting = Setting(patience, streak)
            total = savings(traces, LoopConfig(patience=patience), streak=streak)[-1]
            lost = total.lost + total.unknown
            within = lost <= loss * total.solved
            share = f"{lost} of {total.solved} ({lost / total.solved:.2%}), {total.unknown} of them unknown"
            print(line([setting, f"{total.calls_saved_share:.1%}", share, "yes" if within else "no"]))
            if within and (best is None or total.calls_saved > best[0]):
                best = (total.calls_saved, setting)
    if best is None:
        raise SystemExit(f"no setting loses at most {loss:.1%} of the solved traces")
    return best[1]


def report(traces: Sequence[Trace], chosen: Setting) -> None:
    """Print the chosen setting beside the gates, by source and model."""
    columns = {label: savings(traces, loop) for label, loop in GATES.items()}
    columns[f"extended ({chosen})"] = savings(traces, LoopConfig(patience=chosen.patience), streak=chosen.streak)
    print(line(["traces", "model", *columns]))
    print(line(["---"] * (2 + len(columns))))
    for row in zip(*columns.values(), strict=True):
        name = "all" if row[0].source is None else f"`{row[0].source}` ({row[0].traces})"
        print(line([name, row[0].model or "", *map(figures, row)]))


def main() -> None:
    """Fit and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="+", help="files of traces with a reward at every step")
    parser.add_argument("--loss", type=float, default=0.005, help="share of solved traces that may be lost")
    args = parser.parse_args()
    halves: dict[bool, list[Trace]] = {True: [], False: []}
    for path in args.traces:
        for trace in load_traces(path):
            halves[in_first_half(trace)].append(trace)
    fitted = len(halves[True])
    print(f"Fitted on {fitted} traces, half of the requests, with at most {args.loss:.1%} of the solved ones lost:\n")
    chosen = search(halves[True], loss=args.loss)
    print(f"\nChosen: {chosen}. The {len(halves[False])} traces of the other half:\n")
    report(halves[False], chosen)


if __name__ == "__main__":
    main()
