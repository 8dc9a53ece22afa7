"""What similar past requests needed, cut down to what a verifier is told of it: short names, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from agentloop_autogen.core.normalise import plain_line
from agentloop_autogen.core.records import SlotState
from agentloop_autogen.slots.records import RuntimeStateObject, SlotTrace
from agentloop_autogen.slots.store import SimilarRequest

__all__ = ["MOST_PAST", "PastRequest", "PastSlot", "SlotHint", "hint_from"]

MOST_PAST: Final = 3
"""Past requests in a hint, at most."""
_MOST_SLOTS: Final = 6
_MOST_TOOLS: Final = 3
_REQUEST_CHARS: Final = 160
_NAME_CHARS: Final = 60
_LOOKED_AT: Final = 64
"""Slots of one object that are looked at; no honest one has more."""


@dataclass(frozen=True, kw_only=True)
class PastSlot:
    """One item a past request needed."""

    name: str
    tools: tuple[str, ...]
    """The tools whose results closed it; never empty."""


@dataclass(frozen=True, kw_only=True)
class PastRequest:
    """What one past request needed."""

    request: str
    """The head of what was asked; empty where the store keeps no request text."""
    slots: tuple[PastSlot, ...]


@dataclass(frozen=True, kw_only=True)
class SlotHint:
    """What similar past requests needed, the most similar first. It is data of strangers, and no evidence."""

    past: tuple[PastRequest, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the items, each once."""
        return tuple(dict.fromkeys(slot.name for past in self.past for slot in past.slots))

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that closed them, each once."""
        return tuple(dict.fromkeys(tool for past in self.past for slot in past.slots for tool in slot.tools))

    @property
    def texts(self) -> tuple[str, ...]:
        """All text in it."""
        return (*(past.request for past in self.past), *self.names, *self.tools)


def hint_from(similar: Iterable[SimilarRequest], *, at_least: float) -> SlotHint | None:
    """Return the hint that past requests give; None where they give none.

    Only items that a tool closed are told of: what stayed open in the past says nothing about what can be had now.

    Args:
        similar: What the store found, the most similar first. Anything may stand in it.
        at_least: Similarity, from 0 to 1, from which on one counts.
    """
    found: dict[tuple[PastSlot, ...], PastRequest] = {}
    for item in islice(similar, MOST_PAST):
        # Written so that a similarity that is no number does not count.
        if item.similarity >= at_least and (slots := _closed_slots(item.state)):
            found.setdefault(
                slots, PastRequest(request=plain_line(item.state.request or "", _REQUEST_CHARS), slots=slots)
            )
    return SlotHint(past=tuple(found.values())) if found else None


def _closed_slots(state: RuntimeStateObject) -> tuple[PastSlot, ...]:
    slots = (_past_slot(slot) for slot in state.slots[:_LOOKED_AT] if slot.state is SlotState.SUPPORTED)
    return tuple(islice((slot for slot in slots if slot.name and slot.tools), _MOST_SLOTS))


def _past_slot(slot: SlotTrace) -> PastSlot:
    tools = (plain_line(tool, _NAME_CHARS) for tool in slot.closed_by[:_MOST_TOOLS])
    return PastSlot(name=plain_line(slot.name, _NAME_CHARS), tools=tuple(tool for tool in tools if tool))
