"""Past requests, and stores that do not do what they should, for the tests of what a store does to a run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from agentloop_autogen.core.records import ControlBranch, Slot, SlotState, StopReason, Verdict
from agentloop_autogen.slots.records import RuntimeStateObject, SlotTrace, ToolTrace
from agentloop_autogen.slots.store import SimilarRequest
from agentloop_autogen.testing import InMemorySlotStateStore

__all__ = ["FACT", "PAST", "REQUEST", "FaultyStore", "SlowStore", "covered", "past", "population", "year"]

REQUEST = "Tell me about the town of Vennholm."
PAST = "Tell me about the town of Aldora."
FACT = "Vennholm: 48,210 inhabitants"


def population(town: str = "Vennholm") -> str:
    """Look up how many people live in a town."""
    return FACT


def year(town: str = "Vennholm") -> str:
    """Look up when a town was founded."""
    return "Vennholm was founded in 1287"


def past(
    *slots: tuple[str, str], request: str | None = PAST, identity: str = "p1", state: SlotState = SlotState.SUPPORTED
) -> RuntimeStateObject:
    """A finished request whose items, by name, were closed by a tool each."""
    needed = slots or (("population of Aldora", "population"), ("year Aldora was founded", "year"))
    return RuntimeStateObject(
        id=identity,
        request=request,
        slots=tuple(SlotTrace(name=name, state=state, closed_by=(tool,)) for name, tool in needed),
        tools=tuple(ToolTrace(name=tool, calls=1) for _, tool in needed),
        stop_reason=StopReason.ANSWERED,
        stop_branch=ControlBranch.SKIP_DECODE_OUTPUT_BREAK,
        confidence=0.9,
        rounds=2,
        created_at=datetime(2026, 1, 2, tzinfo=timezone.utc),
    )


def covered(*names: str, state: SlotState = SlotState.SUPPORTED, quote: str = "48,210 inhabitants") -> Verdict:
    """A verdict that calls all of these items covered, by a quote that the evidence holds."""
    done = state is SlotState.SUPPORTED
    return Verdict(
        answer_complete=done,
        need_tool=False,
        confidence=0.95,
        slots=tuple(Slot(name=name, state=state, quote=quote) for name in names or ("population of Vennholm",)),
    )


class SlowStore(InMemorySlotStateStore):
    """Takes a while for everything; `deaf` takes it through a cancellation as well.

    It may be used from several event loops.
    """

    def __init__(
        self, states: Sequence[RuntimeStateObject] = (), *, put_s: float = 0.0, similar_s: float = 0.0
    ) -> None:
        super().__init__(states)
        self.put_s = put_s
        self.similar_s = similar_s
        self.puts = 0
        self.lock = threading.Lock()

    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Keep them, later."""
        with self.lock:
            self.puts += 1
        await asyncio.sleep(self.put_s)
        await super().put(states)

    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Find them, later."""
        await asyncio.sleep(self.similar_s)
        return await super().similar(request, k)


class FaultyStore(InMemorySlotStateStore):
    """Does for every call what it is told to: raise an exception, return something, hang, or cancel itself."""

    def __init__(self, fault: Any) -> None:
        super().__init__()
        self.fault = fault

    async def _fail(self) -> Any:
        await asyncio.sleep(0)
        if self.fault == "hang":
            await asyncio.sleep(60)
        if self.fault == "cancel":
            raise asyncio.CancelledError
        if isinstance(self.fault, BaseException):
            raise self.fault
        return self.fault

    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Do it."""
        await self._fail()

    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Do it."""
        return await self._fail()
