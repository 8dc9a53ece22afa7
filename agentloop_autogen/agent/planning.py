"""The planning half of a round: one call of the model, and what of its reply counts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from autogen_agentchat.messages import ModelClientStreamingChunkEvent, ThoughtEvent
from autogen_core.models import CreateResult, LLMMessage

from agentloop_autogen.agent.bounded import bounded
from agentloop_autogen.agent.calls import Reply, read_reply
from agentloop_autogen.agent.context import planning_prompt
from agentloop_autogen.agent.model_call import characters_of, prompt_characters
from agentloop_autogen.agent.tools import ToolsUnavailable
from agentloop_autogen.core.budget import Role
from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.faults import describe_error

if TYPE_CHECKING:
    from agentloop_autogen.agent.run import Run

__all__ = ["Emit", "Planned", "PlanningCall", "PlanningFailed", "SearchOver", "plan"]

PLANNING_ATTEMPTS: Final = 2
RETRY_PAUSE_S: Final = 0.2
_SHRUNK: Final = 4
"""A second attempt at planning gets a prompt of this fraction: a context that overflowed is the fault we can mend."""

Emit = Callable[[ModelClientStreamingChunkEvent], Awaitable[None]]


@dataclass(frozen=True)
class Planned:
    """A planning reply, the message id its text carries, and how long the prompt was."""

    reply: Reply
    message_id: str
    prompt_characters: int
    prompt_tokens: int
    """As the server counted them; 0 where it did not."""


class SearchOver(Exception):
    """The time for the search ended before the round did."""


class PlanningFailed(Exception):
    """No planning call could be made for good.

    Args:
        problem: What did not work, as a clause.
        error: The error behind it.
    """

    def __init__(self, problem: str, error: str) -> None:
        self.problem = problem
        self.error = error
        super().__init__(problem)


async def plan(run: Run) -> Planned:
    """Make the planning call of a round, at most twice.

    Raises:
        SearchOver: The time for the search is over.
        PlanningFailed: Neither attempt gave a reply.
        asyncio.CancelledError: The run was cancelled.
    """
    problem = error_text = ""
    for attempt in range(PLANNING_ATTEMPTS):
        if attempt:
            await asyncio.sleep(RETRY_PAUSE_S)
        try:
            call = PlanningCall(run, run.emit_event, limit=run.parts.config.max_prompt_chars // (_SHRUNK**attempt))
            return await bounded(_reply_of(call), token=run.token, remaining_s=run.search_s)
        except asyncio.TimeoutError:
            if run.search_s() <= 0:
                raise SearchOver from None
            problem, error_text = "the model could not be called", "the model client timed out"
        except ToolsUnavailable as error:
            problem, error_text = "the tools could not be listed", str(error)
        except Exception as error:  # noqa: BLE001 - whatever a client raises, the run must end with a reply
            problem, error_text = "the model could not be called", describe_error(error)
    raise PlanningFailed(f"{problem} ({error_text})", error_text)


async def _reply_of(call: PlanningCall) -> Planned:
    return await call.accepted(await call.make())


@dataclass
class PlanningCall:
    """One planning call, and what is known of it while it is under way.

    Args:
        run: The run it is for.
        emit: Takes the chunks of a streamed reply.
        limit: Characters of its prompt.
    """

    run: Run
    emit: Emit
    limit: int
    message_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    prompt_characters: int | None = None
    """Length of the prompt; None until it is sent."""
    usage: RequestUsage | None = None
    """What the server counted; None until the reply is there."""
    _characters: int = 0

    async def make(self) -> CreateResult:
        """Make the call and return what the model said; of the run only the number of calls changes.

        Raises:
            ToolsUnavailable: A workbench could not say which tools it has.
        """
        run = self.run
        tools = await run.tools.list_tools()
        messages = await self._prompt()
        run.budget.model_calls += 1
        self.prompt_characters = prompt_characters(messages)
        result = await run.model_call(self.emit)(messages, message_id=self.message_id, tools=tools)
        self._characters = characters_of(messages, result)
        self.usage = RequestUsage(
            prompt_tokens=result.usage.prompt_tokens, completion_tokens=result.usage.completion_tokens
        )
        return result

    async def accepted(self, result: CreateResult) -> Planned:
        """Count a reply, tell of its thought, and return it as the run's."""
        run, message_id, usage = self.run, self.message_id, self.usage or RequestUsage()
        self.count(usage)
        reply = read_reply(result, run.tools.callable_names)
        if reply.draft and run.overlay.is_echoed_by(reply.draft):
            reply = replace(reply, draft="")
        if reply.thought:
            await run.emit(ThoughtEvent(content=reply.thought, source=run.parts.name, id=message_id))
            message_id = str(uuid.uuid4())
        run.planned = Planned(reply, message_id, self.prompt_characters or 0, usage.prompt_tokens)
        return run.planned

    def count(self, usage: RequestUsage) -> None:
        """Count the tokens of the call; the next message of the run that carries usage carries them."""
        self.run.budget.spend_tokens(Role.AGENT, usage, characters=self._characters)
        self.run.pending_usage += usage

    async def _prompt(self) -> list[LLMMessage]:
        run = self.run
        conversation = await run.parts.model_context.get_messages()
        return planning_prompt(
            run.parts.system_messages, conversation, about=run.about, overlay=run.overlay, limit=self.limit
        )
