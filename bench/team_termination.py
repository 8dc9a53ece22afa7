"""The same conversation under AutoGen's usual termination and under ours, on the local model.

    python bench/team_termination.py [--weights qwen.gguf]

A researcher with tools and a writer, in turns. `default`: plain agents and `MaxMessageTermination(12) |
TextMentionTermination("TERMINATE")`, with the writer told to say TERMINATE at the end, as AutoGen's guides do. `ours,
plain agents`: the same two agents and `AgentLoopTermination` with a verifier. `ours`: controlled agents and
`AgentLoopTermination()`. One run each; tokens are those on the messages, those of verifiers included.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, TaskResult, Team
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import BaseChatMessage, ToolCallRequestEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool

from agentloop_autogen import AgentLoopAssistantAgent, AgentLoopTermination, LoopConfig, ModelSlotVerifier
from agentloop_autogen.demo_tools import TOOLSETS
from agentloop_autogen.models import LocalModelServer, local_chat_client, resolve_weights

TASK = (
    "I want to visit Vennholm on Saturday. When does the first ferry leave, and what does an adult ticket for the"
    " castle garden cost?"
)
LOOK_UP = "You are a helpful assistant. Say only what the tools say. You look things up with the tools."
WRITE = "You are a helpful assistant. You write the answer for the traveller, in two sentences at most."
SAY_SO = f"{WRITE} When the request is answered, end with TERMINATE."
SLOW = LoopConfig(timeout_s=900, verifier_timeout_s=180)

MakeTeam = Callable[[ChatCompletionClient], RoundRobinGroupChat]


def default(client: ChatCompletionClient) -> RoundRobinGroupChat:
    """Plain agents, a count and a word."""
    condition = MaxMessageTermination(12) | TextMentionTermination("TERMINATE")
    return RoundRobinGroupChat(_plain(client, write=SAY_SO), termination_condition=condition)


def ours_on_plain_agents(client: ChatCompletionClient) -> RoundRobinGroupChat:
    """Plain agents, judged from outside."""
    condition = AgentLoopTermination(_judge(client), loop=SLOW)
    return RoundRobinGroupChat(_plain(client, write=WRITE), termination_condition=condition)


def ours(client: ChatCompletionClient) -> RoundRobinGroupChat:
    """Controlled agents, whose own verdicts stop the team."""
    researcher = AgentLoopAssistantAgent(
        "researcher",
        client,
        verifier=_judge(client),
        tools=_tools(),
        system_message=LOOK_UP,
        reflect_on_tool_use=False,
        loop=SLOW,
    )
    writer = AgentLoopAssistantAgent("writer", client, verifier=_judge(client), system_message=WRITE, loop=SLOW)
    return RoundRobinGroupChat([researcher, writer], termination_condition=AgentLoopTermination(loop=SLOW))


def _plain(client: ChatCompletionClient, *, write: str) -> list[ChatAgent | Team]:
    researcher = AssistantAgent("researcher", client, tools=_tools(), system_message=LOOK_UP, reflect_on_tool_use=False)
    return [researcher, AssistantAgent("writer", client, system_message=write)]


def _judge(client: ChatCompletionClient) -> ModelSlotVerifier:
    return ModelSlotVerifier(client, timeout_s=180)  # on two cores a verdict takes its time


def _tools() -> list[BaseTool[Any, Any] | Callable[..., Any] | Callable[..., Awaitable[Any]]]:
    return list(TOOLSETS["travel"]())


def line(label: str, done: TaskResult, seconds: float) -> str:
    """Return one row of a Markdown table."""
    usage = [message.models_usage for message in done.messages if message.models_usage is not None]
    tokens = sum(used.prompt_tokens + used.completion_tokens for used in usage)
    calls = sum(len(message.content) for message in done.messages if isinstance(message, ToolCallRequestEvent))
    chats = [message for message in done.messages if isinstance(message, BaseChatMessage)][1:]
    replies = [message for message in chats if message.source != "AgentLoopTermination"]
    answer = " ".join(replies[-1].to_text().split()) if replies else ""
    reason = (done.stop_reason or "").split(":")[0]
    return f"| {label} | {len(replies)} | {calls} | {tokens:,} | {seconds:.0f} | {answer[:220]} | {reason[:80]} |"


async def main(weights: Path | None) -> None:
    """Run the conversation under each termination."""
    print("| termination | turns | tool calls | tokens | seconds | last reply | stopped by |")
    print("|---|---|---|---|---|---|---|")
    teams: dict[str, MakeTeam] = {"default": default, "ours, plain agents": ours_on_plain_agents, "ours": ours}
    with LocalModelServer(resolve_weights(weights)) as server:
        for label, make in teams.items():
            client = local_chat_client(server)
            started = time.perf_counter()
            done = await make(client).run(task=TASK)
            print(line(label, done, time.perf_counter() - started), flush=True)
            await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=Path, help="the model's .gguf file; without it, it is looked for")
    asyncio.run(main(parser.parse_args().weights))
