"""Running the calls of a round: all at once, each fault its own result, nothing left without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken
from autogen_core.models import FunctionExecutionResult
from autogen_core.tools import BaseTool, StaticStreamWorkbench, ToolResult, ToolSchema, Workbench

from agentloop_autogen.agent import prompts
from agentloop_autogen.agent.bounded import bounded
from agentloop_autogen.agent.calls import PlannedCall, encodable
from agentloop_autogen.faults import describe_error
from agentloop_autogen.waiting import stop_task

__all__ = ["CancelledRound", "ExecutedCall", "ToolRunner", "ToolsUnavailable"]

Emit = Callable[[BaseAgentEvent | BaseChatMessage], Awaitable[None]]


@dataclass(frozen=True)
class ExecutedCall:
    """One call with its result."""

    planned: PlannedCall
    result: FunctionExecutionResult
    executed: bool
    """False where the result was given without running anything."""


class ToolRunner:
    """Lists and runs the tools of one agent.

    Args:
        workbenches: Where the tools are.
        handoff_tools: The tools that hand the task over.
        emit: Takes what streaming tools send while they run.
        token: The run's token, passed on as it is.
    """

    def __init__(
        self,
        workbenches: Sequence[Workbench],
        handoff_tools: Sequence[BaseTool[Any, Any]],
        *,
        emit: Emit,
        token: CancellationToken,
    ) -> None:
        self._workbenches = workbenches
        self._handoff_tools = {tool.name: tool for tool in handoff_tools}
        self._emit = emit
        self._token = token
        self._owners: dict[str, Workbench] = {}

    @property
    def names(self) -> Sequence[str]:
        """Names of the tools listed last, handoffs not among them."""
        return tuple(self._owners)

    @property
    def callable_names(self) -> Collection[str]:
        """Names of everything that can be called, handoffs included."""
        return self._owners.keys() | self._handoff_tools.keys()

    async def list_tools(self) -> list[BaseTool[Any, Any] | ToolSchema]:
        """Return the tools available now, asked for anew each round since a workbench may change them.

        Raises:
            ToolsUnavailable: A workbench could not say.
        """
        owners: dict[str, Workbench] = {}
        tools: list[BaseTool[Any, Any] | ToolSchema] = []
        for workbench in self._workbenches:
            try:
                listed = await workbench.list_tools()
            except Exception as error:  # A workbench is anybody's code; whatever it raises, the run must go on.
                raise ToolsUnavailable(describe_error(error)) from error
            for tool in listed:
                owners.setdefault(tool["name"], workbench)
                tools.append(tool)
        self._owners = owners
        return [*tools, *self._handoff_tools.values()]

    async def run(
        self,
        calls: Sequence[PlannedCall],
        *,
        allowed: int | None,
        identical: int | None,
        remaining_s: Callable[[], float],
    ) -> list[ExecutedCall]:
        """Run the calls of a round at once and return one result for each, in order.

        Args:
            calls: The calls.
            allowed: How many may run; the rest get an error result. None: all. Handoffs, copies and calls that cannot
                run are not counted.
            identical: How many identical calls run; the rest get the first one's result. None: all.
            remaining_s: Seconds left; what is still running then gets an error result.

        Raises:
            CancelledRound: The run was cancelled; it carries the results there are, one for each call.
        """
        copies = _copies(calls, identical)
        refused = self._refused(calls, copies, allowed)
        tasks = {
            index: asyncio.ensure_future(self._run_one(planned))
            for index, planned in enumerate(calls)
            if index not in refused and index not in copies
        }
        ending = ""
        try:
            if tasks:
                await bounded(asyncio.wait(tasks.values()), token=self._token, remaining_s=remaining_s)
        except asyncio.TimeoutError:
            ending = prompts.timed_out_result()
        except asyncio.CancelledError:
            results = await self._collect(calls, tasks, copies, refused, prompts.cancelled_result())
            raise CancelledRound(results) from None
        return await self._collect(calls, tasks, copies, refused, ending)

    def _refused(self, calls: Sequence[PlannedCall], copies: Collection[int], allowed: int | None) -> dict[int, str]:
        if allowed is None:
            return {}
        ordinary = [
            index
            for index, planned in enumerate(calls)
            if index not in copies and planned.call.name in self._owners and not planned.problem
        ]
        return dict.fromkeys(ordinary[allowed:], prompts.budget_exceeded_result())

    async def _collect(
        self,
        calls: Sequence[PlannedCall],
        tasks: dict[int, asyncio.Task[ToolResultText]],
        copies: dict[int, int],
        refused: dict[int, str],
        ending: str,
    ) -> list[ExecutedCall]:
        await asyncio.gather(*(stop_task(task) for task in tasks.values() if not task.done()))
        collected: list[ExecutedCall] = []
        for index, planned in enumerate(calls):
            if index in tasks:
                text = _outcome(tasks[index], ending)
            elif index in refused:
                text = ToolResultText(refused[index], is_error=True, executed=False)
            else:
                original = collected[copies[index]].result
                repeated = prompts.repeated_call_result(original.content)
                text = ToolResultText(repeated, is_error=bool(original.is_error), executed=False)
            result = FunctionExecutionResult(
                content=text.content, name=planned.call.name, call_id=planned.call.id, is_error=text.is_error
            )
            collected.append(ExecutedCall(planned, result, text.executed))
        return collected

    async def _run_one(self, planned: PlannedCall) -> ToolResultText:
        if planned.call.name in self._handoff_tools:
            tool = self._handoff_tools[planned.call.name]
            value = await tool.run_json(planned.arguments, self._token, call_id=planned.call.id)
            return ToolResultText(tool.return_value_as_string(value), is_error=False)
        if planned.problem:
            return ToolResultText(planned.problem, is_error=True, executed=False)
        workbench = self._owners.get(planned.call.name)
        if workbench is None:
            known = ", ".join(self._owners) or "none"
            problem = f"Error: there is no tool {planned.call.name!r}; tools: {known}"
            return ToolResultText(problem, is_error=True, executed=False)
        result = await self._call(workbench, planned)
        return ToolResultText(encodable(result.to_text()), is_error=result.is_error)

    async def _call(self, workbench: Workbench, planned: PlannedCall) -> ToolResult:
        name, identity = planned.call.name, planned.call.id
        if not isinstance(workbench, StaticStreamWorkbench):
            return await workbench.call_tool(
                name, arguments=planned.arguments, cancellation_token=self._token, call_id=identity
            )
        result: ToolResult | None = None
        stream = workbench.call_tool_stream(
            name, arguments=planned.arguments, cancellation_token=self._token, call_id=identity
        )
        async with aclosing(stream) as items:
            async for item in items:
                if isinstance(item, ToolResult):
                    result = item
                elif isinstance(item, (BaseAgentEvent, BaseChatMessage)):
                    await self._emit(item)
        if result is None:
            raise RuntimeError("the tool's stream ended without a result")
        return result


@dataclass(frozen=True)
class ToolResultText:
    """What a call returned, as text."""

    content: str
    is_error: bool
    executed: bool = True


class ToolsUnavailable(Exception):
    """A workbench could not list its tools."""


class CancelledRound(asyncio.CancelledError):
    """The run was cancelled while tools were running.

    Args:
        results: One result for each call of the round; those that did not finish say so.
    """

    def __init__(self, results: list[ExecutedCall]) -> None:
        self.results = results
        super().__init__("the run was cancelled while tools were running")


def _outcome(task: asyncio.Task[ToolResultText], ending: str) -> ToolResultText:
    if not task.done() or task.cancelled():
        return ToolResultText(ending or "Error: the tool was cancelled by itself", is_error=True)
    error = task.exception()
    if error is not None:
        return ToolResultText(f"Error: {describe_error(error)}", is_error=True)
    return task.result()


def _copies(calls: Sequence[PlannedCall], identical: int | None) -> dict[int, int]:
    if identical is None:
        return {}
    first: dict[tuple[str, str], list[int]] = {}
    copies: dict[int, int] = {}
    for index, planned in enumerate(calls):
        same = first.setdefault((planned.call.name, planned.call.arguments), [])
        if len(same) >= identical:
            copies[index] = same[0]
        else:
            same.append(index)
    return copies
