"""The drop-in `AssistantAgent` whose loop is controlled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.agents._assistant_agent import (  # AutoGen exports the class, but not its config
    AssistantAgentConfig,
)
from autogen_agentchat.base import Handoff, Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    StructuredMessage,
    StructuredMessageFactory,
    TextMessage,
    ToolCallSummaryMessage,
)
from autogen_agentchat.state import AssistantAgentState
from autogen_core import CancellationToken, ComponentModel, FunctionCall
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, FunctionExecutionResult
from autogen_core.tools import BaseTool, Workbench
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import Self

from agentloop_autogen.agent.bounded import EventChannel
from agentloop_autogen.agent.clock import RunClock
from agentloop_autogen.agent.past import PastRequests, finished
from agentloop_autogen.agent.request import read_request
from agentloop_autogen.agent.run import AgentParts, Run
from agentloop_autogen.agent.teammates import read_handed_over
from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.normalise import bounded_text
from agentloop_autogen.core.records import LoopOutcome
from agentloop_autogen.slots.manager import HintLookup, manager_for, model_name
from agentloop_autogen.slots.saving import dumped_store
from agentloop_autogen.slots.store import SlotStateStore
from agentloop_autogen.verify.base import SlotVerifier
from agentloop_autogen.verify.model_verifier import ModelSlotVerifier
from agentloop_autogen.verify.saving import dumped_verifier
from agentloop_autogen.waiting import GRACE_S, stop_task

__all__ = ["AgentLoopAgentState", "AgentLoopAssistantAgent", "AgentLoopAssistantAgentConfig"]

_LOCK_TICKS = 5
_VERIFIER_SHARE = 0.9
"""Of the time of a verifier call, for its own model calls: what it knows by then it can still say."""
_SUMMARY_RESULT_CHARS = 1_000

Event = BaseAgentEvent | BaseChatMessage


class AgentLoopAssistantAgentConfig(AssistantAgentConfig):
    """The declarative configuration of an `AgentLoopAssistantAgent`: AutoGen's own with loop, verifier and store."""

    description: str = "An agent that provides assistance with ability to use tools."
    tool_call_summary_format: str = "{result}"
    # None means "answer with a model call", which a bool cannot say; AutoGen's config turns it into False.
    reflect_on_tool_use: bool | None = None  # pyright: ignore[reportIncompatibleVariableOverride] - wider on purpose
    # None means "as many as `loop.max_rounds` says"; AutoGen's default of 1 would end every run after one round.
    max_tool_iterations: int | None = Field(default=None, ge=1)  # pyright: ignore[reportIncompatibleVariableOverride] - wider on purpose
    verifier: ComponentModel | None = None
    loop: LoopConfig = Field(default_factory=LoopConfig)
    slot_store: ComponentModel | None = None


class AgentLoopAgentState(AssistantAgentState):
    """State of an `AgentLoopAssistantAgent`: a superset of AutoGen's, so either agent loads the other's."""

    type: str = Field(default="AgentLoopAgentState")
    last_outcome: LoopOutcome | None = None


class AgentLoopAssistantAgent(AssistantAgent):
    """An AssistantAgent that decides after every round whether to go on, to write the answer or to stop.

    Takes every keyword of AutoGen's `AssistantAgent` with the same meaning, and four of its own.

    Args:
        name: Name of the agent.
        model_client: The model it plans and answers with.
        verifier: Judges after a round what is covered and what is missing. None: `ModelSlotVerifier(model_client)`.
        loop: The settings of the loop. None: `LoopConfig()`.
        max_tool_iterations: Rounds at most; overrides `loop.max_rounds`. None: what `loop` says.
        slot_store: Keeps in brief what each finished run needed, and gives it to later runs with a similar request as a
            hint, which can keep a run going for one more round and name a tool it has not used, and nothing else. It
            stays the caller's to close. None: nothing is kept.
        reflect_on_tool_use: False: where an answer would be written from tool results, a `ToolCallSummaryMessage` of
            all of them is sent instead. None and True: the answer is written.
        output_content_type: Type of the reply; applied to the answer call only, never to tool rounds.

    Raises:
        ValueError: As AutoGen's `AssistantAgent` does, and for a `max_tool_iterations` below 1.
        UsageError: `slot_store` is no `SlotStateStore`.

    After a run `last_outcome` says why it ended; the reply's `metadata` carries the same in `agentloop.*` strings. A
    fault of the model, the verifier or a tool ends in a reply, never in an exception; cancelling raises
    `asyncio.CancelledError`, and a second run of an agent that is running raises `RuntimeError`.
    """

    component_config_schema = AgentLoopAssistantAgentConfig
    component_provider_override = "agentloop_autogen.AgentLoopAssistantAgent"
    component_version = 1

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        verifier: SlotVerifier | None = None,
        loop: LoopConfig | None = None,
        max_tool_iterations: int | None = None,
        slot_store: SlotStateStore | None = None,
        tools: list[BaseTool[Any, Any] | Callable[..., Any] | Callable[..., Awaitable[Any]]] | None = None,
        workbench: Workbench | Sequence[Workbench] | None = None,
        handoffs: list[Handoff | str] | None = None,
        model_context: ChatCompletionContext | None = None,
        description: str = "An agent that provides assistance with ability to use tools.",
        system_message: str | None = (
            "You are a helpful AI assistant. Solve tasks using your tools. "
            "Reply with TERMINATE when the task has been completed."
        ),
        model_client_stream: bool = False,
        reflect_on_tool_use: bool | None = None,
        tool_call_summary_format: str = "{result}",
        tool_call_summary_formatter: Callable[[FunctionCall, FunctionExecutionResult], str] | None = None,
        output_content_type: type[BaseModel] | None = None,
        output_content_type_format: str | None = None,
        memory: Sequence[Memory] | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        self._loop = loop or LoopConfig()
        super().__init__(
            name,
            model_client,
            tools=tools,
            workbench=workbench,
            handoffs=handoffs,
            model_context=model_context,
            description=description,
            system_message=system_message,
            model_client_stream=model_client_stream,
            reflect_on_tool_use=reflect_on_tool_use,
            max_tool_iterations=self._loop.max_rounds if max_tool_iterations is None else max_tool_iterations,
            tool_call_summary_format=tool_call_summary_format,
            tool_call_summary_formatter=tool_call_summary_formatter,
            output_content_type=output_content_type,
            output_content_type_format=output_content_type_format,
            memory=memory,
            metadata=metadata,
        )
        if max_tool_iterations is not None:
            self._loop = self._loop.model_copy(update={"max_rounds": max_tool_iterations})
        self._summarises = reflect_on_tool_use is False
        self._reflects = reflect_on_tool_use
        self._given_verifier = verifier
        self._verifier = verifier or ModelSlotVerifier(
            model_client, timeout_s=_VERIFIER_SHARE * self._loop.verifier_timeout_s
        )
        self._slot_store = slot_store
        self._slots = None if slot_store is None else manager_for(slot_store, self._loop)
        self._clock: RunClock | None = None
        self._paused = False
        self._ending: asyncio.Future[Response] | None = None
        self._last_outcome: LoopOutcome | None = None

    @property
    def loop(self) -> LoopConfig:
        """The settings of the loop."""
        return self._loop

    @property
    def last_outcome(self) -> LoopOutcome | None:
        """How the last run ended; None before the first, after a reset, and after a run that was cancelled."""
        return self._last_outcome

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of messages the agent replies with; the structured one is the concrete type, as teams need it."""
        types: list[type[BaseChatMessage]] = [TextMessage, ToolCallSummaryMessage, HandoffMessage]
        if self._output_content_type is not None:
            types.append(StructuredMessage[self._output_content_type])  # type: ignore[name-defined]  # known at run time
        return types

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Run the loop on new messages, yielding its events and at last the response.

        Args:
            messages: The messages since the last call.
            cancellation_token: Cancels the run at whatever it is waiting for.

        Raises:
            RuntimeError: The agent is already running.
            asyncio.CancelledError: The run was cancelled.
        """
        await self._claim()
        channel: EventChannel[Event] = EventChannel()
        task = asyncio.ensure_future(self._run(messages, cancellation_token, channel))
        cancellation_token.link_future(task)
        try:
            async with aclosing(channel.events(task)) as events:
                async for event in events:
                    yield event
            response = task.result()
        finally:
            # Whoever stops reading, cancels or breaks off: nothing of the run goes on, and the agent is free again.
            self._ending = task
            try:
                await stop_task(task)
            finally:
                self._clock = self._ending = None
                self._is_running = False
        yield response

    async def _claim(self) -> None:
        for _ in range(_LOCK_TICKS):
            if not self._is_running:
                break
            # A stream that was just broken off is closed by the event loop a tick later, and then has to end.
            await (asyncio.sleep(0) if self._ending is None else asyncio.wait({self._ending}, timeout=GRACE_S))
        if self._is_running:
            message = f"agent {self.name!r} is already running; wait for its run to end, or use one agent for each run"
            raise RuntimeError(message)
        self._is_running = True
        self._last_outcome = None

    async def _run(
        self, messages: Sequence[BaseChatMessage], token: CancellationToken, channel: EventChannel[Event]
    ) -> Response:
        self._clock = clock = RunClock()
        if self._paused:
            clock.pause()
        await self._add_messages_to_context(self._model_context, messages)
        inner: list[Event] = []
        for event in await self._update_model_context_with_memory(self._memory, self._model_context, self.name):
            inner.append(event)
            await channel.send(event)
        about = read_request(messages, await self._model_context.get_messages())
        lookup = HintLookup() if self._slots is None else self._slots.look_up(about.task)
        run = Run(
            parts=self._parts(inner),
            about=about,
            past=PastRequests(lookup),
            handed_over=read_handed_over(messages, name=self.name),
            emit_event=channel.send,
            token=token,
            clock=clock,
            inner_messages=inner,
        )
        try:
            response = await run.execute()
        finally:
            lookup.close()
        self._last_outcome = outcome = run.outcome
        if self._slots is not None and outcome is not None:
            self._slots.keep(lambda: finished(run, outcome), model=model_name(self._model_client))
        return response

    def _parts(self, inner: list[Event]) -> AgentParts:
        def check_handoff(
            result: CreateResult, executed: list[tuple[FunctionCall, FunctionExecutionResult]]
        ) -> Response | None:
            return self._check_and_handle_handoff(result, executed, inner, self._handoffs, self.name)

        def summarise(executed: list[tuple[FunctionCall, FunctionExecutionResult]]) -> Response:
            shown = [(call, _bounded(result)) for call, result in executed]
            return self._summarize_tool_use(
                shown,
                inner,
                self._handoffs,
                self._tool_call_summary_format,
                self._tool_call_summary_formatter,
                self.name,
            )

        return AgentParts(
            name=self.name,
            config=self._loop,
            model_client=self._model_client,
            model_client_stream=self._model_client_stream,
            verifier=self._verifier,
            system_messages=self._system_messages,
            model_context=self._model_context,
            workbenches=self._workbench,
            handoff_tools=self._handoff_tools,
            handoffs=self._handoffs,
            output_type=self._output_content_type,
            output_format=self._output_content_type_format,
            summarises=self._summarises,
            check_handoff=check_handoff,
            summarise=summarise,
        )

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Hold the run before its next model, verifier or tool call; the clock of the run stands still meanwhile."""
        self._paused = True
        if self._clock is not None:
            self._clock.pause()

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Let a paused run go on."""
        self._paused = False
        if self._clock is not None:
            self._clock.resume()

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the conversation and the last outcome."""
        await super().on_reset(cancellation_token)
        self._last_outcome = None

    async def close(self) -> None:
        """Wait, for a few seconds at most, until the finished runs are written to the slot store."""
        await super().close()
        if self._slots is not None:
            await self._slots.drain()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state of the agent: AutoGen's, with the last outcome. A run under way is not part of it."""
        context = await self._model_context.save_state()
        return AgentLoopAgentState(llm_context=context, last_outcome=self._last_outcome).model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state saved by this class, by AutoGen's `AssistantAgent`, or by a newer version of either."""
        await super().load_state(state)
        self._last_outcome = None
        # A newer version's outcome may hold what this one does not know; the conversation is what counts.
        with suppress(ValidationError):
            outcome = state.get("last_outcome")
            self._last_outcome = None if outcome is None else LoopOutcome.model_validate(outcome)

    def _to_config(self) -> AgentLoopAssistantAgentConfig:
        if self._tool_call_summary_formatter is not None:
            message = (
                f"agent {self.name!r} cannot be saved: `tool_call_summary_formatter` is a function; "
                "give `tool_call_summary_format`, a format string, instead"
            )
            raise ValueError(message)
        base = super()._to_config().model_dump()
        base.update(
            reflect_on_tool_use=self._reflects,
            max_tool_iterations=None,
            verifier=dumped_verifier(self._given_verifier, owner=f"agent {self.name!r}"),
            loop=self._loop,
            slot_store=dumped_store(self._slot_store, owner=f"agent {self.name!r}"),
        )
        return AgentLoopAssistantAgentConfig.model_validate(base)

    @classmethod
    def _from_config(cls, config: AssistantAgentConfig) -> Self:
        ours = AgentLoopAssistantAgentConfig.model_validate(config.model_dump())
        factory = (
            StructuredMessageFactory.load_component(config.structured_message_factory)
            if config.structured_message_factory
            else None
        )
        return cls(
            config.name,
            ChatCompletionClient.load_component(config.model_client),
            verifier=SlotVerifier.load_component(ours.verifier) if ours.verifier else None,
            loop=ours.loop,
            max_tool_iterations=ours.max_tool_iterations,
            slot_store=SlotStateStore.load_component(ours.slot_store) if ours.slot_store else None,
            tools=[BaseTool.load_component(tool) for tool in config.tools] if config.tools else None,
            workbench=[Workbench.load_component(item) for item in config.workbench] if config.workbench else None,
            handoffs=config.handoffs,
            model_context=ChatCompletionContext.load_component(config.model_context) if config.model_context else None,
            description=config.description,
            system_message=config.system_message,
            model_client_stream=config.model_client_stream,
            reflect_on_tool_use=ours.reflect_on_tool_use,
            tool_call_summary_format=config.tool_call_summary_format,
            output_content_type=factory.ContentModel if factory else None,
            output_content_type_format=factory.format_string if factory else None,
            memory=[Memory.load_component(item) for item in config.memory] if config.memory else None,
            metadata=config.metadata,
        )


def _bounded(result: FunctionExecutionResult) -> FunctionExecutionResult:
    return result.model_copy(update={"content": bounded_text(result.content, _SUMMARY_RESULT_CHARS)})
