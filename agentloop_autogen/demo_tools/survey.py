"""Two sources that disagree about one figure."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["survey_tools"]


def survey_tools() -> tuple[Callable[..., str], ...]:
    """Make the tools of one run.

    Returns:
        `town_register` and `engineering_survey`.
    """
    return town_register, engineering_survey


def town_register(structure: str) -> str:
    """What the town register says about a structure."""
    if "bridge" not in structure.lower():
        return "No entry. Structures in the register: Tarn Bridge."
    return "Town register: Tarn Bridge, total length 412 m, opened 1958."


def engineering_survey(structure: str) -> str:
    """What the engineering survey says about a structure."""
    if "bridge" not in structure.lower():
        return "No entry. Structures surveyed: Tarn Bridge."
    return "Engineering survey: Tarn Bridge, total length 389 m, condition good."
