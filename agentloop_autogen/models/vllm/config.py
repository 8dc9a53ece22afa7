"""Settings of the vLLM client as they are dumped and loaded."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from autogen_ext.models.openai import CreateArgumentsConfigModel
from autogen_ext.models.openai.config import CreateArguments
from pydantic import ConfigDict, Field, SecretStr

from agentloop_autogen.models.vllm.request import merged_arguments
from agentloop_autogen.models.vllm.served import info_for

__all__ = ["DEFAULT_BASE_URL", "NO_THINKING", "VLLMClientConfig", "base_arguments", "headers_of", "request_arguments"]

DEFAULT_BASE_URL: Final = "http://localhost:8000/v1"
NO_THINKING: Final[dict[str, Any]] = {"enable_thinking": False, "thinking": False}
"""The names the templates of Qwen and GLM, and of DeepSeek and Granite, give the switch; others ignore both."""

_SAMPLING: Final = frozenset(CreateArguments.__annotations__)
_KEY_VARIABLE: Final = "VLLM_API_KEY"
_NO_KEY: Final = "EMPTY"
"""A server without a key takes any; the SDK refuses to send none, and would take the one meant for OpenAI."""


class VLLMClientConfig(CreateArgumentsConfigModel):
    """Settings of a `VLLMChatCompletionClient`; sampling arguments stand beside them, as for AutoGen's own client."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str = Field(min_length=1)
    base_url: str = DEFAULT_BASE_URL
    api_key: SecretStr | None = None
    """Masked in JSON; a masked key is read as none, and `VLLM_API_KEY` takes its place."""
    tool_mode: Literal["native", "guided"] = "native"
    alternate_roles: bool = False
    max_model_len: int | None = Field(default=None, ge=1)
    priority: int | None = None
    cache_salt: SecretStr | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    verdict_template_kwargs: dict[str, Any] = Field(default_factory=lambda: dict(NO_THINKING))
    extra_body: dict[str, Any] | None = None
    timeout: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    max_retries: int = Field(default=2, ge=0)
    default_headers: dict[str, SecretStr] | None = None
    model_info: dict[str, Any] | None = None
    """Entries that replace what the client finds out; any of those of AutoGen's `ModelInfo`."""
    add_name_prefixes: bool = False
    include_name_in_message: bool = False


def _unmasked(secret: SecretStr | None) -> str | None:
    """The secret itself; None where there is none, or only the asterisks a dump to JSON leaves of it.

    Args:
        secret: As it was given or loaded.
    """
    value = secret.get_secret_value() if secret is not None else ""
    return value if value.strip("*") else None


def _key_or_default(secret: SecretStr | None) -> str:
    """The key to send: the one given, else the value of `VLLM_API_KEY`, else a placeholder.

    Args:
        secret: As it was given or loaded.
    """
    return _unmasked(secret) or os.environ.get(_KEY_VARIABLE, "").strip() or _NO_KEY


def headers_of(config: VLLMClientConfig) -> dict[str, str] | None:
    """The headers to send with each request, without those a dump to JSON has masked.

    Args:
        config: As it was given or loaded.
    """
    headers = {name: _unmasked(value) for name, value in (config.default_headers or {}).items()}
    return {name: value for name, value in headers.items() if value is not None} or None


def request_arguments(config: VLLMClientConfig) -> dict[str, Any]:
    """What goes into the body of each request.

    Args:
        config: The client's settings.

    Raises:
        UsageError: An argument is one that only the client sets.
    """
    sampling = {name: getattr(config, name) for name in config.model_fields_set if name in _SAMPLING}
    ours = {
        "priority": config.priority,
        "cache_salt": _unmasked(config.cache_salt),
        "chat_template_kwargs": config.chat_template_kwargs,
        "extra_body": config.extra_body,
    }
    return merged_arguments({**sampling, **ours}, {})


def base_arguments(config: VLLMClientConfig) -> dict[str, Any]:
    """What AutoGen's own client is built with: the connection, and enough to satisfy its checks.

    Args:
        config: The client's settings.
    """
    arguments: dict[str, Any] = {
        "model": config.model,
        "base_url": config.base_url,
        "api_key": _key_or_default(config.api_key),
        "max_retries": config.max_retries,
        "model_info": info_for(config.model, None, config.model_info or {}),
    }
    if config.timeout is not None:
        arguments["timeout"] = config.timeout
    if config.default_headers:
        arguments["default_headers"] = headers_of(config)
    return arguments
