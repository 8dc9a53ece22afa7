"""The AutoGen agent: a drop-in `AssistantAgent` whose loop the core controls."""

from agentloop_autogen.agent.agent import (
    AgentLoopAgentState,
    AgentLoopAssistantAgent,
    AgentLoopAssistantAgentConfig,
)

__all__ = ["AgentLoopAgentState", "AgentLoopAssistantAgent", "AgentLoopAssistantAgentConfig"]
