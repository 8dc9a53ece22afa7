"""The termination condition: the same loop control, seen from a team."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage
from autogen_agentchat.state import BaseState
from autogen_core import CancellationToken, Component, ComponentModel
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import Self

from agentloop_autogen.core.config import LoopConfig, Policy
from agentloop_autogen.core.normalise import bounded_text
from agentloop_autogen.core.records import ControlAction, ControlBranch, Decision, UnavailableVerdict, Verdict
from agentloop_autogen.errors import UsageError
from agentloop_autogen.faults import describe_error
from agentloop_autogen.instrumentation import Scope, record_decision, record_ending
from agentloop_autogen.slots.hint import SlotHint
from agentloop_autogen.slots.manager import manager_for
from agentloop_autogen.slots.saving import dumped_store
from agentloop_autogen.slots.store import SlotStateStore
from agentloop_autogen.termination.ledger import KeptTurn, Ledger
from agentloop_autogen.termination.past import PastConversations
from agentloop_autogen.termination.stopping import SOURCE, Spent, Stop, spent_limit, stop_for, undecided
from agentloop_autogen.termination.turns import MAX_TEXT_CHARS, Guard, Turn, read_task, read_turn
from agentloop_autogen.verify.asking import ask
from agentloop_autogen.verify.base import SlotVerifier
from agentloop_autogen.verify.hinted import HintedSlotVerifier
from agentloop_autogen.verify.saving import dumped_verifier
from agentloop_autogen.verify.usage import collect_usage
from agentloop_autogen.waiting import leave_behind

__all__ = ["AgentLoopTermination", "AgentLoopTerminationConfig", "AgentLoopTerminationState"]

_log = logging.getLogger("agentloop_autogen")


class AgentLoopTerminationConfig(BaseModel):
    """The declarative configuration of an `AgentLoopTermination`."""

    model_config = ConfigDict(extra="forbid")

    verifier: ComponentModel | None = None
    loop: LoopConfig = Field(default_factory=LoopConfig)
    sources: list[str] | None = None
    request: str | None = None
    slot_store: ComponentModel | None = None


class AgentLoopTerminationState(BaseState):
    """Where an `AgentLoopTermination` stands in the middle of a conversation."""

    type: str = Field(default="AgentLoopTerminationState")
    started: bool = False
    terminated: bool = False
    request: str = ""
    """What the conversation is about, without what the user added."""
    added: str = ""
    """What the user added since."""
    reopened: bool = False
    """Whether the user added something after the last turn."""
    looked: bool = False
    """Whether the verifier was told of similar past requests already."""
    spent: Spent = Field(default_factory=Spent)
    turns: list[KeptTurn] = Field(default_factory=list[KeptTurn])


class AgentLoopTermination(TerminationCondition, Component[AgentLoopTerminationConfig]):
    """Stops a team once its request is answered, once nothing new comes, or once a budget is used up.

    One round is one speaker turn, however many tool rounds it held. Draft is the text or structured message a turn ends
    with. What a user, a tool or an agent inside a tool says never stops the team, and no keyword does.

    Args:
        verifier: Judges turns whose agents did not attach a verdict of their own. None: only attached verdicts and
            mechanical signals count, and no model is called.
        loop: The settings of the loop; `max_rounds` counts turns, `timeout_s` leaves out the time users take to answer.
            None: `LoopConfig()`.
        sources: Names of the agents whose turns count. None: every agent, except those named `user`, `user_proxy`,
            `human` and the like.
        request: What the conversation is about. None: the task, which most teams pass on first; `MagenticOneGroupChat`
            does not.
        slot_store: Keeps in brief what each finished conversation needed, and gives it to later ones with a similar
            task as a hint to `verifier`, which can keep the team going for one more turn, and nothing else. It stays
            the caller's to close. None: nothing is kept.

    Raises:
        UsageError: An argument has the wrong type, or `sources` names nobody.

    Example:
        `RoundRobinGroupChat([researcher, writer], termination_condition=AgentLoopTermination(loop=LoopConfig()))`

    A call takes `loop.verifier_timeout_s` at most, once twice that where a hint is looked at, and raises nothing but
    `TerminatedException`. AutoGen resets a condition at every stop and saves none with its team: in the middle of a
    conversation use `save_state` beside the team's own.
    """

    component_config_schema = AgentLoopTerminationConfig
    component_provider_override = "agentloop_autogen.AgentLoopTermination"
    component_version = 1

    def __init__(
        self,
        verifier: SlotVerifier | None = None,
        *,
        loop: LoopConfig | None = None,
        sources: Sequence[str] | None = None,
        request: str | None = None,
        slot_store: SlotStateStore | None = None,
    ) -> None:
        _check_arguments(verifier, loop, sources, request)
        self._verifier = verifier
        self._loop = loop or LoopConfig()
        self._slot_store = slot_store
        self._slots = None if slot_store is None else manager_for(slot_store, self._loop)
        self._sources = None if sources is None else tuple(sources)
        self._guard = Guard(self._sources)
        self._given_request = request
        self._past = PastConversations(self._slots, looked=False)
        self._begin(AgentLoopTerminationState())

    def _begin(self, state: AgentLoopTerminationState) -> None:
        self._started = state.started
        self._terminated = state.terminated
        self._request = state.request
        self._added = state.added
        self._spent = state.spent.model_copy()
        self._seen_at = time.monotonic()
        self._warned = False
        self._past.close()
        self._past = PastConversations(self._slots, looked=state.looked)
        self._ledger = Ledger(self._loop, self._subject, state.turns)
        if state.reopened:
            self._ledger.reopen()

    @property
    def _subject(self) -> str:
        return bounded_text(self._given_request or self._request, MAX_TEXT_CHARS)

    @property
    def terminated(self) -> bool:
        """Whether the condition has stopped its team and was not reset since."""
        return self._terminated

    @property
    def awaits_answer(self) -> bool:
        """Whether the evidence is complete and the answer is not written yet; see `synthesiser_selector`."""
        last = self._ledger.last
        return not self._terminated and last is not None and _is_unwritten(last)

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        """Take in what happened since the last call.

        Args:
            messages: The task, or the delta of one speaker turn.

        Returns:
            The message the team stops with; None where it goes on.

        Raises:
            TerminatedException: The condition has stopped its team already and was not reset.
        """
        if self._terminated:
            raise TerminatedException("AgentLoopTermination has already stopped its team: reset it before the next run")
        try:
            stop = await self._take(messages)
        except Exception as error:  # noqa: BLE001 - a condition that raises leaves its team unusable
            _log.warning("AgentLoopTermination could not judge a turn, so the team goes on: %s", describe_error(error))
            return None
        if stop is None:
            return None
        self._terminated = True
        self._past.keep(self._ledger, stop, request=self._subject, spent=self._spent)
        record_ending(
            stop.reason,
            stop.branch.value,
            source=SOURCE,
            scope=Scope.TEAM,
            depth=self._spent.turns,
            tokens=self._spent.all_tokens,
            unresolved=len(stop.unresolved),
            tool_calls=self._spent.tool_calls,
            elapsed_s=self._spent.elapsed_s,
        )
        return stop.message(self._spent)

    async def _take(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> Stop | None:
        if not messages:
            return None
        if not self._started:
            self._started = True
            self._seen_at = time.monotonic()
            task = read_task(messages, self._guard, known=bool(self._subject))
            if task is not None:
                self._request = task
                self._ledger = Ledger(self._loop, self._subject)
                self._look_up()
                return None
        self._look_up()
        turn = read_turn(messages, self._guard)
        self._pass_time(turn)
        self._spent.tokens += turn.tokens
        if turn.said_by_user:
            self._hear(turn.said_by_user)
        if not turn.counts:
            return None if turn.said_by_user else self._over_budget()
        return await self._judge(turn)

    def _look_up(self) -> None:
        # Nobody else could be told of what is found.
        if isinstance(self._verifier, HintedSlotVerifier):
            self._past.look_up(self._subject)

    def _pass_time(self, turn: Turn) -> None:
        now = time.monotonic()
        if turn.counts or not turn.said_by_user:
            self._spent.elapsed_s += now - self._seen_at
        self._seen_at = now

    def _hear(self, words: str) -> None:
        if not self._subject:
            self._request = words
            self._ledger = Ledger(self._loop, self._subject, self._ledger.turns)
        else:
            self._added = bounded_text(f"{self._added}\n{words}".strip(), MAX_TEXT_CHARS // 2)
        self._ledger.reopen()

    async def _judge(self, turn: Turn) -> Stop | None:
        self._spent.turns += 1
        self._spent.tool_rounds += turn.tool_rounds
        self._spent.tool_calls += len(turn.results)
        alone = self._loop.policy is Policy.OFF or not self._loop.slot_control
        # Without slots the first text is the answer, whatever tools were run for it.
        self._ledger.observe(turn.draft, () if alone and turn.draft else turn.results)
        verdict, settled = await self._verdict_on(turn)
        candidates = () if verdict is None or settled else await self._second_look(verdict, turn.draft)
        decision = self._ledger.decide(verdict, settled=settled, candidates=candidates)
        record_decision(
            decision, source=SOURCE, scope=Scope.TEAM, depth=self._spent.turns, tokens=self._spent.all_tokens
        )
        return stop_for(decision, self._loop, draft=turn.draft) or self._over_budget()

    async def _verdict_on(self, turn: Turn) -> tuple[Verdict | None, bool]:
        """Return the verdict on the turn just observed, and whether it stands as it is, not to be checked again."""
        if turn.verdict is not None:
            return turn.verdict, True
        if self._verifier is None or not self._asks():
            return (undecided(self._ledger.verdict), True) if turn.draft else (None, False)
        if not self._ledger.needs_verdict():
            return None, False
        verdict = await self._ask(self._verifier, turn.draft)
        if isinstance(verdict, UnavailableVerdict):
            _log.warning("AgentLoopTermination has no verdict on a turn, so it closes nothing: %s", verdict.cause)
            return undecided(self._ledger.verdict), True
        return verdict, False

    async def _second_look(self, verdict: Verdict, draft: str) -> tuple[str, ...]:
        verifier = self._verifier
        if not isinstance(verifier, HintedSlotVerifier) or self._over_budget() is not None:
            return ()
        return await self._past.second_look(
            self._ledger, verdict, draft, lambda hint: self._ask(verifier, draft, hint=hint)
        )

    def _asks(self) -> bool:
        if self._subject:
            return True
        if not self._warned:
            self._warned = True
            _log.warning("AgentLoopTermination was never told the task, so it asks no verifier: give it `request=`")
        return False

    async def _ask(self, verifier: SlotVerifier, draft: str, *, hint: SlotHint | None = None) -> Verdict:
        request = f"{self._subject}\n\nAdded by the user:\n{self._added}" if self._added else self._subject
        left = max(0.0, self._loop.timeout_s - self._spent.elapsed_s)
        self._spent.verifier_calls += 1
        with collect_usage() as meter:
            task = asyncio.ensure_future(
                ask(verifier, request, draft, self._ledger.evidence, token=CancellationToken(), hint=hint)
            )
            try:
                await asyncio.wait({task}, timeout=min(self._loop.verifier_timeout_s, left))
            finally:
                leave_behind(task)
            self._spent.verifier_tokens += meter.total
        return _said(task)

    def _over_budget(self) -> Stop | None:
        words = spent_limit(self._spent, self._loop)
        if not words:
            return None
        verdict = self._ledger.verdict
        return Stop(ControlBranch.BUDGET_BREAK, words, None if isinstance(verdict, UnavailableVerdict) else verdict)

    async def reset(self) -> None:
        """Forget the conversation; what was given to the constructor stays."""
        self._begin(AgentLoopTerminationState())

    async def save_state(self) -> Mapping[str, Any]:
        """Return where the condition stands, as plain JSON data. A call under way is not part of it."""
        self._pass_unseen_time()
        return AgentLoopTerminationState(
            started=self._started,
            terminated=self._terminated,
            request=self._request,
            added=self._added,
            reopened=self._ledger.reopened,
            looked=self._past.looked,
            spent=self._spent,
            turns=list(self._ledger.turns),
        ).model_dump(mode="json")

    def _pass_unseen_time(self) -> None:
        now = time.monotonic()
        if self._started:
            self._spent.elapsed_s += now - self._seen_at
        self._seen_at = now

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where a saved condition stood; the time in between does not count.

        Args:
            state: What `save_state` returned, in this process or another; keys of newer versions are ignored.

        Raises:
            UsageError: It is no such state.
        """
        try:
            loaded = AgentLoopTerminationState.model_validate(state)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            message = f"this is no state of an AgentLoopTermination (`{place}`: {first['msg']}): load what it saved"
            raise UsageError(message) from error
        self._begin(loaded)

    def _to_config(self) -> AgentLoopTerminationConfig:
        return AgentLoopTerminationConfig(
            verifier=dumped_verifier(self._verifier, owner="AgentLoopTermination"),
            loop=self._loop,
            sources=None if self._sources is None else list(self._sources),
            request=self._given_request,
            slot_store=dumped_store(self._slot_store, owner="AgentLoopTermination"),
        )

    @classmethod
    def _from_config(cls, config: AgentLoopTerminationConfig) -> Self:
        return cls(
            SlotVerifier.load_component(config.verifier) if config.verifier else None,
            loop=config.loop,
            sources=config.sources,
            request=config.request,
            slot_store=SlotStateStore.load_component(config.slot_store) if config.slot_store else None,
        )


def _is_unwritten(decision: Decision) -> bool:
    return (
        decision.action is ControlAction.ANSWER_SYNTHESIS
        and decision.branch is ControlBranch.INTEGRATE_ANSWER_RETRY_BREAK
    )


def _said(task: asyncio.Future[Verdict]) -> Verdict:
    if not task.done():
        return UnavailableVerdict(cause="the verifier did not answer in time")
    if task.cancelled():
        return UnavailableVerdict(cause="the verifier was cancelled by itself")
    error = task.exception()
    return task.result() if error is None else UnavailableVerdict(cause=describe_error(error))


def _check_arguments(verifier: object, loop: object, sources: object, request: object) -> None:
    problem = ""
    if verifier is not None and not isinstance(verifier, SlotVerifier):
        problem = f"`verifier` is a {type(verifier).__name__}: give a SlotVerifier, such as ModelSlotVerifier(client)"
    elif loop is not None and not isinstance(loop, LoopConfig):
        problem = f"`loop` is a {type(loop).__name__}: give a LoopConfig"
    elif request is not None and not (isinstance(request, str) and request.strip()):
        problem = "`request` is no text: give the task in words, or leave it out"
    elif sources is not None and not _are_names(sources):
        problem = f"`sources` is {sources!r}: give a list of agent names, or leave it out for every agent"
    if problem:
        raise UsageError(f"AgentLoopTermination: {problem}")


def _are_names(sources: object) -> bool:
    if isinstance(sources, str) or not isinstance(sources, Sequence) or not sources:
        return False
    return all(isinstance(name, str) and name for name in cast("Sequence[object]", sources))
