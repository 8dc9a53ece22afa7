"""Executes one attempt: a fresh world, a counted endpoint, a time limit, a grade, and one record whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Final

from agentloop_autogen.bench.endpoint.server import CountedEndpoint
from agentloop_autogen.bench.endpoint.traffic import AttemptTraffic
from agentloop_autogen.bench.records import Attempt, CountedModelCall, CountedToolCall
from agentloop_autogen.bench.runner.counted_tools import CountedTools
from agentloop_autogen.bench.runner.plan import PlannedAttempt
from agentloop_autogen.bench.runner.settings import RunSettings
from agentloop_autogen.bench.systems.system import Endpoint, SystemReply
from agentloop_autogen.bench.tasks.task import BenchTool, Grade, TaskSession
from agentloop_autogen.faults import describe_error
from agentloop_autogen.waiting import stop_task

__all__ = ["ExecutedAttempt", "execute_attempt"]

_TRACEBACK: Final = "Traceback"


@dataclass(frozen=True, kw_only=True)
class ExecutedAttempt:
    """An attempt, and whether it says anything about the system."""

    attempt: Attempt
    unreachable: bool
    """Whether the model was out of reach when it was needed last: the attempt is to be made again."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What came of letting the system run."""

    reply: SystemReply
    grade: Grade
    error: str | None
    elapsed_s: float = 0.0
    waited_s: float = 0.0
    model_calls: tuple[CountedModelCall, ...] = ()
    tool_calls: tuple[CountedToolCall, ...] = ()
    unreachable: bool = False


async def execute_attempt(planned: PlannedAttempt, endpoint: CountedEndpoint, settings: RunSettings) -> ExecutedAttempt:
    """Execute one attempt.

    Args:
        planned: Which.
        endpoint: The counted endpoint, running.
        settings: Settings of the run.

    Returns:
        Its record; a fault of the system, its task or its time limit is an error in it.
    """
    task, began_at = planned.task, datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    run = await _in_its_world(planned, endpoint, settings)
    attempt = Attempt(
        system=planned.system.name,
        family=task.family,
        task=task.id,
        half=task.half,
        group=task.group,
        seed=planned.seed,
        model=settings.model,
        settings=settings.digest,
        request=task.request,
        answer=run.reply.answer,
        correct=run.grade.correct,
        detail=run.grade.detail,
        stop_reason=run.reply.stop_reason,
        error=run.error,
        began_at=began_at,
        elapsed_s=run.elapsed_s,
        waited_s=run.waited_s,
        model_calls=run.model_calls,
        tool_calls=run.tool_calls,
        outcome=run.reply.outcome,
    )
    return ExecutedAttempt(attempt=attempt, unreachable=run.unreachable)


async def _in_its_world(planned: PlannedAttempt, endpoint: CountedEndpoint, settings: RunSettings) -> _Run:
    try:
        session = planned.task.open()
    except Exception as error:  # noqa: BLE001 - a world that does not open fails this attempt alone
        fault = f"opening the task: {describe_error(error)}"
        return _Run(reply=SystemReply(answer=""), grade=Grade(correct=False), error=fault)
    try:
        async with endpoint.attempt(settings.decoding_of(planned.seed)) as traffic:
            run = _graded(await _run(planned, session.tools, traffic, settings), session)
        return replace(run, model_calls=traffic.calls, waited_s=traffic.waited_s, unreachable=traffic.unreachable)
    finally:
        session.close()


async def _run(
    planned: PlannedAttempt, given: Sequence[BenchTool], traffic: AttemptTraffic, settings: RunSettings
) -> _Run:
    limits, task = settings.limits_of(planned.seed), planned.task
    tools = CountedTools(given, traffic.now)
    endpoint = Endpoint(base_url=traffic.base_url, model=settings.model, context_length=settings.context_length)
    work = asyncio.ensure_future(planned.system.run(task.instructions, task.request, tools.tools, endpoint, limits))
    try:
        await asyncio.wait({work}, timeout=limits.timeout_s)
    except asyncio.CancelledError:
        await stop_task(work)
        raise
    elapsed_s = traffic.now()
    late = not work.done()
    await stop_task(work)
    reply, error = SystemReply(answer=""), None
    if late:
        error = f"timeout: no answer within {limits.timeout_s:g} s"
    elif work.cancelled():
        error = "the system cancelled itself"
    elif (fault := work.exception()) is not None:
        # Teams put the whole traceback into their message: its paths are news to nobody but whoever runs the machine.
        error = describe_error(fault).partition(_TRACEBACK)[0].rstrip()
    else:
        reply = work.result()
    return _Run(reply=reply, grade=Grade(correct=False), error=error, elapsed_s=elapsed_s, tool_calls=tools.calls)


def _graded(run: _Run, session: TaskSession) -> _Run:
    if run.error is not None:
        return run
    try:
        return replace(run, grade=session.grade(run.reply.answer))
    except Exception as error:  # noqa: BLE001 - a grader that fails fails this attempt alone
        return replace(run, error=f"grading the answer: {describe_error(error)}")
