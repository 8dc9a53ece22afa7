"""The tools of a task, in the two forms that the systems' libraries take them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from autogen_core import CancellationToken
from autogen_core.tools import TextResultContent, ToolResult, ToolSchema, Workbench

from agentloop_autogen.bench.tasks.task import BenchTool

__all__ = ["BenchWorkbench", "run_tool", "wire_tools"]


async def run_tool(tools: Mapping[str, BenchTool], name: str, arguments: object) -> tuple[str, bool]:
    """Run a tool as every system does: what goes wrong is a result the model can read.

    Args:
        tools: The tools by name.
        name: The tool that was asked for.
        arguments: What it was asked with, decoded.

    Returns:
        The result, and whether it is an error.
    """
    tool = tools.get(name)
    if tool is None:
        return f"Error: there is no tool {name!r}; there are {', '.join(tools)}", True
    if not isinstance(arguments, Mapping):
        return "Error: the arguments must be a JSON object", True
    try:
        return await tool.run(cast("Mapping[str, Any]", arguments)), False
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is an error result for the model
        return f"Error: {error or type(error).__name__}", True


def wire_tools(tools: Sequence[BenchTool]) -> list[dict[str, Any]]:
    """Return tools as a chat completion request lists them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


class BenchWorkbench(Workbench):
    """The tools of one attempt for AutoGen's agents.

    Args:
        tools: The tools.
    """

    component_type = "workbench"

    def __init__(self, tools: Sequence[BenchTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def list_tools(self) -> list[ToolSchema]:
        """Return the schemas of the tools as they are."""
        return [cast("ToolSchema", wired["function"]) for wired in wire_tools(tuple(self._tools.values()))]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Run a tool; what goes wrong is an error result."""
        text, is_error = await run_tool(self._tools, name, {} if arguments is None else arguments)
        return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=is_error)

    async def start(self) -> None:
        """Do nothing: the tools are open already."""

    async def stop(self) -> None:
        """Do nothing: whoever opened the tools closes them."""

    async def reset(self) -> None:
        """Do nothing: an attempt happens once."""

    async def save_state(self) -> Mapping[str, Any]:
        """Return nothing: an attempt happens once."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing: an attempt happens once."""
