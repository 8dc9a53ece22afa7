"""One run of a controlled agent: Algorithm 1 of the paper, with everything that belongs to this run alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autogen_agentchat.base import Handoff, Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)
from autogen_core import CancellationToken, FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.models import RequestUsage as ModelUsage
from autogen_core.tools import BaseTool, Workbench
from pydantic import BaseModel

from agentloop_autogen.agent import prompts
from agentloop_autogen.agent.answer import AnswerWriter
from agentloop_autogen.agent.clock import RunClock
from agentloop_autogen.agent.context import Overlay
from agentloop_autogen.agent.model_call import ModelCall
from agentloop_autogen.agent.past import PastRequests, second_look
from agentloop_autogen.agent.planning import Planned, PlanningFailed, SearchOver, plan
from agentloop_autogen.agent.reply import failed, handed_off, replied
from agentloop_autogen.agent.request import RunRequest
from agentloop_autogen.agent.speculation import Speculation, is_wanted
from agentloop_autogen.agent.teammates import HandedOver
from agentloop_autogen.agent.tool_round import execute_tools, round_of
from agentloop_autogen.agent.tools import ToolRunner
from agentloop_autogen.agent.verification import verdict_on
from agentloop_autogen.core.budget import Budget, Limit
from agentloop_autogen.core.config import LoopConfig, Policy
from agentloop_autogen.core.controller import LoopController
from agentloop_autogen.core.reconcile import is_unwritten
from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    LoopOutcome,
    RequestUsage,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.instrumentation import Scope, record_decision
from agentloop_autogen.messages import ControlEvent
from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["AgentParts", "Run"]

Emit = Callable[[BaseAgentEvent | BaseChatMessage], Awaitable[None]]


@dataclass(frozen=True)
class AgentParts:
    """What a run borrows from its agent."""

    name: str
    config: LoopConfig
    model_client: ChatCompletionClient
    model_client_stream: bool
    verifier: SlotVerifier
    system_messages: Sequence[SystemMessage]
    model_context: ChatCompletionContext
    workbenches: Sequence[Workbench]
    handoff_tools: Sequence[BaseTool[Any, Any]]
    handoffs: dict[str, Handoff]
    output_type: type[BaseModel] | None
    output_format: str | None
    summarises: bool
    """Whether tool results are summarised instead of answered from (`reflect_on_tool_use=False`)."""
    check_handoff: Callable[[CreateResult, list[tuple[FunctionCall, FunctionExecutionResult]]], Response | None]
    summarise: Callable[[list[tuple[FunctionCall, FunctionExecutionResult]]], Response]


@dataclass
class Run:
    """One run: its request, its budget, its controller, and the messages it sends. Nothing of it outlives it."""

    parts: AgentParts
    about: RunRequest
    handed_over: HandedOver
    emit_event: Emit
    token: CancellationToken
    clock: RunClock
    inner_messages: list[BaseAgentEvent | BaseChatMessage]
    past: PastRequests
    overlay: Overlay = field(default_factory=Overlay)
    executed: list[tuple[FunctionCall, FunctionExecutionResult]] = field(
        default_factory=list["tuple[FunctionCall, FunctionExecutionResult]"]
    )
    planned: Planned | None = None
    round_messages: tuple[LLMMessage, ...] = ()
    pending_usage: RequestUsage = field(default_factory=RequestUsage)
    outcome: LoopOutcome | None = None
    """How the run ended; None until it has."""

    def __post_init__(self) -> None:
        self.budget = Budget(self.parts.config)
        self.ahead = Speculation(self)
        self.controller = LoopController(self.parts.config, request=self.about.text)
        self.tools = ToolRunner(self.parts.workbenches, self.parts.handoff_tools, emit=self.emit, token=self.token)

    async def execute(self) -> Response:
        """Run the loop to its end and return the reply (Algorithm 1; the numbers are its lines)."""
        try:
            if (decision := await self.answers_first()) is not None:
                return await replied(self, decision)
            while True:
                planned = await self.plan()  # 11: the model produces a draft, calls, or both
                results = await execute_tools(self, planned)  # 12: tools run, evidence is compressed
                if (handoff := await handed_off(self, planned, results)) is not None:
                    return handoff
                self.controller.observe(round_of(self, planned, results))  # 15: stability, novelty, patterns
                verdict = await self.verify(planned)  # 13: what is covered, what is missing
                decision = await self.decide(verdict, planned)  # 14, 17: closure and the control action
                if decision.action is not ControlAction.CONTINUE_INVOCATION:
                    return await replied(self, decision)  # 20-25: synthesise, or return the grounded answer
                await self.go_on(decision, planned)  # 18-19: the next round is told what is open
        except SearchOver:
            action = ControlAction.TERMINATE_ITERATION if self.controller.draft else ControlAction.ANSWER_SYNTHESIS
            reason = f"ran out of {Limit.TIME.value}"
            return await replied(self, await self.stop_early(ControlBranch.BUDGET_BREAK, reason, action=action))
        except PlanningFailed as failure:
            return await failed(self, failure.problem, failure.error)
        finally:
            await self.ahead.drop()  # a run that is cancelled leaves no call behind

    # --- events and usage ----------------------------------------------------------------------------------------

    async def emit(self, event: BaseAgentEvent | BaseChatMessage) -> None:
        """Send an event and keep it for the response; a call left behind has nobody to send to."""
        if self.outcome is not None:
            return
        self.inner_messages.append(event)
        await self.emit_event(event)

    def take_usage(self) -> ModelUsage:
        """Return the tokens no message carries yet; the caller's message does from now on."""
        usage, self.pending_usage = self.pending_usage, RequestUsage()
        return ModelUsage(usage.prompt_tokens, usage.completion_tokens)

    def usage_by_role(self) -> dict[str, RequestUsage]:
        """Return the tokens so far by role."""
        return {role.value: usage for role, usage in self.budget.usage.items()}

    def search_s(self) -> float:
        """Return the seconds left for the search."""
        return self.budget.search_s - self.clock.elapsed_s

    # --- planning ------------------------------------------------------------------------------------------------

    async def plan(self) -> Planned:
        """Return the planning of a round: the reply made ahead of the decision where it is wanted, else a new one."""
        await self.clock.running()
        self.budget.rounds += 1
        return await self.ahead.reply() or await plan(self)

    # --- verdict and decision ------------------------------------------------------------------------------------

    async def verify(self, planned: Planned) -> Verdict | None:
        """Ask the verifier about the round just observed; None where it need not be asked."""
        if not self.controller.needs_verdict():
            return None
        await self.clock.running()
        if self.search_s() <= 0:
            raise SearchOver
        self.ahead.begin(planned)
        verdict = await verdict_on(self)
        if isinstance(verdict, UnavailableVerdict) and self.search_s() <= 0:
            raise SearchOver
        return verdict

    async def answers_first(self) -> Decision | None:
        """Return the decision to write the answer at once, where teammates have found all of it; None to plan."""
        given = self.handed_over
        self.controller.inform(given.evidence)
        config = self.parts.config
        controlled = config.policy is Policy.EXTENDED and config.slot_control
        if not controlled or self.parts.summarises or not self.budget.answer_calls_left():
            return None
        if given.verdict is not None and is_unwritten(given.verdict):
            decision = self.controller.decide_first(given.verdict, settled=True)
        elif given.worth_judging:
            await self.clock.running()
            decision = self.controller.decide_first(await verdict_on(self))
        else:
            return None
        if decision is not None:
            # What teammates merely said is no source: the answer is on the user's words, from the evidence.
            self.about = replace(self.about, text=self.about.task)
            await self.announce(decision)
        return decision

    async def decide(self, verdict: Verdict | None, planned: Planned) -> Decision:
        """Return the decision on the round, after the budgets had their say."""
        candidates = await second_look(self, verdict, planned)
        decision = self.controller.decide(verdict, candidates=candidates)
        if decision.action is ControlAction.CONTINUE_INVOCATION:
            limit = self.budget.after_round(elapsed_s=self.clock.elapsed_s, reflects=not planned.reply.calls)
            if limit is not None:
                decision = self.controller.stop_for_budget(limit)
        # What was planned ahead knows nothing of an item that only past requests named.
        if candidates or not is_wanted(decision, drops_round=self._drops_round(decision)):
            await self.ahead.drop()
        await self.announce(decision)
        return decision

    async def stop_early(self, branch: ControlBranch, reason: str, *, action: ControlAction) -> Decision:
        """Return the decision of a run that ends in a round no rule was asked about."""
        await self.ahead.drop()
        decision = self.controller.stop_early(branch, reason, action=action)
        await self.announce(decision)
        return decision

    async def announce(self, decision: Decision) -> None:
        """Tell whoever watches of the decision, and put it into the stream where that was asked for."""
        record_decision(
            decision,
            source=self.parts.name,
            scope=Scope.AGENT,
            depth=self.budget.rounds,
            tokens=sum(usage.total for usage in self.budget.usage.values()),
        )
        if self.parts.config.emit_control_events:
            await self.emit(ControlEvent(source=self.parts.name, decision=decision, usage=self.usage_by_role()))

    # --- the next round ------------------------------------------------------------------------------------------

    async def go_on(self, decision: Decision, planned: Planned) -> None:
        """Prepare the next round: what is open goes to the end of its prompt, what was unstable out of it."""
        self.overlay.note = ""
        rolls_back = decision.branch is ControlBranch.ROLLBACK_RETRY
        if not planned.reply.calls:
            await self._send_back(decision, planned, keeps_draft=not rolls_back)
            return
        if self._drops_round(decision):
            self.overlay.drop(*self.round_messages)
        if decision.branch is ControlBranch.NUDGE:
            await self._add(UserMessage(content=self._nudge(decision), source="user"))
        elif self.parts.config.policy is Policy.EXTENDED:
            self.overlay.note = prompts.open_slots_note(
                decision.verdict,
                decision.branch,
                unused_tools=self._unused_tools() if self.controller.in_vain else (),
                in_vain=self.controller.in_vain,
                repeated=self.controller.repeated,
                newest=self.controller.newest,
                closers=self._closers(),
            )

    def _drops_round(self, decision: Decision) -> bool:
        # What a model has before it twice it writes a third time, so a repetition is told of and not shown.
        rolls_back = decision.branch is ControlBranch.ROLLBACK_RETRY and not self.controller.brought_news
        return rolls_back or self.controller.repeated > 0

    async def _send_back(self, decision: Decision, planned: Planned, *, keeps_draft: bool) -> None:
        self.budget.reflections += 1
        reply = planned.reply
        if reply.draft:
            await self.show_draft(reply.draft)
            if keeps_draft:
                await self._add(AssistantMessage(content=reply.draft, source=self.parts.name))
        if decision.branch is ControlBranch.NUDGE:
            feedback = self._nudge(decision)
        else:
            feedback = prompts.reflection(
                decision.verdict,
                decision.branch,
                blank=not reply.draft,
                markup=reply.markup,
                looked_up=not self.controller.unsupported,
                unused_tools=self._unused_tools(),
                closers=self._closers(),
            )
        await self._add(UserMessage(content=feedback, source="user"))

    async def show_draft(self, draft: str) -> None:
        """Send a draft that is not the reply as a thought, once, with the id of its chunks and the tokens it cost."""
        if self.planned is None:
            return
        identity, self.planned = self.planned.message_id, None
        usage = self.take_usage()
        await self.emit(ThoughtEvent(content=draft, source=self.parts.name, models_usage=usage, id=identity))

    async def _add(self, message: LLMMessage) -> None:
        conversation = await self.parts.model_context.get_messages()
        self.overlay.add(conversation[-1] if conversation else None, message)

    def _nudge(self, decision: Decision) -> str:
        return prompts.nudge(
            decision.verdict,
            tried=self.controller.tried,
            unused_tools=self._unused_tools(),
            closers=self._closers(),
            rounds=decision.fruitless,
        )

    def _unused_tools(self) -> list[str]:
        used = {call.name for call, _ in self.controller.tried}
        return [name for name in self.tools.names if name not in used]

    def _closers(self) -> list[str]:
        return self.past.closers(self._unused_tools())

    def model_call(self, emit: Callable[[ModelClientStreamingChunkEvent], Awaitable[None]]) -> ModelCall:
        """Return what calls the model of this run.

        Args:
            emit: Takes the chunks of a streamed reply.
        """
        return ModelCall(
            self.parts.model_client,
            source=self.parts.name,
            stream=self.parts.model_client_stream,
            emit=emit,
            token=self.token,
        )

    def answer_writer(self) -> AnswerWriter:
        """Return what writes the answer of this run."""
        return AnswerWriter(
            self.model_call(self.emit_event),
            self.parts.model_client,
            budget=self.budget,
            token=self.token,
            remaining_s=lambda: self.parts.config.timeout_s - self.clock.elapsed_s,
            limit=self.parts.config.max_evidence_chars + len(self.about.text),
        )
