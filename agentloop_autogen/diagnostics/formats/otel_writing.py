"""A trace as spans of OpenTelemetry in OTLP's JSON, after its conventions for generative AI."""

from __future__ import annotations

import hashlib
import json
from itertools import count

from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.core.rounds import ToolResult
from agentloop_autogen.diagnostics.formats.pairing import call_id, result_ids, rounds_by_turn
from agentloop_autogen.diagnostics.trace import Trace, TraceRound

__all__ = ["otlp_from"]

_START_NS = 1_000_000_000
"""Start of every trace: when it really began is not known, only how long it took and in which order."""
_CLIENT = 3
_INTERNAL = 1
_ERROR = 2


def otlp_from(trace: Trace, number: int) -> dict[str, object]:
    """Put a trace into one OTLP document; rewards, decisions and outcome have no place in it.

    Args:
        trace: Any trace.
        number: Number of the trace within what is written, which keeps the ids of spans apart.

    Returns:
        Plain data, ready for JSON.
    """
    writer = _Writer(trace, number)
    writer.write()
    scope = {"scope": {"name": "agentloop_autogen"}, "spans": writer.spans}
    resource = {"attributes": [_attribute("service.name", trace.source)]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


class _Writer:
    def __init__(self, trace: Trace, number: int) -> None:
        self.spans: list[dict[str, object]] = []
        self._trace = trace
        self._trace_id = hashlib.sha256(f"{number}\0{trace.id}".encode(errors="replace")).hexdigest()[:32]
        self._ids = count(1)
        self._ticks = count(_START_NS)

    def write(self) -> None:
        """Write the root, then each round in its order."""
        root = self._root()
        for turn, number, round_ in rounds_by_turn(self._trace):
            # What the user said in a later turn is not kept in a trace; that somebody spoke is.
            users = [self._trace.request, *[""] * turn]
            self._chat(round_, number, root, users)
            for result, asked in zip(round_.results, result_ids(round_, number), strict=True):
                self._tool(result, asked, root)

    def _root(self) -> str:
        trace = self._trace
        attributes: dict[str, object] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.input.messages": _messages("user", trace.request),
            "agentloop.trace.id": trace.id,
        }
        if trace.final:
            attributes["gen_ai.output.messages"] = _messages("assistant", trace.final)
        if trace.correct is not None:
            attributes["agentloop.correct"] = trace.correct
        span = self._span(
            "invoke_agent", "", attributes | _usage(trace.usage), kind=_CLIENT, failed=not trace.completed
        )
        span["endTimeUnixNano"] = str(_START_NS + round((trace.elapsed_s or 0.0) * 1e9))
        return str(span["spanId"])

    def _chat(self, round_: TraceRound, number: int, root: str, users: list[str]) -> None:
        parts: list[dict[str, object]] = [{"type": "text", "content": round_.text}]
        for index, call in enumerate(round_.calls, start=1):
            asked = {"id": call_id(number, index), "name": call.name, "arguments": call.arguments}
            parts.append({"type": "tool_call", **asked})
        finish = "tool_call" if round_.calls else "stop"
        attributes: dict[str, object] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([_message("user", said) for said in users], ensure_ascii=False),
            "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": parts, "finish_reason": finish}], ensure_ascii=False
            ),
        }
        if self._trace.model:
            attributes["gen_ai.request.model"] = self._trace.model
        self._span(f"chat {self._trace.model}".rstrip(), root, attributes | _usage(round_.usage), kind=_CLIENT)

    def _tool(self, result: ToolResult, asked: str, root: str) -> None:
        attributes: dict[str, object] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": result.call.name,
            "gen_ai.tool.call.id": asked,
            "gen_ai.tool.call.arguments": result.call.arguments,
            "gen_ai.tool.call.result": result.content,
        }
        if result.is_error:
            attributes["error.type"] = "tool_error"
        name = f"execute_tool {result.call.name}"
        self._span(name, root, attributes, kind=_INTERNAL, failed=result.is_error)

    def _span(
        self, name: str, parent: str, attributes: dict[str, object], *, kind: int, failed: bool = False
    ) -> dict[str, object]:
        at = str(next(self._ticks))
        span: dict[str, object] = {
            "traceId": self._trace_id,
            "spanId": f"{next(self._ids):016x}",
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": at,
            "endTimeUnixNano": at,
            "attributes": [_attribute(key, value) for key, value in attributes.items()],
            "status": {"code": _ERROR} if failed else {},
        }
        self.spans.append(span)
        return span


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _messages(role: str, text: str) -> str:
    return json.dumps([_message(role, text)], ensure_ascii=False)


def _usage(usage: RequestUsage | None) -> dict[str, object]:
    if usage is None:
        return {}
    return {"gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": usage.completion_tokens}


def _attribute(key: str, value: object) -> dict[str, object]:
    match value:
        case bool():
            return {"key": key, "value": {"boolValue": value}}
        case int():
            return {"key": key, "value": {"intValue": str(value)}}
        case _:
            return {"key": key, "value": {"stringValue": value}}
