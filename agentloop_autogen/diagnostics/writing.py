"""Writing traces as JSON lines, in this package's own form or in one that other tools read."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TextIO, cast
from uuid import uuid4

from typing_extensions import assert_never

from agentloop_autogen.diagnostics.formats.autogen import autogen_from
from agentloop_autogen.diagnostics.formats.openai_chat import openai_from
from agentloop_autogen.diagnostics.formats.otel_writing import otlp_from
from agentloop_autogen.diagnostics.formats.record import record_from
from agentloop_autogen.diagnostics.trace import Trace
from agentloop_autogen.errors import TraceError

__all__ = ["TraceFormat", "to_record", "write_traces"]

_SURROGATE = re.compile("[\ud800-\udfff]")


class TraceFormat(str, Enum):
    """The forms traces can be written in.

    `record`: everything a trace knows. `openai`: chats with tool calls. `autogen`: task results with control events.
    `otel`: spans of OpenTelemetry in OTLP's JSON. The last three leave out what they have no place for.
    """

    RECORD = "record"
    OPENAI = "openai"
    AUTOGEN = "autogen"
    OTEL = "otel"


def write_traces(
    traces: Iterable[Trace], target: str | PathLike[str] | TextIO, *, form: TraceFormat = TraceFormat.RECORD
) -> int:
    """Write traces as JSON lines, one trace a line.

    Args:
        traces: The traces; they are taken one by one.
        target: A path, whose file is replaced only once all is written, and packed if its name ends in `.gz`; or a
            text stream, which is left open.
        form: The form to write.

    Returns:
        How many were written.

    Raises:
        TraceError: The path cannot be written to.
    """
    if not isinstance(target, (str, os.PathLike)):
        return _write(traces, target, form)
    path = Path(target).resolve()
    try:
        with _replaced(path) as stream:
            return _write(traces, stream, form)
    except OSError as error:
        raise TraceError(f"{path} cannot be written ({error.strerror}): give a path that can be") from error


def to_record(trace: Trace) -> dict[str, object]:
    """Put a trace into the form of a record, which holds everything a trace knows.

    Args:
        trace: The trace.

    Returns:
        Plain data, ready for JSON.
    """
    return record_from(trace)


def _write(traces: Iterable[Trace], stream: TextIO, form: TraceFormat) -> int:
    number = 0
    for number, trace in enumerate(traces, start=1):
        line = json.dumps(_document(trace, form, number), ensure_ascii=False)
        # Half of a surrogate pair is no text that a file could hold.
        stream.write(f"{_SURROGATE.sub(chr(0xFFFD), line)}\n")
    return number


def _document(trace: Trace, form: TraceFormat, number: int) -> dict[str, object]:
    match form:
        case TraceFormat.RECORD:
            return record_from(trace)
        case TraceFormat.OPENAI:
            return openai_from(trace)
        case TraceFormat.AUTOGEN:
            return autogen_from(trace)
        case TraceFormat.OTEL:
            return otlp_from(trace, number)
        case _:
            assert_never(form)


@contextmanager
def _replaced(path: Path) -> Generator[TextIO]:
    """Give a stream whose file takes the place of `path` once it is written, and is gone if it is not."""
    if path.exists() and not path.is_file():
        # A pipe or a device cannot be replaced, and a directory says so.
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as raw, _as_text(raw, packed=path.name.endswith(".gz")) as stream:
            yield stream
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _as_text(raw: BinaryIO, *, packed: bool) -> TextIO:
    if packed:
        # Without a name and a time, so that the same traces give the same bytes.
        raw = cast("BinaryIO", gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    return io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
