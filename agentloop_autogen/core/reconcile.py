"""What a verdict amounts to once its slots were checked: flags that contradict the slots give way."""

from __future__ import annotations

from collections.abc import Sequence

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.grounding import ground_slots
from agentloop_autogen.core.records import Evidence, Failure, SlotState, UnavailableVerdict, Verdict

__all__ = ["as_written", "derive_flags", "is_unwritten", "reconcile"]


def reconcile(verdict: Verdict, evidence: Sequence[Evidence], draft: str, config: LoopConfig) -> Verdict:
    """Return the verdict the `extended` policy acts on.

    Args:
        verdict: As the verifier gave it.
        evidence: All evidence of the run.
        draft: The current draft; empty for none.
        config: Its switches `grounding` and `typed_slots` say which checks are made.

    Returns:
        The verdict with grounded slots and flags that agree with them; unchanged where it lists no slots.
    """
    if isinstance(verdict, UnavailableVerdict) or not verdict.slots:
        return verdict
    if config.grounding:
        verdict = verdict.model_copy(update={"slots": ground_slots(verdict.slots, evidence, draft=draft)})
    return derive_flags(verdict, draft) if config.typed_slots else verdict


def derive_flags(verdict: Verdict, draft: str) -> Verdict:
    """Return the verdict with a, M, n and f derived from its slots where they contradict them.

    Open slots outrank every flag. Missing items that name no slot count as open slots; those that name a slot with
    evidence are dropped. With nothing open the answer is complete unless a slot is still unwritten, there is no draft,
    or the verifier itself calls the answer incomplete.
    """
    listed = {slot.name.casefold() for slot in verdict.slots}
    open_names = [slot.name for slot in verdict.slots if slot.state is SlotState.MISSING]
    unlisted = [name for name in verdict.missing if name.casefold() not in listed]
    missing = tuple(dict.fromkeys([*open_names, *unlisted]))
    found = {slot.state for slot in verdict.slots}
    if missing:
        return _with(verdict, complete=False, missing=missing, failure=_open(verdict.failure))
    if SlotState.CONFLICTING in found:
        return _with(verdict, complete=False, failure=Failure.TOOL_CONFLICT)
    called_incomplete = verdict.failure is Failure.ANSWER_INCOMPLETE
    given_up = SlotState.EXHAUSTED in found and not verdict.answer_complete
    if SlotState.UNSYNTHESISED in found or not draft or called_incomplete or given_up:
        return _with(verdict, complete=False, failure=Failure.ANSWER_INCOMPLETE)
    return _with(verdict, complete=True, failure=verdict.failure)


def is_unwritten(verdict: Verdict) -> bool:
    """Return whether only the writing is missing (the condition of eq. 7 for synthesis)."""
    return verdict.failure is Failure.ANSWER_INCOMPLETE and not verdict.need_tool and not verdict.missing


def as_written(verdict: Verdict) -> Verdict:
    """Return the verdict as it stands once the answer was written from the evidence it speaks of.

    Where only the writing was missing, the answer now is complete and says what had to be given up; where something
    is open, or there was no verdict, nothing changes.
    """
    open_states = (SlotState.MISSING, SlotState.CONFLICTING)
    only_unwritten = (
        not isinstance(verdict, UnavailableVerdict)
        and not (verdict.need_tool or verdict.missing)
        and verdict.failure in (Failure.ANSWER_INCOMPLETE, Failure.OK)
        and not any(slot.state in open_states for slot in verdict.slots)
    )
    if not only_unwritten:
        return verdict
    slots = tuple(
        slot.model_copy(update={"state": SlotState.SUPPORTED}) if slot.state is SlotState.UNSYNTHESISED else slot
        for slot in verdict.slots
    )
    return _with(verdict.model_copy(update={"slots": slots}), complete=True, failure=Failure.OK)


def _with(verdict: Verdict, *, complete: bool, failure: Failure, missing: tuple[str, ...] = ()) -> Verdict:
    flags = {"answer_complete": complete, "need_tool": bool(missing), "missing": missing, "failure": failure}
    return verdict.model_copy(update=flags)


def _open(failure: Failure) -> Failure:
    return Failure.ANSWER_INCOMPLETE if failure is Failure.OK else failure
