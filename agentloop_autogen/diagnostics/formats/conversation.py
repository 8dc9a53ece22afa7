"""Gathers the messages of one request into rounds, whatever form they are recorded in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentloop_autogen.core.records import Decision, RequestUsage
from agentloop_autogen.core.rounds import ToolCall, ToolResult
from agentloop_autogen.diagnostics.trace import TraceRound

__all__ = ["Asked", "Conversation", "OpenRound", "Returned", "plus"]


@dataclass(frozen=True)
class Asked:
    """A call with the id its result will name; an empty id: it has none."""

    id: str
    call: ToolCall


@dataclass(frozen=True)
class Returned:
    """A result with what is known of its call; empty: not known."""

    id: str
    name: str
    content: str
    is_error: bool = False


@dataclass
class OpenRound:
    """A round that may still get results, its decision, and, where its decision came first, its text."""

    text: str
    calls: list[Asked]
    turn: int
    usage: RequestUsage | None
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    answered: set[int] = field(default_factory=set[int])
    decision: Decision | None = None

    def closed(self, *, turn: int | None) -> TraceRound:
        """Return the round as it stands."""
        return TraceRound(
            text=self.text,
            calls=tuple(asked.call for asked in self.calls),
            results=tuple(self.results),
            turn=turn,
            decision=self.decision,
            usage=self.usage,
        )


class Conversation:
    """The request and the rounds of one trace, message by message."""

    def __init__(self) -> None:
        self.rounds: list[OpenRound] = []
        self._named: dict[str, list[tuple[OpenRound, int]]] = {}
        """Calls by their id; an id that is used again stands for the later round."""
        self._asked: list[str] = []
        self._turn = 0
        self._turn_has_rounds = False

    @property
    def empty(self) -> bool:
        """Whether nothing was said yet."""
        return not self.rounds and not self._asked

    @property
    def request(self) -> str:
        """What the user said before the first reply."""
        return "\n\n".join(self._asked)

    @property
    def ends_with_text(self) -> bool:
        """Whether the last reply was a text without calls."""
        return bool(self.rounds) and not self.rounds[-1].calls and not self.rounds[-1].results

    @property
    def final(self) -> str:
        """The last reply where it is a text; empty where the last one called tools."""
        return self.rounds[-1].text if self.ends_with_text else ""

    @property
    def usage(self) -> RequestUsage | None:
        """Tokens of all rounds together; None: none has any."""
        total: RequestUsage | None = None
        for round_ in self.rounds:
            total = plus(total, round_.usage)
        return total

    def closed(self, *, turns_known: bool = True) -> tuple[TraceRound, ...]:
        """Return the rounds as they stand, without their turns where nobody told what users said."""
        return tuple(round_.closed(turn=round_.turn if turns_known else None) for round_ in self.rounds)

    def user(self, text: str) -> None:
        """Take what the user said: the request, or the beginning of a new turn."""
        if not self.rounds:
            self._asked.append(text)
        elif self._turn_has_rounds:
            self._turn += 1
            self._turn_has_rounds = False

    def reply(self, text: str, calls: Sequence[Asked] = (), usage: RequestUsage | None = None) -> OpenRound:
        """Take a reply of the model: a new round."""
        self._turn_has_rounds = True
        opened = OpenRound(text, list(calls), self._turn, usage)
        self.rounds.append(opened)
        self._named.update({asked.id: [] for asked in calls})
        for index, asked in enumerate(calls):
            self._named[asked.id].append((opened, index))
        return opened

    def late_call(self, asked: Asked) -> None:
        """Take a call of the last round that its reply did not tell of."""
        round_ = self.rounds[-1]
        self._named.setdefault(asked.id, []).append((round_, len(round_.calls)))
        round_.calls.append(asked)

    def waits_for(self, returned: Returned) -> bool:
        """Return whether a result would be the first for a call that was seen."""
        round_, index = self._call_of(returned) if self.rounds else (None, None)
        return round_ is not None and index is not None and index not in round_.answered

    def result(self, returned: Returned) -> OpenRound:
        """Take what a tool returned, for the latest call it can belong to; return the round of that call."""
        round_, index = self._call_of(returned)
        call = ToolCall(returned.name, "") if index is None else round_.calls[index].call
        if index is not None:
            round_.answered.add(index)
        round_.results.append(ToolResult(call, returned.content, returned.is_error))
        return round_

    def _call_of(self, returned: Returned) -> tuple[OpenRound, int | None]:
        """Find the round and the position of a call; None for the position: the call was never seen."""
        places = self._named.get(returned.id, ()) if returned.id else ()
        for round_, index in places:
            if index not in round_.answered:
                return round_, index
        if places:
            return places[0]
        last = self.rounds[-1] if self.rounds else self.reply("")
        for index, asked in enumerate(last.calls):
            nameless = not (returned.id and asked.id) and index not in last.answered
            if nameless and returned.name in ("", asked.call.name):
                return last, index
        return last, None


def plus(left: RequestUsage | None, right: RequestUsage | None) -> RequestUsage | None:
    """Return two token counts together; None: neither is known."""
    return left + right if left and right else left or right
