"""What a verifier passes to its client with each call, beside the messages and the output format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast, runtime_checkable

from autogen_core.models import ChatCompletionClient

__all__ = ["OffersVerdictArgs", "verdict_args"]


@runtime_checkable
class OffersVerdictArgs(Protocol):
    """A client that knows how verifier calls should differ from others, such as by not thinking first."""

    @property
    def verdict_create_args(self) -> Mapping[str, Any]:
        """Extra create arguments of a verifier call."""
        ...


def verdict_args(client: ChatCompletionClient, given: Mapping[str, Any]) -> dict[str, Any]:
    """Put together the extra arguments of a verifier call.

    Args:
        client: Asked for arguments of its own; most have none.
        given: What the user gave; it wins, and an object in it is merged with the client's.
    """
    own = dict(client.verdict_create_args) if isinstance(client, OffersVerdictArgs) else {}
    for name, value in given.items():
        if isinstance(value, Mapping) and isinstance(own.get(name), Mapping):
            own[name] = {**own[name], **cast("Mapping[str, Any]", value)}
        else:
            own[name] = value
    return own
