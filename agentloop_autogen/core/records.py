"""The records that travel between the loop, the verifier and the policy: plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ControlAction",
    "ControlBranch",
    "Decision",
    "Detector",
    "Evidence",
    "Failure",
    "LoopOutcome",
    "RequestUsage",
    "Slot",
    "SlotState",
    "StopReason",
    "UnavailableVerdict",
    "Verdict",
]


class Failure(str, Enum):
    """What is wrong with the run as the verifier sees it (f_t, eq. 2)."""

    OK = "ok"
    ANSWER_INCOMPLETE = "answer_incomplete"
    TOOL_SET_UNSTABLE = "tool_set_unstable"
    TOOL_CONFLICT = "tool_conflict"
    LOW_CONFIDENCE = "low_confidence"


class SlotState(str, Enum):
    """How far one information item of the request has come.

    `supported`: evidence carries it and the draft states it. `unsynthesised`: evidence carries it, the draft does not
    state it yet. `missing`: no evidence yet. `conflicting`: evidence contradicts itself. `exhausted`: looked for and
    not to be had.
    """

    SUPPORTED = "supported"
    MISSING = "missing"
    UNSYNTHESISED = "unsynthesised"
    CONFLICTING = "conflicting"
    EXHAUSTED = "exhausted"


class ControlAction(str, Enum):
    """What the loop does after a round (π_t, section V-A of the paper)."""

    CONTINUE_INVOCATION = "continue_invocation"
    ANSWER_SYNTHESIS = "answer_synthesis"
    TERMINATE_ITERATION = "terminate_iteration"


class ControlBranch(str, Enum):
    """Which rule chose the action: the paper's eight (eq. 7), then this package's own."""

    NEED_TOOL_ROUND = "need_tool_round"
    VERIFIER_RETRY = "verifier_retry"
    ROLLBACK_RETRY = "rollback_retry"
    INTEGRATE_ANSWER_RETRY_BREAK = "integrate_answer_retry_break"
    STOP_REPLANNING = "stop_replanning"
    SKIP_DECODE_OUTPUT_BREAK = "skip_decode_output_break"
    SKIP_DECODE_OUTPUT = "skip_decode_output"
    KEEP_DECODE = "keep_decode"

    NUDGE = "nudge"
    """First strike: the next round is told the open slots and what was already tried."""
    EXHAUSTED_BREAK = "exhausted_break"
    """Second strike: tools are withdrawn and the answer is written with the open slots named."""
    BUDGET_BREAK = "budget_break"
    """A budget ran out: the draft is returned, or the reserved answer call is made."""
    HANDOFF_BREAK = "handoff_break"
    """The model handed the task to another agent."""
    MODEL_TEXT_BREAK = "model_text_break"
    """No slot control: the model's own text ends the loop."""
    NO_VERDICT = "no_verdict"
    """The verifier could not be had: nothing is closure, the loop goes on without a draft and ends with one."""
    PLANNING_FAILED = "planning_failed"
    """The model could not be called for good."""


class StopReason(str, Enum):
    """Why a run ended.

    `answered`: the answer was complete and supported. `synthesised`: the evidence was in and the answer was written
    from it. `exhausted`: nothing new came any more; open slots are named. `budget`: rounds, reflections, calls, tokens
    or time ran out. `handoff`: another agent took over. `failed`: neither a verdict nor an answer could be had.
    """

    ANSWERED = "answered"
    SYNTHESISED = "synthesised"
    EXHAUSTED = "exhausted"
    BUDGET = "budget"
    HANDOFF = "handoff"
    FAILED = "failed"


class Detector(str, Enum):
    """Which sign of a loop that goes nowhere was seen in a round."""

    NOTHING_NEW = "nothing_new"
    CYCLE = "cycle"
    SAME_ERROR = "same_error"
    MONOLOGUE = "monologue"
    REPEATED_IN_ROUND = "repeated_in_round"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Evidence(_Record):
    """One tool result, compressed (an element of Ē_t, eq. 1): short ones verbatim, long ones cut."""

    id: str
    """Name of this piece within its run, such as `e3`; what slots refer to."""
    tool: str
    is_error: bool
    finding: str
    """The bounded text of the result."""
    unresolved: tuple[str, ...] = ()
    """What the result itself says it could not deliver, where that is known."""


class Slot(_Record):
    """One information item the request needs, with the evidence that closes it."""

    name: str
    state: SlotState
    quote: str = ""
    """A short passage copied from the evidence; it counts only if it is found there."""
    evidence: tuple[str, ...] = ()
    """Ids of the evidence the quote is from; empty: it is sought in all evidence that is no error."""


class Verdict(_Record):
    """What the verifier says after a round (V_t = (a_t, M_t, n_t, κ_t, f_t), eq. 2)."""

    answer_complete: bool
    """a_t: the draft answers the whole request."""
    need_tool: bool
    """n_t: another tool call is needed."""
    confidence: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    """κ_t, from 0 to 1."""
    failure: Failure = Failure.OK
    """f_t."""
    missing: tuple[str, ...] = ()
    """M_t: names of what is still missing."""
    slots: tuple[Slot, ...] = ()
    """The request broken into information items; empty: the flags alone decide."""

    @property
    def closed(self) -> bool:
        """C_t = 1 iff a_t = 1 and n_t = 0 (eq. 3)."""
        return self.answer_complete and not self.need_tool

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names of the open slots, then of what else is missing, each once."""
        return tuple(dict.fromkeys([*self.open_slots, *self.missing]))

    @property
    def open_slots(self) -> tuple[str, ...]:
        """Names of the slots that are neither supported nor merely unwritten."""
        open_states = (SlotState.MISSING, SlotState.CONFLICTING, SlotState.EXHAUSTED)
        return tuple(slot.name for slot in self.slots if slot.state in open_states)


class UnavailableVerdict(Verdict):
    """The conservative verdict that stands where none could be had: it closes nothing and says why it is missing."""

    answer_complete: bool = False
    need_tool: bool = False
    confidence: float = 0.0
    failure: Failure = Failure.LOW_CONFIDENCE
    cause: str = ""
    """What happened, in words fit for a log line."""


class Decision(_Record):
    """One decision of the loop, made at the end of a round."""

    round: int = Field(ge=1)
    action: ControlAction
    branch: ControlBranch
    verdict: Verdict | UnavailableVerdict | None = None
    """The verdict acted on; None where none was asked for."""
    verified: bool = False
    """Whether the verifier was asked in this round (False: the last verdict still held)."""
    s_call: float | None = None
    """S_call (eq. 4); None in the first round, which has none before it."""
    s_result: float | None = None
    """S_result (eq. 5); None in the first round, and in one whose news already make it unstable."""
    stable: bool | None = None
    """G_stab (eq. 6); None where the gate was not checked."""
    detector: Detector | None = None
    """The sign of fruitless work seen in this round, if any."""
    fruitless: int = 0
    """Fruitless rounds in a row, this one included."""
    reason: str = ""
    """Why, in one plain sentence."""


class RequestUsage(_Record):
    """Prompt and completion tokens; equal to any record with the same two counts, such as AutoGen's own."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)

    def __add__(self, other: RequestUsage) -> RequestUsage:
        return RequestUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )

    def __eq__(self, other: object) -> bool:
        missing = object()
        return (
            getattr(other, "prompt_tokens", missing) == self.prompt_tokens
            and getattr(other, "completion_tokens", missing) == self.completion_tokens
        )

    def __hash__(self) -> int:
        return hash((self.prompt_tokens, self.completion_tokens))

    @property
    def total(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


class LoopOutcome(_Record):
    """How a run ended and what it cost."""

    stop_reason: StopReason
    slots: tuple[Slot, ...] = ()
    unresolved: tuple[str, ...] = ()
    """Names of the slots left open; the reply names them too."""
    rounds: int = 0
    """Planning calls with the tools they ran; a text-only draft is a round."""
    model_calls: int = 0
    """Planning calls, retries included."""
    dropped_calls: int = 0
    """Those of them that `speculative` made in vain; the tokens of one that was broken off are an estimate."""
    verifier_calls: int = 0
    """Calls that reached the verifier."""
    synthesis_calls: int = 0
    """Answer calls, retries included."""
    tool_calls: int = 0
    """Tool calls that were executed."""
    usage: Mapping[str, RequestUsage] = Field(default_factory=dict[str, RequestUsage])
    """Tokens by role: `agent`, `verifier`, `synthesis`."""
    decisions: tuple[Decision, ...] = ()
    elapsed_s: float = 0.0
    """Wall time in seconds, pauses excluded."""
    verifier_s: float = 0.0
    """Seconds of it until verdicts came; with `speculative` a planning call may run in the same seconds."""
    fallback_answer: bool = False
    """Whether the reply is the text built from the evidence because no answer call succeeded."""
    ungrounded_figures: tuple[str, ...] = ()
    """Figures in the reply that appear in no evidence and not in the request."""
    error: str = ""
    """What failed, where something did."""
