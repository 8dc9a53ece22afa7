"""Office work in simulated accounts (the user tasks of AgentDojo), graded by its own checks."""

from agentloop_autogen.bench.tasks.agentdojo.loading import load

__all__ = ["load"]
