"""Requests to simulated services (the first turns of BFCL's multi-turn tasks), graded by what the calls did."""

from agentloop_autogen.bench.tasks.bfcl.loading import load

__all__ = ["load"]
