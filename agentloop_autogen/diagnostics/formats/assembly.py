"""From documents to traces: every form is handed to its reader, messages that belong together are gathered first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from typing_extensions import assert_never

from agentloop_autogen.diagnostics.formats.autogen import AgentLines, read_task_result
from agentloop_autogen.diagnostics.formats.bench_attempt import read_attempt
from agentloop_autogen.diagnostics.formats.detection import Form, form_of
from agentloop_autogen.diagnostics.formats.event_log import EventLog
from agentloop_autogen.diagnostics.formats.fields import FormatError, is_list, is_object, kind
from agentloop_autogen.diagnostics.formats.openai_chat import ChatLines, read_chat
from agentloop_autogen.diagnostics.formats.otel import SpanTraces
from agentloop_autogen.diagnostics.formats.place import Document, Place
from agentloop_autogen.diagnostics.formats.record import read_record
from agentloop_autogen.diagnostics.formats.run_log import read_run_log
from agentloop_autogen.diagnostics.trace import Trace

__all__ = ["Assembler"]

_EXPECTED = "expected a trace in one of the known forms"


class Assembler:
    """Makes the traces of one file.

    Args:
        fail: Is told of every document that is no trace: its place and the reason.
    """

    def __init__(self, fail: Callable[[Place, str], None]) -> None:
        self._fail = fail
        self._chat = ChatLines()
        self._agents = AgentLines()
        self._events = EventLog(fail)
        self._spans = SpanTraces(fail)
        self._array = 0

    def feed(self, document: Document) -> Iterator[Trace]:
        """Take the next document.

        Args:
            document: The document.

        Yields:
            Traces that are complete with it.
        """
        place = document.place
        if place.array != self._array:
            # What stands in different arrays, or in one and outside of it, does not belong together.
            self._array = place.array
            yield from self._gathered(None)
        try:
            if is_list(document.value):
                yield from self._of_array(document.value, place)
            elif is_object(document.value):
                yield from self._of_object(document.value, place)
            else:
                raise FormatError(f"{_EXPECTED}, found {kind(document.value)}")
        except RecursionError:
            self._fail(place, f"{_EXPECTED}, found one that is nested too deeply")
        except FormatError as error:
            self._fail(place, str(error))

    def finish(self) -> Iterator[Trace]:
        """Take notice of the end of the file.

        Yields:
            Traces that are complete with it.
        """
        yield from self._gathered(None)
        yield from self._events.finish()
        yield from self._spans.finish()

    def close(self) -> None:
        """Let go of everything; more than once does no harm."""
        self._spans.close()

    def _of_array(self, value: list[object], place: Place) -> Iterator[Trace]:
        """Read an array within an array: the messages of one conversation."""
        yield from self._gathered(None)
        for item in value:
            if not is_object(item) or form_of(item) not in (Form.CHAT_MESSAGE, Form.AGENT_MESSAGE):
                raise FormatError(f"expected an array of messages, found one with {kind(item)}")
            yield from self._of_object(item, place)
        yield from self._gathered(None)

    def _of_object(self, value: dict[str, object], place: Place) -> Iterator[Trace]:
        form = form_of(value)
        if form is Form.TASK_RESULT and self._agents.repeats(value):
            # The last thing a stream gives is its result, with all that came before in it.
            return
        yield from self._gathered(form)
        match form:
            case None:
                raise FormatError(f"{_EXPECTED}, found {kind(value)}")
            case Form.RECORD:
                yield read_record(value, place)
            case Form.RUN_LOG:
                yield read_run_log(value, place)
            case Form.ATTEMPT:
                yield read_attempt(value)
            case Form.CHAT:
                yield read_chat(value, place)
            case Form.TASK_RESULT:
                yield read_task_result(value, place)
            case Form.CHAT_MESSAGE:
                yield from _if_any(self._chat.feed(value, place))
            case Form.AGENT_MESSAGE:
                yield from _if_any(self._agents.feed(value, place))
            case Form.EVENT:
                yield from self._events.feed(value, place)
            case Form.SPANS | Form.SPAN:
                self._spans.feed(value, place)
            case _:
                assert_never(form)

    def _gathered(self, form: Form | None) -> Iterator[Trace]:
        """End what a document of this form does not go on with."""
        if form is not Form.CHAT_MESSAGE:
            yield from _if_any(self._chat.finish())
        if form is not Form.AGENT_MESSAGE:
            yield from _if_any(self._agents.finish())


def _if_any(trace: Trace | None) -> Iterator[Trace]:
    if trace is not None:
        yield trace
