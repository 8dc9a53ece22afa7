"""Objects for the tests of the slot store, and where such a store can be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from agentloop_autogen.core.records import ControlBranch, SlotState, StopReason
from agentloop_autogen.slots.records import RuntimeStateObject, SlotTrace, ToolTrace
from agentloop_autogen.slots.store import SlotStateStore

__all__ = ["START", "everything", "state", "states"]

START = datetime(2026, 1, 5, 10, tzinfo=timezone.utc)


def state(
    id_: str, request: str | None = "How many inhabitants has Vennholm?", *, minutes: float = 0.0
) -> RuntimeStateObject:
    """An object that was written so many minutes after the first."""
    return RuntimeStateObject(
        id=id_,
        request=request,
        slots=(
            SlotTrace(name="inhabitants", state=SlotState.SUPPORTED, closed_by=("register",)),
            SlotTrace(name="year", state=SlotState.MISSING),
        ),
        tools=(ToolTrace(name="register", calls=2, errors=1),),
        stop_reason=StopReason.SYNTHESISED,
        stop_branch=ControlBranch.INTEGRATE_ANSWER_RETRY_BREAK,
        confidence=0.85,
        rounds=3,
        model="scripted",
        created_at=START + timedelta(minutes=minutes),
    )


def states(*requests: str) -> list[RuntimeStateObject]:
    """An object for each request, a minute apart, with the ids `0`, `1` and so on."""
    return [state(str(number), request, minutes=number) for number, request in enumerate(requests)]


async def everything(store: SlotStateStore) -> Sequence[RuntimeStateObject]:
    """All objects of a store, as it exports them."""
    return [one async for one in store.export()]
