"""Test doubles for those who build on this package: no model, no server, no waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from autogen_core import CancellationToken, Component
from pydantic import BaseModel, ConfigDict
from typing_extensions import Self

from agentloop_autogen.core.records import Evidence, UnavailableVerdict, Verdict
from agentloop_autogen.core.similarity import text_similarity
from agentloop_autogen.errors import UsageError
from agentloop_autogen.slots.hint import SlotHint
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.store import SimilarRequest, SlotStateStore
from agentloop_autogen.verify.hinted import HintedSlotVerifier

__all__ = [
    "InMemorySlotStateStore",
    "InMemorySlotStateStoreConfig",
    "ScriptedVerifier",
    "ScriptedVerifierConfig",
    "VerifyCall",
]

ScriptItem = Verdict | BaseException | type[BaseException]
"""What a scripted verifier does on one call: return the verdict, or raise the exception."""


class VerifyCall(NamedTuple):
    """What one call of `verify` was given."""

    request: str
    draft: str
    evidence: tuple[Evidence, ...]
    cancellation_token: CancellationToken | None = None
    hint: SlotHint | None = None
    """What it was told of similar past requests, at a second look; None at every other call."""


class ScriptedVerifierConfig(BaseModel):
    """Settings of a `ScriptedVerifier` as they are dumped and loaded."""

    model_config = ConfigDict(extra="forbid")

    # The plain verdict first: a mapping that fits both (no `cause`) was one.
    verdicts: list[Verdict | UnavailableVerdict]
    repeat_last: bool = True


class ScriptedVerifier(HintedSlotVerifier, Component[ScriptedVerifierConfig]):
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
        return self._play(VerifyCall(request, draft, tuple(evidence), cancellation_token))

    async def verify_with_hint(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        hint: SlotHint,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Give the next scripted verdict, or raise the next scripted exception, as `verify` does.

        Args:
            request: Recorded in `calls`.
            draft: Recorded in `calls`.
            evidence: Recorded in `calls`.
            hint: Recorded in `calls`.
            cancellation_token: Recorded in `calls`.

        Returns:
            The scripted verdict.

        Raises:
            UsageError: The script is exhausted and `repeat_last` is False.
        """
        return self._play(VerifyCall(request, draft, tuple(evidence), cancellation_token, hint))

    def _play(self, call: VerifyCall) -> Verdict:
        self.calls.append(call)
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


class InMemorySlotStateStoreConfig(BaseModel):
    """Settings of an `InMemorySlotStateStore`: it has none, and what it holds is not saved with it."""

    model_config = ConfigDict(extra="forbid")


class InMemorySlotStateStore(SlotStateStore, Component[InMemorySlotStateStoreConfig]):
    """A slot store for tests: it holds what it is given until it is dropped, and compares with every request.

    Args:
        states: What it holds from the start.
    """

    component_config_schema = InMemorySlotStateStoreConfig
    component_provider_override = "agentloop_autogen.testing.InMemorySlotStateStore"
    component_version = 1

    def __init__(self, states: Sequence[RuntimeStateObject] = ()) -> None:
        self.states: dict[str, RuntimeStateObject] = {state.id: state for state in states}
        """What it holds, by id, the oldest first."""

    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Keep these objects.

        Args:
            states: The objects; one whose id is already there is replaced.
        """
        self.states.update((state.id, state) for state in states)

    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Return the past requests most like this one.

        Args:
            request: What is asked.
            k: How many, at most.

        Returns:
            The most similar first; objects without a request text are not among them.
        """
        found = [
            SimilarRequest(state=state, similarity=text_similarity(request, state.request))
            for state in self.states.values()
            if state.request
        ]
        return sorted(found, key=lambda item: item.similarity, reverse=True)[:k]

    async def forget(self, ids: Sequence[str]) -> int:
        """Remove these objects.

        Args:
            ids: Their ids.

        Returns:
            How many there were.
        """
        return sum(self.states.pop(identity, None) is not None for identity in dict.fromkeys(ids))

    async def export(self) -> AsyncIterator[RuntimeStateObject]:
        """Go through all objects, oldest first."""
        for state in tuple(self.states.values()):
            yield state

    async def close(self) -> None:
        """Do nothing: it holds nothing open."""

    def _to_config(self) -> InMemorySlotStateStoreConfig:
        return InMemorySlotStateStoreConfig()

    @classmethod
    def _from_config(cls, config: InMemorySlotStateStoreConfig) -> Self:
        return cls()
