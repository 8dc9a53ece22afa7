"""Answers for which nothing was looked up although there are tools: told apart from those that need no look-up."""

from __future__ import annotations

from agentloop_autogen.core.grounding import figures_in, ungrounded_figures
from agentloop_autogen.core.reconcile import is_unwritten
from agentloop_autogen.core.records import Failure, SlotState, Verdict

__all__ = ["calls_for_lookup", "sent_to_look_up"]


def calls_for_lookup(verdict: Verdict, draft: str, *, request: str) -> bool:
    """Return whether a draft without any evidence behind it is better sent back once than believed.

    It is where the verdict says that only the writing is missing, since there is nothing to write from, and where it
    calls the answer complete although that states figures nobody gave. A request with figures of its own may be a sum,
    whose result stands nowhere either, and is believed.

    Args:
        verdict: What was said of the draft; no tool had been run by then.
        draft: The draft.
        request: What the user asked for.
    """
    if not verdict.slots:
        return False  # nothing was said of any item: the flags alone decide
    if is_unwritten(verdict):
        return True
    return verdict.closed and not figures_in(request) and bool(ungrounded_figures(draft, (), request=request))


def sent_to_look_up(verdict: Verdict) -> Verdict:
    """Return the verdict with every item missing that it holds to be covered.

    Args:
        verdict: What was said of a draft without evidence.
    """
    covered = (SlotState.SUPPORTED, SlotState.UNSYNTHESISED)
    slots = tuple(
        slot.model_copy(update={"state": SlotState.MISSING}) if slot.state in covered else slot
        for slot in verdict.slots
    )
    changes = {
        "slots": slots,
        "missing": tuple(slot.name for slot in slots if slot.state is SlotState.MISSING),
        "answer_complete": False,
        "need_tool": True,
        "failure": Failure.ANSWER_INCOMPLETE,
    }
    return verdict.model_copy(update=changes)
