"""Runs as spans of OpenTelemetry tell them, after its conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.core.rounds import ToolCall
from agentloop_autogen.diagnostics.formats.chat_messages import SYSTEM_ROLES, content_text, role_of, take_message
from agentloop_autogen.diagnostics.formats.conversation import Asked, Conversation, OpenRound, Returned
from agentloop_autogen.diagnostics.formats.fields import FormatError, as_text, flag, text
from agentloop_autogen.diagnostics.formats.place import MAX_BYTES, Place
from agentloop_autogen.diagnostics.formats.span_messages import input_messages, output_messages
from agentloop_autogen.diagnostics.formats.span_store import SpanStore
from agentloop_autogen.diagnostics.formats.spans import Span, span_of, spans_of
from agentloop_autogen.diagnostics.trace import Trace

__all__ = ["SpanTraces"]

_MODEL_CALLS = ("chat", "generate_content", "text_completion")
_AGENT_CALLS = ("invoke_agent", "invoke_workflow")


class SpanTraces:
    """Gathers the spans of one file, and gives the traces at its end.

    Args:
        fail: Is told of every trace that cannot be read: its place and the reason.
    """

    def __init__(self, fail: Callable[[Place, str], None]) -> None:
        self._fail = fail
        self._store: SpanStore | None = None

    def feed(self, document: Mapping[str, object], place: Place) -> None:
        """Take an OTLP document, or a single span.

        Args:
            document: The JSON object.
            place: Where it stands.

        Raises:
            FormatError: It is not what it must be; what came before the fault in it is kept.
        """
        self._store = self._store or SpanStore()
        count = 0
        for span in spans_of(document) if "resourceSpans" in document else (span_of(document),):
            self._store.add(span, place)
            count += 1
        if not count:
            raise FormatError("expected spans in `resourceSpans`, found none")

    def finish(self) -> Iterator[Trace]:
        """Yield the traces."""
        if self._store is None:
            return
        for trace_id, place, spans in self._store.traces():
            try:
                if place.size > MAX_BYTES:
                    raise FormatError(f"the spans of one trace are larger than {MAX_BYTES // 2**20} MiB together")
                yield _trace_from(trace_id, place, spans)
            except FormatError as error:
                self._fail(place, f"trace {trace_id[:40]}: {error}")
            except RecursionError:
                self._fail(place, f"trace {trace_id[:40]}: its messages are nested too deeply")

    def close(self) -> None:
        """Remove what was put aside."""
        if self._store is not None:
            self._store.close()


def _trace_from(trace_id: str, place: Place, spans: Iterable[Span]) -> Trace:
    run = _SpanRun()
    for span in spans:
        run.take(span)
    if not run.tells:
        raise FormatError("none of its spans is a call of a model, an agent or a tool (`gen_ai.operation.name`)")
    conversation = run.conversation
    root = run.root
    attributes: Mapping[str, object] = root.attributes if root else {}
    final = run.final if run.final and run.outermost else conversation.final or run.final
    waits = bool(conversation.rounds) and len(conversation.rounds[-1].results) < len(conversation.rounds[-1].calls)
    return Trace(
        id=text(attributes, "agentloop.trace.id") or trace_id,
        source=run.service or place.source,
        model=run.model,
        request=run.request if run.request and run.outermost else conversation.request or run.request,
        rounds=conversation.closed(turns_known=run.users > 0),
        final="" if waits else final,
        correct=flag(attributes, "agentloop.correct"),
        completed=not (root is not None and root.failed),
        usage=(run.usage if run.outermost else None) or conversation.usage or run.usage,
        elapsed_s=run.elapsed_s,
    )


@dataclass
class _SpanRun:
    """One trace, span by span in the order of their starts."""

    conversation: Conversation = field(default_factory=Conversation)
    root: Span | None = None
    """The first span without a parent."""
    model: str = ""
    service: str = ""
    request: str = ""
    """What the agent was asked, by its own span."""
    final: str = ""
    """What the agent replied, by its own span."""
    usage: RequestUsage | None = None
    """Tokens of the whole, by the agent's own span."""
    users: int = 0
    """User messages in the last prompt; 0: prompts are not told."""
    outermost: bool = False
    """Whether that span is the root, so that what it says holds for the whole request."""
    tells: bool = False
    """Whether any span is one of generative AI."""
    _start: int | None = None
    _end: int = 0
    _hidden: OpenRound | None = None
    """The round of a model call that does not tell what it gave."""
    _tools_until: int = 0
    """When the last tool that stands without a model call ended."""
    _unfilled: dict[str, tuple[OpenRound, int]] = field(default_factory=dict[str, "tuple[OpenRound, int]"])
    """Results whose spans do not tell what came back, by the id of their call: a later prompt may."""

    @property
    def elapsed_s(self) -> float | None:
        """Seconds of the root, or of all spans where there is no root; None: it took no time, so nobody recorded it."""
        start, end = (self.root.start_ns, self.root.end_ns) if self.root else (self._start or 0, self._end)
        return (end - start) / 1e9 if end > start else None

    def take(self, span: Span) -> None:
        """Take the next span."""
        self._start = span.start_ns if self._start is None else self._start
        self._end = max(self._end, span.end_ns)
        if self.root is None and not span.parent_id:
            self.root = span
        self.service = self.service or span.service
        operation = span.text("gen_ai.operation.name")
        if operation in _MODEL_CALLS or (not operation and span.text("gen_ai.request.model")):
            self._model_call(span)
        elif operation == "execute_tool":
            self._tool(span)
        elif operation in _AGENT_CALLS:
            self._agent(span)
        else:
            return
        self.tells = True
        self.model = self.model or span.text("gen_ai.response.model", "gen_ai.request.model")

    def _agent(self, span: Span) -> None:
        outermost = span is self.root
        if outermost or not (self.request or self.final):
            self.request = "\n\n".join(_said(input_messages(span), "user"))
            self.final = "\n\n".join(_said(output_messages(span)[:1], "assistant"))
            self.usage = _usage(span)
            self.outermost = outermost

    def _model_call(self, span: Span) -> None:
        prompt = [message for message in input_messages(span) if role_of(message) not in SYSTEM_ROLES]
        self._take_prompt(prompt)
        told = output_messages(span)
        if told:
            take_message(self.conversation, {**told[0], "role": "assistant"}, _usage(span))
            self._hidden = None
        elif not span.failed:
            self._hidden = self.conversation.reply("", usage=_usage(span))

    def _take_prompt(self, prompt: list[dict[str, object]]) -> None:
        asked = [index for index, message in enumerate(prompt) if role_of(message) == "user"]
        if not self.conversation.rounds:
            # A prompt may begin with earlier requests: what was asked behind the last reply is this one.
            replies = [index for index, message in enumerate(prompt) if role_of(message) == "assistant"]
            behind = [index for index in asked if not replies or index > replies[-1]] or asked[-1:]
            for index in behind if self.conversation.empty else ():
                self.conversation.user(content_text(prompt[index].get("content")))
        elif len(asked) > self.users:
            self.conversation.user("")
        self.users = len(asked)
        for message in prompt:
            if role_of(message) == "tool":
                self._take_response(text(message, "tool_call_id"), as_text(message.get("content")))

    def _take_response(self, call_id: str, content: str) -> None:
        unfilled = self._unfilled.pop(call_id, None)
        if unfilled is not None:
            round_, index = unfilled
            round_.results[index] = replace(round_.results[index], content=content)
        elif call_id and self.conversation.waits_for(Returned(call_id, "", content)):
            self.conversation.result(Returned(call_id, "", content))

    def _tool(self, span: Span) -> None:
        name, call_id = span.text("gen_ai.tool.name"), span.text("gen_ai.tool.call.id")
        told = span.attributes.get("gen_ai.tool.call.result")
        content = as_text(told) if told is not None else _failure(span)
        returned = Returned(call_id, name, content, span.failed)
        if not self.conversation.waits_for(returned):
            self._place_for(span)
            arguments = as_text(span.attributes.get("gen_ai.tool.call.arguments"))
            self.conversation.late_call(Asked(call_id, ToolCall(name, arguments)))
        round_ = self.conversation.result(returned)
        if call_id and told is None:
            self._unfilled[call_id] = (round_, len(round_.results) - 1)

    def _place_for(self, span: Span) -> None:
        """See to it that the last round is the one of a tool no model call told of; overlapping ones share it."""
        alone = self._hidden is None and span.start_ns >= self._tools_until
        if not self.conversation.rounds or alone:
            self.conversation.reply("")
        if self._hidden is None:
            self._tools_until = max(self._tools_until, span.end_ns)


def _said(messages: list[dict[str, object]], role: str) -> list[str]:
    texts = [content_text(message.get("content")) for message in messages if role_of(message) == role]
    return [said for said in texts if said]


def _usage(span: Span) -> RequestUsage | None:
    prompt = span.count("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    completion = span.count("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    if prompt is None and completion is None:
        return None
    return RequestUsage(prompt_tokens=prompt or 0, completion_tokens=completion or 0)


def _failure(span: Span) -> str:
    """What a failed tool left behind in words; empty where it did not fail."""
    if not span.failed:
        return ""
    for event in span.events:
        said = event.attributes.get("exception.message")
        if isinstance(said, str):
            return said
    return span.problem or span.text("error.type")
