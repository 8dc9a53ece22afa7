"""Reading requests and replies on their way through: what they ask for, say and cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, cast

__all__ = ["ReplyReader", "SentRequest", "read_request"]

_MAX_CONTENT: Final = 4_000
_MAX_CALLS: Final = 20
_MAX_ARGUMENTS: Final = 2_000
_CHARS_PER_TOKEN: Final = 4
_CAPS: Final = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, kw_only=True)
class SentRequest:
    """A request as it is sent on."""

    body: bytes
    offers_tools: bool
    hides_usage: bool
    """Whether the usage of a stream is asked for on our account alone."""
    prompt_estimate: int
    """Tokens its prompt has, about; for a reply that never comes to say it."""


def read_request(raw: bytes, decoding: Mapping[str, Any]) -> SentRequest:
    """Read a request and fill in what every request must say.

    Args:
        raw: Its body; one that is no JSON object goes on as it is, for the endpoint to refuse.
        decoding: Fields for a request that does not set them: the output cap, temperature and seed.
    """
    try:
        decoded: object = json.loads(raw)
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        return SentRequest(body=raw, offers_tools=False, hides_usage=False, prompt_estimate=0)
    body = cast("dict[str, Any]", decoded)
    capped = any(body.get(name) is not None for name in _CAPS)
    for name, value in decoding.items():
        if body.get(name) is None and not (capped and name in _CAPS):
            body[name] = value
    prompt = json.dumps([body.get("messages"), body.get("tools")], ensure_ascii=False)
    return SentRequest(
        hides_usage=_ask_for_usage(body),
        body=json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
        offers_tools=bool(body.get("tools")) and body.get("tool_choice") != "none",
        prompt_estimate=ceil(len(prompt) / _CHARS_PER_TOKEN),
    )


def _ask_for_usage(body: dict[str, Any]) -> bool:
    if not body.get("stream"):
        return False
    options = body.get("stream_options")
    told = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
    body["stream_options"] = {**told, "include_usage": True}
    return not told.get("include_usage")


class ReplyReader:
    """Gathers what a reply says and costs, from its body or from the chunks of its stream."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.has_usage = False
        self.pieces = 0
        """Chunks with something the model wrote: about its tokens, where the usage never came."""
        self._content = ""
        self._calls: dict[int, dict[str, Any]] = {}

    @property
    def content(self) -> str:
        """The text, bounded."""
        return self._content[:_MAX_CONTENT]

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        """The calls it asks for, bounded."""
        return tuple(self._calls[index] for index in sorted(self._calls)[:_MAX_CALLS])

    def read_whole(self, raw: bytes) -> None:
        """Take the body of a reply that was not streamed."""
        reply = _object(raw)
        self._read_usage(reply.get("usage"))
        for choice in _objects(reply.get("choices"))[:1]:
            self._add(_mapping(choice.get("message")))

    def read_event(self, data: bytes) -> bool:
        """Take one event of a stream.

        Args:
            data: What it carries, a chunk or the closing mark.

        Returns:
            Whether it carries the usage and nothing else.
        """
        chunk = _object(data)
        usage = chunk.get("usage")
        self._read_usage(usage)
        choices = _objects(chunk.get("choices"))
        for choice in choices[:1]:
            if self._add(_mapping(choice.get("delta"))):
                self.pieces += 1
        return isinstance(usage, Mapping) and not choices

    def _read_usage(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            told = cast("Mapping[str, Any]", usage)
            self.has_usage = True
            self.prompt_tokens = _count(told.get("prompt_tokens"))
            self.completion_tokens = _count(told.get("completion_tokens"))
            self.cached_tokens = _count(_mapping(told.get("prompt_tokens_details")).get("cached_tokens"))

    def _add(self, part: Mapping[str, Any]) -> bool:
        """Add what a message or a delta holds; False where that is nothing the model wrote."""
        text = part.get("content")
        if isinstance(text, str) and len(self._content) < _MAX_CONTENT:
            self._content += text
        calls = _objects(part.get("tool_calls"))
        for place, call in enumerate(calls):
            self._add_call(call, call.get("index", place))
        return bool(text or calls or part.get("reasoning") or part.get("reasoning_content"))

    def _add_call(self, call: Mapping[str, Any], index: object) -> None:
        key = index if isinstance(index, int) else len(self._calls)
        known = self._calls.setdefault(key, {"name": "", "arguments": ""})
        function = _mapping(call.get("function"))
        known["name"] += str(function.get("name") or "")
        known["arguments"] = (known["arguments"] + str(function.get("arguments") or ""))[:_MAX_ARGUMENTS]


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(raw))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [_mapping(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
