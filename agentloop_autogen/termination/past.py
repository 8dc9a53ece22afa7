"""What a conversation learns from similar past requests, and what it leaves behind for later ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentloop_autogen.core.records import Verdict
from agentloop_autogen.core.second_look import candidates, unlisted
from agentloop_autogen.slots.hint import SlotHint
from agentloop_autogen.slots.manager import HintLookup, RuntimeStateManager
from agentloop_autogen.slots.summary import FinishedRun, ToolUse
from agentloop_autogen.termination.ledger import Ledger
from agentloop_autogen.termination.stopping import Spent, Stop

__all__ = ["PastConversations"]

AskWithHint = Callable[[SlotHint], Awaitable[Verdict]]


class PastConversations:
    """The part of a store that one conversation has to do with.

    Args:
        manager: Stands before the store. None: there is none.
        looked: Whether the conversation has had its second look already.
    """

    def __init__(self, manager: RuntimeStateManager | None, *, looked: bool) -> None:
        self._manager = manager
        self._lookup: HintLookup | None = None
        self.looked = looked
        """Whether it has had its second look."""

    def look_up(self, request: str) -> None:
        """Start to look for requests like this one, unless that was done.

        Args:
            request: What the conversation is about; empty where that is not known yet.
        """
        if self._manager is not None and self._lookup is None and request and not self.looked:
            self._lookup = self._manager.look_up(request)

    async def second_look(self, ledger: Ledger, verdict: Verdict, draft: str, ask: AskWithHint) -> tuple[str, ...]:
        """Return what similar past requests needed and nothing covers yet, asked once, before a verdict stops the team.

        Args:
            ledger: The conversation, its last turn observed.
            verdict: What was just said of that turn.
            draft: What the turn said.
            ask: Asks the verifier with a hint.
        """
        if self.looked or self._lookup is None or not draft or not ledger.worth_second_look(verdict):
            return ()
        hint = await self._lookup.hint()
        if hint is None or not unlisted(hint.names, verdict):
            return ()
        self.looked = True
        return candidates(verdict, await ask(hint), ledger.evidence, draft=draft, proposed=hint.names)

    def keep(self, ledger: Ledger, stop: Stop, *, request: str, spent: Spent) -> None:
        """Have the finished conversation written soon.

        Args:
            ledger: The conversation.
            stop: Why it stopped.
            request: What it was about.
            spent: What it has used.
        """
        if self._manager is None:
            return
        turns, evidence, rounds = tuple(ledger.turns), tuple(ledger.evidence), spent.turns

        def finished() -> FinishedRun:
            results = [result for turn in turns for result in turn.results]
            return FinishedRun(
                request=request,
                stop_reason=stop.reason,
                stop_branch=stop.branch,
                verdict=stop.verdict,
                unresolved=stop.unresolved,
                evidence=evidence,
                tools=tuple(ToolUse.of(item.tool, item.content, is_error=item.is_error) for item in results),
                rounds=rounds,
            )

        self._manager.keep(finished, model="")

    def close(self) -> None:
        """End the search, if it still goes on."""
        if self._lookup is not None:
            self._lookup.close()
