"""The interface of everything that can keep the slot state of past requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from autogen_core import ComponentBase
from pydantic import BaseModel

from agentloop_autogen.slots.records import RuntimeStateObject

__all__ = ["SimilarRequest", "SlotStateStore"]


@dataclass(frozen=True, kw_only=True)
class SimilarRequest:
    """A past request with how like the new one it is."""

    state: RuntimeStateObject
    similarity: float
    """ρ of the two requests, from 0 to 1."""


class SlotStateStore(ABC, ComponentBase[BaseModel]):
    """Keeps Runtime State Objects and finds those of similar requests (the Slot State Store of Fig. 5).

    One store may serve many agents at the same time.
    """

    component_type = "agentloop_slot_store"

    @abstractmethod
    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Keep these objects; one whose id is already there is replaced. On return they are durable."""

    @abstractmethod
    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Return at most `k` past requests most like this one, the most similar first."""

    @abstractmethod
    async def forget(self, ids: Sequence[str]) -> int:
        """Remove these objects for good and return how many there were."""

    @abstractmethod
    def export(self) -> AsyncIterator[RuntimeStateObject]:
        """Go through all objects, oldest first, in bounded memory."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the store holds open; it opens again at the next use."""
