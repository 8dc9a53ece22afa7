"""Settings of the loop: one frozen record, validated here and nowhere else."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["LoopConfig", "Policy", "PolicyName"]


class Policy(str, Enum):
    """Which rules decide after a round."""

    EXTENDED = "extended"
    PAPER = "paper"
    OFF = "off"


PolicyName = Literal["extended", "paper", "off"]
"""How a policy may be written; it is always read back as a `Policy`."""

_Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


def _as_policy(value: Policy | PolicyName) -> Policy:
    # Not the enum itself: from Python 3.12 on its signature is not that of a validator.
    return Policy(value)


class LoopConfig(BaseModel):
    """How the loop of one agent is controlled. Keyword-only, immutable, JSON-serialisable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Annotated[Policy | PolicyName, AfterValidator(_as_policy)] = Policy.EXTENDED
    """`extended`: the paper's table and the additions below. `paper`: the table. `off`: the first text is the reply."""
    slot_control: bool = True
    """False: the paper's "w/o Slot" ablation; budgets and the model's own text end the loop, no verifier is asked."""

    max_rounds: int = Field(default=10, ge=1)
    """T_max: planning rounds, at most."""
    max_reflections: int = Field(default=3, ge=0)
    """R_max: text drafts sent back, at most."""
    max_integrations: int = Field(default=2, ge=0)
    """I_max: answer calls, retries included, at most; 0: the text built from the evidence is the answer."""
    timeout_s: _Seconds = 180.0
    """Wall seconds of a run, the answer call included and pauses excluded."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of all roles, read and written; checked after each round, the answer call on top. None: no limit."""
    max_tool_calls: int | None = Field(default=None, ge=0)
    """Executed tool calls, at most; calls beyond it get an error result. None: no limit."""
    verifier_timeout_s: _Seconds = 30.0
    """Wall seconds of one verifier call, its repair included."""

    tau_call: _Share = 0.90
    """τ_call: S_call at or above it counts as the same calls."""
    tau_result: _Share = 0.90
    """τ_result: S_result at or above it counts as the same results."""
    tau_retry: _Share = 0.50
    """τ_retry: low confidence below it sends the round back."""
    tau_gate: _Share = 0.80
    """τ_gate: confidence at or above it stops a closed run."""
    call_similarity: bool = True
    """EnableCallSim: False demands exactly equal calls."""
    result_similarity: bool = True
    """EnableResultSim: False demands exactly equal results."""

    patience: int = Field(default=3, ge=1)
    """Fruitless rounds in a row before the nudge; two more in a row end the search."""

    typed_slots: bool = True
    """Extended: flags that contradict the verdict's own slots give way to them."""
    grounding: bool = True
    """Extended: a slot counts as supported only if its quote is found in the evidence."""
    novelty: bool = True
    """Extended: volatile fields are masked, and a round that brings a new salient token is never stable."""
    patterns: bool = True
    """Extended: cycles, same-error streaks and monologues count as fruitless; identical calls of a round are capped."""
    two_strikes: bool = True
    """Extended: fruitless rounds lead to one nudge, then to an honest answer."""
    cheap_first: bool = True
    """Extended: the verifier is not asked when neither evidence nor draft changed."""
    speculative: bool = False
    """Extended, agents: the next planning call is made while the verifier judges, and given up if it is not wanted."""

    max_finding_chars: int = Field(default=1_200, ge=80)
    """Characters kept of one result as evidence, head and tail."""
    max_evidence_chars: int = Field(default=12_000, ge=200)
    """Characters of all evidence together; the oldest is shortened, then dropped."""
    max_result_chars: int = Field(default=6_000, ge=80)
    """Characters of one result that enter the planning prompt."""
    max_prompt_chars: int = Field(default=60_000, ge=1_000)
    """Characters of a planning prompt; older results are shortened beyond it."""

    emit_control_events: bool = False
    """Put one `ControlEvent` per decision into the stream; a team must then register `ControlEvent`."""
