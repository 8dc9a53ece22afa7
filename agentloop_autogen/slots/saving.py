"""Saving a store as part of what it belongs to."""

from __future__ import annotations

from autogen_core import ComponentModel

from agentloop_autogen.errors import UsageError
from agentloop_autogen.slots.store import SlotStateStore

__all__ = ["dumped_store"]


def dumped_store(store: SlotStateStore | None, *, owner: str) -> ComponentModel | None:
    """Return a store as a component, without what it holds; None where there is none.

    Args:
        store: Anybody's.
        owner: What it belongs to, for the message.

    Raises:
        UsageError: The store is no component, or its class has no import path.
    """
    if store is None:
        return None
    try:
        return store.dump_component()
    except (NotImplementedError, AttributeError, TypeError) as error:
        kind = type(store).__name__
        message = (
            f"{owner} cannot be saved: its store `{kind}` is no component; derive `{kind}`, at the top of a module,"
            " from `autogen_core.Component` as well, or give an SQLSlotStateStore"
        )
        raise UsageError(message) from error
