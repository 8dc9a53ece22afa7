"""AutoGen as it comes: one agent, the same agent in a team, and Magentic-One."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import MagenticOneGroupChat, RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient

from agentloop_autogen.bench.systems.clients import openai_client
from agentloop_autogen.bench.systems.system import Endpoint, Limits, SystemReply
from agentloop_autogen.bench.systems.tools import BenchWorkbench
from agentloop_autogen.bench.tasks.task import BenchTool

__all__ = ["AutoGenAgent", "AutoGenTeam", "MagenticOne"]

_NAME: Final = "assistant"
_MARK: Final = "TERMINATE"
_ASKS_FOR_MARK: Final = f"Reply with {_MARK} when the task has been completed."
"""What AutoGen's own default system message says at its end."""


class AutoGenAgent:
    """`AssistantAgent` with its tool loop and reflection, run by itself."""

    name = "autogen"

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        """Answer one request."""
        async with _agent(instructions, tools, endpoint, limits, iterations=limits.rounds) as (agent, _):
            result = await agent.run(task=request)
        return SystemReply(answer=_last_text(result, _NAME), stop_reason=result.stop_reason or "")


class AutoGenTeam:
    """The same agent in a round-robin team that ends by its own word or after as many turns as there are rounds."""

    name = "autogen-team"

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        """Answer one request."""
        told = f"{instructions}\n{_ASKS_FOR_MARK}"
        async with _agent(told, tools, endpoint, limits, iterations=1) as (agent, _):
            # The request counts as a message, too.
            ending = TextMentionTermination(_MARK, sources=[_NAME]) | MaxMessageTermination(limits.rounds + 1)
            team = RoundRobinGroupChat([agent], termination_condition=ending)
            result = await team.run(task=request)
        answer = _last_text(result, _NAME, other_than=_MARK).replace(_MARK, "").strip()
        return SystemReply(answer=answer, stop_reason=result.stop_reason or "")


class MagenticOne:
    """`MagenticOneGroupChat` with one agent that has the tools."""

    name = "magentic-one"

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        """Answer one request."""
        async with _agent(instructions, tools, endpoint, limits, iterations=1) as (agent, client):
            # The orchestrator lets one turn more than that begin.
            team = MagenticOneGroupChat([agent], client, max_turns=limits.rounds - 1)
            result = await team.run(task=request)
        # The orchestrator writes the answer; the names of its messages are not part of its interface.
        return SystemReply(answer=_last_text(result), stop_reason=result.stop_reason or "")


@asynccontextmanager
async def _agent(
    instructions: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits, *, iterations: int
) -> AsyncGenerator[tuple[AssistantAgent, ChatCompletionClient], None]:
    opened: AbstractAsyncContextManager[ChatCompletionClient] = openai_client(endpoint, limits)
    async with opened as client:
        agent = AssistantAgent(
            _NAME,
            client,
            workbench=BenchWorkbench(tools),
            system_message=instructions,
            max_tool_iterations=iterations,
            reflect_on_tool_use=True,
            model_client_stream=limits.stream,
        )
        yield agent, client


def _last_text(result: TaskResult, source: str | None = None, *, other_than: str = "") -> str:
    """The last text of an agent, whatever it is: the answer as a user of the library gets it."""
    texts = [
        message.content
        for message in result.messages
        if isinstance(message, TextMessage) and message.source != "user" and source in (None, message.source)
    ]
    return next((text for text in reversed(texts) if text.strip() != other_than), "")
