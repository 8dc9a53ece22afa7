"""Test doubles for those who build on this package: no model, no server, no waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autogen_core import CancellationToken, Component
from pydantic import BaseModel, ConfigDict
from typing_extensions import Self

from agentloop_autogen.core.records import Evidence, UnavailableVerdict, Verdict
from agentloop_autogen.errors import UsageError
from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["ScriptedVerifier", "ScriptedVerifierConfig", "VerifyCall"]

ScriptItem = Verdict | BaseException | type[BaseException]
"""What a scripted verifier does on one call: return the verdict, or raise the exception."""


class VerifyCall(NamedTuple):
    """What one call of `verify` was given."""

    request: str
    draft: str
    evidence: tuple[Evidence, ...]
    cancellation_token: CancellationToken | None = None


class ScriptedVerifierConfig(BaseModel):
    """Settings of a `ScriptedVerifier` as they are dumped and loaded."""

    model_config = ConfigDict(extra="forbid")

    # The plain verdict first: a mapping that fits both (no `cause`) was one.
    verdicts: list[Verdict | UnavailableVerdict]
    repeat_last: bool = True


class ScriptedVerifier(SlotVerifier, Component[ScriptedVerifierConfig]):
    """A verifier that gives the verdicts it was told to give, in order, and remembers what it was asked.

    Args:
        verdicts: What to do on each call: a verdict to return, or an exception (instance or class) to raise.
        repeat_last: Whether the last item serves all further calls; False: a call too many raises `UsageError`.

    Raises:
        UsageError: There is nothing to repeat: `verdicts` is empty although `repeat_last` is set.
    """

    component_config_schema = ScriptedVerifierConfig
    component_provider_override = "agentloop_autogen.testing.ScriptedVerifier"
    component_version = 1

    def __init__(self, verdicts: Sequence[ScriptItem], *, repeat_last: bool = True) -> None:
        self._script: tuple[ScriptItem, ...] = tuple(verdicts)
        self._repeat_last = repeat_last
        self.calls: list[VerifyCall] = []
        """Every call so far, in order."""
        if repeat_last and not self._script:
            message = "a `ScriptedVerifier` needs at least one verdict, or `repeat_last=False`"
            raise UsageError(message)

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Give the next scripted verdict, or raise the next scripted exception.

        Args:
            request: Recorded in `calls`.
            draft: Recorded in `calls`.
            evidence: Recorded in `calls`.
            cancellation_token: Recorded in `calls`; a scripted verdict is there at once, so nothing is cancelled.

        Returns:
            The scripted verdict.

        Raises:
            UsageError: The script is exhausted and `repeat_last` is False.
        """
        self.calls.append(VerifyCall(request, draft, tuple(evidence), cancellation_token))
        asked, scripted = len(self.calls), len(self._script)
        if asked > scripted and not self._repeat_last:
            message = (
                f"`ScriptedVerifier` has {scripted} verdicts and was asked {asked} times: add some or repeat the last"
            )
            raise UsageError(message)
        item = self._script[min(asked, scripted) - 1]
        if isinstance(item, Verdict):
            return item
        raise item

    def _to_config(self) -> ScriptedVerifierConfig:
        verdicts = [item for item in self._script if isinstance(item, Verdict)]
        if len(verdicts) < len(self._script):
            message = "a `ScriptedVerifier` that raises exceptions cannot be dumped: exceptions have no JSON form"
            raise UsageError(message)
        return ScriptedVerifierConfig(verdicts=verdicts, repeat_last=self._repeat_last)

    @classmethod
    def _from_config(cls, config: ScriptedVerifierConfig) -> Self:
        return cls(config.verdicts, repeat_last=config.repeat_last)
