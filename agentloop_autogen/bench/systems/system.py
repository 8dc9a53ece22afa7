"""What a system is to the benchmark: something that answers a request with tools, against a counted endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentloop_autogen.bench.tasks.task import BenchTool
from agentloop_autogen.core.records import LoopOutcome

__all__ = ["BenchSystem", "Endpoint", "Limits", "SystemReply"]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the model is served, for one attempt; what goes through it is counted."""

    base_url: str
    model: str
    api_key: str = "unused"
    context_length: int = 8192


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What every system gets to work with."""

    rounds: int = 10
    """Model calls that may call tools, at most."""
    timeout_s: float = 180.0
    max_completion_tokens: int = 512
    """Tokens of one model reply, at most."""
    temperature: float = 0.0
    seed: int = 0
    stream: bool = False
    """Whether replies are streamed where the system can, so that the first token can be timed."""


@dataclass(frozen=True, kw_only=True)
class SystemReply:
    """What a system came back with."""

    answer: str
    stop_reason: str = ""
    """Why it ended, in its own words."""
    outcome: LoopOutcome | None = None
    """How a controlled run ended; None for the others."""


class BenchSystem(Protocol):
    """One system under test; a fresh run for every task, nothing kept between them."""

    @property
    def name(self) -> str:
        """The name it has on the command line and in tables."""
        ...

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        """Answer one request; what it raises is a failed attempt."""
        ...
