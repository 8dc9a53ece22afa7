"""How users write against the public surface; type-checked with the rest, never run."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient

from agentloop_autogen import (
    AgentLoopAssistantAgent,
    AgentLoopTermination,
    Evidence,
    Failure,
    LoopConfig,
    LoopOutcome,
    ModelSlotVerifier,
    Slot,
    SlotState,
    SlotVerifier,
    StopReason,
    Verdict,
    VLLMChatCompletionClient,
    synthesiser_selector,
)
from agentloop_autogen.slots.sql import SQLSlotStateStore
from agentloop_autogen.testing import InMemorySlotStateStore, ScriptedVerifier


class KeywordVerifier(SlotVerifier):
    """A verifier of the user's own."""

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Close once the draft mentions every piece of evidence."""
        done = all(piece.finding in draft for piece in evidence)
        return Verdict(answer_complete=done, need_tool=not done, confidence=1.0)


def build(client: ChatCompletionClient) -> list[AssistantAgent]:
    """Return agents built in every way the documentation shows; each is an `AssistantAgent`."""
    verdict = Verdict(
        answer_complete=False,
        need_tool=True,
        confidence=0.5,
        failure=Failure.OK,
        missing=("x",),
        slots=(Slot(name="x", state=SlotState.MISSING),),
    )
    return [
        AgentLoopAssistantAgent("a", client),
        AgentLoopAssistantAgent("b", client, loop=LoopConfig(policy="paper", max_rounds=3), max_tool_iterations=4),
        AgentLoopAssistantAgent("c", client, verifier=ModelSlotVerifier(client), model_client_stream=True),
        AgentLoopAssistantAgent("d", client, verifier=ScriptedVerifier([verdict, RuntimeError("down")])),
        AgentLoopAssistantAgent("e", client, verifier=KeywordVerifier()),
        AgentLoopAssistantAgent("f", client, slot_store=SQLSlotStateStore("slots.sqlite3", keep_request_text=False)),
    ]


def served() -> list[ChatCompletionClient]:
    """Return clients of a vLLM server, built in the ways the documentation shows."""
    return [
        VLLMChatCompletionClient("Qwen/Qwen3-8B"),
        VLLMChatCompletionClient("llama", "http://gpu:8000/v1", api_key="key", tool_mode="guided", temperature=0.0),
        VLLMChatCompletionClient("m", priority=1, cache_salt="s", chat_template_kwargs={"enable_thinking": False}),
        VLLMChatCompletionClient("m", model_info={"vision": True}, max_model_len=8192, alternate_roles=True),
    ]


def why(agent: AgentLoopAssistantAgent) -> tuple[StopReason, int, Sequence[str]] | None:
    """Return why the last run ended, after how many tokens, and what stayed open."""
    outcome: LoopOutcome | None = agent.last_outcome
    if outcome is None:
        return None
    return outcome.stop_reason, sum(usage.total for usage in outcome.usage.values()), outcome.unresolved


def conditions(client: ChatCompletionClient) -> list[TerminationCondition]:
    """Return conditions built in every way the documentation shows."""
    return [
        AgentLoopTermination(),
        AgentLoopTermination(ModelSlotVerifier(client), loop=LoopConfig(max_rounds=20)),
        AgentLoopTermination(sources=("writer",), request="How many?") | MaxMessageTermination(50),
        AgentLoopTermination(ModelSlotVerifier(client), slot_store=InMemorySlotStateStore()),
        AgentLoopTermination(KeywordVerifier()) & MaxMessageTermination(2),
    ]


def team(client: ChatCompletionClient) -> SelectorGroupChat:
    """Return a team whose writer gets the turn once the evidence is in."""
    termination = AgentLoopTermination(ModelSlotVerifier(client))
    return SelectorGroupChat(
        [AssistantAgent("researcher", client), AgentLoopAssistantAgent("writer", client)],
        client,
        termination_condition=termination,
        selector_func=synthesiser_selector("writer", termination=termination),
    )
