"""Asking a verifier that may be anybody's code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from autogen_core import CancellationToken

from agentloop_autogen.core.records import Evidence, Verdict
from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["ask"]


async def ask(
    verifier: SlotVerifier, request: str, draft: str, evidence: Sequence[Evidence], *, token: CancellationToken
) -> Verdict:
    """Return what the verifier says; truthy values and other types are no verdict.

    Raises:
        TypeError: It returned something else than a `Verdict`.
    """
    said = cast(object, await verifier.verify(request, draft, evidence, cancellation_token=token))
    if not isinstance(said, Verdict):
        raise TypeError(f"the verifier returned {type(said).__name__}, not a Verdict")
    return said
