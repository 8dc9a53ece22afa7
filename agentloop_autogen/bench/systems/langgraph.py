"""LangGraph's prebuilt ReAct agent, under the name it goes by since version 1: LangChain's `create_agent`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agentloop_autogen.bench.systems.system import Endpoint, Limits, SystemReply
from agentloop_autogen.bench.systems.tools import run_tool
from agentloop_autogen.bench.tasks.task import BenchTool
from agentloop_autogen.errors import MissingExtraError

__all__ = ["LangGraphAgent"]

_STEPS_PER_ROUND: Final = 2
"""The graph counts the model call and the tools after it one by one."""
_LIMIT: Final = "recursion limit"


class LangGraphAgent:
    """The agent with its recursion limit set to as many model calls with tools as all systems have.

    At the limit the library raises an error and gives no answer, so none is made up for it.

    Raises:
        MissingExtraError: LangGraph or its OpenAI client is not installed.
    """

    name = "langgraph"

    def __init__(self) -> None:
        try:
            # Loaded here, so that no attempt pays for it; their types are their own affair.
            self._agents: Any = importlib.import_module("langchain.agents")
            self._openai: Any = importlib.import_module("langchain_openai")
            self._tools: Any = importlib.import_module("langchain_core.tools")
            self._errors: Any = importlib.import_module("langgraph.errors")
        except ImportError:
            raise MissingExtraError("LangGraph", "bench") from None

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        """Answer one request."""
        model = self._openai.ChatOpenAI(
            model=endpoint.model,
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            temperature=limits.temperature,
            seed=limits.seed,
            max_completion_tokens=limits.max_completion_tokens,
            streaming=limits.stream,
            max_retries=0,
            timeout=None,
        )
        by_name = {tool.name: tool for tool in tools}
        agent = self._agents.create_agent(
            model, [self._tool(tool, by_name) for tool in tools], system_prompt=instructions
        )
        asked = {"messages": [{"role": "user", "content": request}]}
        config = {"recursion_limit": _STEPS_PER_ROUND * limits.rounds}
        try:
            state = await agent.ainvoke(asked, config)
        except self._errors.GraphRecursionError:
            return SystemReply(answer="", stop_reason=_LIMIT)
        finally:
            # The library keeps its connections for later, and each attempt has an address of its own.
            await model.root_async_client.close()
            model.root_client.close()
        return SystemReply(answer=_text(state["messages"][-1]), stop_reason="answered")

    def _tool(self, tool: BenchTool, by_name: Mapping[str, BenchTool]) -> object:
        async def call(**arguments: Any) -> str:  # noqa: ANN401 - arguments are JSON values
            text, is_error = await run_tool(by_name, tool.name, arguments)
            if is_error:
                raise self._tools.ToolException(text)
            return text

        return self._tools.StructuredTool(
            name=tool.name,
            description=tool.description,
            args_schema=dict(tool.parameters),
            coroutine=call,
            handle_tool_error=True,
        )


def _text(message: object) -> str:
    """The text of a message, whose content may be a list of parts."""
    content: object = getattr(message, "content", "")
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    texts = (cast("Mapping[str, Any]", part).get("text") if isinstance(part, Mapping) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))
