"""From what the model said to the verdict the loop acts on: contradictions are named, and read against closure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from agentloop_autogen.core.records import Failure, Slot, SlotState, Verdict
from agentloop_autogen.verify.reading import RawVerdict

__all__ = ["ParsedVerdict", "settle"]

_OPEN = (SlotState.MISSING, SlotState.CONFLICTING)
_DONE = (SlotState.SUPPORTED, SlotState.EXHAUSTED)
_THOUSANDS = re.compile(r"(?<=\d)[,.'’\u202f\u00a0 ](?=\d{3}(?!\d))")
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TELLING_WORD = re.compile(rf"\d+|[{_CJK}]|(?:(?![{_CJK}_\d])\w){{4,}}")


@dataclass(frozen=True)
class ParsedVerdict:
    """What could be read of a reply."""

    verdict: Verdict | None
    """The verdict, every contradiction resolved towards going on; None: nothing could be read."""
    truncated: bool
    """Whether the reply broke off; such a verdict never says that the answer is complete."""
    contradictions: tuple[str, ...] = ()
    """What in the reply contradicts itself, in plain words."""
    doubtful: bool = False
    """Whether it could be closure or not depending on which part is believed: worth asking once more."""


def settle(raw: RawVerdict, *, truncated: bool, draft: str | None = None) -> ParsedVerdict:
    """Resolve a reading into one consistent verdict, taking at every contradiction the side that goes on.

    Args:
        raw: The fields as the model wrote them.
        truncated: Whether the reply broke off.
        draft: The draft that was judged: a slot is not supported if the draft has no trace of its quote. None: unknown.
    """
    if draft is not None:
        raw = _held_against(raw, draft)
    hard = _closure_contradictions(raw)
    soft = _other_contradictions(raw)
    is_open = bool(raw.missing or _names(raw, *_OPEN))
    need_tool = raw.need_tool if raw.need_tool is not None else not truncated and (is_open or not raw.slots)
    missing = raw.missing
    if hard or soft or truncated:
        missing = tuple(dict.fromkeys([*missing, *_names(raw, SlotState.MISSING)]))
    vague = truncated and not (is_open or need_tool)
    verdict = Verdict(
        answer_complete=bool(raw.answer_complete) and not (hard or truncated) and _may_be_complete(raw),
        need_tool=need_tool,
        confidence=0.0 if truncated else raw.confidence,
        failure=Failure.LOW_CONFIDENCE if vague else _failure(raw, settled=bool(hard or soft or truncated)),
        missing=missing,
        slots=_reopened(raw, need_tool=need_tool, truncated=truncated) if hard or truncated else raw.slots,
    )
    return ParsedVerdict(
        verdict, truncated=truncated, contradictions=(*hard, *soft), doubtful=vague or bool(hard and not truncated)
    )


def _held_against(raw: RawVerdict, draft: str) -> RawVerdict:
    """Take back "supported" where the draft cannot state the item: small models say it as soon as evidence does."""
    slots = tuple(
        slot.model_copy(update={"state": SlotState.UNSYNTHESISED})
        if slot.state is SlotState.SUPPORTED and not _left_a_trace(slot.quote, draft)
        else slot
        for slot in raw.slots
    )
    if slots == raw.slots:
        return raw
    return raw._replace(slots=slots, answer_complete=False, failure=None if raw.failure is Failure.OK else raw.failure)


def _left_a_trace(quote: str, draft: str) -> bool:
    """Whether draft and quote share a telling word; a quote without any may stand for anything that is written."""
    telling = _telling_words(quote)
    return bool(telling & _telling_words(draft)) if telling else bool(draft.strip())


def _telling_words(text: str) -> frozenset[str]:
    """Numbers, words of four letters and more, and CJK characters, whatever their width, case and separators."""
    plain = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())
    return frozenset(_TELLING_WORD.findall(plain))


def _names(raw: RawVerdict, *states: SlotState) -> list[str]:
    return [slot.name for slot in raw.slots if slot.state in states]


def _all_supported(raw: RawVerdict) -> bool:
    return bool(raw.slots) and all(slot.state is SlotState.SUPPORTED for slot in raw.slots)


def _may_be_complete(raw: RawVerdict) -> bool:
    return (
        raw.need_tool is False
        and not raw.missing
        and raw.failure is not Failure.ANSWER_INCOMPLETE
        and all(slot.state in _DONE for slot in raw.slots)
    )


def _closure_contradictions(raw: RawVerdict) -> tuple[str, ...]:
    """What makes one part of the reply say "done" and another "not done"."""
    said: list[str] = []
    if raw.answer_complete:
        unwritten = [slot.name for slot in raw.slots if slot.state not in _DONE]
        if unwritten:
            said.append(f"answer_complete is true but these items are not supported: {', '.join(unwritten)}")
        if raw.missing:
            said.append(f"answer_complete is true but missing names {', '.join(raw.missing)}")
        if raw.need_tool:
            said.append("answer_complete and need_tool are both true")
        if raw.need_tool is None:
            said.append("answer_complete is true but need_tool is not given")
    elif _all_supported(raw):
        if raw.need_tool:
            said.append("all items are supported but need_tool is true")
        elif raw.missing:
            said.append(f"all items are supported but missing names {', '.join(raw.missing)}")
    return tuple(said)


def _other_contradictions(raw: RawVerdict) -> tuple[str, ...]:
    """What contradicts itself without any doubt that the loop goes on."""
    said: list[str] = []
    open_names = [*_names(raw, *_OPEN), *raw.missing]
    if raw.failure is Failure.OK and (open_names or raw.need_tool):
        said.append("failure is ok although something is missing")
    if raw.answer_complete and raw.failure is Failure.ANSWER_INCOMPLETE:
        said.append("answer_complete is true but failure is answer_incomplete")
    if raw.need_tool is False and _names(raw, SlotState.MISSING):
        said.append("items are missing but need_tool is false")
    return tuple(said)


def _failure(raw: RawVerdict, *, settled: bool) -> Failure:
    if raw.failure is not None and not (settled and raw.failure is Failure.OK):
        return raw.failure
    if _names(raw, SlotState.CONFLICTING):
        return Failure.TOOL_CONFLICT
    return Failure.OK if bool(raw.answer_complete) and _may_be_complete(raw) else Failure.ANSWER_INCOMPLETE


def _reopened(raw: RawVerdict, *, need_tool: bool, truncated: bool) -> tuple[Slot, ...]:
    """Slots that agree with going on, so that no reader of the slots alone sees closure in a doubtful verdict."""
    named = {name.casefold() for name in raw.missing}
    slots = [
        slot.model_copy(update={"state": SlotState.MISSING}) if slot.name.casefold() in named else slot
        for slot in raw.slots
    ]
    known = {slot.name.casefold() for slot in slots}
    slots += [Slot(name=name, state=SlotState.MISSING) for name in raw.missing if name.casefold() not in known]
    says_open = any(slot.state in _OPEN for slot in slots)
    # Nothing says which item is open, so the flags decide and not the slots.
    return tuple(slots) if says_open or not (truncated or need_tool) else ()
