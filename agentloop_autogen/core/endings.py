"""Why a run ended, from the branch its last decision took."""

from __future__ import annotations

from typing_extensions import assert_never

from agentloop_autogen.core.records import ControlBranch, StopReason

__all__ = ["stop_reason"]


def stop_reason(branch: ControlBranch) -> StopReason:
    """Return the stop reason of a run whose last decision took `branch`.

    Args:
        branch: One that ends a run.

    Raises:
        ValueError: It is one that goes on.
    """
    match branch:
        case ControlBranch.STOP_REPLANNING | ControlBranch.SKIP_DECODE_OUTPUT_BREAK | ControlBranch.MODEL_TEXT_BREAK:
            return StopReason.ANSWERED
        case ControlBranch.INTEGRATE_ANSWER_RETRY_BREAK:
            return StopReason.SYNTHESISED
        case ControlBranch.EXHAUSTED_BREAK:
            return StopReason.EXHAUSTED
        case ControlBranch.BUDGET_BREAK:
            return StopReason.BUDGET
        case ControlBranch.HANDOFF_BREAK:
            return StopReason.HANDOFF
        case ControlBranch.NO_VERDICT | ControlBranch.PLANNING_FAILED:
            return StopReason.FAILED
        case (
            ControlBranch.NEED_TOOL_ROUND
            | ControlBranch.VERIFIER_RETRY
            | ControlBranch.ROLLBACK_RETRY
            | ControlBranch.SKIP_DECODE_OUTPUT
            | ControlBranch.KEEP_DECODE
            | ControlBranch.NUDGE
        ):
            raise ValueError(f"a run cannot end on the branch {branch.value!r}, which goes on")
        case _:
            assert_never(branch)
