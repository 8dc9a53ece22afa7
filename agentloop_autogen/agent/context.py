"""The planning prompt: one system message, the conversation in whole call/result pairs, what the loop adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from autogen_agentchat.utils import content_to_str
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from agentloop_autogen.core.normalise import bounded_text

__all__ = ["Overlay", "planning_prompt", "system_text"]

_SHORTENED_CHARS: Final = 200


Addition = tuple["LLMMessage | None", LLMMessage]


@dataclass
class Overlay:
    """What the loop adds to the conversation of one run: it is never stored with it.

    Rejected drafts and feedback stand where they came up, so the prompt only ever grows at its end; the note of the
    last round comes last of all and only once. Dropped messages of unstable rounds are left out.
    """

    added: list[Addition] = field(default_factory=list["Addition"])
    """Each message with the one of the conversation it follows; None: before all of them."""
    note: str = ""
    dropped: set[int] = field(default_factory=set[int])
    """Identities of messages left out; calls and their results always both."""
    kept_alive: list[LLMMessage] = field(default_factory=list["LLMMessage"])
    """The dropped messages themselves, so that no identity is given out anew."""

    def add(self, anchor: LLMMessage | None, message: LLMMessage) -> None:
        """Add `message` behind `anchor` and what was added there before."""
        self.added.append((anchor, message))

    def drop(self, *messages: LLMMessage) -> None:
        """Leave `messages` out of the prompts from now on."""
        self.kept_alive.extend(messages)
        self.dropped.update(id(message) for message in messages)

    def woven_into(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return the conversation with what was added to it; additions whose place was trimmed away come last."""
        waiting = list(self.added)
        woven: list[LLMMessage] = [message for anchor, message in waiting if anchor is None]
        waiting = [entry for entry in waiting if entry[0] is not None]
        for message in messages:
            if id(message) not in self.dropped:
                woven.append(message)
            woven += [added for anchor, added in waiting if anchor is message]
            waiting = [entry for entry in waiting if entry[0] is not message]
        woven += [added for _, added in waiting]
        if self.note:
            woven.append(UserMessage(content=self.note, source="user"))
        return woven


def system_text(system_messages: Sequence[SystemMessage], conversation: Sequence[LLMMessage]) -> str:
    """Return the text of the one system message: the agent's own, then those memories put into the conversation."""
    found = [*system_messages, *(message for message in conversation if isinstance(message, SystemMessage))]
    return "\n\n".join(dict.fromkeys(message.content for message in found if message.content.strip()))


def planning_prompt(
    system_messages: Sequence[SystemMessage],
    conversation: Sequence[LLMMessage],
    *,
    request: str,
    overlay: Overlay,
    limit: int,
) -> list[LLMMessage]:
    """Return the messages of a planning call.

    Args:
        system_messages: The agent's own.
        conversation: What its model context gives; it may have trimmed anything.
        request: The request of the run, put back where the context trimmed it away.
        overlay: What the loop adds.
        limit: Characters; beyond it the results of older rounds are shortened.

    Returns:
        One system message first if there is any text for it, then whole pairs of calls and results, at least one user
        message, no two user messages of ours in a row.
    """
    body = [message for message in overlay.woven_into(conversation) if not isinstance(message, SystemMessage)]
    body = _merge_ours(_without_orphans(body), overlay)
    if request and not any(isinstance(m, UserMessage) and _mentions(m, request) for m in body):
        body.insert(0, UserMessage(content=request, source="user"))
    body = _shortened(body, limit)
    system = system_text(system_messages, conversation)
    return [SystemMessage(content=system), *body] if system else body


def _mentions(message: UserMessage, request: str) -> bool:
    return request[:200] in content_to_str(message.content) or content_to_str(message.content)[:200] in request


def _without_orphans(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """Leave out calls without their results and results without their calls, as a trimmed context may hold them."""
    whole: list[LLMMessage] = []
    for index, message in enumerate(messages):
        following = messages[index + 1] if index + 1 < len(messages) else None
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            if not isinstance(following, FunctionExecutionResultMessage):
                continue
            if {call.id for call in message.content} != {result.call_id for result in following.content}:
                continue
        elif isinstance(message, FunctionExecutionResultMessage):
            calls = whole[-1].content if whole and isinstance(whole[-1], AssistantMessage) else ""
            if isinstance(calls, str) or {c.id for c in calls} != {r.call_id for r in message.content}:
                continue
        elif isinstance(message, AssistantMessage) and not str(message.content).strip():
            continue
        whole.append(message)
    return whole


def _merge_ours(messages: Sequence[LLMMessage], overlay: Overlay) -> list[LLMMessage]:
    # Strict chat templates refuse two user turns in a row; ours joins the one before it.
    ours = {id(message) for _, message in overlay.added}
    merged: list[LLMMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        if (
            isinstance(message, UserMessage)
            and isinstance(message.content, str)
            and (id(message) in ours or message.content == overlay.note)
            and isinstance(last, UserMessage)
        ):
            content = (
                f"{last.content}\n\n{message.content}"
                if isinstance(last.content, str)
                else [*last.content, message.content]
            )
            merged[-1] = UserMessage(content=content, source=last.source)
        else:
            merged.append(message)
    return merged


def _size(message: LLMMessage) -> int:
    if isinstance(message, FunctionExecutionResultMessage):
        return sum(len(result.content) for result in message.content)
    if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
        return sum(len(call.arguments) for call in message.content) + len(message.thought or "")
    return len(content_to_str(message.content))


def _shortened(messages: list[LLMMessage], limit: int) -> list[LLMMessage]:
    """Shorten results, the oldest first and the last round's not at all, until the prompt fits or none is left."""
    excess = sum(map(_size, messages)) - limit
    shortened = list(messages)
    results = [i for i, message in enumerate(messages) if isinstance(message, FunctionExecutionResultMessage)]
    for index in results[:-1]:
        if excess <= 0:
            break
        message = shortened[index]
        if isinstance(message, FunctionExecutionResultMessage):
            shortened[index] = FunctionExecutionResultMessage(content=[_short(result) for result in message.content])
            excess -= _size(message) - _size(shortened[index])
    return shortened


def _short(result: FunctionExecutionResult) -> FunctionExecutionResult:
    return result.model_copy(update={"content": bounded_text(result.content, _SHORTENED_CHARS)})
