"""A model client for vLLM servers.

Its parts: `messages`, `request`, `reply` and `reading` know the wire format and do no I/O; `refusals` knows vLLM's
error texts; `sending` and `served` talk to the server; `events` tells AutoGen's logger of calls; `client` is the
AutoGen model client on top of them.
"""

from __future__ import annotations

from agentloop_autogen.errors import MissingExtraError

try:
    from agentloop_autogen.models.vllm.client import VLLMChatCompletionClient
    from agentloop_autogen.models.vllm.config import VLLMClientConfig
    from agentloop_autogen.models.vllm.reply import VLLMRequestUsage
except ImportError:
    raise MissingExtraError("VLLMChatCompletionClient", "vllm") from None

__all__ = ["VLLMChatCompletionClient", "VLLMClientConfig", "VLLMRequestUsage"]
