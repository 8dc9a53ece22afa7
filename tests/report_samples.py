"""Reports made by hand: a full one, a large one, one of almost nothing, and one whose every text is out to do harm."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from agentloop_autogen.diagnostics.report import (
    Distribution,
    FrontierPoint,
    GroupRow,
    Metric,
    ReportData,
    RoundCell,
    SlotCell,
    Timeline,
    ToolCell,
)

HOSTILE = (
    '</script><script>window.harmed=1</script><img src=x onerror="window.harmed=1">{{7*7}}{% raw %}'
    "javascript:window.harmed=1 \x1b[31mred\x1b[0m \u202egnp.exe\u202c \x00nul \u200bזרים שלום \ud800 \U000e0041 "
    "\u2028<!--<script>`${window.harmed=1}` ' \" &lt;b&gt;"
)  # fmt: skip
"""Every kind of text that has ever got out of a box it was put in."""

GROUPS = (
    ("sql-bench: multi-turn, ten turns", "gpt-3.5"),
    ("sql-bench: multi-turn, ten turns", "vicuna-13b"),
    ("sql-bench: ReAct, ten turns", "gpt-3.5"),
    ("airline-desk", "gpt-4o"),
)
_REQUESTS = (
    "How many different nationalities do the conductors have?",
    "List the names of all singers who performed in a concert in 2014, oldest first.",
    "Which airline has the most flights into Aberdeen, and how many are they?",
    "Change the return flight to the earliest one on the same day and add one checked bag.",
    "What is the average age of the dogs that have gone through treatment?",
    "Show the stadium with the highest capacity and the number of concerts held in it.",
)
_SETTINGS = ("off", "paper", "patience=5", "patience=4", "extended", "patience=2", "patience=1", "first stable")


def ratio(name: str, count: float, of: float) -> Metric:
    """Return a share with a plausible interval."""
    value = count / of if of else None
    spread = 1.96 * ((value or 0) * (1 - (value or 0)) / max(of, 1)) ** 0.5
    low, high = (None, None) if value is None else (max(0.0, value - spread), min(1.0, value + spread))
    return Metric(name=name, value=value, count=count, of=of, low=low, high=high)


def mean(name: str, value: float | None, of: int) -> Metric:
    """Return an average with a plausible interval."""
    ends = (None, None) if value is None else (value * 0.9, value * 1.1)
    return Metric(name=name, value=value, of=of, low=ends[0], high=ends[1])


def group_row(source: str, model: str, requests: int, seed: int) -> GroupRow:
    """Return a group with every metric the page has a name for, some of them not recorded, and one it has none for."""
    dice = random.Random(seed)  # noqa: S311 -- samples, not secrets
    solved = int(requests * dice.uniform(0.3, 0.8))
    calls, low_value = requests * 7, requests - solved + min(3, solved)
    rate = dice.uniform(0.05, 0.3)
    shares = ("repetition", "cycles", "error_streaks", "monologues", "stable_gates", "error_results")
    unrecorded = ("slot_closure", "stable_hit", "verifier_f1", "verifier_mean_s")
    return GroupRow(
        source=source,
        model=model,
        requests=requests,
        metrics=(
            mean("rounds_mean", dice.uniform(4, 8), requests),
            Metric(name="requests", value=requests),
            ratio("solved", solved, requests),
            ratio("lgr", low_value, requests),
            ratio("failure_share", low_value - 2, low_value),
            ratio("lgts", int(calls * 0.6), calls),
            ratio("gcr", requests - 4, requests),
            ratio("duplicate_calls", int(calls * rate), calls),
            ratio("calls_saved", int(calls * rate * 0.8), calls),
            ratio("tokens_saved", int(calls * rate * 300), calls * 400),
            ratio("lost", int(solved * 0.02), solved),
            ratio("unknown", int(solved * 0.05), solved),
            *(ratio(name, int(requests * dice.uniform(0, 0.4)), requests) for name in shares),
            mean("tool_calls_mean", dice.uniform(4, 8), requests),
            mean("model_calls_mean", dice.uniform(5, 9), requests),
            mean("input_tokens_mean", dice.uniform(2_000, 9_000), requests),
            mean("output_tokens_mean", dice.uniform(200, 900), requests),
            mean("latency_p90_s", dice.uniform(10, 60), requests),
            mean("latency_mean_s", dice.uniform(5, 30), requests),
            ratio("post_tool_failure", requests - solved, requests),
            *(Metric(name=name, value=None) for name in unrecorded),
            Metric(name="home_made_figure", value=3.25),
        ),
    )


def distributions(source: str, model: str, requests: int, seed: int) -> list[Distribution]:
    """Return every quantity of a group, once for each outcome."""
    dice = random.Random(seed)  # noqa: S311 -- samples, not secrets
    drawn = {
        "rounds": lambda: min(10, 1 + int(dice.expovariate(0.22))),
        "tool_calls": lambda: int(dice.expovariate(0.2)),
        "tokens": lambda: int(dice.lognormvariate(8, 1.1)),
        "elapsed_s": lambda: round(dice.lognormvariate(2, 0.5), 1),
        "calls_saved": lambda: max(0, int(dice.gauss(0, 2))),
    }
    found: list[Distribution] = []
    for quantity, draw in drawn.items():
        for solved, part in ((True, requests // 2), (False, requests // 3), (None, requests // 12)):
            counts = Counter(float(draw()) for _ in range(part))
            values = tuple(sorted(counts))
            found.append(
                Distribution(
                    quantity=quantity,
                    source=source,
                    model=model,
                    solved=solved,
                    values=values,
                    counts=tuple(counts[value] for value in values),
                )
            )
    return found


def frontier(source: str, model: str, requests: int, seed: int) -> list[FrontierPoint]:
    """Return the settings of a group, from saving nothing to saving much at a loss."""
    dice = random.Random(seed)  # noqa: S311 -- samples, not secrets
    points: list[FrontierPoint] = []
    calls, solved, best = requests * 7, max(1, requests // 2), -1
    for place, label in enumerate(_SETTINGS):
        saved = int(calls * (0.05 * place) * dice.uniform(0.7, 1.1))
        lost = int(solved * 0.004 * place**1.8)
        points.append(
            FrontierPoint(
                label=label,
                settings=f"policy=extended, {label}, two_strikes=True",
                source=source,
                model=model,
                calls=calls,
                calls_saved=saved,
                solved=solved,
                lost=lost,
                unknown=place,
                on_frontier=saved > best,
                is_default=label == "extended",
            )
        )
        best = max(best, saved)
    return points


def timeline(place: int, source: str, model: str, *, rounds: int = 0) -> Timeline:
    """Return a request that searches, errs, repeats itself and is cut short, or is not."""
    dice = random.Random(place)  # noqa: S311 -- samples, not secrets
    request = _REQUESTS[place % len(_REQUESTS)]
    length = rounds or dice.choice((3, 4, 6, 8, 10, 10))
    stopped = length // 2 if length > 5 else None
    solved = (True, False, None)[place % 3]
    cells = tuple(_round(index, length, stopped) for index in range(length))
    calls = sum(len(cell.tools) for cell in cells)
    saved = 0 if stopped is None else sum(len(cell.tools) for cell in cells[stopped + 1 :])
    return Timeline(
        id=f"task-{place:03}",
        source=source,
        model=model,
        request=request,
        answer="" if place % 4 == 3 else f"The answer to number {place} is 3.",
        solved=solved,
        solved_after=None if stopped is None else solved,
        low_value=solved is False,
        stopped_at=stopped,
        calls=calls,
        calls_saved=saved,
        rounds=cells,
        rounds_left_out=2 if place % 7 == 6 else 0,
    )


def _round(index: int, length: int, stopped: int | None) -> RoundCell:
    marks = (("news",), ("error",), ("news",), ("repeat", "error", "same_error"), ("stable", "nothing_new"))
    many = (*marks, ("repeat", "cycle"), ("monologue",), ("stable",), (), ("news",))
    mark = many[index % len(many)]
    failed = "error" in mark
    tool = ToolCell(
        name="run_sql",
        arguments='{"query": "SELECT COUNT(DISTINCT nationality)\\n  FROM conductor"}',
        result=None if index == length - 1 else "Table 'orchestra.conductors' does not exist" if failed else "[(3,)]",
        is_error=failed,
    )
    last = index == length - 1 or index == stopped
    return RoundCell(
        text="The table is called conductor; I count its nationalities." if index % 2 else "",
        tools=() if "monologue" in mark else (tool,) * (1 + index % 2),
        reward=round(min(1.0, index / 5), 2),
        turn=0,
        marks=mark,
        action="terminate_iteration" if last else "continue_invocation",
        branch="exhausted_break" if index == stopped else "need_tool_round",
        reason="nothing new came after the nudge either" if index == stopped else "information is still missing",
        slots=(
            SlotCell(
                name="number of nationalities", state="supported" if last else "missing", quote="(3,)" if last else ""
            ),
            SlotCell(name="table name", state="unsynthesised", quote="conductor"),
        ),
    )


def full_report(*, groups: int = 4, timelines: int = 60, rounds: int = 0) -> ReportData:
    """Return a report with something in every part."""
    pairs = [
        GROUPS[place] if place < len(GROUPS) else (f"source {place}", f"model {place % 3}") for place in range(groups)
    ]
    numbered = list(enumerate(pairs))
    return ReportData(
        title="SQL and airline traces, before and after",
        loop="policy=extended, patience=3, tau_call=0.90, tau_result=0.90",
        groups=tuple(group_row(*pair, 1_034 if place < 3 else 200, place) for place, pair in numbered),
        distributions=tuple(part for place, pair in numbered for part in distributions(*pair, 300, place)),
        frontier=tuple(point for place, pair in numbered for point in frontier(*pair, 400, place)),
        timelines=tuple(
            timeline(place, *pairs[(place // len(_REQUESTS)) % len(pairs)], rounds=rounds) for place in range(timelines)
        ),
        notes=(
            "12 lines of 3,301 were no JSON and were skipped.",
            f"{timelines} of 3,302 requests are shown one by one: those that save most, and a sample of the others.",
        ),
    )


def single_report() -> ReportData:
    """Return a report about one group of which little is known: no outcome, no frontier, no requests one by one."""
    source, model = "log.jsonl", ""
    return ReportData(
        title="One log",
        loop="",
        groups=(GroupRow(source=source, model=model, requests=2, metrics=(Metric(name="solved", value=None),)),),
        distributions=(
            Distribution(quantity="rounds", source=source, model=model, solved=None, values=(3.0,), counts=(2,)),
        ),
        frontier=(),
        timelines=(),
    )


def empty_report() -> ReportData:
    """Return a report about nothing at all."""
    return ReportData(title="Nothing", loop="", groups=(), distributions=(), frontier=(), timelines=())


def hostile_report(text: str = HOSTILE) -> ReportData:
    """Return a report in which every text that comes from a trace is `text`."""
    cell = RoundCell(
        text=text,
        tools=(
            ToolCell(name=text, arguments=text, result=text, is_error=True),
            ToolCell(name=text, arguments="", result=None),
        ),
        reward=0.5,
        turn=0,
        marks=("error", text),
        action=text,
        branch=text,
        reason=text,
        slots=(SlotCell(name=text, state=text, quote=text),),
    )  # fmt: skip
    shown = replace(timeline(1, text, text), id=text, request=text, answer=text, rounds=(cell, cell), stopped_at=0)
    other = replace(shown, model="tame")
    metric = Metric(name=text, value=0.5)
    return ReportData(
        title=text,
        loop=text,
        groups=tuple(
            GroupRow(source=text, model=model, requests=2, metrics=(ratio("solved", 1, 2), metric))
            for model in (text, "tame")
        ),
        distributions=tuple(distributions(text, text, 30, 1)),
        frontier=tuple(
            replace(point, label=f"{text} {point.label}", settings=text) for point in frontier(text, text, 40, 1)
        ),
        timelines=(shown, other),
        notes=(text,),
    )
