"""Everything a benchmark report shows, computed from attempts: what tables, figures and page are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentloop_autogen.bench.report.comparing import SUBJECT, Comparison, compare_all
from agentloop_autogen.bench.report.measuring import Cell, measure_cells
from agentloop_autogen.bench.report.reading import Results, ResultsGroup
from agentloop_autogen.bench.report.targets import Target, targets_of

__all__ = ["BenchReport", "GroupReport", "collect_bench_report", "on_frontier"]


@dataclass(frozen=True, kw_only=True)
class GroupReport:
    """The report on attempts with one model under one set of settings."""

    model: str
    settings: str
    notes: tuple[str, ...]
    cells: tuple[Cell, ...]
    comparisons: tuple[Comparison, ...]
    targets: tuple[Target, ...]
    """Empty where the subject was not run."""

    @property
    def families(self) -> tuple[str, ...]:
        """The families, in the order of their names."""
        return tuple(sorted({cell.family for cell in self.cells}))

    def cells_of(self, family: str) -> tuple[Cell, ...]:
        """Return the figures of the systems at one family."""
        return tuple(cell for cell in self.cells if cell.family == family)


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """A report on result files."""

    files: tuple[str, ...]
    """Their names, without folders."""
    groups: tuple[GroupReport, ...]
    """Those with attempts to report on."""


def collect_bench_report(results: Results, *, files: Sequence[str] = ()) -> BenchReport:
    """Compute a report.

    Args:
        results: The attempts.
        files: Names of the files they are from.

    Raises:
        MissingExtraError: Polars or SciPy is not installed.
    """
    groups = tuple(_group(group) for group in results.groups if group.attempts)
    return BenchReport(files=tuple(files), groups=groups)


def on_frontier(cells: Sequence[Cell]) -> frozenset[str]:
    """Return the systems of one family that no other beats: none solves as much for fewer tokens, or more for as many.

    Args:
        cells: The systems' figures at the family.
    """
    places = {cell.system: (cell.value("solved") or 0.0, -(cell.value("tokens_mean") or 0.0)) for cell in cells}
    return frozenset(
        name
        for name, place in places.items()
        if not any(
            other != place and all(a >= b for a, b in zip(other, place, strict=True)) for other in places.values()
        )
    )


def _group(group: ResultsGroup) -> GroupReport:
    cells = measure_cells(group.attempts)
    comparisons = compare_all(cells)
    has_subject = any(cell.system == SUBJECT for cell in cells)
    return GroupReport(
        model=group.model,
        settings=group.settings,
        notes=(*group.notes, *_uneven(cells)),
        cells=cells,
        comparisons=comparisons,
        targets=targets_of(cells, comparisons) if has_subject else (),
    )


def _uneven(cells: Sequence[Cell]) -> list[str]:
    """Say where the systems of a family did not do the same tasks: then their rows rest on different ones."""
    notes: list[str] = []
    for family in sorted({cell.family for cell in cells}):
        members = [cell for cell in cells if cell.family == family]
        if len({frozenset(cell.tasks) for cell in members}) > 1:
            fewest, most = min(len(cell.tasks) for cell in members), max(len(cell.tasks) for cell in members)
            many = f"{fewest} to {most}" if fewest != most else f"{most}, not all the same"
            notes.append(
                f"At {family} the systems did different tasks ({many}): rows of a table rest on different ones, "
                "paired comparisons on those that both did."
            )
    return notes
