"""AutoGen's agent under loop control: the paper's policy, the extended one, and each with something switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentloop_autogen.agent import AgentLoopAssistantAgent
from agentloop_autogen.bench.systems.clients import vllm_client
from agentloop_autogen.bench.systems.system import Endpoint, Limits, SystemReply
from agentloop_autogen.bench.systems.tools import BenchWorkbench
from agentloop_autogen.bench.tasks.task import BenchTool
from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.slots.store import SlotStateStore
from agentloop_autogen.verify import ModelSlotVerifier

__all__ = ["ControlledAgent"]

_SHARE_OF_TIME: Final = 0.9
"""Of an attempt's time the loop's own budget is given this much, so that it can still write its answer."""
_SHARE_OF_VERDICT: Final = 0.5
"""And one verdict this much: a server that is slow, but fast enough for the attempt, is no fault of the loop."""


class ControlledAgent:
    """`AgentLoopAssistantAgent`, planner and verifier on the same model.

    Args:
        name: Its name in tables.
        changes: Settings of the loop that differ from the defaults.
        calibrated_confidence: Whether the verifier reads its confidence off the probabilities of the verdict's flags.
        slot_store: Where its runs are kept and similar ones found. None: nowhere.
    """

    def __init__(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        calibrated_confidence: bool = False,
        slot_store: SlotStateStore | None = None,
    ) -> None:
        self.name = name
        self._slot_store = slot_store
        self._calibrated_confidence = calibrated_confidence
        self._changes = dict(changes)

    async def run(
        self, instructions: str, request: str, tools: Sequence[BenchTool], endpoint: Endpoint, limits: Limits
    ) -> SystemReply:
        """Answer one request."""
        budgets = {
            "max_rounds": limits.rounds,
            "timeout_s": limits.timeout_s * _SHARE_OF_TIME,
            "verifier_timeout_s": limits.timeout_s * _SHARE_OF_VERDICT,
        }
        loop = LoopConfig.model_validate({**budgets, **self._changes})
        async with vllm_client(endpoint, limits) as client:
            agent = AgentLoopAssistantAgent(
                "assistant",
                client,
                workbench=BenchWorkbench(tools),
                system_message=instructions,
                verifier=ModelSlotVerifier(
                    client,
                    timeout_s=loop.verifier_timeout_s,
                    calibrated_confidence=self._calibrated_confidence,
                ),
                loop=loop,
                model_client_stream=limits.stream,
                slot_store=self._slot_store,
            )
            result = await agent.run(task=request)
            await agent.close()
        outcome = agent.last_outcome
        answer = str(getattr(result.messages[-1], "content", ""))
        return SystemReply(answer=answer, stop_reason=outcome.stop_reason.value if outcome else "", outcome=outcome)
