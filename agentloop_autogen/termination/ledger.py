"""The turns of one conversation as the controller saw them, so that they can be saved and gone through again.

The controller's own memory holds hashes that are good within one process only. The ledger therefore keeps what went
in, bounded, and a conversation that is loaded is decided once more, turn by turn. When it grows beyond its bounds, the
older half is dropped and the controller made anew from the rest: memory stays bounded, work stays linear, and what is
saved is always all that the controller knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.controller import LoopController
from agentloop_autogen.core.records import Decision, Evidence, UnavailableVerdict, Verdict
from agentloop_autogen.core.rounds import Round, ToolCall, ToolResult

__all__ = ["KeptResult", "KeptTurn", "Ledger"]

MAX_TURNS: Final = 128
MAX_CHARS: Final = 240_000
_RESULTS_A_TURN: Final = 64


class KeptResult(BaseModel):
    """One tool result of a turn."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tool: str
    arguments: str
    content: str
    is_error: bool = False


class KeptTurn(BaseModel):
    """One decided turn."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    draft: str = ""
    results: tuple[KeptResult, ...] = ()
    verdict: Verdict | UnavailableVerdict | None = None
    """What was said of it; None where the verdict before still held."""
    settled: bool = False
    candidates: tuple[str, ...] = ()
    """What similar past requests needed on top, and kept the team going for."""
    reopened: bool = False
    """Whether the user had added to the request before it."""

    @property
    def chars(self) -> int:
        """About how much of the bound it takes."""
        return len(self.draft) + sum(len(result.content) + len(result.arguments) for result in self.results)


class Ledger:
    """Decides on turns and remembers them.

    Args:
        config: The settings of the loop.
        request: What the conversation is about; its words say what to keep of long results.
        turns: The turns decided already, oldest first.
    """

    def __init__(self, config: LoopConfig, request: str, turns: Iterable[KeptTurn] = ()) -> None:
        self._config = config
        self._request = request
        self._turns: list[KeptTurn] = []
        self._chars = 0
        self._reopened = False
        self._pending = KeptTurn()
        self._controller = LoopController(config, request=request)
        for turn in turns:
            self._replay(turn)

    @property
    def turns(self) -> Sequence[KeptTurn]:
        """The turns that are kept, oldest first."""
        return self._turns

    @property
    def evidence(self) -> Sequence[Evidence]:
        """All evidence kept, oldest first."""
        return self._controller.evidence

    @property
    def verdict(self) -> Verdict | None:
        """The last verdict, as it was acted on."""
        return self._controller.verdict

    @property
    def last(self) -> Decision | None:
        """The last decision; None before the first turn, and once the user has added to the request since."""
        decisions = self._controller.decisions
        return decisions[-1] if decisions and not self._reopened else None

    @property
    def reopened(self) -> bool:
        """Whether the user has added to the request since the last turn."""
        return self._reopened

    def reopen(self) -> None:
        """The user has added to the request: what was judged before must be judged anew."""
        self._reopened = True
        self._controller.reopen()

    def observe(self, draft: str, results: Sequence[ToolResult]) -> None:
        """Take in one turn; long results are shortened to what was asked for.

        Args:
            draft: The text it ended with; empty for none.
            results: What its tools returned.
        """
        limit = self._config.max_result_chars
        kept = tuple(
            KeptResult(
                tool=result.call.name,
                arguments=self._short(result.call.arguments),
                content=self._controller.shortened(result, limit),
                is_error=result.is_error,
            )
            for result in results[:_RESULTS_A_TURN]
        )
        self._pending = KeptTurn(draft=draft, results=kept, reopened=self._reopened)
        self._reopened = False
        self._controller.observe(_round(self._pending))

    def _short(self, arguments: str) -> str:
        return self._controller.shortened(ToolResult(ToolCall("", ""), arguments), self._config.max_result_chars)

    def needs_verdict(self) -> bool:
        """Return whether a verifier must be asked about the turn just observed."""
        return self._controller.needs_verdict()

    def worth_second_look(self, verdict: Verdict) -> bool:
        """Return whether this verdict on the turn just observed would end the search by itself."""
        return self._controller.worth_second_look(verdict)

    def decide(self, verdict: Verdict | None, *, settled: bool, candidates: Sequence[str] = ()) -> Decision:
        """Return the decision on the turn just observed.

        Args:
            verdict: What was said of it; None where the last verdict stands.
            settled: Whether the loop of the agent that spoke has ended with it.
            candidates: What similar past requests needed and nothing covers.
        """
        decision = self._controller.decide(verdict, settled=settled, candidates=candidates)
        changes = {"verdict": verdict, "settled": settled, "candidates": tuple(candidates)}
        self._keep(self._pending.model_copy(update=changes))
        return decision

    def _keep(self, turn: KeptTurn) -> None:
        self._turns.append(turn)
        self._chars += turn.chars
        if len(self._turns) <= MAX_TURNS and self._chars <= MAX_CHARS:
            return
        recent = self._turns[-max(1, len(self._turns) // 2) :]
        self._turns, self._chars = [], 0
        self._controller = LoopController(self._config, request=self._request)
        for kept in recent:
            self._replay(kept)

    def _replay(self, turn: KeptTurn) -> None:
        if turn.reopened:
            self._controller.reopen()
        self._controller.observe(_round(turn))
        self._controller.decide(turn.verdict, settled=turn.settled, candidates=turn.candidates)
        self._turns.append(turn)
        self._chars += turn.chars


def _round(turn: KeptTurn) -> Round:
    return Round(
        turn.draft,
        tuple(
            ToolResult(ToolCall(result.tool, result.arguments), result.content, is_error=result.is_error)
            for result in turn.results
        ),
    )
