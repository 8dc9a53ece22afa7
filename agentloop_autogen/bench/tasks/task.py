"""What a task is to the benchmark: a request, tools to work with, and a machine that grades the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

__all__ = ["BenchTask", "BenchTool", "Grade", "Half", "TaskSession"]


class Half(str, Enum):
    """Which half of a family's tasks a task belongs to: policies are developed on one and reported on the other."""

    DEVELOPMENT = "development"
    HELD_OUT = "held_out"


@dataclass(frozen=True, kw_only=True)
class BenchTool:
    """One tool, as every system gets it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments, an object."""
    run: Callable[[Mapping[str, Any]], Awaitable[str]]
    """Takes the arguments and returns the result as text; whatever it raises is an error result for the model."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """What the grader says of an answer."""

    correct: bool
    detail: str = ""
    """Why not, in a few words; or the score where the family has a finer one."""


class TaskSession(Protocol):
    """One attempt's own world: nothing a system does in it reaches another attempt."""

    @property
    def tools(self) -> Sequence[BenchTool]:
        """The tools of this attempt, bound to its world."""
        ...

    def grade(self, answer: str) -> Grade:
        """Grade the answer, and the state the tools left behind where the family looks at that."""
        ...

    def close(self) -> None:
        """Release the world."""
        ...


@dataclass(frozen=True, kw_only=True)
class BenchTask:
    """One task of a family."""

    family: str
    id: str
    """Unique within the family, the same in every version of the benchmark."""
    half: Half
    instructions: str
    """The system message every system gets, the same for the whole family."""
    request: str
    group: str = ""
    """What tasks have in common, such as their database; empty: nothing."""
    open: Callable[[], TaskSession]
    """Makes a fresh world for one attempt."""
