"""The planning prompt: one system message, the conversation in whole call/result pairs, what the loop adds to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from autogen_agentchat.utils import content_to_str
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from agentloop_autogen.agent import prompts
from agentloop_autogen.agent.request import RunRequest
from agentloop_autogen.core.normalise import bounded_text

__all__ = ["Overlay", "planning_prompt", "system_text"]

_SHORTENED_CHARS: Final = 200
_TRIMMED: Final = -1
_ECHO_CHARS: Final = 40
"""A text that begins like one of ours for so long repeats it."""


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

    def is_echoed_by(self, text: str) -> bool:
        """Return whether a model's text is what it was told in this run given back, as small models do."""
        start = " ".join(text.split())[:_ECHO_CHARS]
        told = [content_to_str(message.content) for _, message in self.added if isinstance(message, UserMessage)]
        return len(start) == _ECHO_CHARS and any(
            " ".join(ours.split()).startswith(start) for ours in (*told, self.note)
        )

    def woven_into(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return the conversation with what was added to it; additions whose place was trimmed away come first."""
        followers: dict[int, list[LLMMessage]] = {}
        for anchor, added in self.added:
            followers.setdefault(_place(anchor, messages), []).append(added)
        # What was trimmed away is older than what is left, and so is all that followed it.
        woven = followers.get(_TRIMMED, [])
        for index, message in enumerate(messages):
            if id(message) not in self.dropped:
                woven.append(message)
            woven += followers.get(index, [])
        if self.note:
            woven.append(UserMessage(content=self.note, source="user"))
        return woven


def _place(anchor: LLMMessage | None, messages: Sequence[LLMMessage]) -> int:
    if anchor is None:
        return _TRIMMED
    for index, message in enumerate(messages):
        if message is anchor:
            return index
    # Some contexts give out copies.
    return next((i for i, message in reversed(list(enumerate(messages))) if message == anchor), _TRIMMED)


def system_text(system_messages: Sequence[SystemMessage], conversation: Sequence[LLMMessage]) -> str:
    """Return the text of the one system message: the agent's own, then those memories put into the conversation."""
    found = [*system_messages, *(message for message in conversation if isinstance(message, SystemMessage))]
    return "\n\n".join(dict.fromkeys(message.content for message in found if message.content.strip()))


def planning_prompt(
    system_messages: Sequence[SystemMessage],
    conversation: Sequence[LLMMessage],
    *,
    about: RunRequest,
    overlay: Overlay,
    limit: int,
) -> list[LLMMessage]:
    """Return the messages of a planning call.

    Args:
        system_messages: The agent's own.
        conversation: What its model context gives; it may have trimmed anything.
        about: The request of the run, put back where the context trimmed it away.
        overlay: What the loop adds.
        limit: Characters; beyond it results, arguments and at last texts are shortened, the oldest first.

    Returns:
        One system message first if there is any text for it, then whole pairs of calls and results, at least one user
        message, no two user messages of ours in a row, and never a reply last.
    """
    body = [message for message in overlay.woven_into(conversation) if not isinstance(message, SystemMessage)]
    body = _merge_ours(_without_orphans(body), overlay)
    spoken = [content_to_str(message.content) for message in body if isinstance(message, UserMessage)]
    if about.text and not all(any(part in text for text in spoken) for part in about.parts):
        body.insert(0, UserMessage(content=about.text, source="user"))
    if body and isinstance(body[-1], AssistantMessage):
        # In a team the turn may come back with nothing said in between, and servers refuse two replies in a row.
        body.append(UserMessage(content=prompts.TURN_AGAIN, source="user"))
    body = _shortened(body, limit)
    system = system_text(system_messages, conversation)
    return [SystemMessage(content=system), *body] if system else body


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
    """Shorten step by step until the prompt fits: older results, all results, call arguments, at last any text."""
    share = max(_SHORTENED_CHARS, limit // max(1, 2 * len(messages)))
    sizes = {i: len(m.content) for i, m in enumerate(messages) if isinstance(m, FunctionExecutionResultMessage)}
    results, everything = list(sizes), list(range(len(messages)))
    latest = sizes[results[-1]] if results else 0
    steps = (
        (results[:-1], _with_short_results, _SHORTENED_CHARS),
        (results[-1:], _with_short_results, max(_SHORTENED_CHARS, limit // 2 // max(1, latest))),
        (everything, _with_short_arguments, share),
        (results, _with_short_results, limit // 3 // max(1, sum(sizes.values()))),
        (everything, _with_short_text, share),
    )
    shortened = list(messages)
    excess = sum(map(_size, messages)) - limit
    for indices, shorten, bound in steps:
        for index in indices:
            if excess <= 0:
                return shortened
            before = _size(shortened[index])
            shortened[index] = shorten(shortened[index], bound)
            excess -= before - _size(shortened[index])
    return shortened


def _with_short_results(message: LLMMessage, bound: int) -> LLMMessage:
    if not isinstance(message, FunctionExecutionResultMessage):
        return message
    return FunctionExecutionResultMessage(
        content=[item.model_copy(update={"content": bounded_text(item.content, bound)}) for item in message.content]
    )


def _with_short_arguments(message: LLMMessage, bound: int) -> LLMMessage:
    if not isinstance(message, AssistantMessage) or isinstance(message.content, str):
        return message
    calls = [
        call
        if len(call.arguments) <= bound
        # History must stay valid JSON, so the shortened text becomes a value.
        else FunctionCall(call.id, json.dumps({"shortened": bounded_text(call.arguments, bound)}), call.name)
        for call in message.content
    ]
    return message.model_copy(update={"content": calls})


def _with_short_text(message: LLMMessage, bound: int) -> LLMMessage:
    if isinstance(message, (AssistantMessage, UserMessage)) and isinstance(message.content, str):
        return message.model_copy(update={"content": bounded_text(message.content, bound)})
    if isinstance(message, UserMessage):
        parts = [bounded_text(part, bound) if isinstance(part, str) else part for part in message.content]
        return message.model_copy(update={"content": parts})
    return message
