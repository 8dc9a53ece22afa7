"""Runs one scenario: builds the agent, shows its messages as they come, holds the end against what was expected."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from autogen_agentchat.base import TaskResult
from autogen_core import CancellationToken

from agentloop_autogen import AgentLoopAssistantAgent
from agentloop_autogen.console.checks import check_run
from agentloop_autogen.console.options import RunSettings
from agentloop_autogen.console.run_log import RunLog
from agentloop_autogen.console.team import TeamRun
from agentloop_autogen.console.view import Heading, RunReport, RunView
from agentloop_autogen.core.config import LoopConfig, Policy
from agentloop_autogen.core.records import LoopOutcome
from agentloop_autogen.demo_tools import TOOLSETS
from agentloop_autogen.diagnostics import trace_of
from agentloop_autogen.scenario import Scenario
from agentloop_autogen.slots.hint import hint_from
from agentloop_autogen.slots.store import SlotStateStore
from agentloop_autogen.testing import InMemorySlotStateStore
from agentloop_autogen.verify import ModelSlotVerifier

if TYPE_CHECKING:
    from agentloop_autogen.console.models import RunModel

__all__ = ["loop_settings", "run_scenario"]

_GRACE_S = 5.0
_INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"


class ScenarioAgent(Protocol):
    """The part of the agent a run needs."""

    @property
    def last_outcome(self) -> LoopOutcome | None:
        """How the last run ended."""
        ...

    def run_stream(self, *, task: str, cancellation_token: CancellationToken) -> AsyncGenerator[Any, None]:
        """Yield the messages of a run."""
        ...


def loop_settings(scenario: Scenario, settings: RunSettings) -> LoopConfig:
    """Merge a scenario's settings with those of the command line.

    Args:
        scenario: The scenario.
        settings: What the command line changes.

    Returns:
        The loop's settings, control events on.
    """
    changes: dict[str, Any] = {**scenario.loop, "emit_control_events": True}
    if settings.policy is not None:
        changes["policy"] = settings.policy
    if settings.timeout_s is not None:
        changes["timeout_s"] = settings.timeout_s
    return LoopConfig.model_validate(changes)


async def run_scenario(scenario: Scenario, model: RunModel, view: RunView, *, loop: LoopConfig) -> RunReport:
    """Run a scenario once.

    Args:
        scenario: The scenario.
        model: The clients it runs on; they are closed at the end.
        view: Shows the run.
        loop: Settings of the loop.

    Returns:
        How it ended; after an interrupt, what was known by then.
    """
    log, stop = RunLog(names_speakers=scenario.team is not None), _Stop()
    store = None if scenario.warm_up is None else InMemorySlotStateStore()
    try:
        with _interrupts(stop):
            if scenario.warm_up is not None and store is not None:
                await _warm_up(scenario, scenario.warm_up, store, model, view, stop, loop=loop)
            view.start(_heading(scenario, model, loop, known=await _known(store, scenario.request, loop)))
            agent = _agent(scenario, model, loop, store)
            result = None if stop.wanted else await _follow(agent, scenario.request, log, view, stop)
        return _report(scenario, log, result, agent.last_outcome, model=model.name)
    finally:
        view.close()
        await model.close()


async def _warm_up(
    scenario: Scenario,
    request: str,
    store: SlotStateStore,
    model: RunModel,
    view: RunView,
    stop: _Stop,
    *,
    loop: LoopConfig,
) -> None:
    """Run the request that the store is to know, and show it before the run itself."""
    heading = replace(_heading(scenario, model, loop), title="first, with an empty store", request=request, expected="")
    view.start(heading)
    agent = AgentLoopAssistantAgent(**_alone(scenario, model, loop), slot_store=store)
    await _follow(agent, request, RunLog(), view, stop)
    await agent.close()
    view.close()


async def _known(store: SlotStateStore | None, request: str, loop: LoopConfig) -> str:
    """Return what the store knows of similar requests, in words; empty where it knows nothing."""
    hint = None if store is None else hint_from(await store.similar(request), at_least=loop.hint_similarity)
    slots = [slot for past in hint.past for slot in past.slots] if hint else []
    return "; ".join(f"{slot.name} (closed by {', '.join(slot.tools)})" for slot in slots)


class _Stop:
    """The wish to end the run early, and the token that carries it into the agent."""

    def __init__(self) -> None:
        self.token = CancellationToken()
        self.wanted = False
        self.over = False


async def _follow(agent: ScenarioAgent, request: str, log: RunLog, view: RunView, stop: _Stop) -> TaskResult | None:
    result = None
    view.doing(log.doing)
    try:
        async with aclosing(agent.run_stream(task=request, cancellation_token=stop.token)) as messages:
            async for message in messages:
                if isinstance(message, TaskResult):
                    result = message
                for shown in log.feed(message):
                    view.round(shown)
                view.doing(log.doing)
    except asyncio.CancelledError:
        if not stop.wanted:
            raise
        for shown in (*log.flush(), *log.pending()):
            view.round(shown)
        return None
    return result


def _report(
    scenario: Scenario, log: RunLog, result: TaskResult | None, outcome: LoopOutcome | None, *, model: str
) -> RunReport:
    last = log.rounds[-1].decision if log.rounds else None
    if result is None or outcome is None:
        return RunReport(answer=log.answer, outcome=None, stopped_after=len(log.rounds), last_decision=last)
    checks = check_run(scenario.expect, answer=log.answer, outcome=outcome, tools=log.tools)
    # The outcome stands beside the trace; twice would say it twice.
    trace = replace(trace_of(result, model=model, source=scenario.name), outcome=None)
    return RunReport(answer=log.answer, outcome=outcome, checks=checks, last_decision=last, trace=trace)


def _agent(scenario: Scenario, model: RunModel, loop: LoopConfig, store: SlotStateStore | None) -> ScenarioAgent:
    if scenario.team is not None:
        return TeamRun(scenario, scenario.team, model, loop)
    return AgentLoopAssistantAgent(**_alone(scenario, model, loop), slot_store=store)


def _alone(scenario: Scenario, model: RunModel, loop: LoopConfig) -> dict[str, Any]:
    """Return what the one agent of a scenario is made of."""
    extra: dict[str, Any] = {} if scenario.system_message is None else {"system_message": scenario.system_message}
    return {
        "name": "assistant",
        "model_client": model.planner,
        "tools": list(TOOLSETS[scenario.tools]()),
        "verifier": ModelSlotVerifier(model.verifier, timeout_s=loop.verifier_timeout_s),
        "loop": loop,
        **extra,
    }


def _heading(scenario: Scenario, model: RunModel, loop: LoopConfig, *, known: str = "") -> Heading:
    return Heading(
        name=scenario.name,
        title=scenario.title,
        request=scenario.request,
        model=model.label,
        policy=Policy(loop.policy).value,
        expected=scenario.expect.words if scenario.expect else "",
        known=known,
    )


@contextmanager
def _interrupts(stop: _Stop) -> Generator[None]:
    """First Ctrl-C: ask the agent to stop, and insist after a grace period. Second: leave at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    running = asyncio.get_running_loop()
    task = asyncio.current_task()

    def insist() -> None:
        if task is not None and not stop.over:
            task.cancel()

    def ask() -> None:
        stop.token.cancel()
        running.call_later(_GRACE_S, insist)

    def on_interrupt(_signal: int, _frame: object) -> None:
        if stop.wanted:
            if os.isatty(2):
                os.write(2, _SHOW_CURSOR)
            os._exit(_INTERRUPTED)
        stop.wanted = True
        running.call_soon_threadsafe(ask)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        stop.over = True
        signal.signal(signal.SIGINT, before)
