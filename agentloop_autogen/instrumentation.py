"""What can be watched from outside: an event per decision and per ending, on a logger and on the current span.

Events go to the logger `agentloop_autogen.events` at level INFO, as objects whose text is one line of JSON, in the
manner of AutoGen's own. Where an OpenTelemetry span is current and recording, it gets an event of the same content, and
its attributes say where the loop stands. Neither holds any text of the conversation. The OpenTelemetry API comes with
`autogen-core`; without an SDK set up, a span records nothing and costs next to nothing.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final

from opentelemetry import trace

from agentloop_autogen.core.records import Decision, StopReason

__all__ = ["EVENT_LOGGER_NAME", "DecisionEvent", "EndingEvent", "Scope", "record_decision", "record_ending"]

EVENT_LOGGER_NAME: Final = "agentloop_autogen.events"
"""Name of the logger that structured events go to."""
_logger = logging.getLogger(EVENT_LOGGER_NAME)
_PREFIX: Final = "agentloop."

Value = str | int | float | bool


class Scope(str, Enum):
    """Whose loop an event is about."""

    AGENT = "agent"
    TEAM = "team"


@dataclass(frozen=True, kw_only=True)
class _Event:
    source: str
    """Name of the agent, or of the condition."""
    scope: Scope
    depth: int
    """Rounds of the agent, or turns of the team, so far."""
    tokens: int
    """Prompt and completion tokens so far, of all roles."""

    def attributes(self) -> dict[str, Value]:
        """Return what is known, by name; what is not is left out."""
        return {
            name: value.value if isinstance(value, Enum) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    def __str__(self) -> str:
        return json.dumps({"type": type(self).__name__, **self.attributes()}, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class DecisionEvent(_Event):
    """One decision of a loop."""

    action: str
    branch: str
    verified: bool
    """Whether the verifier was asked for it."""
    fruitless: int
    """Rounds in a row without news."""
    confidence: float | None = None
    """κ of the verdict acted on."""
    closed: bool | None = None
    """Whether that verdict says complete, and no tool needed."""
    open_slots: int | None = None
    """How many slots, or missing items, it names as open."""
    s_call: float | None = None
    s_result: float | None = None
    stable: bool | None = None
    detector: str | None = None


@dataclass(frozen=True, kw_only=True)
class EndingEvent(_Event):
    """The end of a loop."""

    stop_reason: str
    branch: str
    unresolved: int
    """How many slots stayed open."""
    tool_calls: int
    elapsed_s: float


def record_decision(decision: Decision, *, source: str, scope: Scope, depth: int, tokens: int) -> None:
    """Tell logger and span of a decision.

    Args:
        decision: The decision.
        source: Name of the agent, or of the condition.
        scope: Whose loop it is.
        depth: Rounds, or turns, so far.
        tokens: Tokens so far.
    """
    if not _is_watched():
        return
    verdict = decision.verdict
    _tell(
        DecisionEvent(
            source=source,
            scope=scope,
            depth=depth,
            tokens=tokens,
            action=decision.action.value,
            branch=decision.branch.value,
            verified=decision.verified,
            fruitless=decision.fruitless,
            confidence=verdict.confidence if verdict else None,
            closed=verdict.closed if verdict else None,
            open_slots=len(verdict.unresolved) if verdict else None,
            s_call=decision.s_call,
            s_result=decision.s_result,
            stable=decision.stable,
            detector=decision.detector.value if decision.detector else None,
        )
    )


def record_ending(
    reason: StopReason,
    branch: str,
    *,
    source: str,
    scope: Scope,
    depth: int,
    tokens: int,
    unresolved: int,
    tool_calls: int,
    elapsed_s: float,
) -> None:
    """Tell logger and span of the end of a loop.

    Args:
        reason: Why it ended.
        branch: The rule that ended it.
        source: Name of the agent, or of the condition.
        scope: Whose loop it was.
        depth: Rounds, or turns, in all.
        tokens: Tokens in all.
        unresolved: How many slots stayed open.
        tool_calls: Tool calls in all.
        elapsed_s: Seconds, pauses excluded.
    """
    if not _is_watched():
        return
    _tell(
        EndingEvent(
            source=source,
            scope=scope,
            depth=depth,
            tokens=tokens,
            stop_reason=reason.value,
            branch=branch,
            unresolved=unresolved,
            tool_calls=tool_calls,
            elapsed_s=round(elapsed_s, 3),
        )
    )


def _is_watched() -> bool:
    return _logger.isEnabledFor(logging.INFO) or trace.get_current_span().is_recording()


def _tell(event: DecisionEvent | EndingEvent) -> None:
    _logger.info(event)
    span = trace.get_current_span()
    if span.is_recording():
        attributes = {f"{_PREFIX}{name}": value for name, value in event.attributes().items()}
        name = "decision" if isinstance(event, DecisionEvent) else "ending"
        span.add_event(f"{_PREFIX}{name}", attributes)
        # What the span is left with is where its last loop stands.
        span.set_attributes({key: value for key, value in attributes.items() if key != f"{_PREFIX}source"})
