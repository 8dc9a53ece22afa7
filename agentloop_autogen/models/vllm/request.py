"""What goes over the wire: request bodies, and how they change when a server refuses part of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from autogen_core.tools import Tool, ToolSchema
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from pydantic import BaseModel

from agentloop_autogen.errors import UsageError
from agentloop_autogen.models.guided.autogen import ToolChoiceInput, tool_choice_of, tool_spec
from agentloop_autogen.models.guided.records import ChoiceKind, GuidedRung
from agentloop_autogen.models.guided.wire import calls_allowed, needs_guiding, to_guided_request, tool_names
from agentloop_autogen.models.vllm.messages import alternating, with_instruction

__all__ = ["Attempt", "PlannedRequest", "guiding_needed", "merged_arguments", "tool_fields", "with_format"]

_TEMPLATE_KEY: Final = "chat_template_kwargs"
_STREAM_KEY: Final = "stream_options"
_ONE_OBJECT: Final = "Reply with one JSON object and nothing else."
_OF_SCHEMA: Final = "It must fit this JSON schema: {schema}"
_OWN: Final = frozenset({"messages", "stream", "n", "tools", "tool_choice", "functions", "function_call"})
"""What only the client decides."""

_VLLM_FIELDS: Final = frozenset(
    {
        "add_generation_prompt",
        "allowed_token_ids",
        "bad_words",
        "cache_salt",
        "chat_template",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "ignore_eos",
        "include_reasoning",
        "include_stop_str_in_output",
        "kv_transfer_params",
        "length_penalty",
        "min_p",
        "min_tokens",
        "mm_processor_kwargs",
        "priority",
        "prompt_logprobs",
        "repetition_penalty",
        "request_id",
        "return_tokens_as_token_ids",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "structured_outputs",
        "thinking_token_budget",
        "top_k",
        "truncate_prompt_tokens",
        "use_beam_search",
        "vllm_xargs",
    }
)
_KNOWN: Final = frozenset(CompletionCreateParamsBase.__annotations__) | _VLLM_FIELDS | {"timeout"}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """How much of a request is asked for, after what was refused so far."""

    rung: GuidedRung = GuidedRung.SCHEMA
    """How firmly the output format is asked for."""
    template_options: bool = True
    """Whether options for the chat template are sent."""

    def lower_rung(self) -> Attempt | None:
        """The next attempt after the format was refused; None where there is nothing less to ask for."""
        rungs = list(GuidedRung)
        position = rungs.index(self.rung) + 1
        if position == len(rungs):
            return None
        return replace(self, rung=rungs[position])


@dataclass(frozen=True, kw_only=True)
class PlannedRequest:
    """One call of the client, before it is known what the server takes."""

    body: Mapping[str, Any]
    """The whole request, with its tools and its output format."""
    guided: bool
    """Whether tool calls are asked for by schema."""
    alternate_roles: bool

    @property
    def has_format(self) -> bool:
        """Whether the server is held to an output format, so that it may refuse one."""
        return self.guided or self.holds_json

    @property
    def has_schema(self) -> bool:
        """Whether that format is a schema."""
        return self.guided or _format_kind(self.body) == "json_schema"

    @property
    def holds_json(self) -> bool:
        """Whether the caller asked for JSON."""
        return _format_kind(self.body) in ("json_schema", "json_object")

    @property
    def has_template_options(self) -> bool:
        """Whether it holds options for the chat template, which some templates do not take."""
        return _TEMPLATE_KEY in self.body

    @property
    def tool_names(self) -> frozenset[str]:
        """The tools on offer."""
        return tool_names(self.body)

    @property
    def allows_calls(self) -> bool:
        """Whether the reply may hold tool calls."""
        return calls_allowed(self.body)

    def whole(self) -> PlannedRequest:
        """The request for a reply in one piece, for which servers refuse the options of a stream."""
        return replace(self, body={name: value for name, value in self.body.items() if name != _STREAM_KEY})

    def streamed(self, *, include_usage: bool | None) -> PlannedRequest:
        """The request for a streamed reply.

        Args:
            include_usage: Whether to ask for token counts. None: yes, unless the request says otherwise.
        """
        options = {"include_usage": True, **cast("Mapping[str, Any]", self.body.get(_STREAM_KEY) or {})}
        if include_usage is not None:
            options["include_usage"] = include_usage
        return replace(self, body={**self.body, _STREAM_KEY: options})

    def at(self, attempt: Attempt) -> dict[str, Any]:
        """The body to send.

        Args:
            attempt: How much of it to ask for.
        """
        body = dict(self.body)
        if not attempt.template_options:
            body.pop(_TEMPLATE_KEY, None)
        if self.guided and body.get("tools"):
            body = to_guided_request(body, rung=attempt.rung)
        else:
            body = _stepped_down(body, attempt.rung)
            body = to_guided_request(body, rung=attempt.rung) if self.guided else body
        if self.alternate_roles:
            body["messages"] = alternating(body["messages"])
        return body


def merged_arguments(own: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the client's arguments with those of one call, which win; `extra_body` joins the rest of the body.

    Args:
        own: Given to the client.
        call: Given to one call.

    Raises:
        UsageError: An argument is unknown, or one that only the client sets.
    """
    merged: dict[str, Any] = {}
    for arguments in (own, call):
        flat = {**arguments, **cast("Mapping[str, Any]", arguments.get("extra_body") or {})}
        flat.pop("extra_body", None)
        _check_names(arguments, flat)
        options = flat.get(_TEMPLATE_KEY)
        if isinstance(options, Mapping) and isinstance(merged.get(_TEMPLATE_KEY), Mapping):
            flat[_TEMPLATE_KEY] = {**merged[_TEMPLATE_KEY], **cast("Mapping[str, Any]", options)}
        merged.update(flat)
    return {key: value for key, value in merged.items() if value is not None}


def tool_fields(tools: Sequence[Tool | ToolSchema], tool_choice: ToolChoiceInput) -> dict[str, Any]:
    """The fields that offer tools; none at all without tools, since servers refuse an empty list or a lone choice.

    Args:
        tools: The tools on offer.
        tool_choice: What the model may do with them.

    Raises:
        UsageError: The choice names a tool that is not on offer.
    """
    if not tools:
        if isinstance(tool_choice, Tool):
            raise UsageError(f"tool_choice names {tool_choice.name!r}, but no tools are given")
        return {}
    specs = [tool_spec(tool) for tool in tools]
    choice = tool_choice_of(tool_choice)
    if choice.kind is ChoiceKind.NAMED and choice.name not in {spec.name for spec in specs}:
        raise UsageError(f"tool_choice names {choice.name!r}, which is not among the tools")
    functions = [
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)} for spec in specs
    ]
    named = {"type": "function", "function": {"name": choice.name}}
    return {
        "tools": [{"type": "function", "function": function} for function in functions],
        "tool_choice": named if choice.kind is ChoiceKind.NAMED else choice.kind.value,
    }


def with_format(arguments: Mapping[str, Any], json_output: bool | type[BaseModel] | None) -> dict[str, Any]:
    """Put the output format into the arguments in the form the server takes.

    Args:
        arguments: What is sent besides messages and tools; a model class as `response_format` is understood, too.
        json_output: AutoGen's wish; None leaves `response_format` as it is.
    """
    wanted: object = arguments.get("response_format") if json_output is None else json_output
    rest = {key: value for key, value in arguments.items() if key != "response_format"}
    if isinstance(wanted, type) and issubclass(wanted, BaseModel):
        schema = {"name": wanted.__name__, "schema": wanted.model_json_schema()}
        return {**rest, "response_format": {"type": "json_schema", "json_schema": schema}}
    if wanted is True:
        return {**rest, "response_format": {"type": "json_object"}}
    return {**rest, "response_format": wanted} if isinstance(wanted, Mapping) else rest


def guiding_needed(body: Mapping[str, Any], *, always: bool) -> bool:
    """Whether tool calls are asked for by schema.

    vLLM cannot combine native calls with an output format: the format wins, and no tool is ever called.

    Args:
        body: The request.
        always: Whether the model has no native calls.
    """
    if always:
        return needs_guiding(body)
    return calls_allowed(body) and _format_kind(body) in ("json_schema", "json_object")


def _stepped_down(body: Mapping[str, Any], rung: GuidedRung) -> dict[str, Any]:
    """A request whose output format is asked for less firmly; what the server does not enforce stands in the prompt."""
    kind = _format_kind(body)
    if rung is GuidedRung.SCHEMA or kind not in ("json_schema", "json_object"):
        return dict(body)
    schema = cast("Mapping[str, Any]", body["response_format"]).get("json_schema")
    text = _ONE_OBJECT
    if isinstance(schema, Mapping):
        wanted = json.dumps(cast("Mapping[str, Any]", schema).get("schema") or {}, ensure_ascii=False)
        text = f"{_ONE_OBJECT} {_OF_SCHEMA.format(schema=wanted)}"
    stepped = {**body, "response_format": {"type": "json_object"}}
    if kind == "json_schema" or rung is GuidedRung.PROMPT:
        stepped["messages"] = with_instruction(body["messages"], text)
    if rung is GuidedRung.PROMPT:
        del stepped["response_format"]
    return stepped


def _format_kind(body: Mapping[str, Any]) -> str | None:
    wanted = body.get("response_format")
    return cast("Mapping[str, Any]", wanted).get("type") if isinstance(wanted, Mapping) else None


def _check_names(arguments: Mapping[str, Any], flat: Iterable[str]) -> None:
    if taken := sorted(_OWN.intersection(flat)):
        raise UsageError(f"{taken[0]!r} cannot be given as an extra argument: the client sets it itself")
    # `extra_body` is the way round this check, for fields newer than this list.
    if unknown := sorted(set(arguments) - _KNOWN - {"extra_body"}):
        raise UsageError(f"{unknown[0]!r} is no field of a vLLM request: correct it, or put it into `extra_body`")
