"""Questions over small databases (Spider), answered with SQL."""

from agentloop_autogen.bench.tasks.spider.loading import load

__all__ = ["load"]
