"""The controller of one run: takes in rounds and verdicts, gives decisions. One object per run, no state beyond it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentloop_autogen.core.budget import Limit
from agentloop_autogen.core.config import LoopConfig, Policy
from agentloop_autogen.core.evidence import EvidenceLog
from agentloop_autogen.core.grounding import carries
from agentloop_autogen.core.lookup import calls_for_lookup, sent_to_look_up
from agentloop_autogen.core.novelty import Novelty, NoveltyTracker
from agentloop_autogen.core.patterns import PatternTracker
from agentloop_autogen.core.policy import EXTENDED_TABLE, PAPER_TABLE, Situation, Strike, select
from agentloop_autogen.core.reconcile import reconcile
from agentloop_autogen.core.records import (
    ControlAction,
    ControlBranch,
    Decision,
    Detector,
    Evidence,
    Slot,
    SlotState,
    UnavailableVerdict,
    Verdict,
)
from agentloop_autogen.core.rounds import Round, RoundKey, ToolCall, ToolResult
from agentloop_autogen.core.second_look import with_candidates
from agentloop_autogen.core.stability import Stability, check_stability

__all__ = ["LoopController", "Signals"]

_SECOND_STRIKE = 2
"""Fruitless rounds in a row after the nudge that end the search."""
_REMEMBERED_CALLS = 64
_NO_LOOKUP = "nothing was looked up for this answer"


@dataclass(frozen=True)
class Signals:
    """What a round showed before anybody was asked about it."""

    stability: Stability
    new_evidence: bool
    detector: Detector | None
    strike: Strike
    fruitless: int


class LoopController:
    """Decides after every round of one run whether to go on, to write the answer or to stop (Algorithm 1, lines 13-17).

    Args:
        config: The settings of the run.
        request: What the run is about; its words say what to keep of long results.

    Use: `observe` the round, ask the verifier if `needs_verdict`, then `decide`.
    """

    def __init__(self, config: LoopConfig, *, request: str = "") -> None:
        self._config = config
        self._extended = config.policy is Policy.EXTENDED
        self._judges_novelty = self._extended and config.novelty
        self._request = request
        self._evidence = EvidenceLog(config, request=request)
        self._novelty = NoveltyTracker()
        self._patterns = PatternTracker()
        self._previous: RoundKey | None = None
        self._draft = ""
        self._signals = Signals(Stability(), new_evidence=False, detector=None, strike=Strike.NONE, fruitless=0)
        self._fruitless = 0
        self._nudged_at: int | None = None
        self._verdict: Verdict | None = None
        self._verified_draft: str | None = None
        self._evidence_since_verdict = False
        self._in_vain = False
        self._repeated = 0
        self._tools_offered = False
        self._sent_to_look_up = False
        self._unsupported: Verdict | None = None
        self._tried: Counter[ToolCall] = Counter()
        self._alike: Counter[ToolCall] = Counter()
        self.decisions: list[Decision] = []

    @property
    def evidence(self) -> Sequence[Evidence]:
        """All evidence kept of this run, oldest first."""
        return self._evidence.items

    @property
    def draft(self) -> str:
        """The draft of the last round; empty where it only called tools."""
        return self._draft

    @property
    def brought_news(self) -> bool:
        """Whether the last round brought new evidence."""
        return self._signals.new_evidence

    @property
    def in_vain(self) -> bool:
        """Whether every call of the last round ended in an error or an empty result; False where none was run."""
        return self._in_vain

    @property
    def repeated(self) -> int:
        """How often in a row the calls of the last round gave the same, the last time included; 0 if only this once."""
        return self._repeated

    @property
    def newest(self) -> Evidence | None:
        """The latest evidence that carries anything; None while there is none."""
        return next(filter(carries, reversed(self._evidence.items)), None)

    @property
    def unsupported(self) -> bool:
        """Whether the last draft was sent back because nothing was looked up for it."""
        return self._unsupported is not None

    @property
    def struck(self) -> bool:
        """Whether the last round is a strike: whatever is said of it, the next prompt is not simply a longer one."""
        return self._signals.strike is not Strike.NONE

    @property
    def verdict(self) -> Verdict | None:
        """The last verdict, as it was acted on."""
        return self._verdict

    @property
    def tried(self) -> Sequence[tuple[ToolCall, int]]:
        """Distinct calls made so far with how often, the most frequent first."""
        return self._tried.most_common()

    def observe(self, round_: Round) -> Signals:
        """Take in one finished round and return what it shows. Work is linear in the bounded text of this round."""
        key = round_.key
        brought = self._take_in(round_)
        new_evidence = brought.news
        judges_novelty = self._judges_novelty
        pattern = None
        if self._extended and self._config.patterns:
            pattern = self._patterns.observe(key, new_evidence=judges_novelty and new_evidence)
        stability = check_stability(
            self._previous, key, self._config, masked=judges_novelty, news=judges_novelty and new_evidence
        )
        # A failure that no earlier call met, and that is not last round's over again, is still part of a search.
        searching = brought.new_failure and not stability.stable
        detector = self._detector(pattern, idle=not (new_evidence or searching))
        strike = self._count(detector, progress=new_evidence)
        self._previous, self._draft = key, round_.draft
        self._tools_offered = round_.tools_offered
        self._signals = Signals(stability, new_evidence, detector, strike, self._fruitless)
        return self._signals

    def inform(self, results: Sequence[ToolResult]) -> None:
        """Take in results that were there before the first round: evidence, and nothing new when it comes again."""
        for result in results:
            self._evidence.add(result)
            self._novelty.observe(result)
        self._evidence_since_verdict = self._evidence_since_verdict or bool(results)

    def decide_first(self, verdict: Verdict, *, settled: bool = False) -> Decision | None:
        """Return the decision to write the answer before anything is planned; None where planning comes first.

        Args:
            verdict: What was said of the evidence that was there before the first round.
            settled: Whether another loop has ended with this verdict.
        """
        accepted = verdict if settled else self._accept(verdict)
        if isinstance(accepted, UnavailableVerdict):
            return None
        self._verdict, self._verified_draft, self._evidence_since_verdict = accepted, "", False
        rule = select(PAPER_TABLE, Situation(verdict=accepted, stable=False, config=self._config))
        if rule.action is not ControlAction.ANSWER_SYNTHESIS:
            return None
        return self._record(rule.action, rule.branch, rule.reason, verdict=accepted, verified=not settled)

    def shortened(self, result: ToolResult, limit: int) -> str:
        """Return the content of a result in about `limit` characters: head, tail, and what was asked for."""
        return self._evidence.shortened(result, limit)

    def _take_in(self, round_: Round) -> Novelty:
        news = changed = new_failure = given = False
        alike: list[int] = []
        for result in round_.results:
            if not result.executed:
                continue
            given = carries(self._evidence.add(result)) or given
            known = result.call in self._tried
            if len(self._tried) < _REMEMBERED_CALLS or known:
                self._tried[result.call] += 1
            novelty = self._novelty.observe(result)
            news = news or novelty.news
            changed = changed or novelty.changed
            new_failure = new_failure or novelty.new_failure
            alike.append(self._alike[result.call] + 1 if known and not (novelty.changed or novelty.new_failure) else 1)
            if result.call in self._tried:
                self._alike[result.call] = alike[-1]
        self._in_vain = bool(alike) and not given
        times = min(alike, default=0)
        self._repeated = times if self._judges_novelty and times > 1 else 0
        if not self._judges_novelty:
            changed = bool(round_.results)
        self._evidence_since_verdict = self._evidence_since_verdict or changed
        return Novelty(news, changed, new_failure)

    def _detector(self, pattern: Detector | None, *, idle: bool) -> Detector | None:
        if pattern is None and self._judges_novelty and idle:
            return Detector.NOTHING_NEW
        return pattern

    def _count(self, detector: Detector | None, *, progress: bool) -> Strike:
        if not self._is_fruitless(detector):
            if progress or not self._judges_novelty:
                self._fruitless, self._nudged_at = 0, None
            return Strike.NONE
        self._fruitless += 1
        if not self._config.two_strikes:
            return Strike.NONE
        if self._nudged_at is None:
            return Strike.FIRST if self._fruitless >= self._config.patience else Strike.NONE
        return Strike.SECOND if self._fruitless >= self._nudged_at + _SECOND_STRIKE else Strike.NONE

    def _is_fruitless(self, detector: Detector | None) -> bool:
        # Twenty identical calls in a round are worth a mark, but what they bring for the first time is still news.
        return detector is not None and detector is not Detector.REPEATED_IN_ROUND

    def needs_verdict(self) -> bool:
        """Return whether the verifier must be asked about the round just observed.

        With `cheap_first` the last verdict stands while neither evidence nor draft changed; one that could not be had
        is asked for again only with new evidence or a new draft.
        """
        if self._config.policy is Policy.OFF or not self._config.slot_control:
            return False
        if not (self._extended and self._config.cheap_first):
            return True
        if self._verdict is None:
            return bool(self._draft or (self._previous and self._previous.calls))
        return self._evidence_since_verdict or self._draft != self._verified_draft

    def reopen(self) -> None:
        """Forget the verdict: the request has changed, so what is covered must be judged anew. Evidence stays."""
        self._verdict = self._verified_draft = None

    def worth_second_look(self, verdict: Verdict) -> bool:
        """Return whether this verdict on the round just observed would end the run, and nothing else would.

        Args:
            verdict: What the verifier said.
        """
        if not self._extended or not self._config.slot_control or self._signals.strike is not Strike.NONE:
            return False
        accepted = self._accept(verdict)
        if isinstance(accepted, UnavailableVerdict) or self._lacks_lookup(accepted):
            return False
        return self._situation(accepted).ready

    def decide(self, verdict: Verdict | None, *, settled: bool = False, candidates: Sequence[str] = ()) -> Decision:
        """Return the decision on the round just observed, and remember it.

        Args:
            verdict: What the verifier said; None where it was not asked, and the last verdict stands.
            settled: Whether another loop has ended with this verdict: its slots are checked against the evidence that
                loop had, and what it closed is stable.
            candidates: Items that similar past requests needed and nothing covers: they keep a run that this verdict
                would end going for this one round. The verdict that stands afterwards does not hold them.
        """
        if self._config.policy is Policy.OFF or not self._config.slot_control:
            return self._record(*self._decide_without_slots(), verdict=self._verdict, verified=False)
        keeps_going = bool(candidates) and verdict is not None and self.worth_second_look(verdict)
        if verdict is not None:
            self._take_verdict(verdict, settled=settled)
        elif self._unsupported is not None and not self._evidence.items:
            # Sent to look it up, the model stands by its answer: so does what was said of it.
            self._verdict, self._unsupported = self._unsupported, None
        current = self._verdict or UnavailableVerdict(cause="the verifier was not asked")
        if keeps_going:
            current = with_candidates(current, candidates)
        rule = select(EXTENDED_TABLE if self._extended else PAPER_TABLE, self._situation(current, settled=settled))
        if isinstance(current, UnavailableVerdict) and rule.branch is not ControlBranch.EXHAUSTED_BREAK and self._draft:
            reason = f"no verdict could be had ({current.cause}); the draft is returned unverified"
            action, branch = ControlAction.TERMINATE_ITERATION, ControlBranch.NO_VERDICT
            return self._record(action, branch, reason, verdict=self._verdict, verified=verdict is not None)
        if rule.branch is ControlBranch.NUDGE:
            self._nudged_at = self._fruitless
        if rule.branch is ControlBranch.EXHAUSTED_BREAK:
            self._verdict = current = _exhaust(current)
        reason = _NO_LOOKUP if self._unsupported is not None else rule.reason
        reason = f"{reason}: requests like this needed {', '.join(candidates)}" if keeps_going else reason
        shown = current if keeps_going else self._verdict
        return self._record(rule.action, rule.branch, reason, verdict=shown, verified=verdict is not None)

    def _take_verdict(self, verdict: Verdict, *, settled: bool) -> None:
        self._verdict = verdict if settled else self._accept(verdict)
        self._verified_draft, self._evidence_since_verdict, self._unsupported = self._draft, False, None
        if not settled and self._lacks_lookup(self._verdict):
            self._unsupported, self._verdict = self._verdict, sent_to_look_up(self._verdict)
            self._sent_to_look_up = True

    def _lacks_lookup(self, verdict: Verdict) -> bool:
        """Return whether the draft goes back, once in a run, because nothing was looked up for it."""
        if not (self._extended and self._config.grounding and self._tools_offered and self._draft):
            return False
        if self._sent_to_look_up or self._evidence.items or isinstance(verdict, UnavailableVerdict):
            return False
        return calls_for_lookup(verdict, self._draft, request=self._request)

    def _situation(self, verdict: Verdict, *, settled: bool = False) -> Situation:
        return Situation(
            verdict=verdict,
            stable=settled or bool(self._signals.stability.stable),
            config=self._config,
            strike=self._signals.strike if self._extended else Strike.NONE,
        )

    def _accept(self, verdict: Verdict) -> Verdict:
        if isinstance(verdict, UnavailableVerdict) and self._verdict is not None:
            # What was known to be open still is; a verifier that is down closes nothing and forgets nothing.
            return verdict.model_copy(update={"slots": self._verdict.slots, "missing": self._verdict.missing})
        if not self._extended:
            return verdict
        return reconcile(verdict, self._evidence.items, self._draft, self._config)

    def _decide_without_slots(self) -> tuple[ControlAction, ControlBranch, str]:
        if self._draft and self._previous is not None and not self._previous.calls:
            return ControlAction.TERMINATE_ITERATION, ControlBranch.MODEL_TEXT_BREAK, "the model answered in text"
        return ControlAction.CONTINUE_INVOCATION, ControlBranch.KEEP_DECODE, "the model called tools"

    def stop_for_budget(self, limit: Limit) -> Decision:
        """Replace the decision just made to go on by one to stop, because `limit` forbids another round."""
        if self._unsupported is not None:
            # There is no room to look anything up: the draft counts as it was judged.
            self.decisions.pop()
            self._verdict, self._unsupported = self._unsupported, None
            rule = select(EXTENDED_TABLE, self._situation(self._verdict))
            return self._record(rule.action, rule.branch, rule.reason, verdict=self._verdict, verified=True)
        return self._replace(ControlBranch.BUDGET_BREAK, f"ran out of {limit.value}")

    def stop_early(self, branch: ControlBranch, reason: str, *, action: ControlAction) -> Decision:
        """Record that the run ends in a round that no rule was asked about: a handoff, or planning that did not end."""
        self._signals = Signals(
            Stability(), new_evidence=False, detector=None, strike=Strike.NONE, fruitless=self._fruitless
        )
        return self._record(action, branch, reason, verdict=self._verdict, verified=False)

    def _replace(self, branch: ControlBranch, reason: str) -> Decision:
        action = ControlAction.TERMINATE_ITERATION if self._draft else ControlAction.ANSWER_SYNTHESIS
        last = self.decisions.pop()
        reason = f"{reason}; without it: {last.reason}"
        # An item that only past requests brought up must not end up as one that this run leaves open.
        changes = {"action": action, "branch": branch, "reason": reason, "verdict": self._verdict}
        decision = last.model_copy(update=changes)
        self.decisions.append(decision)
        return decision

    def _record(
        self, action: ControlAction, branch: ControlBranch, reason: str, *, verdict: Verdict | None, verified: bool
    ) -> Decision:
        signals = self._signals
        decision = Decision(
            round=len(self.decisions) + 1,
            action=action,
            branch=branch,
            verdict=verdict,
            verified=verified,
            s_call=signals.stability.s_call,
            s_result=signals.stability.s_result,
            stable=signals.stability.stable,
            detector=signals.detector,
            fruitless=signals.fruitless,
            reason=reason,
        )
        self.decisions.append(decision)
        return decision


def _exhaust(verdict: Verdict) -> Verdict:
    """Return the verdict with every open slot marked exhausted, and missing items without a slot given one."""
    named = {slot.name for slot in verdict.slots}
    slots = [
        slot.model_copy(update={"state": SlotState.EXHAUSTED})
        if slot.state in (SlotState.MISSING, SlotState.CONFLICTING)
        else slot
        for slot in verdict.slots
    ]
    slots += [Slot(name=name, state=SlotState.EXHAUSTED) for name in verdict.missing if name not in named]
    return verdict.model_copy(update={"slots": tuple(slots)})
