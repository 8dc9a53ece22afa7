"""Asking the verifier about a round: bounded, metered, and without a fault that leaves the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentloop_autogen.agent.bounded import bounded
from agentloop_autogen.core.budget import Role
from agentloop_autogen.core.records import UnavailableVerdict, Verdict
from agentloop_autogen.faults import describe_error
from agentloop_autogen.slots.hint import SlotHint
from agentloop_autogen.verify.asking import ask
from agentloop_autogen.verify.usage import collect_usage

if TYPE_CHECKING:
    from agentloop_autogen.agent.run import Run

__all__ = ["verdict_on"]


async def verdict_on(run: Run, *, hint: SlotHint | None = None) -> Verdict:
    """Ask the verifier about the round just observed. What it raises, and its silence, become a verdict.

    Args:
        run: The run.
        hint: What similar past requests needed, for a second look. None: nothing is told of them.

    Raises:
        asyncio.CancelledError: The run was cancelled.
    """
    asked_at = run.clock.elapsed_s
    until = asked_at + run.parts.config.verifier_timeout_s
    run.budget.verifier_calls += 1
    with collect_usage() as meter:
        try:
            asked = ask(
                run.parts.verifier,
                run.about.text,
                run.controller.draft,
                run.controller.evidence,
                token=run.token,
                hint=hint,
            )
            verdict = await bounded(
                asked, token=run.token, remaining_s=lambda: min(until - run.clock.elapsed_s, run.search_s())
            )
        except asyncio.TimeoutError:
            verdict = UnavailableVerdict(cause="the verifier did not answer in time")
        except Exception as error:  # noqa: BLE001 - a verifier is anybody's code, and its fault must not end the run
            verdict = UnavailableVerdict(cause=describe_error(error))
    run.budget.verifier_s += run.clock.elapsed_s - asked_at
    seen = sum(len(piece.finding) for piece in run.controller.evidence) + len(run.about.text)
    run.budget.spend_tokens(Role.VERIFIER, meter.total, characters=seen if meter.calls else 0)
    run.pending_usage += meter.total
    return verdict
