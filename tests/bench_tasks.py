"""A small task family for tests of the benchmark: look up a code, and say it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.systems.system import BenchSystem, Endpoint, Limits, SystemReply
from agentloop_autogen.bench.tasks.families import Family
from agentloop_autogen.bench.tasks.task import BenchTask, BenchTool, Grade, Half

__all__ = [
    "CODE",
    "CodeSession",
    "StubSystem",
    "as_system",
    "code_family",
    "code_task",
    "code_tool",
    "find_after_a_death",
    "find_code_task",
]

CODE = "4711"


async def _look_up(arguments: Mapping[str, Any]) -> str:
    if arguments.get("door") != "blue":
        raise ValueError("there is no such door")
    return f"The code of the blue door is {CODE}."


def code_tool() -> BenchTool:
    """The tool that tells the code of a door."""
    schema = {"type": "object", "properties": {"door": {"type": "string"}}, "required": ["door"]}
    return BenchTool(name="look_up", description="Tells the code of a door.", parameters=schema, run=_look_up)


class CodeSession:
    """The world of a code task."""

    def __init__(self, tools: Sequence[BenchTool]) -> None:
        self.tools = tools
        self.closed = False

    def grade(self, answer: str) -> Grade:
        if answer == "break the grader":
            raise ValueError("the grader broke")
        return Grade(correct=CODE in answer)

    def close(self) -> None:
        self.closed = True


def code_task(number: int = 1, *, tools: Sequence[BenchTool] | None = None) -> BenchTask:
    """One task of the family."""

    def opened() -> CodeSession:
        return CodeSession([code_tool()] if tools is None else tools)

    return BenchTask(
        family="codes",
        id=f"door-{number}",
        half=Half.DEVELOPMENT,
        instructions="Answer with the code.",
        request="What is the code of the blue door?",
        open=opened,
    )


@dataclass
class StubSystem:
    """A system that asks no model."""

    name: str = "stub"
    answer: str = CODE
    error: BaseException | None = None
    takes_s: float = 0.0
    stubborn: bool = False
    """Whether it goes on for a while when it is cancelled."""
    began: list[str] = field(default_factory=list[str])

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        self.began.append(request)
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            if self.stubborn:
                await asyncio.sleep(3)
            raise
        if self.error is not None:
            raise self.error
        for tool in tools:
            await tool.run({"door": "blue"})
        return SystemReply(answer=self.answer, stop_reason="stubbed")


def as_system(stub: StubSystem) -> BenchSystem:
    """The stub as what it stands for."""
    return stub


def code_family() -> Family:
    """Twenty tasks, half of them held out."""

    def load(data: Path | None) -> Sequence[BenchTask]:
        halves = (Half.DEVELOPMENT, Half.HELD_OUT)
        return [replace(code_task(number), half=halves[number % 2]) for number in range(20)]

    return Family(
        name="codes", description="Tells codes of doors.", kind="test", source="made up", licence="MIT", load=load
    )


def find_code_task(family: str, task: str) -> BenchTask:
    """Find a code task by its id, in any process."""
    return code_task(int(task.removeprefix("door-")))


def find_after_a_death(mark: str, family: str, task: str) -> BenchTask:
    """Kill the process at the first call of all, then find code tasks."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return find_code_task(family, task)


def stub_attempt(task: str = "door-1", **fields: object) -> Attempt:
    """What is kept of a stub at a code task, as far as no field says otherwise."""
    given: dict[str, object] = {
        "system": "stub",
        "family": "codes",
        "task": task,
        "half": Half.DEVELOPMENT,
        "model": "m",
        "settings": "s",
        "request": "?",
        "correct": True,
        "began_at": "2026-01-01T00:00:00+00:00",
        "elapsed_s": 1.0,
    }
    return Attempt.model_validate({**given, **fields})
