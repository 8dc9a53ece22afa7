"""Turns vLLM's refusals into one error type each, with the server flag or client setting that mends it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from openai import APIConnectionError, APITimeoutError

from agentloop_autogen.errors import (
    ContextTooLongError,
    ModelServerError,
    ServerUnreachableError,
    ToolParserMissingError,
    UnknownModelError,
)
from agentloop_autogen.faults import message_of, status_of, without_secrets

__all__ = ["NO_ACCESS", "Asked", "in_our_words", "is_format_refusal", "is_template_refusal"]

_MAX_TOLD: Final = 200
_REFUSED: Final = frozenset({400, 413, 422})
_FORMAT_REFUSED: Final = frozenset({400, 422, 500, 501})
NO_ACCESS: Final = frozenset({401, 403})
"""HTTP statuses of a refused key."""
_NOT_THERE: Final = frozenset({502, 503, 504})

_NO_PARSER: Final = re.compile(r"enable-auto-tool-choice|tool-call-parser", re.IGNORECASE)
_TOO_LONG: Final = re.compile(
    r"(?:maximum|model'?s?) context length|context length (?:is|of)|"
    r"exceeds? (?:the )?(?:model'?s? )?(?:maximum|context)|"
    r"context_length_exceeded|longer than the maximum model length|prompt is too long|"
    r"max_(?:completion_)?tokens.{0,40}(?:too large|greater than max_model_len)",
    re.IGNORECASE,
)
_NO_MODEL: Final = re.compile(r"model.{0,200}(?:does not exist|not found)|model_not_found", re.IGNORECASE | re.DOTALL)
_TEMPLATE_OPTIONS: Final = re.compile(r"chat_template", re.IGNORECASE)
_FORMAT_WORDS: Final = re.compile(
    r"response_format|json_schema|json_object|json mode|structured|schema|grammar|guided|guidance|outlines",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class _Mend:
    """A refusal that has no type of its own, and what mends it."""

    seen: re.Pattern[str]
    problem: str
    setting: str


_MENDS: Final = (
    _Mend(
        seen=re.compile(r"roles? must alternate|alternate user/assistant", re.IGNORECASE),
        problem="the model's chat template demands alternating roles",
        setting="build the client with alternate_roles=True",
    ),
    _Mend(
        seen=re.compile(r"priority", re.IGNORECASE),
        problem="the server does not schedule by priority",
        setting="start it with --scheduling-policy priority, or leave `priority` out",
    ),
    _Mend(
        seen=re.compile(r"chat template|default_chat_template", re.IGNORECASE),
        problem="the model has no chat template the server can use",
        setting="start it with --chat-template FILE",
    ),
    _Mend(
        seen=re.compile(r"multi-?modal|at most 0 image|image input", re.IGNORECASE),
        problem="the model takes no images, or not so many",
        setting='give model_info={"vision": False}, or start the server with --limit-mm-per-prompt',
    ),
    _Mend(
        seen=re.compile(r"logprobs", re.IGNORECASE),
        problem="the server gives fewer log probabilities than asked for",
        setting="start it with a higher --max-logprobs",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Who was asked, for the messages."""

    base_url: str
    model: str
    served: Sequence[str] = ()
    """Names the server has; empty: not known."""


def in_our_words(error: Exception, asked: Asked, *, during_reply: bool = False) -> ModelServerError | None:
    """Translate what the OpenAI SDK raised.

    Args:
        error: What was raised.
        asked: Who was asked.
        during_reply: Whether the server had begun to answer.

    Returns:
        The error to raise in its place; None where it is none of vLLM's known refusals.
    """
    if isinstance(error, APIConnectionError) or _is_transport_error(error):
        return _unreachable(error, asked, during_reply=during_reply)
    status = status_of(error)
    text = message_of(error)
    if status in NO_ACCESS:
        # Not a word of the reply: servers repeat the key they refused.
        problem = f"{asked.base_url} refuses access (HTTP {status})"
        return ModelServerError(problem, setting="give api_key the value of the server's --api-key", status_code=status)
    if status in _NOT_THERE:
        problem = f"the server at {asked.base_url} is not ready (HTTP {status})"
        return ServerUnreachableError(problem, setting="wait until its /health answers 200", status_code=status)
    if status == 404:
        return _not_found(text, asked)
    return _refused(text, status, asked) if status in _REFUSED else None


def is_format_refusal(error: Exception) -> bool:
    """Whether asking for less of an output format may help: refused, and for no reason known to be another."""
    status = status_of(error)
    text = message_of(error)
    if status not in _FORMAT_REFUSED or _NO_PARSER.search(text) or _TOO_LONG.search(text):
        return False
    # A server that fails in itself says so of anything; only words about the format make it one.
    return _FORMAT_WORDS.search(text) is not None or (status != 500 and not any(m.seen.search(text) for m in _MENDS))


def is_template_refusal(error: Exception) -> bool:
    """Whether the server takes no options for its chat template, as with Mistral's own tokenizer."""
    return status_of(error) in _REFUSED and _TEMPLATE_OPTIONS.search(message_of(error)) is not None


def _unreachable(error: Exception, asked: Asked, *, during_reply: bool) -> ServerUnreachableError:
    if isinstance(error, APITimeoutError) or "Timeout" in type(error).__name__:
        problem = f"the server at {asked.base_url} did not answer in time"
        return ServerUnreachableError(problem, setting="raise the client's timeout, or send fewer requests at once")
    if during_reply:
        problem = f"the server at {asked.base_url} went away during its reply"
        return ServerUnreachableError(problem, setting="see its log, and start it again")
    setting = f"start it with `vllm serve {asked.model}`, or correct base_url"
    return ServerUnreachableError(f"no model server answers at {asked.base_url}", setting=setting)


def _is_transport_error(error: Exception) -> bool:
    # Raised as they are while a stream is read; which HTTP library it is depends on the SDK's version.
    return any(kind.__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore") for kind in type(error).__mro__)


def _not_found(text: str, asked: Asked) -> ModelServerError:
    if _NO_MODEL.search(text):
        problem = f"{asked.base_url} has no model {asked.model!r}"
        has = f"it has {', '.join(asked.served[:5])}; name one of them" if asked.served else "see its /v1/models"
        setting = f"{has}, or start it with --served-model-name {asked.model}"
        return UnknownModelError(problem, setting=setting, status_code=404)
    problem = f"{asked.base_url} has no chat completions"
    return ModelServerError(problem, setting="correct base_url; vLLM's ends in /v1", status_code=404)


def _refused(text: str, status: int, asked: Asked) -> ModelServerError | None:
    if _NO_PARSER.search(text):
        setting = (
            "start it with --enable-auto-tool-choice --tool-call-parser NAME (hermes, llama3_json, mistral, ...), "
            'or build the client with tool_mode="guided"'
        )
        problem = f"the server at {asked.base_url} has no parser for tool calls"
        return ToolParserMissingError(problem, setting=setting, status_code=status)
    if _TOO_LONG.search(text):
        told = " ".join(without_secrets(text).split())[:_MAX_TOLD]
        setting = "shorten the messages, lower max_tokens, or start the server with a higher --max-model-len"
        return ContextTooLongError(
            f"prompt and reply do not fit the context ({told})", setting=setting, status_code=status
        )
    mend = next((mend for mend in _MENDS if mend.seen.search(text)), None)
    return ModelServerError(mend.problem, setting=mend.setting, status_code=status) if mend else None
