"""The event log of AutoGen's core: calls of the model with all they were told, and executions of tools."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.diagnostics.formats.chat_messages import content_text, role_of, take_message
from agentloop_autogen.diagnostics.formats.conversation import Conversation, Returned
from agentloop_autogen.diagnostics.formats.fields import (
    FormatError,
    as_text,
    is_object,
    name_of,
    objects,
    text,
    usage_of,
)
from agentloop_autogen.diagnostics.formats.openai_chat import response_message
from agentloop_autogen.diagnostics.formats.place import MAX_BYTES, Place
from agentloop_autogen.diagnostics.trace import Trace

__all__ = ["EventLog"]

_OPEN = 64
"""Conversations that may be under way at once; the one that was silent longest ends when there are more."""

_Message = Mapping[str, object]


@dataclass
class _Thread:
    """One conversation of one agent: the last call knows everything before it."""

    place: Place
    messages: Sequence[_Message]
    response: _Message
    size: int
    """Bytes of the last call, which is all that is kept."""
    model: str = ""
    usages: dict[int, RequestUsage] = field(default_factory=dict[int, RequestUsage])
    """Tokens of the calls, by the position their reply has among the messages."""
    returned: list[Returned] = field(default_factory=list[Returned])
    """What tools returned since the last call."""


class EventLog:
    """Gathers the events of one file into conversations, agent by agent.

    Args:
        fail: Is told of every conversation that cannot be read: its place and the reason.
    """

    def __init__(self, fail: Callable[[Place, str], None]) -> None:
        self._fail = fail
        self._threads: OrderedDict[tuple[str, str], _Thread] = OrderedDict()
        self._started: dict[str, Sequence[_Message]] = {}

    def feed(self, event: Mapping[str, object], place: Place) -> Iterator[Trace]:
        """Take the next event.

        Args:
            event: The event.
            place: Where it stands.

        Yields:
            Traces that are complete with it.

        Raises:
            FormatError: A field is not what it must be.
        """
        agent = as_text(event.get("agent_id"))
        match event.get("type"):
            case "LLMCall":
                yield from self._called(event, place, agent, objects(event, "messages"))
            case "LLMStreamStart":
                if len(self._started) >= _OPEN:
                    self._started.clear()
                self._started[agent] = objects(event, "messages")
            case "LLMStreamEnd":
                messages = self._started.pop(agent, None)
                if messages is None:
                    raise FormatError("the LLMStreamEnd event has no LLMStreamStart event before it")
                yield from self._called(event, place, agent, messages)
            case "ToolCall":
                self._executed(event, agent)
            case _:
                return

    def finish(self) -> Iterator[Trace]:
        """Yield the traces of all conversations that are under way."""
        while self._threads:
            yield from self._closed(self._threads.popitem(last=False)[1])

    def _called(
        self, event: Mapping[str, object], place: Place, agent: str, messages: Sequence[_Message]
    ) -> Iterator[Trace]:
        response = response_message(event.get("response"))
        key = (agent, _request(messages))
        before = self._threads.pop(key, None)
        if before is not None and len(messages) <= len(before.messages):
            # The same question from the beginning is another request.
            yield from self._closed(before)
            before = None
        told = event.get("response")
        thread = _Thread(before.place if before else place, messages, response, place.size)
        thread.model = (text(told, "model") if is_object(told) else "") or (before.model if before else "")
        thread.usages = before.usages if before else {}
        spent = usage_of({"usage": dict(event)}, "usage", of="the event")
        if spent is not None:
            thread.usages[len(messages)] = spent
        self._threads[key] = thread
        while len(self._threads) > _OPEN or sum(item.size for item in self._threads.values()) > MAX_BYTES:
            yield from self._closed(self._threads.popitem(last=False)[1])

    def _closed(self, thread: _Thread) -> Iterator[Trace]:
        try:
            yield _trace_from(thread)
        except FormatError as error:
            self._fail(thread.place, str(error))
        except RecursionError:
            self._fail(thread.place, "expected messages, found some that are nested too deeply")

    def _executed(self, event: Mapping[str, object], agent: str) -> None:
        returned = Returned("", name_of(event, "tool_name", of="the event"), as_text(event.get("result")))
        for (owner, _), thread in reversed(self._threads.items()):
            if owner == agent:
                if thread.response.get("tool_calls"):
                    thread.returned.append(returned)
                return


def _request(messages: Sequence[_Message]) -> str:
    for message in messages:
        if message.get("role") == "user":
            return content_text(message.get("content"))
    return ""


def _trace_from(thread: _Thread) -> Trace:
    conversation = Conversation()
    for index, message in enumerate([*thread.messages, thread.response]):
        usage = thread.usages.get(index) if role_of(message) == "assistant" else None
        take_message(conversation, message, usage)
    # A call that comes after them knows the results better: it has those of failed tools as well.
    for returned in thread.returned:
        conversation.result(returned)
    return Trace(
        id=thread.place.id,
        source=thread.place.source,
        model=thread.model,
        request=conversation.request,
        rounds=conversation.closed(),
        final=conversation.final,
        usage=conversation.usage,
    )
