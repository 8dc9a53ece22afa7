"""Verdicts that travel in the metadata of a message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_autogen import Failure, Slot, SlotState, UnavailableVerdict, Verdict
from agentloop_autogen.core.reconcile import as_written, is_unwritten
from agentloop_autogen.metadata import carried_verdict, verdict_metadata

from .scripted_model import CLOSED, UNWRITTEN, open_verdict

_NAMES = st.text(max_size=400)
_VERDICTS = st.builds(
    Verdict,
    answer_complete=st.booleans(),
    need_tool=st.booleans(),
    confidence=st.floats(0, 1),
    failure=st.sampled_from(Failure),
    missing=st.lists(_NAMES, max_size=70).map(tuple),
    slots=st.lists(st.builds(Slot, name=_NAMES, state=st.sampled_from(SlotState)), max_size=70).map(tuple),
)


@given(verdict=_VERDICTS)
@settings(deadline=None)
def test_a_verdict_arrives_as_it_was_sent(verdict: Verdict) -> None:
    """Flags, confidence and slot states come through whole; names may be shortened, and there are 64 at most."""
    (text,) = verdict_metadata(verdict).values()
    arrived = carried_verdict({"agentloop.verdict": text})
    assert arrived is not None
    assert (arrived.answer_complete, arrived.need_tool, arrived.confidence, arrived.failure) == (
        verdict.answer_complete,
        verdict.need_tool,
        verdict.confidence,
        verdict.failure,
    )
    assert [slot.state for slot in arrived.slots] == [slot.state for slot in verdict.slots[:64]]
    assert len(arrived.missing) == min(64, len(verdict.missing))


def test_a_verdict_with_half_a_surrogate_pair_travels() -> None:
    """A model may write characters that have no JSON form; the name is mended, the verdict kept."""
    verdict = open_verdict("popul\ud800ation")
    arrived = carried_verdict(verdict_metadata(verdict))
    assert arrived is not None
    assert arrived.missing == ("popul?ation",)


@pytest.mark.parametrize("verdict", [None, UnavailableVerdict(cause="down")])
def test_no_verdict_is_carried_where_there_is_none(verdict: Verdict | None) -> None:
    """A verdict that could not be had is not passed off as one."""
    assert verdict_metadata(verdict) == {}


@pytest.mark.parametrize(
    ("verdict", "complete"),
    [
        (UNWRITTEN, True),
        (CLOSED, True),
        (open_verdict(), False),
        (UNWRITTEN.model_copy(update={"failure": Failure.TOOL_CONFLICT}), False),
        (UNWRITTEN.model_copy(update={"slots": (Slot(name="x", state=SlotState.MISSING),)}), False),
        (UNWRITTEN.model_copy(update={"slots": (Slot(name="x", state=SlotState.UNSYNTHESISED),)}), True),
        (UNWRITTEN.model_copy(update={"slots": (Slot(name="x", state=SlotState.EXHAUSTED),)}), True),
        (UnavailableVerdict(cause="down"), False),
    ],
)
def test_only_what_was_merely_unwritten_is_complete_once_written(verdict: Verdict, complete: bool) -> None:
    """An answer that was written closes a verdict that only missed the writing, and no other."""
    written = as_written(verdict)
    assert written.answer_complete is complete
    assert all(slot.state is not SlotState.UNSYNTHESISED for slot in written.slots)
    assert not (complete and is_unwritten(written))
