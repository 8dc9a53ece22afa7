"""Recorded model replies as a file: what a tape holds, how one is written and how it is handed out again."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentloop_autogen.errors import ModelError, UsageError

__all__ = ["RecordedCall", "RecordedReply", "Role", "Tape", "TapePlayer", "TapeRecorder", "load_tape"]


class Role(str, Enum):
    """What a model call was for."""

    PLANNING = "planning"
    VERIFIER = "verifier"
    SYNTHESIS = "synthesis"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedCall(_Part):
    """One tool call the model asked for."""

    id: str
    name: str
    arguments: str


class RecordedReply(_Part):
    """One raw result of the model."""

    role: Role
    text: str | None = None
    """None: it was tool calls."""
    calls: tuple[RecordedCall, ...] = ()
    thought: str | None = None
    finish_reason: Literal["stop", "length", "function_calls", "content_filter", "unknown"]
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


class Tape(_Part):
    """The recorded replies of one run, in the order they were asked for."""

    scenario: str
    request: str
    """The request as it was then: a changed scenario needs a new recording."""
    model: str
    recorded: str
    """The day, as `2025-01-31`."""
    policy: str
    replies: tuple[RecordedReply, ...]


def load_tape(path: Path) -> Tape:
    """Read a tape.

    Args:
        path: A file `--record` wrote.

    Returns:
        The tape.

    Raises:
        UsageError: It is not there or is none.
    """
    try:
        return Tape.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"no recording at {path} ({error.strerror}): make one with --record {path}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"{path}: is no recording (`{place}`: {first['msg']}): make it anew with --record") from error


class TapeRecorder:
    """Collects the replies of one run for a file.

    Args:
        path: The file; its folder is made.

    Raises:
        UsageError: No file can be written there, which is better known before the run than after it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._replies: list[RecordedReply | None] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            there = path.exists()
            path.open("ab").close()
            if not there:
                path.unlink()
        except OSError as error:
            raise UsageError(f"cannot write {path} ({error.strerror}): give --record another path") from error

    def open(self) -> int:
        """Keep a place for a reply that was just asked for.

        Returns:
            The place.
        """
        self._replies.append(None)
        return len(self._replies) - 1

    def fill(self, place: int, reply: RecordedReply) -> None:
        """Put a reply in its place.

        Args:
            place: What `open` returned.
            reply: The reply.
        """
        self._replies[place] = reply

    def save(self, *, scenario: str, request: str, model: str, recorded: str, policy: str) -> None:
        """Write the tape.

        Args:
            scenario: Name of the scenario.
            request: Its request.
            model: Name of the model.
            recorded: The day.
            policy: The loop's policy.

        Raises:
            ModelError: A call had no reply, so the run cannot be played back.
            UsageError: The file cannot be written.
        """
        replies = [reply for reply in self._replies if reply is not None]
        unanswered = len(self._replies) - len(replies)
        if unanswered:
            raise ModelError(f"not recorded: {unanswered} model call(s) had no reply in time; run it again")
        tape = Tape(
            scenario=scenario, request=request, model=model, recorded=recorded, policy=policy, replies=tuple(replies)
        )
        try:
            self.path.write_text(tape.model_dump_json(indent=1, exclude_defaults=True) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {self.path} ({error.strerror}): give --record another path") from error


class TapePlayer:
    """Hands out the replies of a tape in order and remembers where a run left it."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self._next = 0
        self._problem = ""

    def take(self, role: Role) -> RecordedReply:
        """Hand out the next reply.

        Args:
            role: What it is asked for.

        Returns:
            The reply.

        Raises:
            ModelError: The tape is at its end or holds a reply for another role here.
        """
        replies, place = self.tape.replies, self._next + 1
        if self._next >= len(replies):
            self._diverge(f"it holds {len(replies)} replies and the run asks for one more ({role.value})")
        elif replies[self._next].role is not role:
            self._diverge(f"reply {place} is for {replies[self._next].role.value} and the run asks for {role.value}")
        if self._problem:
            raise ModelError(self._problem)
        self._next += 1
        return replies[place - 1]

    def problem(self) -> str:
        """Say whether a finished run followed the tape.

        Returns:
            What differs, as one line; empty if nothing does.
        """
        left = len(self.tape.replies) - self._next
        if not self._problem and left:
            self._diverge(f"the run ended with {left} of {len(self.tape.replies)} replies unused")
        return self._problem

    def _diverge(self, how: str) -> None:
        if not self._problem:
            self._problem = f"the run no longer follows its recording: {how}; record it anew with --record"
