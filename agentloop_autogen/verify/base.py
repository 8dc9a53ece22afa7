"""The interface of everything that can judge whether a request is answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from autogen_core import CancellationToken, ComponentBase
from pydantic import BaseModel

from agentloop_autogen.core.records import Evidence, Verdict

__all__ = ["SlotVerifier"]


class SlotVerifier(ABC, ComponentBase[BaseModel]):
    """Judges, after a round, which information items of the request are covered and what is still missing.

    One verifier may serve many agents at the same time, so an implementation keeps nothing of a call in the instance.
    An implementation that calls a model reports the tokens with `agentloop_autogen.verify.record_usage`.
    """

    component_type = "agentloop_verifier"

    @abstractmethod
    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Judge the draft against the request and the evidence (V_t, eq. 2).

        Args:
            request: What the user asked for.
            draft: The answer as far as it is written; empty in a round that only called tools.
            evidence: The compressed tool results so far, oldest first.
            cancellation_token: Cancelled when the run is.

        Returns:
            The verdict; an `UnavailableVerdict` where none could be had.

        Raises:
            asyncio.CancelledError: The run was cancelled.
        """
