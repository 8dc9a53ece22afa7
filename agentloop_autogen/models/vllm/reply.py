"""Reads chat completions of vLLM, whole or in chunks, whatever form the server gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionTokenLogprob, CreateResult, FinishReasons, RequestUsage, TopLogprob

from agentloop_autogen.core.normalise import split_thinking

__all__ = ["ReplyParts", "ReplyStream", "VLLMRequestUsage", "beside_content", "read_completion", "to_result"]

_REASONING_FIELDS: Final = ("reasoning", "reasoning_content")
"""Where servers put reasoning: newer vLLM, then older vLLM and others."""

_UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_FINISHES: Final[Mapping[str, FinishReasons]] = {
    "stop": "stop",
    "tool_calls": "stop",  # of a reply that has none
    "length": "length",
    "content_filter": "content_filter",
}


@dataclass(eq=False)
class VLLMRequestUsage(RequestUsage):
    """AutoGen's token counts, and how many prompt tokens came from the prefix cache."""

    cached_prompt_tokens: int | None = None
    """None: the server does not say; it does with `--enable-prompt-tokens-details`."""

    def __eq__(self, other: object) -> bool:
        # A caller who knows AutoGen's record alone compares with that.
        if not isinstance(other, RequestUsage):
            return NotImplemented
        same = (self.prompt_tokens, self.completion_tokens) == (other.prompt_tokens, other.completion_tokens)
        return same and (
            not isinstance(other, VLLMRequestUsage) or self.cached_prompt_tokens == other.cached_prompt_tokens
        )

    __hash__ = None  # type: ignore[assignment]  # equal to a record that has no hash


@dataclass(kw_only=True)
class ReplyParts:
    """What a reply holds."""

    content: str = ""
    reasoning: str = ""
    reasoning_field: str | None = None
    """The name the server used for its reasoning."""
    calls: list[FunctionCall] = field(default_factory=list[FunctionCall])
    finish: str | None = None
    usage: VLLMRequestUsage = field(default_factory=lambda: VLLMRequestUsage(0, 0))
    logprobs: list[ChatCompletionTokenLogprob] = field(default_factory=list[ChatCompletionTokenLogprob])


def read_completion(completion: Mapping[str, Any]) -> ReplyParts:
    """Read a chat completion that came in one piece.

    Args:
        completion: The response body; a body without choices is an empty reply.
    """
    stream = ReplyStream()
    choice = _first(completion)
    stream.feed({**completion, "choices": [{**choice, "delta": _mapping(choice.get("message"))}]})
    return stream.finish()


def beside_content(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """What a chunk holds beside its content: its reasoning and its log probabilities.

    Args:
        chunk: A chat completion chunk.
    """
    choice = _first(chunk)
    delta = {name: value for name, value in _mapping(choice.get("delta")).items() if name in _REASONING_FIELDS}
    return {"choices": [{"delta": delta, "logprobs": choice.get("logprobs")}]}


def to_result(parts: ReplyParts, *, holds_json: bool) -> CreateResult:
    """Turn a reply into AutoGen's result.

    Args:
        parts: What the reply holds.
        holds_json: Whether JSON was asked for, which may quote anything: then no thinking is sought in the text.

    Returns:
        A result whose content is calls or text. The thought is the reasoning and, beside calls, the text. A reply that
        was cut off says so even if it holds calls.
    """
    content, thoughts = parts.content, [parts.reasoning]
    if not holds_json and not parts.calls:
        thinking, content = split_thinking(content) if "think" in content else ("", content)
        thoughts.append(thinking)
    if parts.calls:
        thoughts.append(content.strip())
    finish: FinishReasons = _FINISHES.get(parts.finish or "", "unknown")
    return CreateResult(
        finish_reason="function_calls" if parts.calls and finish != "length" else finish,
        content=parts.calls or content,
        usage=parts.usage,
        cached=False,
        logprobs=parts.logprobs or None,
        thought="\n\n".join(filter(None, thoughts)) or None,
    )


class ReplyStream:
    """Puts the chunks of one reply together and gives the text to show as it comes."""

    def __init__(self) -> None:
        self._parts = ReplyParts()
        self._calls: dict[int, FunctionCall] = {}
        self._reasoning = False

    def feed(self, chunk: Mapping[str, Any]) -> list[str]:
        """Take one chunk.

        Args:
            chunk: A chat completion chunk; only its first choice counts.

        Returns:
            The texts to show; reasoning stands between think tags, as AutoGen's own client shows it.
        """
        if isinstance(usage := chunk.get("usage"), Mapping):
            self._parts.usage = _usage(cast("Mapping[str, Any]", usage))
        choice = _first(chunk)
        self._parts.finish = _text(choice.get("finish_reason")) or self._parts.finish
        self._parts.logprobs += _logprobs(choice)
        delta = _mapping(choice.get("delta"))
        shown = self._reason(delta)
        for position, call in enumerate(_sequence(delta.get("tool_calls"))):
            self._add_call(_mapping(call), position)
        text = _text(delta.get("content"))
        self._parts.content += text
        if self._reasoning and (text or self._calls or self._parts.finish):
            self._reasoning = False
            shown.append("</think>")
        return [*shown, text] if text else shown

    def finish(self) -> ReplyParts:
        """Return the whole reply."""
        self._parts.calls = [self._calls[index] for index in sorted(self._calls)]
        return self._parts

    def _reason(self, delta: Mapping[str, Any]) -> list[str]:
        # Some servers send both names with the same text.
        name = next((name for name in _REASONING_FIELDS if _text(delta.get(name))), None)
        if name is None:
            return []
        text = _text(delta[name])
        opening = [] if self._reasoning else ["<think>"]
        self._reasoning = True
        self._parts.reasoning_field = name
        self._parts.reasoning += text
        return [*opening, text]

    def _add_call(self, call: Mapping[str, Any], position: int) -> None:
        given = call.get("index")
        index = given if isinstance(given, int) else position
        known = self._calls.setdefault(index, FunctionCall(id="", name="", arguments=""))
        function = _mapping(call.get("function"))
        # Servers are seen to repeat id and name with every piece of the arguments.
        known.id = known.id or _text(call.get("id"))
        known.name = known.name or _UNSAFE_NAME.sub("_", _text(function.get("name")))[:64]
        arguments: object = function.get("arguments")
        if arguments is not None:
            known.arguments += arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _first(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(next(iter(_sequence(body.get("choices"))), None))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    # Servers are seen to report null.
    return max(0, value) if isinstance(value, int) else 0


def _usage(usage: Mapping[str, Any]) -> VLLMRequestUsage:
    cached = _mapping(usage.get("prompt_tokens_details")).get("cached_tokens")
    return VLLMRequestUsage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_prompt_tokens=cached if isinstance(cached, int) else None,
    )


def _logprobs(choice: Mapping[str, Any]) -> list[ChatCompletionTokenLogprob]:
    tokens = map(_mapping, _sequence(_mapping(choice.get("logprobs")).get("content")))
    return [
        ChatCompletionTokenLogprob(
            token=_text(token.get("token")),
            logprob=float(token.get("logprob") or 0.0),
            top_logprobs=[
                TopLogprob(logprob=float(top.get("logprob") or 0.0), bytes=top.get("bytes"))
                for top in map(_mapping, _sequence(token.get("top_logprobs")))
            ],
            bytes=token.get("bytes"),
        )
        for token in tokens
    ]
