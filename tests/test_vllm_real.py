"""The package against a real vLLM server with a model that knows nothing: only forms are judged, never knowledge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Literal

import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage, ToolCallExecutionEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, LLMMessage, RequestUsage, UserMessage
from autogen_core.tools import FunctionTool
from pydantic import BaseModel

from agentloop_autogen import (
    AgentLoopAssistantAgent,
    Evidence,
    Failure,
    LoopConfig,
    ModelSlotVerifier,
    Slot,
    SlotState,
    SlotVerifier,
    StopReason,
    UnavailableVerdict,
    Verdict,
    VLLMChatCompletionClient,
)
from agentloop_autogen.errors import ContextTooLongError, UnknownModelError
from agentloop_autogen.models.vllm import VLLMRequestUsage
from agentloop_autogen.testing import ScriptedVerifier
from agentloop_autogen.verify.wire import parse_verdict

from .vllm_server import MODEL, RealVLLM

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

RUNNING = "vllm:num_requests_running"
QUERIES = "vllm:prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
AGENTS = 32

OPEN = Verdict(
    answer_complete=False,
    need_tool=True,
    confidence=0.9,
    slots=(Slot(name="population", state=SlotState.MISSING),),
)
ASK: list[LLMMessage] = [UserMessage(content="Name three colours.", source="user")]

ToolMode = Literal["native", "guided"]
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
both_modes = pytest.mark.parametrize("tool_mode", ["native", "guided"])


def population(city: str) -> str:
    """Return the population of a city."""
    return f"{city} has {sum(map(ord, city))} inhabitants"


TOOL = FunctionTool(population, description="Return the population of a city.")


class Colours(BaseModel):
    """A structured answer."""

    first: str
    second: str


@asynccontextmanager
async def client_of(server: RealVLLM, **options: Any) -> AsyncGenerator[VLLMChatCompletionClient]:
    """Open a client that answers briefly and always in the same way."""
    settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, **options}
    client = VLLMChatCompletionClient(MODEL, server.base_url, **settings)
    try:
        yield client
    finally:
        await client.close()


def judge_on(client: VLLMChatCompletionClient, *, calibrated: bool = False) -> ModelSlotVerifier:
    """Return a verifier whose verdicts are short enough for two CPUs."""
    return ModelSlotVerifier(
        client,
        max_slots=1,
        max_quote_chars=24,
        timeout_s=300,
        extra_create_args={"max_tokens": 200},
        calibrated_confidence=calibrated,
    )


async def until(true: Callable[[], bool], *, within_s: float) -> float:
    """Wait until something is true and return how long that took."""
    start = time.monotonic()
    while not await asyncio.to_thread(true):
        if time.monotonic() - start > within_s:
            pytest.fail(f"not within {within_s} s")
        await asyncio.sleep(0.02)
    return time.monotonic() - start


@both_ways
@both_modes
async def test_an_agent_runs_to_its_answer(vllm_server: RealVLLM, tool_mode: ToolMode, stream: bool) -> None:
    """A run calls the tool, is judged by the real verifier and ends with an answer, in every mode."""
    async with client_of(vllm_server, tool_mode=tool_mode) as client:
        agent = AgentLoopAssistantAgent(
            "bot",
            client,
            tools=[population],
            verifier=judge_on(client),
            loop=LoopConfig(max_rounds=3, timeout_s=300, verifier_timeout_s=120),
            model_client_stream=stream,
        )
        messages = [message async for message in agent.run_stream(task="population of Cc")]
    outcome = agent.last_outcome
    assert outcome is not None
    assert outcome.stop_reason is not StopReason.FAILED
    assert outcome.tool_calls >= 1
    results = [
        result for message in messages if isinstance(message, ToolCallExecutionEvent) for result in message.content
    ]
    assert "Cc has 166 inhabitants" in [result.content for result in results]
    texts = [message for message in messages if isinstance(message, TextMessage)]
    assert texts[-1].content.strip()
    assert any(isinstance(message, ModelClientStreamingChunkEvent) for message in messages) is stream
    assert all(
        usage.prompt_tokens > 0 and usage.completion_tokens > 0 for usage in outcome.usage.values() if usage.total
    )
    assert outcome.usage["agent"].prompt_tokens > 0


@both_ways
async def test_the_answer_call_goes_out_without_tools(vllm_server: RealVLLM, stream: bool) -> None:
    """A history with calls and results is answered in text by a request that offers no tools."""
    async with client_of(vllm_server) as client:
        agent = AgentLoopAssistantAgent(
            "bot",
            client,
            tools=[population],
            verifier=ScriptedVerifier([OPEN]),
            loop=LoopConfig(max_rounds=1, timeout_s=300),
            model_client_stream=stream,
        )
        result = await agent.run(task="population of Cc")
    outcome = agent.last_outcome
    assert outcome is not None
    assert (outcome.stop_reason, outcome.rounds, outcome.tool_calls) == (StopReason.BUDGET, 1, 1)
    assert outcome.synthesis_calls >= 1
    assert isinstance(result.messages[-1], TextMessage)
    assert "tool_call" not in result.messages[-1].content


async def test_every_verdict_is_readable(vllm_server: RealVLLM) -> None:
    """Held to the schema, even a model without understanding gives a verdict every time."""
    texts = ["", "It has 48,210 inhabitants.", "I do not know.", "{}", "48210 <think>", "人口は48210人です。"]
    evidence = [Evidence(id="e1", tool="population", is_error=False, finding="Vennholm has 48,210 inhabitants.")]
    async with client_of(vllm_server) as client:
        verifier = judge_on(client)
        verdicts = await asyncio.gather(
            *(verifier.verify("How many people live in Vennholm?", text, evidence) for text in texts)
        )
    assert [verdict for verdict in verdicts if isinstance(verdict, UnavailableVerdict)] == []
    assert all(verdict.slots for verdict in verdicts)


async def test_the_confidence_can_come_from_the_probabilities(
    vllm_server: RealVLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for, the server's log probabilities replace the confidence the model states, and nothing else."""
    evidence = [Evidence(id="e1", tool="population", is_error=False, finding="Vennholm has 48,210 inhabitants.")]
    replies: list[CreateResult] = []
    async with client_of(vllm_server) as client:
        create = client.create

        async def noted(*args: Any, **options: Any) -> CreateResult:
            replies.append(await create(*args, **options))
            return replies[-1]

        monkeypatch.setattr(client, "create", noted)
        measured = await judge_on(client, calibrated=True).verify("How many people live there?", "", evidence)
    # The same reply read without its probabilities: this model need not write the same twice.
    said = [parse_verdict(str(reply.content), draft="").verdict for reply in replies]
    stated = next(verdict for verdict in reversed(said) if verdict is not None)
    assert (measured.answer_complete, measured.need_tool) == (stated.answer_complete, stated.need_tool)
    assert measured.confidence != stated.confidence
    assert 0 < measured.confidence < 1


@both_ways
async def test_structured_output_fits_its_schema(vllm_server: RealVLLM, stream: bool) -> None:
    """A model class as output format gives JSON of that class."""
    async with client_of(vllm_server, max_tokens=120) as client:
        if stream:
            pieces = [piece async for piece in client.create_stream(ASK, json_output=Colours)]
            result = pieces[-1]
            assert isinstance(result, CreateResult)
        else:
            result = await client.create(ASK, json_output=Colours)
    assert Colours.model_validate_json(str(result.content)).first is not None


@pytest.mark.parametrize("choice", ["required", "none", TOOL], ids=["required", "none", "named"])
async def test_every_tool_choice_is_taken(vllm_server: RealVLLM, choice: Any) -> None:
    """The server takes each choice; calls come back exactly where they were allowed."""
    async with client_of(vllm_server) as client:
        asked: list[LLMMessage] = [UserMessage(content="population of Cc", source="user")]
        result = await client.create(asked, tools=[TOOL], tool_choice=choice)
    if choice == "none":
        assert isinstance(result.content, str)
    else:
        assert isinstance(result.content, list)
        assert [call.name for call in result.content][:1] == ["population"]


async def test_counts_log_probabilities_and_fields_of_its_own(vllm_server: RealVLLM) -> None:
    """Tokens, cached tokens, log probabilities, priority, salt and template options work on the real server."""
    extra: Mapping[str, Any] = {"logprobs": True, "top_logprobs": 2, "priority": 0, "max_tokens": 5}
    long: list[LLMMessage] = [UserMessage(content="Name three colours. " * 40, source="user")]
    async with client_of(vllm_server, cache_salt="a") as client, client_of(vllm_server, cache_salt="b") as other:
        results = [
            await one.create(long, extra_create_args={**extra, **one.verdict_create_args})
            for one in (client, client, other)
        ]
        assert client.context_length == 8192
    assert all(result.logprobs and len(result.logprobs) == 5 for result in results)
    cached = [result.usage.cached_prompt_tokens for result in results if isinstance(result.usage, VLLMRequestUsage)]
    assert cached[0] == 0
    assert cached[1] is not None
    assert cached[1] > 100
    assert cached[2] == 0


async def test_refusals_are_recognised(vllm_server: RealVLLM) -> None:
    """The server's own words for a prompt that is too long and for an unknown model are understood."""
    async with client_of(vllm_server) as client:
        long: list[LLMMessage] = [UserMessage(content="many words " * 9_000, source="user")]
        for messages, extra in ((long, {}), (ASK, {"max_tokens": 9_000})):
            with pytest.raises(ContextTooLongError):
                await client.create(messages, extra_create_args=extra)
    unknown = VLLMChatCompletionClient("nobody", vllm_server.base_url)
    with pytest.raises(UnknownModelError, match=MODEL):
        await unknown.create(ASK)
    await unknown.close()


@both_ways
async def test_a_cancelled_run_frees_the_server(vllm_server: RealVLLM, stream: bool) -> None:
    """Within two seconds of the cancellation of a run nothing of it runs on the server any more."""
    token = CancellationToken()
    async with client_of(vllm_server, max_tokens=4_000, extra_body={"ignore_eos": True}) as client:
        agent = AgentLoopAssistantAgent("bot", client, verifier=ScriptedVerifier([OPEN]), model_client_stream=stream)
        run = asyncio.ensure_future(agent.run(task="Tell a very long story.", cancellation_token=token))
        await until(lambda: vllm_server.metrics()[RUNNING] > 0, within_s=20)
        token.cancel()
        took = await until(lambda: vllm_server.metrics()[RUNNING] == 0, within_s=2)
        with suppress(asyncio.CancelledError):
            await run
    assert run.cancelled()
    assert took <= 2


class OneRealCall(VLLMChatCompletionClient):
    """A client whose second call goes to the server and has no end; the others are scripted."""

    asked = 0

    def _scripted(self) -> CreateResult | None:
        self.asked += 1
        call = FunctionCall(id="c1", name="population", arguments='{"city": "Cc"}')
        content = {1: [call], 3: "It has 166 inhabitants."}.get(self.asked)
        if content is None:
            return None
        usage = RequestUsage(100, 10)
        return CreateResult(content=content, finish_reason="stop", usage=usage, cached=False)

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """Give the scripted reply, or ask."""
        return self._scripted() or await super().create(messages, **options)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Give the scripted reply, or ask."""
        scripted = self._scripted()
        if scripted is not None:
            yield scripted
            return
        async with aclosing(super().create_stream(messages, **options)) as pieces:
            async for piece in pieces:
                yield piece


class EndsOnceBusy(SlotVerifier):
    """A verifier that ends the run as soon as the server is at work."""

    def __init__(self, server: RealVLLM) -> None:
        self._server = server

    async def verify(self, *_: Any, **__: Any) -> Verdict:
        """Judge."""
        await until(lambda: self._server.metrics()[RUNNING] > 0, within_s=20)
        return Verdict(answer_complete=False, need_tool=False, confidence=0.9, failure=Failure.ANSWER_INCOMPLETE)


@both_ways
async def test_a_call_made_ahead_in_vain_frees_the_server(vllm_server: RealVLLM, stream: bool) -> None:
    """Within two seconds of the verdict that ends the run, nothing of the call made ahead of it runs any more."""
    client = OneRealCall(
        MODEL, vllm_server.base_url, temperature=0.0, max_tokens=4_000, extra_body={"ignore_eos": True}
    )
    agent = AgentLoopAssistantAgent(
        "bot",
        client,
        tools=[population],
        verifier=EndsOnceBusy(vllm_server),
        loop=LoopConfig(speculative=True),
        model_client_stream=stream,
    )
    await agent.run(task="population of Cc")
    took = await until(lambda: vllm_server.metrics()[RUNNING] == 0, within_s=2)
    await client.close()
    outcome = agent.last_outcome
    assert outcome is not None
    assert took <= 2
    assert (outcome.stop_reason, outcome.model_calls, outcome.dropped_calls) == (StopReason.SYNTHESISED, 2, 1)
    # The scripted call took 100; the prompt of the one broken off is longer.
    assert outcome.usage["agent"].prompt_tokens > 200


async def test_many_agents_share_one_server(vllm_server: RealVLLM) -> None:
    """Agents that run at the same time, with one client and one verifier, all finish, each with results of its own."""
    cities = [f"{first}{second}" for first in "BCDFGHKL" for second in "aeio"]
    assert len(cities) == AGENTS
    async with client_of(vllm_server, max_tokens=48, tool_mode="guided") as client:
        verifier = judge_on(client)

        async def run(city: str) -> tuple[AgentLoopAssistantAgent, list[str]]:
            def population(city: str) -> str:
                return f"{tag}: {city} has {sum(map(ord, city))} inhabitants"

            # The model asks for whatever it likes; whose result it is, the tag tells.
            tag = f"register of {city}"
            agent = AgentLoopAssistantAgent(
                f"bot_{city}",
                client,
                tools=[FunctionTool(population, description="Return the population of a city.")],
                system_message="Call population for the city.",
                verifier=verifier,
                loop=LoopConfig(max_rounds=1, timeout_s=390, verifier_timeout_s=300),
            )
            result = await agent.run(task=f"population of {city}")
            events = [event for event in result.messages if isinstance(event, ToolCallExecutionEvent)]
            return agent, [one.content for event in events for one in event.content]

        runs = await asyncio.gather(*(run(city) for city in cities))
    outcomes = [agent.last_outcome for agent, _ in runs]
    failures = [one for one in outcomes if one is None or one.stop_reason is StopReason.FAILED]
    assert failures == []
    verdicts = [decision.verdict for one in outcomes if one for decision in one.decisions]
    # A reply that was neither a call nor a text leaves nothing to judge.
    assert [one for one in verdicts if isinstance(one, UnavailableVerdict)] == []
    assert sum(one is not None for one in verdicts) > AGENTS / 2
    for city, (_, results) in zip(cities, runs, strict=True):
        assert [result for result in results if not result.startswith(f"register of {city}:")] == []
    assert sum(bool(results) for _, results in runs) > AGENTS / 2


async def test_the_prefix_cache_serves_most_of_a_long_run(
    vllm_server: RealVLLM, record_property: Callable[[str, object], None]
) -> None:
    """Over ten rounds with a real verifier, most prompt tokens come from the cache."""
    before = vllm_server.metrics()
    async with client_of(vllm_server, tool_mode="guided") as client:
        agent = AgentLoopAssistantAgent(
            "bot",
            client,
            tools=[population],
            verifier=judge_on(client),
            # Nothing but the number of rounds may end this run.
            loop=LoopConfig(max_rounds=10, patience=50, max_reflections=50, timeout_s=390, verifier_timeout_s=300),
        )
        await agent.run(task="population of Cc")
    after = vllm_server.metrics()
    queries, hits = after[QUERIES] - before[QUERIES], after[HITS] - before[HITS]
    assert agent.last_outcome is not None
    rounds = agent.last_outcome.rounds
    record_property("prefix_cache", f"{hits:.0f} of {queries:.0f} prompt tokens in {rounds} rounds")
    print(f"prefix cache: {hits:.0f} of {queries:.0f} prompt tokens ({hits / queries:.0%}) in {rounds} rounds")  # noqa: T201 - the figure of the documentation
    assert rounds == 10
    assert hits > 0.5 * queries
