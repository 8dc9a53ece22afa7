"""Verification off the critical path: the next planning call is made while the verifier judges the last round.

Nothing depends on which of the two is faster. The reply waits for the decision: until then no piece of it is shown, no
tool of it runs, and no round is counted. What is kept and what is dropped is `is_wanted`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.models import CreateResult
from typing_extensions import assert_never

from agentloop_autogen.agent.bounded import bounded
from agentloop_autogen.agent.planning import Emit, Planned, PlanningCall
from agentloop_autogen.core.config import Policy
from agentloop_autogen.core.records import ControlAction, ControlBranch, Decision, RequestUsage
from agentloop_autogen.waiting import stop_task

if TYPE_CHECKING:
    from agentloop_autogen.agent.run import Run

__all__ = ["Speculation", "is_wanted"]

_CHARACTERS_PER_TOKEN: Final = 4


def is_wanted(decision: Decision, *, drops_round: bool) -> bool:
    """Return whether the reply to a planning call made before `decision` is as good as one made after it.

    It is where the prompt would have been the same but for the note with the open slots. That note is a reminder: what
    is open follows from the request and the results, which the model had before it, and if the note counted, no reply
    would ever be kept, since a verdict that goes on nearly always names something open. What says anything the model
    could not know, or takes something from its prompt, makes the reply worthless: a warning, a contradiction between
    results, a round that is taken out of the prompt.

    Args:
        decision: The decision on the round before the call.
        drops_round: Whether it takes that round out of the prompt.
    """
    if decision.action is not ControlAction.CONTINUE_INVOCATION:
        return False
    match decision.branch:
        case (
            ControlBranch.NEED_TOOL_ROUND
            | ControlBranch.SKIP_DECODE_OUTPUT
            | ControlBranch.KEEP_DECODE
            | ControlBranch.NO_VERDICT
            | ControlBranch.ROLLBACK_RETRY
        ):
            return not drops_round
        case ControlBranch.VERIFIER_RETRY | ControlBranch.NUDGE:
            return False
        case (
            ControlBranch.INTEGRATE_ANSWER_RETRY_BREAK
            | ControlBranch.STOP_REPLANNING
            | ControlBranch.SKIP_DECODE_OUTPUT_BREAK
            | ControlBranch.MODEL_TEXT_BREAK
            | ControlBranch.EXHAUSTED_BREAK
            | ControlBranch.BUDGET_BREAK
            | ControlBranch.HANDOFF_BREAK
            | ControlBranch.PLANNING_FAILED
        ):
            return False
        case _:
            assert_never(decision.branch)


class _HeldChunks:
    """Keeps the pieces of a streamed reply back until they may be shown."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._held: list[ModelClientStreamingChunkEvent] = []
        self._released = False
        self.characters = 0
        """Length of all pieces so far."""

    async def take(self, chunk: ModelClientStreamingChunkEvent) -> None:
        """Keep a piece, or pass it on where the pieces may be shown."""
        self.characters += len(chunk.content)
        if self._released:
            await self._emit(chunk)
        else:
            self._held.append(chunk)

    async def release(self) -> None:
        """Pass on what was kept, in order, and everything after it at once."""
        while self._held:
            await self._emit(self._held.pop(0))
        self._released = True


@dataclass(frozen=True)
class _CallAhead:
    """A planning call under way before it is known whether its round comes."""

    call: PlanningCall
    chunks: _HeldChunks
    task: asyncio.Task[CreateResult]
    earlier: Planned
    """The planning of the round before, whose prompt this one continues."""


class Speculation:
    """Makes planning calls of one run ahead of the decision, one at a time.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ahead: _CallAhead | None = None

    def begin(self, planned: Planned) -> None:
        """Start the planning call of the next round, unless it is certain or likely that there is none.

        Args:
            planned: The planning of the round just observed. A draft starts nothing: it is either the reply, or goes
                back with what the verdict says of it.
        """
        run, config = self._run, self._run.parts.config
        if not (config.speculative and config.policy is Policy.EXTENDED and planned.reply.calls):
            return
        over = run.budget.after_round(elapsed_s=run.clock.elapsed_s, reflects=False)
        # A repeated round is left out of the next prompt, so that a call which has it could not be used.
        if over is not None or run.controller.struck or run.controller.repeated:
            return
        # What was open before this round may not be now.
        run.overlay.note = ""
        chunks = _HeldChunks(run.emit_event)
        call = PlanningCall(run, chunks.take, limit=config.max_prompt_chars)
        task = asyncio.ensure_future(call.make())
        run.token.link_future(task)
        self._ahead = _CallAhead(call, chunks, task, planned)

    async def reply(self) -> Planned | None:
        """Return the reply to the call made ahead, now that it counts; None where there is none or the call failed.

        Raises:
            asyncio.CancelledError: The run was cancelled.
        """
        ahead = self._ahead
        if ahead is None:
            return None
        if not _failed(ahead.task):
            await ahead.chunks.release()
        try:
            result = await bounded(ahead.task, token=self._run.token, remaining_s=self._run.search_s)
            self._ahead = None
            return await ahead.call.accepted(result)
        except Exception:  # noqa: BLE001 - whatever it was, an ordinary planning call follows and says so if it persists
            await self.drop()
            return None

    async def drop(self) -> None:
        """Give up the call made ahead, if there is one: it is cancelled, and what it took is counted.

        Where the call was broken off nobody says how many tokens it took. They are estimated: those of the prompt
        before it, and one for every four characters by which its prompt was longer or which had been streamed.
        """
        ahead = self._ahead
        if ahead is None:
            return
        await stop_task(ahead.task)
        self._ahead = None
        if ahead.call.prompt_characters is None:
            return
        self._run.budget.dropped_calls += 1
        if ahead.call.usage is not None:
            ahead.call.count(ahead.call.usage)
        elif not _failed(ahead.task):
            ahead.call.count(_estimated(ahead, ahead.call.prompt_characters))


def _failed(task: asyncio.Task[CreateResult]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


def _estimated(ahead: _CallAhead, characters: int) -> RequestUsage:
    earlier = ahead.earlier
    # A server that counted nothing then is no measure now.
    grown = characters - earlier.prompt_characters if earlier.prompt_tokens else characters
    return RequestUsage(
        prompt_tokens=earlier.prompt_tokens + max(0, grown) // _CHARACTERS_PER_TOKEN,
        completion_tokens=ahead.chunks.characters // _CHARACTERS_PER_TOKEN,
    )
