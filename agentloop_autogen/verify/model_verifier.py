"""The verifier that asks a model: one structured call per verdict, bounded in time, and never a raised fault."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast

from autogen_core import CancellationToken, Component, ComponentModel, FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    ChatCompletionTokenLogprob,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Self, assert_never

from agentloop_autogen.core.records import Evidence, UnavailableVerdict, Verdict
from agentloop_autogen.faults import describe_error
from agentloop_autogen.slots.hint import SlotHint
from agentloop_autogen.verify.confidence import LOGPROB_ARGS, calibrated
from agentloop_autogen.verify.create_args import verdict_args
from agentloop_autogen.verify.hinted import HintedSlotVerifier
from agentloop_autogen.verify.prompts import PromptLimits, halved, instructions, render_case, render_repair
from agentloop_autogen.verify.refusals import Fault, classify, refuses_logprobs, salvage
from agentloop_autogen.verify.usage import record_usage
from agentloop_autogen.verify.wire import ParsedVerdict, parse_verdict, wire_model
from agentloop_autogen.waiting import leave_behind, stop_task

__all__ = ["ModelSlotVerifier", "ModelSlotVerifierConfig"]


class _Mode(Enum):
    """How the model is held to the output format, strongest first."""

    SCHEMA = "json_schema"
    JSON = "json_object"
    PROMPT = "prompt"


_LADDER = tuple(_Mode)


class _End(Enum):
    """How waiting for a verdict ended."""

    DONE = "done"
    CANCELLED = "cancelled"
    TIME_UP = "time_up"


class ModelSlotVerifierConfig(BaseModel):
    """Settings of a `ModelSlotVerifier` as they are dumped and loaded."""

    model_config = ConfigDict(extra="forbid")

    model_client: ComponentModel
    timeout_s: float = Field(default=30.0, gt=0.0, allow_inf_nan=False)
    max_slots: int = Field(default=8, ge=1, le=64)
    max_quote_chars: int = Field(default=160, ge=8, le=2_000)
    max_request_chars: int = Field(default=4_000, ge=80)
    max_draft_chars: int = Field(default=4_000, ge=80)
    max_evidence_chars: int = Field(default=12_000, ge=200)
    extra_create_args: dict[str, Any] = Field(default_factory=dict[str, Any])
    calibrated_confidence: bool = False


@dataclass(frozen=True)
class _Reply:
    """What a model wrote, whatever the client made of it."""

    text: str
    thought: str = ""
    logprobs: Sequence[ChatCompletionTokenLogprob] | None = None


@dataclass
class _Case:
    """One `verify` call: what is judged, and the best verdict so far, kept in case time runs out."""

    request: str
    draft: str
    evidence: Sequence[Evidence]
    token: CancellationToken | None
    hint: SlotHint | None = None
    fallback: Verdict | None = None
    abandoned: bool = False
    """Nobody waits any more: a client that survived its cancellation must not be called again."""

    @property
    def texts(self) -> list[str]:
        past = self.hint.texts if self.hint else ()
        return [self.request, self.draft, *past, *(piece.finding for piece in self.evidence)]


class ModelSlotVerifier(HintedSlotVerifier, Component[ModelSlotVerifierConfig]):
    """A verifier that asks a chat model which items of the request the evidence and the draft cover.

    One instance serves any number of agents at the same time. It asks for the strongest output format that the client
    claims, steps down once the server refuses it, and remembers that.

    Args:
        model_client: The model to ask; it stays the caller's to close.
        timeout_s: Wall seconds of one `verify` call, its retries included.
        max_slots: Slots of a verdict, at most.
        max_quote_chars: Characters of a quote, at most.
        max_request_chars: Characters of the request that are shown to the model, head and tail.
        max_draft_chars: Characters of the draft that are shown, head and tail.
        max_evidence_chars: Characters of all evidence that are shown; long results are cut, then the oldest dropped.
        extra_create_args: Passed to every model call, such as `{"temperature": 0}`. None: nothing.
        calibrated_confidence: Take the confidence from the probabilities of the verdict's flags instead of the number
            the model states; where the server gives no log probabilities, that number stays.

    Raises:
        pydantic.ValidationError: A bound is out of range.
    """

    component_config_schema = ModelSlotVerifierConfig
    component_provider_override = "agentloop_autogen.ModelSlotVerifier"
    component_version = 1

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        timeout_s: float = 30.0,
        max_slots: int = 8,
        max_quote_chars: int = 160,
        max_request_chars: int = 4_000,
        max_draft_chars: int = 4_000,
        max_evidence_chars: int = 12_000,
        extra_create_args: Mapping[str, Any] | None = None,
        calibrated_confidence: bool = False,
    ) -> None:
        self._model_client = model_client
        self._settings = ModelSlotVerifierConfig(
            # The client is dumped only when the verifier is: not every client can be.
            model_client=ComponentModel(provider="not.dumped", config={}),
            timeout_s=timeout_s,
            max_slots=max_slots,
            max_quote_chars=max_quote_chars,
            max_request_chars=max_request_chars,
            max_draft_chars=max_draft_chars,
            max_evidence_chars=max_evidence_chars,
            extra_create_args=dict(extra_create_args or {}),
            calibrated_confidence=calibrated_confidence,
        )
        self._asks_logprobs = calibrated_confidence
        self._system = instructions(max_slots=max_slots, max_quote_chars=max_quote_chars)
        self._schema = wire_model(max_slots=max_slots, max_quote_chars=max_quote_chars)
        self._key = secrets.token_hex(4)
        self._mode = _strongest_mode(model_client)

    async def verify(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Ask the model for a verdict; a fault of model, server or reply becomes an `UnavailableVerdict`.

        Args:
            request: What the user asked for.
            draft: The answer as far as it is written; may be empty.
            evidence: The compressed tool results so far, oldest first.
            cancellation_token: Handed to the client as it is; cancelling it ends the call at once.

        Returns:
            The verdict, contradictions resolved towards going on.

        Raises:
            asyncio.CancelledError: The token or the calling task was cancelled; nothing else is ever raised.
        """
        return await self._verdict_on(_Case(request, draft, tuple(evidence), cancellation_token))

    async def verify_with_hint(
        self,
        request: str,
        draft: str,
        evidence: Sequence[Evidence],
        *,
        hint: SlotHint,
        cancellation_token: CancellationToken | None = None,
    ) -> Verdict:
        """Ask the model as `verify` does, with what similar past requests needed behind the draft.

        Args:
            request: What the user asked for.
            draft: The answer as far as it is written; may be empty.
            evidence: The compressed tool results so far, oldest first.
            hint: What similar past requests needed.
            cancellation_token: Handed to the client as it is; cancelling it ends the call at once.

        Returns:
            The verdict, contradictions resolved towards going on.

        Raises:
            asyncio.CancelledError: The token or the calling task was cancelled; nothing else is ever raised.
        """
        return await self._verdict_on(_Case(request, draft, tuple(evidence), cancellation_token, hint))

    async def _verdict_on(self, case: _Case) -> Verdict:
        cancellation_token = case.token
        if cancellation_token is not None and cancellation_token.is_cancelled():
            raise asyncio.CancelledError
        task = asyncio.ensure_future(self._judge(case))
        try:
            end = await _wait(task, token=cancellation_token, timeout_s=self._settings.timeout_s)
            if end is not _End.DONE:
                case.abandoned = True
                await stop_task(task)
        finally:
            case.abandoned = True
            leave_behind(task)
        if end is _End.CANCELLED:
            raise asyncio.CancelledError
        return self._outcome(case, task, end)

    def _outcome(self, case: _Case, task: asyncio.Future[Verdict], end: _End) -> Verdict:
        if end is _End.TIME_UP:
            cause = f"no verdict within {self._settings.timeout_s:g} s"
        elif task.cancelled():
            cause = "the model client cancelled its own call"
        elif (error := task.exception()) is not None:
            cause = describe_error(error)
        else:
            return task.result()
        return case.fallback or UnavailableVerdict(cause=cause)

    async def _judge(self, case: _Case) -> Verdict:
        first = await self._ask(case, repair=None)
        if first.verdict is not None and not first.doubtful:
            return first.verdict
        case.fallback = first.verdict
        problems = first.contradictions or (("it broke off; write less",) if first.truncated else ())
        second = await self._ask(case, repair=render_repair(problems))
        verdict = second.verdict or first.verdict
        return verdict or UnavailableVerdict(cause="the model wrote no readable verdict, not even when asked again")

    async def _ask(self, case: _Case, *, repair: str | None) -> ParsedVerdict:
        """Make one model call, stepping down from formats that are refused and once from a prompt that is too long."""
        limits = PromptLimits(
            request=self._settings.max_request_chars,
            draft=self._settings.max_draft_chars,
            evidence=self._settings.max_evidence_chars,
        )
        mode, shorter = self._mode, None
        while True:
            if case.abandoned:
                raise asyncio.CancelledError
            messages = self._messages(case, limits, repair)
            try:
                reply = await self._call(messages, mode, case.token)
            except Exception as error:  # Each client refuses in its own way; what is no refusal is raised again.
                fault = classify(error)
                if self._asks_logprobs and refuses_logprobs(error):
                    self._asks_logprobs = False
                elif fault is Fault.TOO_LONG and shorter is None and (shorter := self._halved(limits, case)):
                    limits = shorter
                elif fault is Fault.FORMAT_REFUSED and mode is not _LADDER[-1]:
                    mode = _LADDER[_LADDER.index(mode) + 1]
                else:
                    raise
                continue
            # Only a mode that worked is remembered: a server that refuses everything refuses something else.
            self._mode = max(self._mode, mode, key=_LADDER.index)
            parsed = parse_verdict(reply.text, thought=reply.thought, echoes=case.texts, draft=case.draft)
            return _known_ids(_calibrated(parsed, reply), case.evidence)

    def _halved(self, limits: PromptLimits, case: _Case) -> PromptLimits | None:
        return halved(limits, case.request, case.draft, case.evidence, key=self._key)

    def _messages(self, case: _Case, limits: PromptLimits, repair: str | None) -> list[LLMMessage]:
        """Two messages in any case: some chat templates refuse a second system message or two user turns in a row."""
        text = render_case(case.request, case.draft, case.evidence, key=self._key, limits=limits, hint=case.hint)
        text = text if repair is None else f"{text}\n\n{repair}"
        return [SystemMessage(content=self._system), UserMessage(content=text, source="user")]

    async def _call(self, messages: list[LLMMessage], mode: _Mode, token: CancellationToken | None) -> _Reply:
        """Call the client and get the reply, also from an error that holds it."""
        extra = verdict_args(self._model_client, self._settings.extra_create_args)
        if self._asks_logprobs:
            extra = {**LOGPROB_ARGS, **extra}
        options: dict[str, Any] = {"extra_create_args": extra} if extra else {}
        match mode:
            case _Mode.SCHEMA:
                options["json_output"] = self._schema
            case _Mode.JSON:
                options["json_output"] = True
            case _Mode.PROMPT:
                pass
            case _:
                assert_never(mode)
        try:
            result = await self._model_client.create(messages, cancellation_token=token, **options)
        except Exception as error:  # The reply may be in whatever a client raises; without one it is raised again.
            saved = salvage(error)
            if saved is None:
                raise
            record_usage(saved[1])
            return _Reply(saved[0])
        record_usage(result.usage)
        return _Reply(_text_of(result), result.thought or "", result.logprobs if self._asks_logprobs else None)

    def _to_config(self) -> ModelSlotVerifierConfig:
        return self._settings.model_copy(update={"model_client": self._model_client.dump_component()})

    @classmethod
    def _from_config(cls, config: ModelSlotVerifierConfig) -> Self:
        options = {
            name: getattr(config, name) for name in ModelSlotVerifierConfig.model_fields if name != "model_client"
        }
        return cls(ChatCompletionClient.load_component(config.model_client), **options)


async def _wait(task: asyncio.Future[Verdict], *, token: CancellationToken | None, timeout_s: float) -> _End:
    """Wait until the task ends, the token is cancelled or time is up, and say which it was."""
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if token is not None:
        token.link_future(gate)
    try:
        await asyncio.wait({task, gate}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return _End.CANCELLED if gate.cancelled() else _End.DONE if task.done() else _End.TIME_UP
    finally:
        gate.cancel()


def _strongest_mode(client: ChatCompletionClient) -> _Mode:
    try:
        info = cast("Mapping[str, object]", client.model_info)
        schema, json = bool(info.get("structured_output")), bool(info.get("json_output"))
    except Exception:  # noqa: BLE001 - an old or odd client without `model_info` is asked in plain words
        return _Mode.PROMPT
    return _Mode.SCHEMA if schema else _Mode.JSON if json else _Mode.PROMPT


def _text_of(result: CreateResult) -> str:
    """The text of a reply, whatever the client put in its place: a string, an object, or tool calls."""
    content: object = result.content
    if isinstance(content, str):
        return content
    if isinstance(content, BaseModel):
        return content.model_dump_json()
    calls = cast("Sequence[object]", content or ())
    return "\n".join(call.arguments for call in calls if isinstance(call, FunctionCall))


def _calibrated(parsed: ParsedVerdict, reply: _Reply) -> ParsedVerdict:
    # A verdict that broke off has no confidence at all.
    if parsed.verdict is None or parsed.truncated:
        return parsed
    return replace(parsed, verdict=calibrated(parsed.verdict, reply.logprobs))


def _known_ids(parsed: ParsedVerdict, evidence: Sequence[Evidence]) -> ParsedVerdict:
    """Drop ids of evidence that does not exist; a slot left without any is sought in all evidence."""
    if parsed.verdict is None:
        return parsed
    known = {piece.id for piece in evidence}
    slots = tuple(
        slot.model_copy(update={"evidence": tuple(name for name in slot.evidence if name in known)})
        for slot in parsed.verdict.slots
    )
    verdict = parsed.verdict.model_copy(update={"slots": slots})
    return replace(parsed, verdict=verdict)
