"""Executes one attempt: a fresh world, a counted endpoint, a time limit, a grade, and one record whatever happens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timezone

from agentloop_autogen.bench.endpoint.server import CountedEndpoint
from agentloop_autogen.bench.endpoint.traffic import AttemptTraffic
from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.runner.counted_tools import CountedTools
from agentloop_autogen.bench.runner.plan import PlannedAttempt
from agentloop_autogen.bench.runner.settings import RunSettings
from agentloop_autogen.bench.systems.system import Endpoint, SystemReply
from agentloop_autogen.bench.tasks.task import Grade, TaskSession
from agentloop_autogen.faults import describe_error
from agentloop_autogen.waiting import stop_task

__all__ = ["ExecutedAttempt", "execute_attempt"]


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
    error: str | None
    elapsed_s: float


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
    async with endpoint.attempt(settings.decoding_of(planned.seed)) as traffic:
        tools = CountedTools((), traffic.now)
        grade = Grade(correct=False)
        try:
            session = task.open()
        except Exception as error:  # noqa: BLE001 - a world that does not open fails this attempt alone
            run = _Run(reply=SystemReply(answer=""), error=f"opening the task: {describe_error(error)}", elapsed_s=0.0)
        else:
            try:
                tools = CountedTools(session.tools, traffic.now)
                run = await _run(planned, tools, traffic, settings)
                run, grade = _graded(run, session)
            finally:
                session.close()
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
        correct=grade.correct,
        detail=grade.detail,
        stop_reason=run.reply.stop_reason,
        error=run.error,
        began_at=began_at,
        elapsed_s=run.elapsed_s,
        waited_s=traffic.waited_s,
        model_calls=traffic.calls,
        tool_calls=tools.calls,
        outcome=run.reply.outcome,
    )
    return ExecutedAttempt(attempt=attempt, unreachable=traffic.unreachable)


async def _run(planned: PlannedAttempt, tools: CountedTools, traffic: AttemptTraffic, settings: RunSettings) -> _Run:
    limits = settings.limits_of(planned.seed)
    endpoint = Endpoint(base_url=traffic.base_url, model=settings.model, context_length=settings.context_length)
    task = planned.task
    began = traffic.now()
    work = asyncio.ensure_future(planned.system.run(task.instructions, task.request, tools.tools, endpoint, limits))
    try:
        await asyncio.wait({work}, timeout=limits.timeout_s)
    except asyncio.CancelledError:
        await stop_task(work)
        raise
    elapsed_s = traffic.now() - began
    reply, error = SystemReply(answer=""), None
    if not work.done():
        await stop_task(work)
        error = f"timeout: no answer within {limits.timeout_s:g} s"
    elif work.cancelled():
        error = "the system cancelled itself"
    else:
        fault = work.exception()
        if fault is None:
            reply = work.result()
        else:
            error = describe_error(fault)
    return _Run(reply=reply, error=error, elapsed_s=elapsed_s)


def _graded(run: _Run, session: TaskSession) -> tuple[_Run, Grade]:
    if run.error is not None:
        return run, Grade(correct=False)
    try:
        return run, session.grade(run.reply.answer)
    except Exception as error:  # noqa: BLE001 - a grader that fails fails this attempt alone
        why = f"grading the answer: {describe_error(error)}"
        return _Run(reply=run.reply, error=why, elapsed_s=run.elapsed_s), Grade(correct=False)
