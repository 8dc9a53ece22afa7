"""The stability gate over two neighbouring rounds (G_stab, eq. 6)."""

from __future__ import annotations

from dataclasses import dataclass

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.rounds import RoundKey, same_results
from agentloop_autogen.core.similarity import call_similarity, result_similarity, same_tools

__all__ = ["Stability", "check_stability"]


@dataclass(frozen=True)
class Stability:
    """What the gate saw; all None in the first round, which has nothing to be compared with."""

    s_call: float | None = None
    s_result: float | None = None
    stable: bool | None = None


def check_stability(
    previous: RoundKey | None, current: RoundKey, config: LoopConfig, *, masked: bool = False, news: bool = False
) -> Stability:
    """Return G_stab of two rounds with the similarities it rests on (eq. 6).

    Args:
        previous: The round before; None in the first round.
        current: The round just finished.
        config: Thresholds and switches.
        masked: Whether results that differ in volatile fields alone are exactly equal.
        news: Whether the round is known to have brought new evidence. Then it is not stable however alike its results
            look, and their similarity is not computed.

    Returns:
        The gate: names match, and calls and results are each exactly equal or similar enough. A similarity is at or
        above its threshold to count. No ρ is computed where signatures agree.
    """
    if previous is None:
        return Stability()
    calls_equal = previous.calls == current.calls
    if news:
        return Stability(1.0 if calls_equal else call_similarity(previous.calls, current.calls), None, stable=False)
    results_equal = same_results(previous, current, masked=masked)
    s_call = 1.0 if calls_equal else call_similarity(previous.calls, current.calls)
    s_result = 1.0 if results_equal else result_similarity(previous.results, current.results)
    stable = (
        same_tools(previous.calls, current.calls)
        and (calls_equal or (config.call_similarity and s_call >= config.tau_call))
        and (results_equal or (config.result_similarity and s_result >= config.tau_result))
    )
    return Stability(s_call, s_result, stable)
