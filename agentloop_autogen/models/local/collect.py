"""Puts a streamed chat completion back together, for a client that asked for it in one piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["collected"]

_TEXTS = ("content", "reasoning_content")
_ONCE = ("usage", "timings")


def collected(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join chunks into one chat completion.

    Args:
        chunks: The chunks of one choice, in order; a last one may carry the usage alone.

    Returns:
        The completion, with the texts and log probabilities of all chunks.
    """
    frame: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    logprobs: list[Any] = []
    reason: str | None = None
    for chunk in chunks:
        frame.update({key: value for key, value in chunk.items() if key != "choices" and value is not None})
        for choice in cast("list[Mapping[str, Any]]", chunk.get("choices") or []):
            _add(message, cast("Mapping[str, Any]", choice.get("delta") or {}))
            logprobs.extend(cast("Mapping[str, Any]", choice.get("logprobs") or {}).get("content") or ())
            reason = choice.get("finish_reason") or reason
    end: dict[str, Any] = {"index": 0, "finish_reason": reason or "length", "message": message}
    if logprobs:
        end["logprobs"] = {"content": logprobs}
    once = {key: frame.pop(key) for key in _ONCE if key in frame}
    return {**frame, "object": "chat.completion", "choices": [end], **once}


def _add(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key in _TEXTS:
        if isinstance(delta.get(key), str):
            message[key] = message.get(key, "") + delta[key]
