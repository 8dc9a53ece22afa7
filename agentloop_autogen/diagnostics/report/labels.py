"""What the figures are called, what they mean, and which way is better: the one place for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["HEADLINE", "METRICS", "QUANTITIES", "Better", "MetricText", "Quantity", "Unit", "text_of"]


class Unit(str, Enum):
    """What a figure is counted in."""

    SHARE = "share"
    NUMBER = "number"
    SECONDS = "seconds"
    TOKENS = "tokens"


class Better(str, Enum):
    """Which way of a difference is the good one."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, kw_only=True)
class MetricText:
    """How one metric is shown."""

    label: str
    meaning: str
    unit: Unit = Unit.SHARE
    """What its value is counted in where it is no ratio; a ratio is always a share."""
    better: Better = Better.NEITHER
    topic: str = "Other"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """How one quantity of a distribution is shown."""

    label: str
    axis: str
    whole: bool
    """Whether it comes in whole numbers."""


_HIGHER, _LOWER, _NEITHER = Better.HIGHER, Better.LOWER, Better.NEITHER
_SHARE, _NUMBER, _SECONDS, _TOKENS = Unit.SHARE, Unit.NUMBER, Unit.SECONDS, Unit.TOKENS

_TABLE: Final[dict[str, tuple[tuple[str, str, Unit, Better, str], ...]]] = {
    "Outcome": (
        ("requests", "Requests", _NUMBER, _NEITHER, "Requests the figures are about."),
        ("solved", "Solved", _SHARE, _HIGHER, "Requests judged solved, of those that were judged."),
        ("gcr", "GCR", _SHARE, _HIGHER, "Graph closure rate: the run ended without a fault, with an answer, and no "
         "call was left waiting. It does not say that the answer is right."),
        ("best_reward_mean", "Best reward", _NUMBER, _HIGHER, "Best reward of a request, from 0 to 1, on average."),
        ("post_tool_failure", "Failed after tools", _SHARE, _LOWER, "Requests that used a tool and were not solved."),
    ),
    "Low-value work": (
        ("lgr", "LGR", _SHARE, _LOWER, "Low-gain request rate: requests that failed after using tools, or whose "
         "answers repeat."),
        ("failure_share", "Mere failure in LGR", _SHARE, _NEITHER, "Low-value requests that are so only because they "
         "failed; near 100 % LGR says little beyond the failure rate."),
        ("lgts", "LGTS", _SHARE, _LOWER, "Low-gain tool-call share: tool calls spent on low-value requests."),
        ("without_content", "Calls without content", _SHARE, _NEITHER, "Requests whose calls are recorded without "
         "arguments and results: figures that compare rounds say nothing of them."),
        ("repetition", "Repeated answers", _SHARE, _LOWER, "Requests with neighbouring answers that repeat, or a final "
         "answer that repeats itself."),
        ("duplicate_calls", "Duplicate calls", _SHARE, _LOWER, "Calls that repeat an earlier call of the same request "
         "exactly."),
        ("error_results", "Error results", _SHARE, _LOWER, "Tool results that are errors."),
        ("cycles", "With a cycle", _SHARE, _LOWER, "Requests in which a run of rounds came round again."),
        ("error_streaks", "With an error streak", _SHARE, _LOWER, "Requests with the same error several rounds in a "
         "row."),
        ("monologues", "With a monologue", _SHARE, _LOWER, "Requests in which the model said the same twice with "
         "nothing between."),
        ("stable_gates", "Stable rounds", _SHARE, _NEITHER, "Rounds whose calls and results are those of the round "
         "before, or nearly."),
        ("repeated_rounds", "Repeated rounds", _SHARE, _LOWER, "Rounds that are the round before once more."),
        ("idle_rounds", "Idle rounds", _SHARE, _LOWER, "Rounds that called tools and brought nothing new."),
        ("redundant_tokens", "Redundant tokens", _TOKENS, _LOWER, "Estimated tokens of rounds that brought nothing "
         "new."),
        ("redundant_steps_mean", "Redundant rounds", _NUMBER, _LOWER, "Rounds a request went on after the last one "
         "that brought anything, on average."),
    ),
    "The replayed loop": (
        ("calls_saved", "Calls saved", _SHARE, _HIGHER, "Tool calls that would not have been made had the replayed "
         "loop been in charge."),
        ("tokens_saved", "Tokens saved", _SHARE, _HIGHER, "Tokens that would not have been spent."),
        ("lost", "Lost of solved", _SHARE, _LOWER, "Solved requests the loop would have ended before they were "
         "solved."),
        ("unknown", "Unclear of solved", _SHARE, _NEITHER, "Solved requests the loop would have cut short, where the "
         "trace cannot say whether they were solved by then."),
        ("redundant_step_reduction", "Redundant rounds cut", _SHARE, _HIGHER, "Share of the redundant rounds that the "
         "loop would have cut."),
        ("progress_degradation", "Progress lost", _SHARE, _LOWER, "How much of the best reward, from 0 to 1, is "
         "missing where the loop would have stopped, on average."),
    ),
    "Loop control": (
        ("slot_closure", "Slot closure", _SHARE, _HIGHER, "Requests whose last verification found the answer complete "
         "and no tool needed."),
        ("stable_hit", "Stable hit", _SHARE, _NEITHER, "Requests in which the stability gate was checked at least "
         "once."),
        ("stable_stop", "Stable stop", _SHARE, _NEITHER, "Requests that stability ended early."),
        ("stssr", "STSSR", _SHARE, _NEITHER, "Stable tool-set stop rate: checks of the stability gate that stopped "
         "the loop."),
    ),
    "Cost": (
        ("rounds_mean", "Rounds", _NUMBER, _LOWER, "Rounds of a request, on average."),
        ("model_calls_mean", "Model calls", _NUMBER, _LOWER, "Model calls of a request, on average."),
        ("tool_calls_mean", "Tool calls", _NUMBER, _LOWER, "Tool calls of a request, on average."),
        ("input_tokens_mean", "Input tokens", _TOKENS, _LOWER, "Tokens read for a request, on average."),
        ("output_tokens_mean", "Output tokens", _TOKENS, _LOWER, "Tokens written for a request, on average."),
        ("estimated_tokens_mean", "Planning tokens", _TOKENS, _LOWER, "Tokens of the planning calls of a request, "
         "estimated by length where they were not recorded, on average."),
        ("latency_mean_s", "Time, mean", _SECONDS, _LOWER, "Wall time of a request, on average."),
        ("latency_p50_s", "Time, median", _SECONDS, _LOWER, "Half of the requests took no longer."),
        ("latency_p90_s", "Time, 90th percentile", _SECONDS, _LOWER, "Nine in ten requests took no longer."),
        ("first_token_mean_s", "First token, mean", _SECONDS, _LOWER, "Time until the first token of the answer, on "
         "average."),
        ("first_token_p50_s", "First token, median", _SECONDS, _LOWER, "In half of the requests the answer began no "
         "later."),
        ("first_token_p90_s", "First token, 90th percentile", _SECONDS, _LOWER, "In nine of ten requests the answer "
         "began no later."),
    ),
    "Verifier": (
        ("verifier_share", "Verifier share of time", _SHARE, _LOWER, "Share of the wall time spent in verification."),
        ("verifier_mean_s", "Verifier time", _SECONDS, _LOWER, "Time spent in verification per request, on average."),
        ("verifier_precision", "Verifier precision", _SHARE, _HIGHER, "Requests the verifier called complete that a "
         "judge calls complete too."),
        ("verifier_recall", "Verifier recall", _SHARE, _HIGHER, "Requests a judge calls complete that the verifier "
         "called complete too."),
        ("verifier_f1", "Verifier F1", _SHARE, _HIGHER, "Harmonic mean of precision and recall."),
    ),
}  # fmt: skip

METRICS: Final[dict[str, MetricText]] = {
    key: MetricText(label=label, meaning=meaning, unit=unit, better=better, topic=topic)
    for topic, rows in _TABLE.items()
    for key, label, unit, better, meaning in rows
}
"""Metrics by key, in the order in which they are shown."""

HEADLINE: Final = ("solved", "lgr", "failure_share", "lgts", "gcr", "duplicate_calls", "calls_saved", "lost", "unknown")
"""The metrics of the overview, in order."""

QUANTITIES: Final[dict[str, Quantity]] = {
    "rounds": Quantity(label="Rounds", axis="rounds per request", whole=True),
    "tool_calls": Quantity(label="Tool calls", axis="tool calls per request", whole=True),
    "tokens": Quantity(label="Tokens", axis="tokens per request", whole=True),
    "elapsed_s": Quantity(label="Time", axis="seconds per request", whole=False),
    "calls_saved": Quantity(label="Calls saved", axis="calls saved per request", whole=True),
}
"""Quantities by key, in the order in which they are shown."""


def text_of(key: str) -> MetricText:
    """Return how a metric is shown; one that is not in the table is shown under its own key."""
    return METRICS.get(key) or MetricText(label=key, meaning="", unit=Unit.NUMBER)
