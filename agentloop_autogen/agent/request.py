"""What a run is about: the new messages, and as much of the conversation as they need to be understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage
from autogen_agentchat.utils import content_to_str
from autogen_core import Image
from autogen_core.models import AssistantMessage, LLMMessage, UserMessage

from agentloop_autogen.agent import prompts
from agentloop_autogen.conversation import is_user
from agentloop_autogen.core.normalise import bounded_text

__all__ = ["RunRequest", "read_request"]

_REQUEST_CHARS: Final = 8_000
_EARLIER_CHARS: Final = 600


@dataclass(frozen=True)
class RunRequest:
    """The request of one run."""

    text: str
    """What the verifier judges by and the answer call restates; bounded."""
    task: str
    """The user's own words in it, where there are any, else all of it; bounded."""
    earlier: str
    """The exchange a user's follow-up ("and in Rome?") refers to, for the answer call; empty if there is none."""
    parts: Sequence[str]
    """The texts of the messages it is made of."""
    images: Sequence[Image]


def read_request(messages: Sequence[BaseChatMessage], conversation: Sequence[LLMMessage]) -> RunRequest:
    """Return what a run on `messages` is about.

    Args:
        messages: The new messages; empty where the run goes on with what was said before.
        conversation: The agent's model context, the new messages included.

    Returns:
        The new messages, those of other agents behind the user's own task, and the exchange before them.
    """
    asked = [m for m in conversation if isinstance(m, UserMessage) and content_to_str(m.content).strip()]
    spoken = [message.to_model_message() for message in messages if message.to_model_text().strip()]
    if not spoken:
        spoken = asked[-1:]
    elif all(message.source != "user" for message in spoken):
        spoken = [*_task_of(asked), *spoken]
    parts = [content_to_str(message.content) for message in spoken]
    alone = all(message.source == "user" for message in spoken)
    lines = [part if alone else f"{message.source}: {part}" for message, part in zip(spoken, parts, strict=True)]
    earlier = _exchange_before(conversation, len(spoken)) if alone else ""
    text = bounded_text("\n".join(lines), _REQUEST_CHARS)
    own = [part for message, part in zip(spoken, parts, strict=True) if is_user(message.source)]
    task = bounded_text("\n".join(own), _REQUEST_CHARS) if own else text
    return RunRequest(text, task, earlier, parts, _images(messages))


def _task_of(asked: Sequence[UserMessage]) -> list[UserMessage]:
    return [message for message in asked if message.source == "user"][-1:]


def _exchange_before(conversation: Sequence[LLMMessage], new: int) -> str:
    before = conversation[: max(0, len(conversation) - new)]
    answers = [m.content for m in before if isinstance(m, AssistantMessage) and isinstance(m.content, str)]
    questions = [content_to_str(m.content) for m in before if isinstance(m, UserMessage) and m.source == "user"]
    if not answers or not questions:
        return ""
    return prompts.earlier_exchange(
        bounded_text(questions[-1], _EARLIER_CHARS), bounded_text(answers[-1], _EARLIER_CHARS)
    )


def _images(messages: Sequence[BaseChatMessage]) -> list[Image]:
    return [
        part
        for message in messages
        if isinstance(message, MultiModalMessage)
        for part in message.content
        if isinstance(part, Image)
    ]
