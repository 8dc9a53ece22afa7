"""Saving a verifier as part of what it belongs to."""

from __future__ import annotations

from autogen_core import ComponentModel

from agentloop_autogen.errors import UsageError
from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["dumped_verifier"]


def dumped_verifier(verifier: SlotVerifier | None, *, owner: str) -> ComponentModel | None:
    """Return a verifier as a component; None where there is none.

    Args:
        verifier: Anybody's.
        owner: What it belongs to, for the message.

    Raises:
        UsageError: The verifier is no component, or its class has no import path.
    """
    if verifier is None:
        return None
    try:
        return verifier.dump_component()
    except (NotImplementedError, AttributeError, TypeError) as error:
        kind = type(verifier).__name__
        message = (
            f"{owner} cannot be saved: its verifier `{kind}` is no component; derive `{kind}`, at the top of a module,"
            " from `autogen_core.Component` as well, or give a ModelSlotVerifier"
        )
        raise UsageError(message) from error
