"""Tells AutoGen's event logger of model calls, as AutoGen's own clients do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from autogen_core import EVENT_LOGGER_NAME
from autogen_core.logging import LLMCallEvent, LLMStreamEndEvent, LLMStreamStartEvent
from autogen_core.models import CreateResult

__all__ = ["log_call", "log_stream_end", "log_stream_start"]

_events: Final = logging.getLogger(EVENT_LOGGER_NAME)


def log_call(body: Mapping[str, Any], response: dict[str, Any], result: CreateResult) -> None:
    """Tell of a call that gave its reply in one piece.

    Args:
        body: The request as it was sent.
        response: The response body.
        result: What was made of it.
    """
    _events.info(
        LLMCallEvent(
            messages=body["messages"],
            response=response,
            prompt_tokens=result.usage.prompt_tokens,
            completion_tokens=result.usage.completion_tokens,
            tools=body.get("tools", []),
        )
    )


def log_stream_start(body: Mapping[str, Any]) -> None:
    """Tell of a stream the server has opened.

    Args:
        body: The request as it was sent.
    """
    _events.info(LLMStreamStartEvent(messages=body["messages"]))


def log_stream_end(result: CreateResult) -> None:
    """Tell of a stream that came to its end.

    Args:
        result: What was made of it.
    """
    _events.info(
        LLMStreamEndEvent(
            response=result.model_dump(),
            prompt_tokens=result.usage.prompt_tokens,
            completion_tokens=result.usage.completion_tokens,
        )
    )
