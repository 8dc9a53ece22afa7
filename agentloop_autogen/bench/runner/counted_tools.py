"""The tools of one attempt, each call timed and kept."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agentloop_autogen.bench.records import CountedToolCall
from agentloop_autogen.bench.tasks.task import BenchTool

__all__ = ["CountedTools"]

_MAX_RESULT: Final = 2_000
_MAX_ARGUMENTS: Final = 4_000
_MAX_VALUE: Final = 1_000


@dataclass
class _Running:
    name: str
    arguments: dict[str, Any]
    began_s: float
    ended_s: float | None = None
    is_error: bool = True
    result: str = ""


class CountedTools:
    """Wraps the tools of an attempt.

    Args:
        tools: The tools.
        now: Tells the seconds since the attempt began.
    """

    def __init__(self, tools: Sequence[BenchTool], now: Callable[[], float]) -> None:
        self._now = now
        self._calls: list[_Running] = []
        self.tools: tuple[BenchTool, ...] = tuple(self._counted(tool) for tool in tools)
        """The tools, as a system gets them."""

    @property
    def calls(self) -> tuple[CountedToolCall, ...]:
        """The calls in the order they began; one that is still running counts as failed by now."""
        return tuple(
            CountedToolCall(
                name=call.name,
                arguments=call.arguments,
                began_s=call.began_s,
                ended_s=self._now() if call.ended_s is None else call.ended_s,
                is_error=call.is_error,
                result=call.result[:_MAX_RESULT],
            )
            for call in self._calls
        )

    def _counted(self, tool: BenchTool) -> BenchTool:
        run: Callable[[Mapping[str, Any]], Awaitable[str]] = tool.run

        async def counted(arguments: Mapping[str, Any]) -> str:
            call = _Running(tool.name, _bounded(arguments), self._now())
            self._calls.append(call)
            try:
                call.result = await run(arguments)
                call.is_error = False
            except BaseException as error:
                call.result = str(error) or type(error).__name__
                raise
            finally:
                call.ended_s = self._now()
            return call.result

        return replace(tool, run=counted)


def _bounded(arguments: Mapping[str, Any]) -> dict[str, Any]:
    if len(json.dumps(arguments, ensure_ascii=False, default=str)) <= _MAX_ARGUMENTS:
        return dict(arguments)
    return {name[:_MAX_VALUE]: str(value)[:_MAX_VALUE] for name, value in arguments.items()}
