"""Handing the turn to whoever writes the answer, for `SelectorGroupChat`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

from agentloop_autogen.conversation import is_user
from agentloop_autogen.core.reconcile import is_unwritten
from agentloop_autogen.errors import UsageError
from agentloop_autogen.metadata import carried_verdict
from agentloop_autogen.termination.condition import AgentLoopTermination

__all__ = ["synthesiser_selector"]

SelectorFunction = Callable[[Sequence[BaseAgentEvent | BaseChatMessage]], str | None]
"""What `SelectorGroupChat` takes as `selector_func`: the thread in, a name or None (the model selects) out."""


def synthesiser_selector(
    synthesiser: str, *, termination: AgentLoopTermination | None = None, otherwise: SelectorFunction | None = None
) -> SelectorFunction:
    """Return a selector function that hands the turn to `synthesiser` once only the answer is left to be written.

    That is so when `termination` says so, or when the last message carries a verdict that does. Whoever had the last
    turn does not get it again this way.

    Args:
        synthesiser: Name of the participant that writes the answer.
        termination: The team's condition, whose verdict is reused. None: only verdicts that agents attach count.
        otherwise: Selects in all other turns. None: the team's own way.

    Raises:
        UsageError: `synthesiser` is no name.

    AutoGen does not save selector functions: give it again to a team that was loaded.
    """
    if not synthesiser:
        raise UsageError("`synthesiser` is empty: give the name of the participant that writes the answer")

    def select(thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str | None:
        last = next((message for message in reversed(thread) if isinstance(message, BaseChatMessage)), None)
        if last is not None and last.source != synthesiser and (_awaited(termination) or _is_left_unwritten(last)):
            return synthesiser
        return otherwise(thread) if otherwise is not None else None

    return select


def _awaited(termination: AgentLoopTermination | None) -> bool:
    return termination is not None and termination.awaits_answer


def _is_left_unwritten(message: BaseChatMessage) -> bool:
    verdict = carried_verdict(message.metadata)
    return verdict is not None and is_unwritten(verdict) and not is_user(message.source)
