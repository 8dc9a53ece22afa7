"""Asking a verifier that may be anybody's code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from autogen_core import CancellationToken

from agentloop_autogen.core.records import Evidence, Verdict
from agentloop_autogen.slots.hint import SlotHint
from agentloop_autogen.verify.base import SlotVerifier
from agentloop_autogen.verify.hinted import HintedSlotVerifier

__all__ = ["ask"]


async def ask(
    verifier: SlotVerifier,
    request: str,
    draft: str,
    evidence: Sequence[Evidence],
    *,
    token: CancellationToken,
    hint: SlotHint | None = None,
) -> Verdict:
    """Return what the verifier says; truthy values and other types are no verdict.

    Raises:
        TypeError: It returned something else than a `Verdict`.
    """
    if hint is not None and isinstance(verifier, HintedSlotVerifier):
        asked = verifier.verify_with_hint(request, draft, evidence, hint=hint, cancellation_token=token)
    else:
        asked = verifier.verify(request, draft, evidence, cancellation_token=token)
    said = cast(object, await asked)
    if not isinstance(said, Verdict):
        raise TypeError(f"the verifier returned {type(said).__name__}, not a Verdict")
    return said
