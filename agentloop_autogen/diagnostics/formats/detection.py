"""Telling the forms of a trace apart by the keys of a document."""

from __future__ import annotations

from enum import Enum

from agentloop_autogen.diagnostics.formats.fields import is_list, is_object

__all__ = ["Form", "form_of"]

_EVENTS = {
    "LLMCall": "response",
    "LLMStreamStart": "messages",
    "LLMStreamEnd": "response",
    "ToolCall": "tool_name",
    "Message": "payload",
    "MessageDropped": "payload",
    "MessageHandlerException": "payload",
    "AgentConstructionException": "exception",
}
"""Types of AutoGen's event log, each with a key only it has."""


class Form(Enum):
    """What a document is."""

    RECORD = "record"
    RUN_LOG = "run log"
    ATTEMPT = "attempt of a benchmark"
    CHAT = "chat"
    CHAT_MESSAGE = "chat message"
    TASK_RESULT = "task result"
    AGENT_MESSAGE = "agent message"
    EVENT = "event"
    SPANS = "spans"
    SPAN = "span"


def form_of(document: dict[str, object]) -> Form | None:
    """Tell what a JSON object is.

    Args:
        document: One document of a file, or one element of an array.

    Returns:
        Its form; None where it is none of them.
    """
    if is_list(document.get("rounds")):
        return Form.RECORD
    if "scenario" in document and "passed" in document:
        return Form.RUN_LOG
    if is_list(document.get("model_calls")) and "system" in document and "task" in document:
        return Form.ATTEMPT
    if is_list(document.get("resourceSpans")):
        return Form.SPANS
    if is_object(document.get("context")) and "start_time" in document:
        return Form.SPAN
    if "traceId" in document and "spanId" in document:
        return Form.SPAN
    if "role" in document:
        return Form.CHAT_MESSAGE
    kind = document.get("type")
    if isinstance(kind, str):
        if _EVENTS.get(kind, "") in document:
            return Form.EVENT
        if "source" in document:
            return Form.AGENT_MESSAGE
    messages = document.get("messages")
    return _form_of_messages(messages) if is_list(messages) else None


def _form_of_messages(messages: list[object]) -> Form | None:
    for message in messages:
        if is_object(message):
            return Form.CHAT if "role" in message else Form.TASK_RESULT if "source" in message else None
    return None
