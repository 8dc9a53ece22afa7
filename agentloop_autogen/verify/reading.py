"""Reading one field of a verdict at a time, in whatever spelling it came; every doubt is read as "not closed"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from agentloop_autogen.core.records import Failure, Slot, SlotState

__all__ = ["VERDICT_KEYS", "RawVerdict", "by_key", "read_verdict", "tidy"]

_MAX_SLOTS = 64
_MAX_NAME_CHARS = 200

_TRUE = frozenset({"true", "yes", "y", "1", "on"})
_FALSE = frozenset({"false", "no", "n", "0", "off"})
_NOTHING = frozenset({"", "none", "null", "na", "nil", "nothing", "empty", "no"})
_NAMED_CONFIDENCE = {
    "veryhigh": 0.95,
    "certain": 0.95,
    "high": 0.9,
    "medium": 0.6,
    "moderate": 0.6,
    "low": 0.3,
    "verylow": 0.1,
}
_STATES = {
    "supported": SlotState.SUPPORTED,
    "missing": SlotState.MISSING,
    "unsynthesised": SlotState.UNSYNTHESISED,
    "unsynthesized": SlotState.UNSYNTHESISED,
    "notsynthesised": SlotState.UNSYNTHESISED,
    "notsynthesized": SlotState.UNSYNTHESISED,
    "conflicting": SlotState.CONFLICTING,
    "conflict": SlotState.CONFLICTING,
    "exhausted": SlotState.EXHAUSTED,
}
_FAILURES = {
    "ok": Failure.OK,
    "answerincomplete": Failure.ANSWER_INCOMPLETE,
    "incomplete": Failure.ANSWER_INCOMPLETE,
    "toolsetunstable": Failure.TOOL_SET_UNSTABLE,
    "unstable": Failure.TOOL_SET_UNSTABLE,
    "toolconflict": Failure.TOOL_CONFLICT,
    "conflict": Failure.TOOL_CONFLICT,
    "lowconfidence": Failure.LOW_CONFIDENCE,
}
_OPENNESS = (
    SlotState.SUPPORTED,
    SlotState.UNSYNTHESISED,
    SlotState.EXHAUSTED,
    SlotState.CONFLICTING,
    SlotState.MISSING,
)


class RawVerdict(NamedTuple):
    """The fields as the model meant them; None where a flag was not given or not understood."""

    answer_complete: bool | None
    need_tool: bool | None
    confidence: float
    failure: Failure | None
    missing: tuple[str, ...]
    slots: tuple[Slot, ...]


def tidy(word: object) -> str:
    """Reduce a word to lower-case letters and digits, without the name of an enumeration before it."""
    text = str(word).strip()
    text = re.sub(r"^(?:SlotState|Failure)\.", "", text, flags=re.IGNORECASE)
    return re.sub(r"[\W_]+", "", text).lower()


VERDICT_KEYS = frozenset({tidy("answer_complete"), tidy("need_tool"), tidy("slots")})
"""An object with none of these is no verdict."""


def by_key(value: Mapping[str, object]) -> dict[str, object]:
    """Index an object by its tidied keys."""
    return {tidy(key): item for key, item in value.items()}


def read_verdict(fields: Mapping[str, object]) -> RawVerdict:
    """Read the fields of a verdict object.

    Args:
        fields: The object, by tidied keys; unknown ones are ignored.
    """
    return RawVerdict(
        answer_complete=_flag(fields.get("answercomplete")),
        need_tool=_flag(fields.get("needtool")),
        confidence=_confidence(fields.get("confidence")),
        failure=_failure(fields["failure"]) if "failure" in fields else None,
        missing=_names(fields.get("missing")),
        slots=_slots(fields.get("slots")),
    )


def _flag(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        value = int(value) if value in (0.0, 1.0) else None
    word = tidy(value) if isinstance(value, (str, int)) else None
    return True if word in _TRUE else False if word in _FALSE else None


def _confidence(value: object) -> float:
    """A share from 0 to 1; above 1 it is taken for a percentage, and what is no number at all is no confidence."""
    if isinstance(value, str):
        named = _NAMED_CONFIDENCE.get(tidy(value))
        number = re.fullmatch(r"\s*(\d+(?:[.,]\d+)?)\s*(%|/\s*100)?\s*", value)
        if named is not None or number is None:
            return named or 0.0
        share = float(number.group(1).replace(",", "."))
        return _confidence(share / 100 if number.group(2) else share)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 100 or math.isnan(value):
        return 0.0
    return float(value) if value <= 1 else value / 100


def _failure(value: object) -> Failure:
    word = tidy(value) if isinstance(value, str) or value is None else "unknown"
    return Failure.OK if word in _NOTHING else _FAILURES.get(word, Failure.LOW_CONFIDENCE)


def _names(value: object) -> tuple[str, ...]:
    if value is None or isinstance(value, bool):
        return ()
    if isinstance(value, str):
        items: Sequence[object] = re.split(r"[,;\n]+", value)
    elif isinstance(value, Mapping):
        items = list(cast("Mapping[object, object]", value))
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = [_name_in(item) for item in cast("Sequence[object]", value)]
    else:
        items = [value]
    names = (str(item).strip().strip("-*•[]\"' ")[:_MAX_NAME_CHARS] for item in items)
    return tuple(dict.fromkeys(name for name in names if tidy(name) not in _NOTHING))[:_MAX_SLOTS]


def _name_in(item: object) -> object:
    """A missing item may come as an object; its name is the first thing in it that looks like one."""
    if not isinstance(item, Mapping):
        return item
    fields = by_key(cast("Mapping[str, object]", item))
    return next((fields[key] for key in ("name", "slot", "item", "field") if key in fields), "")


def _slots(value: object) -> tuple[Slot, ...]:
    """Read slots from a list or from an object of name to state; of two with one name the more open stays."""
    if isinstance(value, Mapping):
        entries: list[object] = [
            {"name": name, **(cast("dict[str, object]", entry) if isinstance(entry, Mapping) else {"state": entry})}
            for name, entry in cast("Mapping[str, object]", value).items()
        ]
    elif isinstance(value, (list, tuple)):
        entries = list(cast("Sequence[object]", value))
    else:
        return ()
    slots: dict[str, Slot] = {}
    for number, entry in enumerate(entries, start=1):
        slot = _slot(entry, number)
        known = slots.get(slot.name.casefold())
        if known is None or _OPENNESS.index(slot.state) > _OPENNESS.index(known.state):
            slots[slot.name.casefold()] = slot
    # Beyond any sane number only closed ones are dropped, for dropping an open one could close the request.
    in_order = sorted(enumerate(slots.values()), key=lambda pair: pair[1].state is SlotState.SUPPORTED)[:_MAX_SLOTS]
    return tuple(slot for _, slot in sorted(in_order, key=lambda pair: pair[0]))


def _slot(entry: object, number: int) -> Slot:
    fields = by_key(cast("Mapping[str, object]", entry)) if isinstance(entry, Mapping) else {"name": entry}
    name = " ".join(str(_name_in(fields) or "").split())[:_MAX_NAME_CHARS]
    quote = fields.get("quote")
    return Slot(
        name=name or f"item {number}",
        state=_STATES.get(tidy(fields.get("state", fields.get("status", ""))), SlotState.MISSING),
        quote=quote.strip() if isinstance(quote, str) else "",
        evidence=_names(fields.get("evidence")),
    )
