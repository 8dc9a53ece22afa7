"""Reads a reply by what was asked for: as it is, or through the guide where tool calls were asked for by schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentloop_autogen.models.guided.chunks import GuidedChunks
from agentloop_autogen.models.guided.wire import from_guided_response
from agentloop_autogen.models.vllm.reply import ReplyParts, ReplyStream, beside_content, read_completion
from agentloop_autogen.models.vllm.request import PlannedRequest

__all__ = ["StreamReader", "read_whole"]


def read_whole(request: PlannedRequest, completion: dict[str, Any]) -> ReplyParts:
    """Return what a reply in one piece holds.

    Args:
        request: What was asked for.
        completion: The response body.
    """
    if request.guided:
        completion = from_guided_response(completion, names=request.tool_names, allow_calls=request.allows_calls)
    return read_completion(completion)


class StreamReader:
    """Reads a streamed reply.

    Args:
        request: What was asked for.
    """

    def __init__(self, request: PlannedRequest) -> None:
        self._reply = ReplyStream()
        self._guide = (
            GuidedChunks(names=request.tool_names, allow_calls=request.allows_calls) if request.guided else None
        )

    def feed(self, chunk: Mapping[str, Any]) -> list[str]:
        """Take a chunk and return the pieces of text it gives."""
        if self._guide is None:
            return self._reply.feed(chunk)
        # The guide translates the content alone.
        shown = self._reply.feed(beside_content(chunk))
        return shown + [piece for part in self._guide.feed(chunk) for piece in self._reply.feed(part)]

    def rest(self) -> list[str]:
        """Return the pieces that were held back until the stream was over."""
        held = self._guide.finish() if self._guide else ()
        return [piece for part in held for piece in self._reply.feed(part)]

    def finish(self) -> ReplyParts:
        """Return what the whole reply holds."""
        return self._reply.finish()
