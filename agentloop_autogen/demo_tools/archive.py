"""A town register that knows its towns, and an archive that holds nothing at all about the question."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["archive_tools"]


def archive_tools() -> tuple[Callable[..., str], ...]:
    """Make the tools of one run.

    Returns:
        `town_facts` and `search_archive`.
    """
    return town_facts, search_archive


def town_facts(town: str) -> str:
    """Population, area and mayor of a town."""
    if town.strip().lower() != "quellmoor":
        return "No such town. Towns in the register: Quellmoor."
    return "Quellmoor: population 4,310; area 27.5 square kilometres; mayor Ilse Brandtner."


def search_archive(query: str) -> str:
    """Search the archive of buildings and their architects."""
    return f"0 entries found for: {query}"
