"""AutoGen's OpenAI client, made for vLLM: every request as vLLM takes it, every reply as vLLM gives it."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, NoReturn, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.openai.config import CreateArguments
from pydantic import BaseModel, SecretStr
from typing_extensions import Self, Unpack

from agentloop_autogen.errors import ServerUnreachableError
from agentloop_autogen.models.guided.autogen import ToolChoiceInput
from agentloop_autogen.models.vllm.config import (
    DEFAULT_BASE_URL,
    VLLMClientConfig,
    base_arguments,
    headers_of,
    request_arguments,
)
from agentloop_autogen.models.vllm.events import log_call, log_stream_end, log_stream_start
from agentloop_autogen.models.vllm.ladder import RefusalMemory
from agentloop_autogen.models.vllm.messages import one_system_first, wire_messages, without_names
from agentloop_autogen.models.vllm.reading import StreamReader, read_whole
from agentloop_autogen.models.vllm.refusals import (
    NO_ACCESS,
    Asked,
    in_our_words,
    is_format_refusal,
)
from agentloop_autogen.models.vllm.reply import ReplyParts, to_result
from agentloop_autogen.models.vllm.request import (
    PlannedRequest,
    guiding_needed,
    merged_arguments,
    tool_fields,
    with_format,
)
from agentloop_autogen.models.vllm.sending import chunks_of, complete, open_stream
from agentloop_autogen.models.vllm.served import ModelLookUp, info_for

__all__ = ["VLLMChatCompletionClient"]

T = TypeVar("T")

_BYTES_PER_TOKEN: Final = 3
"""On the safe side: English takes about four, code and other scripts about three."""
_TOKENS_PER_MESSAGE: Final = 8


class VLLMChatCompletionClient(OpenAIChatCompletionClient):
    """Talks to a vLLM server as vLLM wants to be talked to.

    It sends one system message first, asks for usage when streaming, reads `reasoning` as well as `reasoning_content`,
    and raises one type of error for each of vLLM's refusals. An output format the server refuses is asked for less
    firmly (json_schema, json_object, the prompt alone), and the instance remembers that.

    Args:
        model: The name the server serves the model under.
        base_url: The server's API, `/v1` included.
        api_key: The value of the server's `--api-key`. None: that of the variable `VLLM_API_KEY`, else none.
        tool_mode: `native`: the server's tool parser reads calls. `guided`: replies are held to a schema of the tools,
            which works with any model and any server. Calls that ask for JSON too are always guided.
        alternate_roles: Merge neighbours of the same role, for templates that refuse them.
        max_model_len: Context length in tokens. None: the one the server tells.
        priority: Sent with each request; a lower one is served earlier, with `--scheduling-policy priority`.
        cache_salt: Sent with each request; only requests with the same salt share cached prefixes.
        chat_template_kwargs: Options for the model's chat template, such as `{"enable_thinking": False}`.
        verdict_template_kwargs: Such options for verifier calls. None: those that switch thinking off.
        extra_body: Any further fields of a request.
        timeout: Seconds a request may take. None: the SDK's ten minutes.
        max_retries: How often a request is repeated after a connection failure or a busy server.
        default_headers: Sent with each request.
        model_info: Entries that replace what the client finds out about the model.
        add_name_prefixes: Begin each user message with its sender's name.
        include_name_in_message: Send the senders' names as `name` fields, which few templates show.
        **sampling: The sampling arguments of AutoGen's own client, such as `temperature`, `max_tokens` or `seed`.

    Raises:
        pydantic.ValidationError: An argument has the wrong type or is out of range.
        UsageError: An argument is one that only the client sets.
    """

    component_config_schema = VLLMClientConfig  # pyright: ignore[reportAssignmentType] - a component of its own
    component_provider_override = "agentloop_autogen.VLLMChatCompletionClient"
    component_version = 1

    def __init__(
        self,
        model: str,
        base_url: str = DEFAULT_BASE_URL,
        *,
        api_key: str | SecretStr | None = None,
        tool_mode: Literal["native", "guided"] = "native",
        alternate_roles: bool = False,
        max_model_len: int | None = None,
        priority: int | None = None,
        cache_salt: str | SecretStr | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        verdict_template_kwargs: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        default_headers: Mapping[str, str] | None = None,
        model_info: Mapping[str, object] | None = None,
        add_name_prefixes: bool = False,
        include_name_in_message: bool = False,
        **sampling: Unpack[CreateArguments],
    ) -> None:
        given: dict[str, Any] = {
            "model": model,
            "base_url": base_url,
            "api_key": api_key,
            "tool_mode": tool_mode,
            "alternate_roles": alternate_roles,
            "max_model_len": max_model_len,
            "priority": priority,
            "cache_salt": cache_salt,
            "chat_template_kwargs": chat_template_kwargs,
            "verdict_template_kwargs": verdict_template_kwargs,
            "extra_body": extra_body,
            "timeout": timeout,
            "max_retries": max_retries,
            "default_headers": default_headers,
            "model_info": model_info,
            "add_name_prefixes": add_name_prefixes,
            "include_name_in_message": include_name_in_message,
            **sampling,
        }
        self._config = VLLMClientConfig.model_validate({key: val for key, val in given.items() if val is not None})
        self._arguments = request_arguments(self._config)
        super().__init__(**base_arguments(self._config))
        self._look_up = ModelLookUp(self._client, self._config.model)
        self._memory = RefusalMemory()
        self._reasoning_field: str | None = None
        self._cached_prompt_tokens = 0

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoiceInput = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Ask the model once.

        Args:
            messages: The conversation.
            tools: Tools on offer.
            tool_choice: What the model may do with them; without tools it is not sent.
            json_output: True: any JSON object. A model class: JSON of its schema. Calls are not affected by it.
            extra_create_args: Further fields of the request, vLLM's own among them.
            cancellation_token: Cancelling it ends the request, and the server stops generating.

        Returns:
            A result whose content is tool calls or text, and whose usage is a `VLLMRequestUsage`.

        Raises:
            ModelServerError: The server refused the request; subclasses say why.
            UsageError: An extra argument or the tool choice cannot be sent.
            openai.OpenAIError: Any other failure.
        """
        request = self._planned(messages, tools, tool_choice, json_output, extra_create_args).whole()

        async def send(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            return body, await complete(self._client, body, cancellation_token)

        body, completion = await self._stepping_down(request, send)
        result = self._counted(request, read_whole(request, completion))
        log_call(body, completion, result)
        return result

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoiceInput = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        max_consecutive_empty_chunk_tolerance: int = 0,
        include_usage: bool | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Ask the model once and yield its text as it comes, reasoning between think tags; calls come at the end.

        Args:
            messages: The conversation.
            tools: Tools on offer.
            tool_choice: What the model may do with them; without tools it is not sent.
            json_output: True: any JSON object. A model class: JSON of its schema. Calls are not affected by it.
            extra_create_args: Further fields of the request, vLLM's own among them.
            cancellation_token: Cancelling it ends the request, and the server stops generating.
            max_consecutive_empty_chunk_tolerance: Ignored; empty chunks do no harm.
            include_usage: Whether to ask for token counts. None: yes, unless `stream_options` say otherwise.

        Yields:
            Pieces of text, and last a result whose usage is a `VLLMRequestUsage`.

        Raises:
            ModelServerError: The server refused the request or went away; subclasses say why.
            UsageError: An extra argument or the tool choice cannot be sent.
            openai.OpenAIError: Any other failure.
        """
        del max_consecutive_empty_chunk_tolerance
        request = self._planned(messages, tools, tool_choice, json_output, extra_create_args)
        request = request.streamed(include_usage=include_usage)

        async def send(body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
            stream = await open_stream(self._client, body, cancellation_token)
            log_stream_start(body)
            return chunks_of(stream, self._client, cancellation_token)

        reader = StreamReader(request)
        async with aclosing(await self._stepping_down(request, send)) as chunks:
            try:
                async for chunk in chunks:
                    for piece in reader.feed(chunk):
                        yield piece
            except Exception as error:  # noqa: BLE001 - translated where it is the server's, else raised as it is
                self._raise(error, during_reply=True)
        for piece in reader.rest():
            yield piece
        result = self._counted(request, reader.finish())
        log_stream_end(result)
        yield result

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do, as far as its name and the server's list tell; asks nobody."""
        served = self._look_up.served
        return info_for(self._config.model, served.root if served else None, self._config.model_info or {})

    @property
    def capabilities(self) -> ModelInfo:  # pyright: ignore[reportIncompatibleMethodOverride] - AutoGen's own type here is deprecated
        """The same as `model_info`, under AutoGen's older name."""
        return self.model_info

    @property
    def context_length(self) -> int | None:
        """Context length in tokens, None where the server does not say; it is asked once, for two seconds at most."""
        if self._config.max_model_len is None:
            self._look_up.look_up_now()
        served = self._look_up.served
        return self._config.max_model_len or (served.max_model_len if served else None)

    @property
    def cached_prompt_tokens(self) -> int:
        """Prompt tokens of all calls so far that the server took from its prefix cache, as far as it says so."""
        return self._cached_prompt_tokens

    @property
    def verdict_create_args(self) -> Mapping[str, Any]:
        """What a verifier passes with each of its calls: the thinking of reasoning models is switched off."""
        options = self._config.verdict_template_kwargs
        return {"chat_template_kwargs": dict(options)} if options else {}

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimate the tokens of a conversation from its length, rather too many than too few."""
        request = self._planned(messages, tools, "auto", None, None)
        texts = [*request.body["messages"], *request.body.get("tools", ())]
        size = sum(len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) for text in texts)
        return math.ceil(size / _BYTES_PER_TOKEN) + _TOKENS_PER_MESSAGE * len(texts)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimate the tokens left beside a conversation.

        Raises:
            ServerUnreachableError: The context length is not known, because no server says it.
        """
        length = self.context_length
        if length is None:
            problem = f"{self._config.base_url} does not say the context length of {self._config.model!r}"
            raise ServerUnreachableError(problem, setting="start the server, or give max_model_len")
        return length - self.count_tokens(messages, tools=tools)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_look_up": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._look_up = ModelLookUp(self._client, self._config.model)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config.model!r}, {self._config.base_url!r})"

    def _planned(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[Tool | ToolSchema],
        tool_choice: ToolChoiceInput,
        json_output: bool | type[BaseModel] | None,
        extra: Mapping[str, Any] | None,
    ) -> PlannedRequest:
        config = self._config
        wire = wire_messages(messages, name_prefixes=config.add_name_prefixes, reasoning_field=self._reasoning_field)
        wire = wire if config.include_name_in_message else without_names(wire)
        arguments = with_format(merged_arguments(self._arguments, extra or {}), json_output)
        body = {
            "model": config.model,
            "messages": one_system_first(wire),
            **arguments,
            **tool_fields(tools, tool_choice),
        }
        return PlannedRequest(
            body=body,
            guided=guiding_needed(body, always=config.tool_mode == "guided"),
            alternate_roles=config.alternate_roles,
        )

    async def _stepping_down(self, request: PlannedRequest, send: Callable[[dict[str, Any]], Awaitable[T]]) -> T:
        """Send a request, asking for less where the server refuses, and remember what it took."""
        await self._look_up.look_up()
        attempt = self._memory.first(request)
        first: Exception | None = None
        while True:
            try:
                reply = await send(request.at(attempt))
            except Exception as error:  # noqa: BLE001 - what asking for less does not mend is raised again
                lower = self._memory.lower(request, attempt, error)
                if lower is None:
                    # Where a format was refused to the last, the first refusal is the telling one.
                    self._raise(first if first and is_format_refusal(error) else error)
                first, attempt = first or error, lower
                continue
            self._memory.keep(request, attempt)
            return reply

    def _raise(self, error: Exception, *, during_reply: bool = False) -> NoReturn:
        config = self._config
        asked = Asked(base_url=config.base_url, model=config.model, served=self._look_up.names)
        told = in_our_words(error, asked, during_reply=during_reply)
        if told is None:
            raise error
        # A server that refuses a key repeats it; that must not stand in a traceback.
        raise told from (None if told.status_code in NO_ACCESS else error)

    def _counted(self, request: PlannedRequest, parts: ReplyParts) -> CreateResult:
        self._reasoning_field = parts.reasoning_field or self._reasoning_field
        if not request.allows_calls:
            # Some parsers look for calls although none were allowed.
            parts.calls = []
        usage = parts.usage
        self._total_usage = _sum(self._total_usage, usage)
        self._actual_usage = _sum(self._actual_usage, usage)
        self._cached_prompt_tokens += usage.cached_prompt_tokens or 0
        return to_result(parts, holds_json=request.holds_json)

    def _to_config(self) -> VLLMClientConfig:  # pyright: ignore[reportIncompatibleMethodOverride] - a component of its own
        return self._config.model_copy(deep=True)

    @classmethod
    def _from_config(cls, config: VLLMClientConfig) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride] - see above
        given = {name: getattr(config, name) for name in config.model_fields_set if name != "default_headers"}
        return cls(**given, default_headers=headers_of(config))


def _sum(one: RequestUsage, two: RequestUsage) -> RequestUsage:
    return RequestUsage(one.prompt_tokens + two.prompt_tokens, one.completion_tokens + two.completion_tokens)
