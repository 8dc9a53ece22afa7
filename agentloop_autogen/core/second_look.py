"""The second look before a run ends: which open items past requests bring up that the verdict at hand left out.

A hint can keep a run going and nothing else. What it adds is the name of an item that is not covered yet; what ends a
run is a verdict that was given without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentloop_autogen.core.grounding import ground_slots
from agentloop_autogen.core.normalise import plain_line
from agentloop_autogen.core.records import Evidence, Failure, Slot, SlotState, UnavailableVerdict, Verdict
from agentloop_autogen.core.similarity import text_similarity

__all__ = ["candidates", "unlisted", "with_candidates"]

_MAX_CANDIDATES: Final = 3
_NAME_CHARS: Final = 60
_SAME_KIND: Final = 0.5
"""ρ of two names from which on they mean the same kind of item, whatever it is of."""
_SAME_ITEM: Final = 0.85
"""ρ of two names from which on they mean the same item."""
_BROUGHT_UP: Final = 0.4
"""ρ of an open item's name and of one that was proposed from which on the one comes from the other."""


def unlisted(proposed: Sequence[str], verdict: Verdict) -> tuple[str, ...]:
    """Return the proposed items that no item of the verdict stands for: a second look is worth taking for them.

    Each item stands for one proposed item at most, the most alike first: two prices of a request are two items.

    Args:
        proposed: Names of what similar requests needed.
        verdict: What was said without knowing them.
    """
    listed = _names(verdict)
    pairs = [(_alike(name, other), name, place) for name in proposed for place, other in enumerate(listed)]
    stood_for, taken = set[str](), set[int]()
    for alike, name, place in sorted(pairs, reverse=True):
        if alike >= _SAME_KIND and name not in stood_for and place not in taken:
            stood_for.add(name)
            taken.add(place)
    return tuple(name for name in proposed if name not in stood_for)


def candidates(
    plain: Verdict, hinted: Verdict, evidence: Sequence[Evidence], *, draft: str, proposed: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of open items that the verdict given with the hint adds, three at most.

    Its flags and what it calls covered count for nothing. A quote is sought in the evidence whatever the settings say,
    so what is "supported" by the hint alone is an open item.

    Args:
        plain: The verdict given without the hint.
        hinted: The verdict given with it.
        evidence: All evidence of the run.
        draft: The current draft; empty for none.
        proposed: Names the hint proposed; an item that resembles none of them was not brought up by it.
    """
    if isinstance(hinted, UnavailableVerdict):
        return ()
    grounded = ground_slots(hinted.slots, evidence, draft=draft)
    named = [slot.name for slot in grounded if slot.state is SlotState.MISSING]
    named += [name for name in hinted.missing if name not in {slot.name for slot in grounded}]
    listed = _names(plain)
    found: list[str] = []
    for name in (plain_line(name, _NAME_CHARS) for name in named):
        known = _resembles(name, (*listed, *found), _SAME_ITEM)
        if name and not known and _resembles(name, proposed, _BROUGHT_UP):
            found.append(name)
    return tuple(found[:_MAX_CANDIDATES])


def with_candidates(verdict: Verdict, names: Sequence[str]) -> Verdict:
    """Return the verdict with these items open on top: it closes nothing and asks for a tool.

    Args:
        verdict: As it stands without them.
        names: The items.
    """
    added = tuple(Slot(name=name, state=SlotState.MISSING) for name in names)
    changes = {
        "answer_complete": False,
        "need_tool": True,
        "missing": (*verdict.missing, *names),
        "failure": Failure.ANSWER_INCOMPLETE,
        "slots": (*verdict.slots, *added),
    }
    return verdict.model_copy(update=changes)


def _names(verdict: Verdict) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(slot.name for slot in verdict.slots), *verdict.missing]))


def _resembles(name: str, others: Sequence[str], least: float) -> bool:
    return any(_alike(name, other) >= least for other in others)


def _alike(name: str, other: str) -> float:
    return text_similarity(_folded(name), _folded(other))


def _folded(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").split())
