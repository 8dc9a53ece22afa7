"""What a run learns from similar past requests, and what it leaves behind for later ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentloop_autogen.agent.verification import verdict_on
from agentloop_autogen.core.records import LoopOutcome, Verdict
from agentloop_autogen.core.second_look import candidates, unlisted
from agentloop_autogen.slots.manager import HintLookup
from agentloop_autogen.slots.summary import FinishedRun, ToolUse, run_of
from agentloop_autogen.verify.hinted import HintedSlotVerifier

if TYPE_CHECKING:
    from agentloop_autogen.agent.run import Planned, Run

__all__ = ["PastRequests", "finished", "second_look"]


class PastRequests:
    """What one run knows of similar past requests.

    Args:
        lookup: The search for them.
    """

    def __init__(self, lookup: HintLookup) -> None:
        self.lookup = lookup
        self.looked = False
        """Whether the run has had its second look."""
        self.uses: list[ToolUse] = []
        """The calls it executed, handoffs not among them."""

    def closers(self, unused: Sequence[str]) -> list[str]:
        """Return those of the unused tools that closed items of similar requests, as far as that is known by now.

        Args:
            unused: Names of tools the agent has and the run has not called.
        """
        hint = self.lookup.known
        return [name for name in unused if name in hint.tools] if hint else []


async def second_look(run: Run, verdict: Verdict | None, planned: Planned) -> tuple[str, ...]:
    """Return what similar past requests needed and nothing covers yet, asked once, before a verdict ends the run.

    Nothing is asked where the run could not go on anyway, or where the verdict lists all that was needed in the past.

    Args:
        run: The run.
        verdict: What was just said of its round; None: nothing was.
        planned: The reply the round began with.

    Raises:
        asyncio.CancelledError: The run was cancelled.
    """
    if run.past.looked or verdict is None or not isinstance(run.parts.verifier, HintedSlotVerifier):
        return ()
    if not run.controller.worth_second_look(verdict) or not _has_room(run, planned):
        return ()
    hint = await run.past.lookup.hint()
    if hint is None or not unlisted(hint.names, verdict):
        return ()
    run.past.looked = True
    hinted = await verdict_on(run, hint=hint)
    return candidates(verdict, hinted, run.controller.evidence, draft=run.controller.draft, proposed=hint.names)


def _has_room(run: Run, planned: Planned) -> bool:
    """Return whether another round is allowed, and half of the time for it is left: an answer at hand comes first."""
    elapsed_s = run.clock.elapsed_s
    limit = run.budget.after_round(elapsed_s=elapsed_s, reflects=not planned.reply.calls)
    return limit is None and elapsed_s <= run.budget.search_s / 2


def finished(run: Run, outcome: LoopOutcome) -> FinishedRun:
    """Return a run as it is summed up for later ones.

    Args:
        run: The run.
        outcome: How it ended.
    """
    return run_of(outcome, request=run.about.task, evidence=run.controller.evidence, tools=run.past.uses)
