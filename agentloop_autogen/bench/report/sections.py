"""A benchmark report in words and tables, before it is Markdown, a page or lines on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentloop_autogen.bench.report.collect import BenchReport, GroupReport
from agentloop_autogen.bench.report.comparing import SUBJECT, Comparison, Delta, Kind, is_baseline
from agentloop_autogen.bench.report.numbers import UNKNOWN, amount, ends, p_value, share, told
from agentloop_autogen.bench.report.tables import Table, tables_of
from agentloop_autogen.bench.report.targets import Target

__all__ = ["NO_RESULTS", "Section", "summary_sections", "table_sections"]

NO_RESULTS: Final = "There are no results yet: no result file was given, or it holds no attempts of the kind asked for."
_TARGET_COLUMNS: Final = ("Family", "Target", "Against", "Figure", "95 % interval", "Verdict")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands under it."""

    title: str
    level: int
    """Of the heading; 2 is the first below the title of the page."""
    text: tuple[str, ...] = ()
    """Paragraphs."""
    points: tuple[str, ...] = ()
    """A list."""
    tables: tuple[Table, ...] = ()
    family: str = ""
    """The family it is about, whose figures follow it; empty: none."""
    group: int = 0
    """Index of the group it is about."""


def summary_sections(report: BenchReport) -> tuple[Section, ...]:
    """Return what comes first: where the subject does worse, then the targets.

    Args:
        report: The report.
    """
    if not report.groups:
        return (Section(title="Where AgentLoop does worse", level=2, text=(NO_RESULTS,)),)
    return tuple(section for group in report.groups for section in _summary(group, _suffix(report, group)))


def table_sections(report: BenchReport) -> tuple[Section, ...]:
    """Return the tables, family by family.

    Args:
        report: The report.
    """
    if not report.groups:
        return (Section(title="Figures", level=2, text=(NO_RESULTS,)),)
    return tuple(section for place, group in enumerate(report.groups) for section in _figures(report, group, place))


def _suffix(report: BenchReport, group: GroupReport) -> str:
    return f" ({group.model}, settings {group.settings})" if len(report.groups) > 1 else ""


def _summary(group: GroupReport, suffix: str) -> Iterator[Section]:
    title = f"Where AgentLoop does worse{suffix}"
    if not group.comparisons:
        why = f"Nothing can be said: {SUBJECT} and another system have no task in common."
        yield Section(title=title, level=2, text=(why,))
    else:
        yield _worse(title, [one for one in group.comparisons if is_baseline(one.other)], "a baseline")
    if group.targets:
        table = Table(title="", columns=_TARGET_COLUMNS, rows=tuple(map(_target_row, group.targets)), text_columns=6)
        met = sum(target.met is True for target in group.targets)
        missed = sum(target.met is False for target in group.targets)
        words = f"{met} met, {missed} missed, {len(group.targets) - met - missed} without data to tell."
        yield Section(title=f"Targets{suffix}", level=2, text=(words,), tables=(table,))
    own = [one for one in group.comparisons if not is_baseline(one.other)]
    if own:
        yield _worse(f"Where AgentLoop does worse than its own variants{suffix}", own, "a variant")


def _worse(title: str, comparisons: Sequence[Comparison], than: str) -> Section:
    points = tuple(
        f"{one.family}, against {one.other} ({one.tasks} tasks): {'; '.join(found)}."
        for one in comparisons
        if (found := [_worse_words(delta) for delta in one.deltas.values() if delta.worse])
    )
    text = (
        f"Every figure in which {SUBJECT} is worse than {than} on the tasks both did, by however little; the interval "
        "says which of them may be chance.",
    )
    none = () if points else (f"In none of the figures compared is it worse than {than}.",)
    return Section(title=title, level=2, text=(*text, *none), points=points)


def _worse_words(delta: Delta) -> str:
    unit = delta.compared.unit
    if delta.compared.kind is Kind.SHARE:
        values = f"{share(delta.mine)} against {share(delta.theirs)}"
    else:
        values = f"{amount(delta.mine)}{unit} against {amount(delta.theirs)}{unit}"
    interval = ends(delta)
    basis = [f"95 % interval {interval}"] if interval else []
    if delta.p_value is not None:
        basis.append(f"McNemar p {p_value(delta.p_value)}")
    if not delta.beyond_chance:
        basis.append("may be chance")
    return f"{delta.compared.label} {values}, {told(delta)} ({', '.join(basis)})"


def _target_row(target: Target) -> tuple[str, ...]:
    if target.count is not None:
        figure, interval = f"{target.count} tasks", ""
    elif target.delta is not None:
        figure, interval = told(target.delta), ends(target.delta)
    else:
        figure, interval = UNKNOWN, ""
    verdict = {None: "no data", True: "met", False: "missed"}[target.met]
    if target.met is not None and not target.beyond_chance:
        verdict += ", may be chance"
    return target.family, target.wanted, target.against or UNKNOWN, figure, interval or UNKNOWN, verdict


def _figures(report: BenchReport, group: GroupReport, place: int) -> Iterator[Section]:
    files = f"From {', '.join(report.files)}." if report.files else ""
    about = f"Model {group.model}, settings {group.settings}. {files}".strip()
    yield Section(title=f"Figures{_suffix(report, group)}", level=2, text=(about,), points=group.notes)
    by_family: Mapping[str, list[Comparison]] = {family: [] for family in group.families}
    for comparison in group.comparisons:
        by_family[comparison.family].append(comparison)
    for family, comparisons in by_family.items():
        tables = tables_of(group.cells_of(family), comparisons)
        yield Section(title=family, level=3, tables=tables, family=family, group=place)
