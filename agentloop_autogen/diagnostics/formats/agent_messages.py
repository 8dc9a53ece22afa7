"""Single messages of AutoGen's AgentChat, and this package's decisions among them, taken into a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agentloop_autogen.core.records import ControlAction, Decision, RequestUsage
from agentloop_autogen.core.rounds import ToolCall
from agentloop_autogen.diagnostics.formats.conversation import Asked, Conversation, OpenRound, Returned, plus
from agentloop_autogen.diagnostics.formats.fields import (
    FormatError,
    as_text,
    flag,
    is_list,
    is_object,
    kind,
    name_of,
    objects,
    record_of,
    text,
    usage_of,
)

__all__ = ["AgentRun"]

_USER = "user"
_REPLIES = ("TextMessage", "StructuredMessage", "MultiModalMessage")


@dataclass
class AgentRun:
    """One request as AutoGen's messages tell it, message by message."""

    conversation: Conversation = field(default_factory=Conversation)
    final: str = ""
    """The last reply to the user; empty where tools were called since."""
    answered: bool = False
    """Whether any reply to the user came."""
    usage: RequestUsage | None = None
    """Tokens of all messages together."""
    decisions: list[Decision] = field(default_factory=list[Decision])
    spent: dict[str, RequestUsage] = field(default_factory=dict[str, RequestUsage])
    """Tokens by role as the last decision told them."""
    reply_usage: RequestUsage | None = None
    """Tokens of the last reply."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the last reply says about the loop that wrote it."""
    asks_user: bool = False
    """Whether the last message asked a human, so that the next user message goes on with the same request."""
    started: datetime | None = None
    ended: datetime | None = None
    first_token: datetime | None = None
    _thought: str = ""
    _humans: set[str] = field(default_factory=lambda: {_USER})
    _textless: OpenRound | None = None
    """A decided round whose text comes behind its decision."""
    _unanswered: Decision | None = None
    """The last decision, as long as no reply followed it."""
    _decided: int = 0
    """Rounds that have their decision, or need none any more."""
    _chunks_of: str = ""
    _chunk_at: datetime | None = None

    def from_user(self, message: Mapping[str, object]) -> bool:
        """Return whether a message is what a human said."""
        source = message.get("source")
        return message.get("type") in _REPLIES and isinstance(source, str) and source in self._humans

    @property
    def elapsed_s(self) -> float | None:
        """Seconds from the first message to the last; None: they carry no times."""
        return _between(self.started, self.ended)

    @property
    def first_token_s(self) -> float | None:
        """Seconds from the first message to the first piece of the final answer; None: it was not streamed."""
        return _between(self.started, self.first_token)

    def take(self, message: Mapping[str, object]) -> None:
        """Take the next message; one of an unknown type is passed over.

        Args:
            message: The message as a JSON object.

        Raises:
            FormatError: It is not what a message of its type must be.
        """
        name = message.get("type")
        if name == "ModelClientStreamingChunkEvent":
            self._chunk(message)
            return
        self._note_time(message)
        usage = usage_of(message, "models_usage", of="a message")
        self.usage = plus(self.usage, usage)
        if name == "UserInputRequestedEvent":
            self._humans.add(name_of(message, "source", of="a message"))
            self.asks_user = True
        elif self.from_user(message):
            self.conversation.user(_content(message))
            self.asks_user = False
        elif name == "ThoughtEvent":
            self._think(_content(message), usage)
        elif name == "ToolCallRequestEvent":
            self._request(message, usage)
        elif name == "ToolCallExecutionEvent":
            self._execute(message)
        elif name == "ControlEvent":
            self._decide(message)
        elif name in _REPLIES or name in ("ToolCallSummaryMessage", "StopMessage"):
            self._reply(message, usage, is_round=name in _REPLIES)

    def _note_time(self, message: Mapping[str, object]) -> None:
        at = _time(message)
        self.started = self.started or at
        self.ended = at or self.ended

    def _chunk(self, message: Mapping[str, object]) -> None:
        whole = text(message, "full_message_id", of="a message")
        if whole and whole != self._chunks_of:
            self._chunks_of, self._chunk_at = whole, _time(message)

    def _think(self, thought: str, usage: RequestUsage | None) -> None:
        # A draft that the loop did not take is sent as a thought with the tokens it cost, behind its decision if that
        # is sent as well.
        if usage is not None and self._textless is not None:
            self._textless.text, self._textless = thought, None
        elif usage is not None:
            self.conversation.reply(thought, usage=usage)
        else:
            self._thought = f"{self._thought}\n{thought}" if self._thought else thought

    def _take_thought(self) -> str:
        thought, self._thought = self._thought, ""
        return thought

    def _request(self, message: Mapping[str, object], usage: RequestUsage | None) -> None:
        of = "a ToolCallRequestEvent"
        calls = [
            Asked(text(item, "id", of=of), ToolCall(name_of(item, "name", of=of), as_text(item.get("arguments"))))
            for item in objects(message, "content", of=of)
        ]
        self._textless, self.final = None, ""
        self.conversation.reply(self._take_thought(), calls, usage)

    def _execute(self, message: Mapping[str, object]) -> None:
        of = "a ToolCallExecutionEvent"
        for item in objects(message, "content", of=of):
            content, failed = as_text(item.get("content")), bool(flag(item, "is_error", of=of))
            self.conversation.result(Returned(text(item, "call_id", of=of), text(item, "name", of=of), content, failed))

    def _decide(self, message: Mapping[str, object]) -> None:
        decision = record_of(Decision, message, "decision", of="a ControlEvent")
        if decision is None:
            raise FormatError("`decision` of a ControlEvent is missing, expected an object")
        self.decisions.append(decision)
        rounds = self.conversation.rounds
        if len(rounds) == self._decided:
            self._textless = self.conversation.reply("")
        rounds[-1].decision = self._unanswered = decision
        self._decided = len(rounds)
        spent = message.get("usage")
        if is_object(spent):
            counts = {role: usage_of(spent, role, of="a ControlEvent") for role in spent}
            told = {role: count for role, count in counts.items() if count is not None}
            rounds[-1].usage = _difference(told.get("agent"), self.spent.get("agent")) or rounds[-1].usage
            self.spent = told

    def _reply(self, message: Mapping[str, object], usage: RequestUsage | None, *, is_round: bool) -> None:
        self.final, self.answered = _content(message), True
        self.reply_usage = usage
        self._take_thought()
        self.first_token = self._chunk_at if self._chunks_of and self._chunks_of == message.get("id") else None
        metadata = message.get("metadata")
        pairs = metadata.items() if is_object(metadata) else ()
        self.metadata = {key: value for key, value in pairs if isinstance(value, str)}
        decision, self._unanswered = self._unanswered, None
        if self._textless is not None:
            # The loop ended with the draft of its last round, or with an answer written after a round that had none.
            if decision is None or decision.action is not ControlAction.ANSWER_SYNTHESIS:
                self._textless.text = self.final
            self._textless = None
        elif is_round and decision is None:
            self.conversation.reply(self.final, usage=usage)
            self._decided = len(self.conversation.rounds)


def _content(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if message.get("type") == "StructuredMessage":
        return as_text(content)
    if message.get("type") == "MultiModalMessage" and is_list(content):
        return "\n".join(part if isinstance(part, str) else "[image]" for part in content)
    raise FormatError(f"`content` of a {message.get('type')} is {kind(content)}, expected a text")


def _difference(now: RequestUsage | None, before: RequestUsage | None) -> RequestUsage | None:
    if now is None or before is None:
        return now
    return RequestUsage(
        prompt_tokens=max(0, now.prompt_tokens - before.prompt_tokens),
        completion_tokens=max(0, now.completion_tokens - before.completion_tokens),
    )


def _time(message: Mapping[str, object]) -> datetime | None:
    value = message.get("created_at")
    if not isinstance(value, str):
        return None
    try:
        # Python 3.10 knows no Z for UTC.
        read = datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value)
    except ValueError:
        return None
    return read if read.tzinfo else None


def _between(start: datetime | None, end: datetime | None) -> float | None:
    return max(0.0, (end - start).total_seconds()) if start and end and end > start else None
