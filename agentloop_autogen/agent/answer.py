"""The answer call: two differently shaped attempts, then a text built from the evidence (Algorithm 1, 21 and 24)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from autogen_core import CancellationToken, Image
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, SystemMessage, UserMessage
from pydantic import BaseModel, ValidationError

from agentloop_autogen.agent import prompts
from agentloop_autogen.agent.bounded import bounded
from agentloop_autogen.agent.calls import encodable, is_call_markup
from agentloop_autogen.agent.model_call import ModelCall, characters_of
from agentloop_autogen.core.budget import Budget, Role
from agentloop_autogen.core.normalise import normalise_arguments, without_thinking
from agentloop_autogen.core.records import Evidence, RequestUsage
from agentloop_autogen.faults import describe_error
from agentloop_autogen.jsonish import json_objects, without_fence

__all__ = ["Answer", "AnswerRequest", "AnswerWriter", "echoes_result"]

_ECHO_CHARS: Final = 40
"""A structured result of this length or more, given back word for word, is raw tool output and no answer."""
_EVIDENCE_SHARE: Final = 0.8


@dataclass(frozen=True)
class AnswerRequest:
    """Everything an answer is written from."""

    request: str
    images: Sequence[Image]
    system: str
    evidence: Sequence[Evidence]
    draft: str
    standing: prompts.Standing
    tool_names: Sequence[str]
    output_type: type[BaseModel] | None


@dataclass(frozen=True)
class Answer:
    """What came of the answer calls."""

    text: str
    message_id: str
    structured: BaseModel | None = None
    usage: RequestUsage = field(default_factory=RequestUsage)
    """Tokens of every attempt."""
    thought: str | None = None
    fallback: bool = False
    truncated: bool = False
    problem: str = ""
    """Why the last attempt that failed did."""


class AnswerWriter:
    """Writes the answer of one run.

    Args:
        call: The model call.
        client: The same client, for what it says of its model.
        budget: Counts the attempts and their tokens.
        token: The run's token.
        remaining_s: Seconds left for the answer.
        limit: Characters of an answer prompt.
    """

    def __init__(
        self,
        call: ModelCall,
        client: ChatCompletionClient,
        *,
        budget: Budget,
        token: CancellationToken,
        remaining_s: Callable[[], float],
        limit: int,
    ) -> None:
        self._call = call
        self._info: ModelInfo = client.model_info
        self._budget = budget
        self._token = token
        self._remaining_s = remaining_s
        self._limit = limit

    async def write(self, wanted: AnswerRequest) -> Answer:
        """Return the answer: of the first attempt, the second, or built from the evidence. Never empty, never a fault.

        Raises:
            asyncio.CancelledError: The run was cancelled.
        """
        usage = RequestUsage()
        problem = "no answer call was allowed"
        cut_short: Answer | None = None
        for shape, strict in ((self._first_shape, True), (self._second_shape, False)):
            if not self._budget.answer_calls_left():
                break
            messages, json_output = shape(wanted, problem)
            outcome = await self._attempt(messages, json_output, wanted, strict=strict)
            usage += outcome.usage
            if outcome.text and not outcome.truncated:
                return _with_usage(outcome, usage)
            cut_short = outcome if outcome.text else cut_short
            problem = outcome.problem
        if cut_short is not None:
            return _with_usage(cut_short, usage)
        text = prompts.fallback_text(wanted.evidence, wanted.standing.unresolved, problem=problem, draft=wanted.draft)
        return Answer(text, str(uuid.uuid4()), usage=usage, fallback=True, problem=problem)

    def _first_shape(
        self, wanted: AnswerRequest, problem: str
    ) -> tuple[list[LLMMessage], bool | type[BaseModel] | None]:
        guided = self._json_output(wanted.output_type)
        text = prompts.answer_prompt(
            wanted.request,
            wanted.evidence,
            draft=wanted.draft,
            standing=wanted.standing,
            limit=int(self._limit * _EVIDENCE_SHARE),
            output_type=wanted.output_type,
            guided=isinstance(guided, type),
        )
        user = UserMessage(content=[text, *wanted.images] if wanted.images else text, source="user")
        system = [SystemMessage(content=wanted.system)] if wanted.system else []
        return [*system, user], guided

    def _second_shape(
        self, wanted: AnswerRequest, problem: str
    ) -> tuple[list[LLMMessage], bool | type[BaseModel] | None]:
        text = prompts.plain_answer_prompt(
            wanted.request,
            wanted.evidence,
            standing=wanted.standing,
            limit=int(self._limit * _EVIDENCE_SHARE),
            problem=problem,
            output_type=wanted.output_type,
        )
        return [UserMessage(content=text, source="user")], None

    def _json_output(self, output_type: type[BaseModel] | None) -> bool | type[BaseModel] | None:
        if output_type is None:
            return None
        if self._info.get("structured_output", False):
            return output_type
        return True if self._info.get("json_output", False) else None

    async def _attempt(
        self,
        messages: Sequence[LLMMessage],
        json_output: bool | type[BaseModel] | None,
        wanted: AnswerRequest,
        *,
        strict: bool,
    ) -> Answer:
        message_id = str(uuid.uuid4())
        self._budget.synthesis_calls += 1
        try:
            result = await bounded(
                self._call(messages, message_id=message_id, json_output=json_output),
                token=self._token,
                remaining_s=self._remaining_s,
            )
        except asyncio.TimeoutError:
            return Answer("", message_id, problem="the time of this run is over")
        except Exception as error:  # noqa: BLE001 - whatever a client raises, the run must end with a reply
            return Answer("", message_id, problem=describe_error(error))
        usage = RequestUsage(prompt_tokens=result.usage.prompt_tokens, completion_tokens=result.usage.completion_tokens)
        self._budget.spend_tokens(Role.SYNTHESIS, usage, characters=characters_of(messages, result))
        return _read(result, wanted, message_id=message_id, usage=usage, strict=strict)


def _with_usage(answer: Answer, usage: RequestUsage) -> Answer:
    return Answer(
        answer.text.rstrip(),
        answer.message_id,
        structured=answer.structured,
        usage=usage,
        thought=answer.thought,
        truncated=answer.truncated,
        problem=answer.problem,
    )


def _read(result: CreateResult, wanted: AnswerRequest, *, message_id: str, usage: RequestUsage, strict: bool) -> Answer:
    """Return the reply as an answer, or without text and with the problem where it is none."""
    if not isinstance(result.content, str):
        return Answer("", message_id, usage=usage, problem="it called a tool instead of answering")
    text = without_thinking(encodable(result.content))
    problem = _objection(text, wanted, strict=strict)
    if problem:
        return Answer("", message_id, usage=usage, problem=problem)
    truncated = result.finish_reason == "length"
    structured: BaseModel | None = None
    if wanted.output_type is not None:
        structured = _parse(text, wanted.output_type)
        if structured is None:
            return Answer("", message_id, usage=usage, problem="it did not fit the output type")
    problem = "it was cut off for its length" if truncated else ""
    return Answer(
        text,
        message_id,
        structured,
        usage,
        thought=result.thought,
        truncated=truncated and structured is None,
        problem=problem,
    )


def _objection(text: str, wanted: AnswerRequest, *, strict: bool) -> str:
    if not text:
        return "it was empty"
    if is_call_markup(text, wanted.tool_names):
        return "it was a tool call written as text"
    if strict and wanted.output_type is None and echoes_result(text, wanted.evidence):
        return "it was a raw tool result"
    return ""


def echoes_result(text: str, evidence: Sequence[Evidence]) -> bool:
    """Return whether `text` is a structured tool result given back word for word."""
    body = without_fence(text)
    if len(body) < _ECHO_CHARS or not body.startswith(("{", "[")):
        return False
    # As JSON in canonical spelling, so that a new layout or key order does not hide the echo.
    said = normalise_arguments(body)
    return any(said == normalise_arguments(piece.finding) for piece in evidence)


def _parse(text: str, output_type: type[BaseModel]) -> BaseModel | None:
    for candidate in (text, *json_objects(text)):
        try:
            return output_type.model_validate_json(candidate)
        except ValidationError:
            continue
    return None
