"""The verdict as it comes over the wire: the JSON schema asked for, and a reader that forgives form but no doubt.

Whatever a model writes is read as far as it can be understood. What is understood only half is never read as closure: a
missing flag, an unknown word or a cut-off reply counts against the draft.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Literal, cast

from pydantic import BaseModel, Field
from typing_extensions import Self

from agentloop_autogen.core.normalise import split_thinking
from agentloop_autogen.jsonish import Found, find_objects
from agentloop_autogen.verify.reading import VERDICT_KEYS, by_key, read_verdict, tidy
from agentloop_autogen.verify.settling import ParsedVerdict, settle

__all__ = ["ParsedVerdict", "parse_verdict", "wire_model"]

_WRAPPERS = ("verdict", "result", "response", "output", "answer", "arguments", "parameters")
_OPEN_THINK = re.compile(r"<think(?:ing)?\s*>", re.IGNORECASE)


_Name = Annotated[str, Field(max_length=60)]
_State = Literal["missing", "conflicting", "unsynthesised", "supported"]
_Failure = Literal["ok", "answer_incomplete", "tool_set_unstable", "tool_conflict", "low_confidence"]


@lru_cache(maxsize=32)
def wire_model(*, max_slots: int, max_quote_chars: int) -> type[BaseModel]:
    """Build the model whose JSON schema bounds what the verifier may write, evidence before judgement.

    Args:
        max_slots: Slots, at most.
        max_quote_chars: Characters of a quote, at most.
    """

    class WireSlot(BaseModel):
        name: _Name
        evidence: list[Annotated[str, Field(max_length=16)]] = Field(max_length=4)
        quote: str = Field(max_length=max_quote_chars)
        state: _State

    class WireVerdict(BaseModel):
        slots: list[WireSlot] = Field(min_length=1, max_length=max_slots)
        missing: list[_Name] = Field(max_length=max_slots)
        failure: _Failure
        need_tool: bool
        answer_complete: bool
        confidence: float = Field(ge=0, le=1)

        @classmethod
        def model_validate_json(cls, json_data: str | bytes | bytearray, **_: object) -> Self:
            # Clients throw away a reply that does not validate, tokens and all, and `parse_verdict` reads most of them;
            # a parsed object in the reply makes the OpenAI client warn each time it logs one. So nothing is parsed.
            return cast("Self", None)

    return WireVerdict


def parse_verdict(
    text: str, *, thought: str = "", echoes: Sequence[str] = (), draft: str | None = None
) -> ParsedVerdict:
    """Read the verdict in what a verifier model wrote.

    The last object with verdict fields counts. Thinking is looked at only where nothing else holds a verdict, and only
    an object that ends it: reasoning servers put the whole reply there. An object that stands in the judged data too is
    an echo of the data and no verdict.

    Args:
        text: The reply.
        thought: What the client set apart as thinking.
        echoes: The judged texts: request, draft and findings.
        draft: The draft that was judged, to hold the slots against. None: it is not known.

    Returns:
        What was understood; its `verdict` is None where nothing was.
    """
    known = "\n".join(map(_squash, echoes))
    for part, thinking in _parts(text, thought):
        finds = [find for find in find_objects(part) if find.last or not thinking]
        for find in reversed(finds):
            fields = _verdict_fields(find)
            if fields is None or _squash(find.source) in known:
                continue
            return settle(read_verdict(fields), truncated=not find.whole, draft=draft)
    return ParsedVerdict(verdict=None, truncated=False)


def _parts(text: str, thought: str) -> Iterable[tuple[str, bool]]:
    """The texts a verdict may stand in, most trusted first, each with whether it is thinking."""
    whole = text.strip()
    # A reply that is an object from end to end is one, even if a quote in it holds a closing think tag.
    if whole.startswith("{") and whole.endswith("}") and sum(1 for _ in find_objects(whole)) == 1:
        yield whole, False
    thinking, answer = split_thinking(text)
    # Thinking that starts behind an answer and never ends is none of the answer.
    opened = _OPEN_THINK.search(answer)
    yield (answer[: opened.start()] if opened else answer), False
    if opened:
        yield answer[opened.end() :], True
    yield thinking, True
    yield thought, True


def _verdict_fields(find: Found) -> dict[str, object] | None:
    """The verdict fields of an object, or of the object it wraps; None where it has none."""
    fields = by_key(find.value)
    if VERDICT_KEYS & fields.keys():
        return fields
    for wrapper in _WRAPPERS:
        inner = fields.get(tidy(wrapper))
        if isinstance(inner, dict):
            inner_fields = by_key(inner)  # type: ignore[arg-type]  # JSON objects have string keys, whatever else they hold
            if VERDICT_KEYS & inner_fields.keys():
                return inner_fields
    return None


def _squash(text: str) -> str:
    """Letters and digits only, so that an echo is known again whatever was escaped, indented or quoted anew."""
    return re.sub(r"[\W_]+", "", text).lower()
