"""The paper's baseline FC-Reflection: a loop of function calls, then the model judges its own answer and may go on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agentloop_autogen.bench.systems.clients import load_openai_client
from agentloop_autogen.bench.systems.system import Endpoint, Limits, SystemReply
from agentloop_autogen.bench.systems.tools import run_tool, wire_tools
from agentloop_autogen.bench.tasks.task import BenchTool

__all__ = ["FunctionCallingReflection"]

_MOST_REFLECTIONS: Final = 2
_ACCEPTED: Final = "ACCEPT"
_JUDGE: Final = (
    "Check your last answer against the request and the tool results above. If it answers the whole request and the "
    f"results support it, reply with the single word {_ACCEPTED}. Otherwise say in one or two sentences what is wrong "
    "or missing."
)
_GO_ON: Final = "Put this right: call tools where you need more, then give the complete answer."


class FunctionCallingReflection:
    """Calls tools until the model writes a text, lets it judge that text, and sends it back at most twice.

    The calls with tools of all tries together are limited as for every system; a judgement comes without tools.
    """

    name = "fc-reflection"

    def __init__(self) -> None:
        load_openai_client()

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        """Answer one request."""
        from openai import AsyncOpenAI

        async with AsyncOpenAI(
            base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0, timeout=limits.timeout_s
        ) as client:
            return await _Conversation(client, instructions, request, tools, endpoint.model, limits).answer()


class _Conversation:
    def __init__(
        self,
        client: Any,  # noqa: ANN401 - its request types are unions of dozens of dictionaries
        instructions: str,
        request: str,
        tools: Sequence[BenchTool],
        model: str,
        limits: Limits,
    ) -> None:
        self._client = client
        self._model = model
        self._limits = limits
        self._tools = {tool.name: tool for tool in tools}
        self._rounds_left = limits.rounds
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": instructions},
            {"role": "user", "content": request},
        ]

    async def answer(self) -> SystemReply:
        """Try, judge, and try again."""
        answer = await self._try()
        for _ in range(_MOST_REFLECTIONS):
            if answer is None:
                break
            self._messages.append({"role": "user", "content": _JUDGE})
            judgement = await self._ask(with_tools=False)
            words = str(judgement["content"] or "")
            if _ACCEPTED in words.upper():
                return SystemReply(answer=answer, stop_reason="accepted by its own judgement")
            self._messages += [judgement, {"role": "user", "content": _GO_ON}]
            better = await self._try()
            if better is None:
                return SystemReply(answer=answer, stop_reason="no rounds left")
            answer = better
        if answer is None:
            return SystemReply(answer="", stop_reason="no rounds left")
        return SystemReply(answer=answer, stop_reason="no reflections left")

    async def _try(self) -> str | None:
        """Call tools until the model writes a text; None where the rounds are used up before."""
        while self._rounds_left > 0:
            self._rounds_left -= 1
            reply = await self._ask(with_tools=True)
            self._messages.append(reply)
            calls = cast("list[dict[str, Any]]", reply.get("tool_calls") or [])
            if not calls:
                return str(reply["content"] or "")
            for call in calls:
                self._messages.append(await self._run(call))
        return None

    async def _run(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = cast("Mapping[str, Any]", call["function"])
        try:
            arguments: object = json.loads(function["arguments"] or "{}")
        except ValueError:
            arguments = None
        text, _ = await run_tool(self._tools, str(function["name"]), arguments)
        return {"role": "tool", "tool_call_id": call["id"], "content": text}

    async def _ask(self, *, with_tools: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self._model,
            "messages": self._messages,
            "temperature": self._limits.temperature,
            "seed": self._limits.seed,
            "max_tokens": self._limits.max_completion_tokens,
        }
        if with_tools and self._tools:
            fields["tools"] = wire_tools(tuple(self._tools.values()))
        if self._limits.stream:
            return await self._streamed(fields)
        completion = await self._client.chat.completions.create(**fields)
        return _message(completion.choices[0].message)

    async def _streamed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        async with self._client.chat.completions.stream(**fields) as stream:
            completion = await stream.get_final_completion()
        return _message(completion.choices[0].message)


def _message(message: Any) -> dict[str, Any]:  # noqa: ANN401 - see above
    """A reply as the next request repeats it."""
    told: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
    if message.tool_calls:
        told["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    return told
