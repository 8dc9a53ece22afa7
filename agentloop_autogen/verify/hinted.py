"""The interface of a verifier that can be told what similar past requests needed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from autogen_core import CancellationToken

from agentloop_autogen.core.records import Evidence, Verdict
from agentloop_autogen.slots.hint import SlotHint
from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["HintedSlotVerifier"]


class HintedSlotVerifier(SlotVerifier):
    """A verifier that takes a hint as well; one that is a plain `SlotVerifier` is never given any."""

    @abstractmethod
    async def verify_with_hint(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        hint: SlotHint,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Judge once more, knowing what similar requests needed, before the run ends.

        Only the open items that this verdict adds count: what it closes does not.

        Args:
            request: What the user asked for.
            draft: The answer as far as it is written.
            evidence: The compressed tool results so far, oldest first.
            hint: What similar past requests needed: data of strangers, never evidence.
            cancellation_token: Cancelled when the run is.

        Returns:
            The verdict; an `UnavailableVerdict` where none could be had.

        Raises:
            asyncio.CancelledError: The run was cancelled.
        """
