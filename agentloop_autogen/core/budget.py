"""What a run may spend, checked once per moment of the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.records import RequestUsage

__all__ = ["Budget", "Limit", "Role"]


class Role(str, Enum):
    """Whose tokens are counted."""

    AGENT = "agent"
    VERIFIER = "verifier"
    SYNTHESIS = "synthesis"


class Limit(str, Enum):
    """Which budget ran out; the value completes the sentence "ran out of ..."."""

    ROUNDS = "rounds"
    REFLECTIONS = "reflections"
    TOOL_CALLS = "tool calls"
    TOKENS = "tokens"
    TIME = "time"


_ANSWER_SHARE = 0.25
_ANSWER_RESERVE_S = 30.0


@dataclass
class Budget:
    """What one run has spent so far, against the limits of its configuration."""

    config: LoopConfig
    rounds: int = 0
    reflections: int = 0
    model_calls: int = 0
    dropped_calls: int = 0
    verifier_calls: int = 0
    synthesis_calls: int = 0
    tool_calls: int = 0
    verifier_s: float = 0.0
    usage: dict[Role, RequestUsage] = field(default_factory=lambda: {role: RequestUsage() for role in Role})
    _estimated_tokens: int = 0

    @property
    def search_s(self) -> float:
        """Seconds the search may take: the timeout less what is reserved for the answer call."""
        return self.config.timeout_s - min(_ANSWER_RESERVE_S, self.config.timeout_s * _ANSWER_SHARE)

    def spend_tokens(self, role: Role, usage: RequestUsage, *, characters: int) -> None:
        """Count the tokens of one call.

        Args:
            role: Whose call it was.
            usage: What the server reported.
            characters: Length of prompt and reply; where the server reported nothing, four of them count as a token
                against the budget, never in the reported usage.
        """
        self.usage[role] += usage
        if not usage.total:
            self._estimated_tokens += characters // 4

    @property
    def tokens(self) -> int:
        """Tokens spent so far in all roles, estimates included."""
        return sum(usage.total for usage in self.usage.values()) + self._estimated_tokens

    def tool_calls_left(self) -> int | None:
        """Return how many more tool calls may run; None: any number."""
        limit = self.config.max_tool_calls
        return None if limit is None else max(0, limit - self.tool_calls)

    def answer_calls_left(self) -> int:
        """Return how many more answer calls may be made."""
        return max(0, self.config.max_integrations - self.synthesis_calls)

    def after_round(self, *, elapsed_s: float, reflects: bool) -> Limit | None:
        """Return the limit that forbids another round, None if there is none.

        Args:
            elapsed_s: Seconds since the run began, pauses excluded.
            reflects: Whether going on would send a text draft back.
        """
        if self.rounds >= self.config.max_rounds:
            return Limit.ROUNDS
        if reflects and self.reflections >= self.config.max_reflections:
            return Limit.REFLECTIONS
        if self.config.max_tokens is not None and self.tokens >= self.config.max_tokens:
            return Limit.TOKENS
        if self.tool_calls_left() == 0:
            return Limit.TOOL_CALLS
        if elapsed_s >= self.search_s:
            return Limit.TIME
        return None
