"""AutoGen's model clients, pointed at a counted endpoint; none repeats a failed request on its own."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentloop_autogen.bench.systems.system import Endpoint, Limits
from agentloop_autogen.errors import MissingExtraError

if TYPE_CHECKING:
    from autogen_core.models import ChatCompletionClient

__all__ = ["load_openai_client", "openai_client", "vllm_client"]


def load_openai_client() -> None:
    """Load the clients' library, so that no attempt pays for it.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        importlib.import_module("autogen_ext.models.openai")
        importlib.import_module("openai.resources.chat.completions")
    except ImportError:
        raise MissingExtraError("AutoGen's OpenAI client", "bench") from None


@asynccontextmanager
async def openai_client(endpoint: Endpoint, limits: Limits) -> AsyncGenerator[ChatCompletionClient, None]:
    """Open AutoGen's own OpenAI client, and close it at the end.

    Args:
        endpoint: Where the model is.
        limits: How it decodes.
    """
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    client = OpenAIChatCompletionClient(
        model=endpoint.model,
        base_url=endpoint.base_url,
        api_key=endpoint.api_key,
        max_retries=0,
        temperature=limits.temperature,
        seed=limits.seed,
        max_tokens=limits.max_completion_tokens,
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "structured_output": True,
            "family": "unknown",
            "multiple_system_messages": True,
        },
    )
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def vllm_client(endpoint: Endpoint, limits: Limits) -> AsyncGenerator[ChatCompletionClient, None]:
    """Open this package's client, and close it at the end.

    Args:
        endpoint: Where the model is.
        limits: How it decodes.
    """
    from agentloop_autogen.models.vllm import VLLMChatCompletionClient

    client = VLLMChatCompletionClient(
        endpoint.model,
        endpoint.base_url,
        api_key=endpoint.api_key,
        max_retries=0,
        max_model_len=endpoint.context_length,
        temperature=limits.temperature,
        seed=limits.seed,
        max_tokens=limits.max_completion_tokens,
    )
    try:
        yield client
    finally:
        await client.close()
