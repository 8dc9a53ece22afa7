"""What a message carries of the loop in its string metadata: why a run ended, and the verdict it ended with.

Metadata is written by code and never by a model, it is a string map, and it survives teams, saving and loading. The
verdict is compact: flags, and slots by name and state, without quotes. Whoever reads it decides whose it trusts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from agentloop_autogen.core.normalise import bounded_text
from agentloop_autogen.core.records import (
    ControlBranch,
    Failure,
    Slot,
    SlotState,
    StopReason,
    UnavailableVerdict,
    Verdict,
)

__all__ = ["carried_verdict", "ending_metadata", "rests_on_evidence", "verdict_metadata"]

_VERDICT: Final = "agentloop.verdict"
_EVIDENCE: Final = "agentloop.evidence"
_MAX_NAMES: Final = 64
_NAME_CHARS: Final = 160
_MAX_CHARS: Final = 40_000
"""Longer texts are none of ours: 64 slots and 64 missing names are shorter."""

_Name = Annotated[str, Field(max_length=2 * _NAME_CHARS)]


class _Compact(BaseModel):
    """A verdict as it travels."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    answer_complete: StrictBool
    need_tool: StrictBool
    confidence: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    failure: Failure
    missing: tuple[_Name, ...] = Field(default=(), max_length=_MAX_NAMES)
    slots: tuple[tuple[_Name, SlotState], ...] = Field(default=(), max_length=_MAX_NAMES)


def ending_metadata(
    reason: StopReason, branch: ControlBranch, *, rounds: int, unresolved: Sequence[str]
) -> dict[str, str]:
    """Return the metadata that says why a run ended.

    Args:
        reason: Why it ended.
        branch: The rule that ended it.
        rounds: How many rounds it took.
        unresolved: Names of what stayed open.
    """
    return {
        "agentloop.stop_reason": reason.value,
        "agentloop.branch": branch.value,
        "agentloop.rounds": str(rounds),
        "agentloop.unresolved": json.dumps(list(unresolved), ensure_ascii=False),
    }


def verdict_metadata(verdict: Verdict | None, *, evidence: int | None = None) -> dict[str, str]:
    """Return the metadata that carries a verdict; empty where there is none to carry.

    Args:
        verdict: As it stands on the message that will carry it.
        evidence: How many pieces of evidence it rests on. None: not said.
    """
    if verdict is None or isinstance(verdict, UnavailableVerdict):
        return {}
    compact = _Compact(
        answer_complete=verdict.answer_complete,
        need_tool=verdict.need_tool,
        confidence=verdict.confidence,
        failure=verdict.failure,
        missing=tuple(map(_short, verdict.missing[:_MAX_NAMES])),
        slots=tuple((_short(slot.name), slot.state) for slot in verdict.slots[:_MAX_NAMES]),
    )
    counted = {} if evidence is None else {_EVIDENCE: str(evidence)}
    return {_VERDICT: compact.model_dump_json(exclude_defaults=True), **counted}


def _short(name: str) -> str:
    # Half a surrogate pair, as a model may write it, has no JSON form.
    return bounded_text(name, _NAME_CHARS).encode("utf-8", "replace").decode()


def rests_on_evidence(metadata: Mapping[str, str]) -> bool:
    """Return whether a message says that its verdict rests on evidence; a request that needs none has none.

    Args:
        metadata: The message's own.
    """
    count = metadata.get(_EVIDENCE, "")
    return count.isascii() and count.isdigit() and count.strip("0") != ""


def carried_verdict(metadata: Mapping[str, str]) -> Verdict | None:
    """Return the verdict a message carries; None where it carries none that can be read.

    Args:
        metadata: The message's own.
    """
    text = metadata.get(_VERDICT, "")
    if not text or len(text) > _MAX_CHARS:
        return None
    try:
        compact = _Compact.model_validate_json(text)
    except ValueError:  # a `ValidationError`, or text that is no Unicode
        return None
    return Verdict(
        answer_complete=compact.answer_complete,
        need_tool=compact.need_tool,
        confidence=compact.confidence,
        failure=compact.failure,
        missing=compact.missing,
        slots=tuple(Slot(name=name, state=state) for name, state in compact.slots),
    )
