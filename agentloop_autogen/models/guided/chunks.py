"""Translates the streamed reply to a guided request into OpenAI chunks with text or tool calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from agentloop_autogen.models.guided.parse import AnswerStream, parse_reply
from agentloop_autogen.models.guided.wire import wire_calls

__all__ = ["GuidedChunks"]


class GuidedChunks:
    """Takes upstream chunks and gives those to send on; the text of an answer passes as it comes.

    Args:
        names: The tools on offer.
        allow_calls: False where the request forbade calls.
    """

    def __init__(self, *, names: Collection[str] = (), allow_calls: bool = True) -> None:
        self._names = names
        self._allow_calls = allow_calls
        self._answer = AnswerStream()
        self._frame: dict[str, Any] = {}
        self._finished = False

    def feed(self, chunk: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Translate one upstream chunk.

        Args:
            chunk: A chat completion chunk, or an error object, which is passed on.

        Returns:
            The chunks to send, in order; none while the reply's form is still unknown.
        """
        choices = cast("Sequence[Mapping[str, Any]]", chunk.get("choices") or ())
        if not choices:
            return [dict(chunk)]
        self._frame = {key: value for key, value in chunk.items() if key not in ("choices", "usage", "timings")}
        choice = choices[0]
        delta = cast("Mapping[str, Any]", choice.get("delta") or {})
        out: list[dict[str, Any]] = []
        if delta.get("role"):
            out.append(self._chunk({"role": delta["role"], "content": ""}))
        if isinstance(delta.get("content"), str) and (text := self._answer.feed(delta["content"])):
            out.append(self._chunk({"content": text}))
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            # Some servers put the usage into the last chunk with a choice.
            rest = {key: chunk[key] for key in ("usage", "timings") if chunk.get(key)}
            out.extend(self._closing(reason, rest))
        return out

    def finish(self) -> list[dict[str, Any]]:
        """Close a stream that broke off without saying why; nothing when it ended properly."""
        return [] if self._finished or not self._frame else self._closing("length", {})

    def _closing(self, reason: str, rest: Mapping[str, Any]) -> list[dict[str, Any]]:
        self._finished = True
        reply = parse_reply(
            self._answer.reply,
            tool_names=self._names,
            allow_calls=self._allow_calls,
            truncated=reason == "length",
        )
        out: list[dict[str, Any]] = []
        for index, call in enumerate(wire_calls(reply.calls)):
            out.append(self._chunk({"tool_calls": [{"index": index, **call}]}))
        if not reply.calls and (text := self._answer.finish(reply.text)):
            out.append(self._chunk({"content": text}))
        return [*out, {**self._chunk({}, reason="tool_calls" if reply.calls else reason), **rest}]

    def _chunk(self, delta: Mapping[str, Any], *, reason: str | None = None) -> dict[str, Any]:
        return {**self._frame, "choices": [{"index": 0, "delta": dict(delta), "finish_reason": reason}]}
