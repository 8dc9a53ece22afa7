"""Who gives the verdicts of a replay: nobody, the record, or a verifier."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from agentloop_autogen.core.config import LoopConfig, Policy
from agentloop_autogen.core.records import Failure, UnavailableVerdict, Verdict
from agentloop_autogen.diagnostics.loop_run import Judge, Question, Replayed, replay_steps
from agentloop_autogen.diagnostics.measures import recorded_decisions
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.faults import describe_error

if TYPE_CHECKING:
    from agentloop_autogen.verify.base import SlotVerifier

__all__ = ["judged", "mechanical_judge", "recorded_judge"]

_AT_ONCE: Final = 8
"""Traces whose verdicts are asked for at the same time."""

_OPEN: Final = Verdict(answer_complete=False, need_tool=True, confidence=0.0, failure=Failure.ANSWER_INCOMPLETE)
_CLOSED: Final = Verdict(answer_complete=True, need_tool=False, confidence=0.0)


def mechanical_judge(loop: LoopConfig) -> Judge:
    """Return the judge that knows nothing, so that only what needs no judge can end a trace.

    Under `paper` that is the stability gate: everything is taken for closed, at a confidence that stops nothing.
    Otherwise everything is taken for open, which leaves the two strikes and the budgets.
    """
    verdict = _CLOSED if loop.policy is Policy.PAPER else _OPEN
    return lambda _: verdict


def recorded_judge(trace: Trace) -> Judge | None:
    """Return the judge that repeats the verdicts recorded in a trace; None where it holds none."""
    recorded = {
        index: decision.verdict
        for index, decision in enumerate(recorded_decisions(trace))
        if decision.verdict is not None
    }
    if not recorded:
        return None
    unknown = UnavailableVerdict(cause="no verdict is recorded for this round")
    return lambda question: recorded.get(question.round, unknown)


def judged(
    traces: Iterable[Trace],
    loop: LoopConfig,
    verifier: SlotVerifier,
    *,
    finish: Callable[[], Awaitable[None]] | None = None,
) -> Iterator[Replayed]:
    """Replay traces with a verifier, several at a time, in their order.

    The verifier runs in an event loop of its own, in a thread of its own: this works inside a running loop too.

    Args:
        traces: Any number.
        loop: The setting.
        verifier: Who judges.
        finish: Called in that event loop at the end, to close what belongs to it. None: nothing does.
    """
    events = asyncio.new_event_loop()
    left = iter(traces)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentloop-replay") as thread:
        try:
            while batch := list(islice(left, _AT_ONCE)):
                yield from _result(thread.submit(events.run_until_complete, _together(batch, loop, verifier)), events)
        finally:
            thread.submit(_close, events, finish).result()


def _result(running: Future[list[Replayed]], events: asyncio.AbstractEventLoop) -> list[Replayed]:
    try:
        return running.result()
    finally:
        if not running.done():  # Ctrl-C: nobody waits for the verdicts any more
            events.call_soon_threadsafe(_cancel_all, events)


async def _together(batch: Sequence[Trace], loop: LoopConfig, verifier: SlotVerifier) -> list[Replayed]:
    return await asyncio.gather(*(_judged(trace, loop, verifier) for trace in batch))


async def _judged(trace: Trace, loop: LoopConfig, verifier: SlotVerifier) -> Replayed:
    steps = replay_steps(trace, loop)
    try:
        question = next(steps)
        while True:
            question = steps.send(await _ask(verifier, question, limit_s=loop.verifier_timeout_s))
    except StopIteration as end:
        return end.value


async def _ask(verifier: SlotVerifier, question: Question, *, limit_s: float) -> Verdict:
    asked = verifier.verify(question.request, question.draft, question.evidence)
    try:
        verdict = await asyncio.wait_for(asked, limit_s)
    except asyncio.TimeoutError:
        return UnavailableVerdict(cause="the verifier did not answer in time")
    except Exception as error:  # noqa: BLE001 - a verifier is anybody's code; its fault costs one verdict, not the replay
        return UnavailableVerdict(cause=describe_error(error))
    said = cast(object, verdict)  # its word for the type is not enough
    if isinstance(said, Verdict):
        return said
    return UnavailableVerdict(cause=f"the verifier returned {type(said).__name__}, not a Verdict")


def _close(events: asyncio.AbstractEventLoop, finish: Callable[[], Awaitable[None]] | None) -> None:
    if finish is not None:
        events.run_until_complete(finish())
    events.run_until_complete(events.shutdown_asyncgens())
    events.close()


def _cancel_all(events: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(events):
        task.cancel()
