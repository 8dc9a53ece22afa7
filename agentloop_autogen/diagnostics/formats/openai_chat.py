"""Chats in the form of OpenAI's API: a document with messages, an array of messages, or a message a line."""

from __future__ import annotations

from collections.abc import Mapping

from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.diagnostics.formats.chat_messages import SYSTEM_ROLES, role_of, take_message
from agentloop_autogen.diagnostics.formats.conversation import Conversation
from agentloop_autogen.diagnostics.formats.fields import (
    FormatError,
    flag,
    is_list,
    is_object,
    objects,
    text,
    usage_of,
)
from agentloop_autogen.diagnostics.formats.pairing import call_id, ends_with_final, result_ids, rounds_by_turn
from agentloop_autogen.diagnostics.formats.place import MAX_BYTES, Place
from agentloop_autogen.diagnostics.formats.record import identity
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["ChatLines", "openai_from", "read_chat", "response_message"]


def read_chat(document: Mapping[str, object], place: Place) -> Trace:
    """Read a document with `messages`.

    Args:
        document: The JSON object; `id`, `source`, `model`, `usage`, `correct` and `response` count as well.
        place: Where it stands.

    Returns:
        The trace.

    Raises:
        FormatError: A field is not what it must be.
    """
    conversation = Conversation()
    for message in objects(document, "messages"):
        take_message(conversation, message)
    response = document.get("response")
    if response is not None:
        take_message(conversation, response_message(response), _usage_within(response))
    return Trace(
        id=identity(document, place),
        source=text(document, "source") or place.source,
        model=text(document, "model") or (text(response, "model") if is_object(response) else ""),
        request=conversation.request,
        rounds=conversation.closed(),
        final=conversation.final,
        correct=flag(document, "correct"),
        usage=usage_of(document, "usage") or conversation.usage,
    )


def _usage_within(response: object) -> RequestUsage | None:
    return usage_of(response, "usage", of="`response`") if is_object(response) else None


def response_message(response: object) -> dict[str, object]:
    """Return the message in what a model client got back.

    Args:
        response: A completion of OpenAI's, Ollama's or Anthropic's API, a result of AutoGen's, or a bare text.

    Returns:
        The message.

    Raises:
        FormatError: It holds none.
    """
    if isinstance(response, str):
        return {"role": "assistant", "content": response}
    if is_object(response):
        choices = response.get("choices")
        first = choices[0] if is_list(choices) and choices else response
        message = first.get("message", first) if is_object(first) else None
        if is_object(message) and ("content" in message or "tool_calls" in message):
            return {**message, "role": "assistant", **_autogen_calls(message)}
    raise FormatError("`response` holds no message, expected `choices`, `message` or `content`")


def _autogen_calls(message: Mapping[str, object]) -> dict[str, object]:
    """AutoGen's own result holds a text or its calls under `content`, the text beside them under `thought`."""
    content = message.get("content")
    if is_list(content) and content and all(is_object(part) and "arguments" in part for part in content):
        return {"content": message.get("thought"), "tool_calls": content}
    return {}


class ChatLines:
    """Gathers messages that stand one by one, as lines or as the elements of an array."""

    def __init__(self) -> None:
        self._conversation = Conversation()
        self._place: Place | None = None
        self._size = 0

    def feed(self, message: Mapping[str, object], place: Place) -> Trace | None:
        """Take the next message.

        Args:
            message: The message.
            place: Where it stands.

        Returns:
            The trace that ends before it; None: it goes on.

        Raises:
            FormatError: It is no message, or one too many for the trace it belongs to.
        """
        done = self.finish() if role_of(message) in SYSTEM_ROLES and not self._conversation.empty else None
        self._place = self._place or place
        self._size += place.size
        if self._size > MAX_BYTES:
            raise FormatError(f"a message of a conversation larger than {MAX_BYTES // 2**20} MiB was left out")
        take_message(self._conversation, message)
        return done

    def finish(self) -> Trace | None:
        """Return the trace gathered so far; None: nothing was."""
        conversation, place = self._conversation, self._place
        self._conversation, self._place, self._size = Conversation(), None, 0
        if conversation.empty or place is None:
            return None
        return Trace(
            id=place.id,
            source=place.source,
            model="",
            request=conversation.request,
            rounds=conversation.closed(),
            final=conversation.final,
        )


def openai_from(trace: Trace) -> dict[str, object]:
    """Put a trace into the form of a chat; rewards, decisions, outcome and times have no place in it.

    Args:
        trace: Any trace.

    Returns:
        Plain data, ready for JSON.
    """
    messages: list[dict[str, object]] = [{"role": "user", "content": trace.request}]
    spoken = 0
    for turn, number, round_ in rounds_by_turn(trace):
        if turn != spoken:
            # What the user said then is not kept in a trace; that somebody spoke is.
            messages.append({"role": "user", "content": ""})
            spoken = turn
        messages += _messages_of(round_, number)
    if not ends_with_final(trace):
        messages.append({"role": "assistant", "content": trace.final})
    document: dict[str, object] = {"id": trace.id, "source": trace.source, "model": trace.model}
    document |= {"messages": messages, "correct": trace.correct}
    if trace.usage is not None:
        document["usage"] = trace.usage.model_dump(mode="json")
    return document


def _messages_of(round_: TraceRound, number: int) -> list[dict[str, object]]:
    assistant: dict[str, object] = {"role": "assistant", "content": round_.text}
    if round_.calls:
        assistant["tool_calls"] = [
            {
                "id": call_id(number, index),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(round_.calls, start=1)
        ]
    messages = [assistant]
    for result, asked in zip(round_.results, result_ids(round_, number), strict=True):
        message: dict[str, object] = {"role": "tool", "tool_call_id": asked, "name": result.call.name}
        message["content"] = result.content
        if result.is_error:
            message["is_error"] = True
        messages.append(message)
    return messages
