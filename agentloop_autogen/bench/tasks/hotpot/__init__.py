"""Questions over paragraphs of an encyclopedia (HotpotQA), answered by searching."""

from agentloop_autogen.bench.tasks.hotpot.loading import load

__all__ = ["load"]
