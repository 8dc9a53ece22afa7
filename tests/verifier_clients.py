"""Model clients for tests of the verifier: scripted, raising, replaying, or talking to the fake server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient

from agentloop_autogen.core.records import Evidence, Verdict
from agentloop_autogen.verify import ModelSlotVerifier

from .fake_openai import FakeOpenAI, Reply

CLOSED: dict[str, Any] = {
    "slots": [{"name": "height", "evidence": ["e1"], "quote": "324 m", "state": "supported"}],
    "missing": [],
    "failure": "ok",
    "need_tool": False,
    "answer_complete": True,
    "confidence": 0.9,
}
CLOSED_TEXT = json.dumps(CLOSED)
BOTH_TEXT = json.dumps({**CLOSED, "need_tool": True})
OPEN_TEXT = json.dumps({"answer_complete": False, "need_tool": True, "missing": ["height"], "confidence": 0.4})
EVIDENCE = (Evidence(id="e1", tool="search", is_error=False, finding="The tower is 324 m high."),)
ASKED = ("How high is the tower?", "It is 324 m high.", EVIDENCE)
SAID = CreateResult(
    finish_reason="stop", content=CLOSED_TEXT, usage=RequestUsage(prompt_tokens=7, completion_tokens=3), cached=False
)


def info(*, structured: bool = True, json_output: bool = True) -> ModelInfo:
    """A model that claims the given output formats."""
    return ModelInfo(
        vision=False, function_calling=True, json_output=json_output, structured_output=structured, family="unknown"
    )


class Client(ChatCompletionClient):
    """A client whose replies come from a function of the call, and that remembers what it was given."""

    def __init__(self, answer: Callable[[int, dict[str, Any]], Awaitable[CreateResult]], **claims: bool) -> None:
        self._answer = answer
        self._info = info(**claims)
        self.calls: list[dict[str, Any]] = []

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:  # pyright: ignore[reportIncompatibleMethodOverride]  # the fake records whatever it is given
        """Record the call and answer it."""
        self.calls.append({"messages": messages, **options})
        return await self._answer(len(self.calls), self.calls[-1])

    async def create_stream(self, messages: Sequence[LLMMessage], **options: Any) -> AsyncGenerator[str | CreateResult]:  # pyright: ignore[reportIncompatibleMethodOverride]  # never called
        """A verifier does not stream."""
        raise AssertionError
        yield ""

    async def close(self) -> None:
        """Nothing to close."""

    def actual_usage(self) -> RequestUsage:
        """Not asked for."""
        raise AssertionError

    def total_usage(self) -> RequestUsage:
        """Not asked for."""
        raise AssertionError

    def count_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]  # never called
        """A verifier never counts tokens: unknown models raise."""
        raise AssertionError

    def remaining_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]  # never called
        """A verifier never counts tokens: unknown models raise."""
        raise AssertionError

    @property
    def capabilities(self) -> ModelInfo:  # pyright: ignore[reportIncompatibleMethodOverride]  # deprecated upstream
        """Not asked for."""
        raise AssertionError

    @property
    def model_info(self) -> ModelInfo:
        """What the fake claims."""
        return self._info


def raising(*errors: BaseException | type[BaseException] | None, **claims: bool) -> Client:
    """A client that raises these in turn, and answers where there is None and afterwards."""

    async def answer(number: int, _: Mapping[str, Any]) -> CreateResult:
        error = errors[number - 1] if number <= len(errors) else None
        if error is not None:
            raise error
        return SAID

    return Client(answer, **claims)


def replay(*replies: str | CreateResult, **claims: bool) -> ReplayChatCompletionClient:
    """A replay client with these replies."""
    return ReplayChatCompletionClient(list(replies), model_info=info(**claims))


@asynccontextmanager
async def serving(
    script: Sequence[Reply | str], *, key: str = "key", named: bool = True, **rules: Any
) -> AsyncGenerator[tuple[FakeOpenAI, OpenAIChatCompletionClient]]:
    """A fake server and a client of it, both closed afterwards."""
    with FakeOpenAI(script, **rules) as server:
        client = OpenAIChatCompletionClient(
            model="fake",
            base_url=server.base_url,
            api_key=key,
            max_retries=0,
            model_info=info(),
            include_name_in_message=named,
        )
        try:
            yield server, client
        finally:
            await client.close()


class Refused(Exception):
    """A client's error with a status."""

    def __init__(self, status_code: int, message: str = "refused") -> None:
        self.status_code = status_code
        super().__init__(message)


async def verdict_from(client: ChatCompletionClient, **options: Any) -> Verdict:
    """Ask once."""
    return await ModelSlotVerifier(client, **options).verify(*ASKED)
