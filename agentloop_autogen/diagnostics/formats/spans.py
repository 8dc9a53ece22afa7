"""Spans of OpenTelemetry: out of OTLP's JSON and of what the Python SDK prints, into one plain form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agentloop_autogen.diagnostics.formats.fields import FormatError, is_list, is_object, kind, objects

__all__ = ["Span", "SpanEvent", "span_of", "spans_of"]

_KEPT = ("gen_ai.", "error.", "agentloop.")
_MAX_NS = 2**63 - 1


@dataclass(frozen=True)
class SpanEvent:
    """Something that happened within a span."""

    name: str
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class Span:
    """One operation, with the attributes that matter here."""

    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    failed: bool = False
    problem: str = ""
    """What its status says went wrong."""
    service: str = ""
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    events: tuple[SpanEvent, ...] = ()

    def text(self, *keys: str) -> str:
        """Return the first of these attributes that is a text; empty: none is."""
        for key in keys:
            value = self.attributes.get(key)
            if isinstance(value, str):
                return value
        return ""

    def count(self, *keys: str) -> int | None:
        """Return the first of these attributes that is a whole number; None: none is."""
        for key in keys:
            value = self.attributes.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
        return None

    def dumped(self) -> str:
        """The span as JSON."""
        fields = (self.trace_id, self.span_id, self.parent_id, self.start_ns, self.end_ns, self.failed, self.problem)
        events = [(event.name, event.attributes) for event in self.events]
        return json.dumps([*fields, self.service, self.attributes, events])

    @classmethod
    def loaded(cls, text: str) -> Span:
        """Return the span that `dumped` wrote."""
        trace_id, span_id, parent_id, start_ns, end_ns, failed, problem, service, attributes, events = json.loads(text)
        return cls(
            trace_id,
            span_id,
            parent_id,
            start_ns,
            end_ns,
            failed,
            problem,
            service,
            attributes,
            tuple(SpanEvent(name, about) for name, about in events),
        )


def spans_of(document: Mapping[str, object]) -> Iterator[Span]:
    """Read the spans of one OTLP document.

    Args:
        document: An object with `resourceSpans`.

    Yields:
        Its spans in order.

    Raises:
        FormatError: It is not what OTLP's JSON must be.
    """
    for resource_spans in objects(document, "resourceSpans"):
        service = _service_of(resource_spans.get("resource"))
        scopes = "scopeSpans" if "scopeSpans" in resource_spans else "instrumentationLibrarySpans"
        for scope in objects(resource_spans, scopes):
            for span in objects(scope, "spans"):
                yield span_of(span, service)


def span_of(source: Mapping[str, object], service: str = "") -> Span:
    """Read one span.

    Args:
        source: A span in OTLP's JSON, or as `ReadableSpan.to_json` gives it.
        service: Name of the service it is from; empty: the span may say.

    Returns:
        The span.

    Raises:
        FormatError: It is not what a span must be.
    """
    context = source.get("context")
    names = context if is_object(context) else source
    start = _nanoseconds(source, "startTimeUnixNano", "start_time")
    end = _nanoseconds(source, "endTimeUnixNano", "end_time")
    if start is None:
        raise FormatError("a span has no start time, expected `startTimeUnixNano` or `start_time`")
    failed, problem = _status(source.get("status"))
    attributes = _attributes(source.get("attributes"))
    return Span(
        trace_id=_hex(names, "traceId", "trace_id"),
        span_id=_hex(names, "spanId", "span_id"),
        parent_id=_hex(source, "parentSpanId", "parent_id", required=False),
        start_ns=start,
        end_ns=max(start, end or start),
        failed=failed or "error.type" in attributes,
        problem=problem,
        service=service or _service_of(source.get("resource")),
        attributes={key: value for key, value in attributes.items() if key.startswith(_KEPT)},
        events=tuple(
            SpanEvent(str(event.get("name")), _attributes(event.get("attributes")))
            for event in objects(source, "events", of="a span")
        ),
    )


def _hex(source: Mapping[str, object], *keys: str, required: bool = True) -> str:
    for key in keys:
        value = source.get(key)
        if isinstance(value, str) and value:
            return value.lower().removeprefix("0x")
    if required:
        raise FormatError(f"a span has no `{keys[0]}`")
    return ""


def _nanoseconds(source: Mapping[str, object], *keys: str) -> int | None:
    for key in keys:
        value = source.get(key)
        if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
            try:
                # Python 3.10 knows no Z for UTC.
                at = datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value)
                return max(0, round(at.timestamp() * 1e6) * 1000)
            except (ValueError, OverflowError):
                raise FormatError(f"`{key}` of a span is no time") from None
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            if len(str(value)) > 19 or not 0 <= int(value) <= _MAX_NS:
                raise FormatError(f"`{key}` of a span is no time in nanoseconds")
            return int(value)
    return None


def _status(status: object) -> tuple[bool, str]:
    if not is_object(status):
        return False, ""
    code = status.get("code", status.get("status_code"))
    message = status.get("message", status.get("description"))
    return code in (2, "STATUS_CODE_ERROR", "ERROR", "StatusCode.ERROR"), message if isinstance(message, str) else ""


def _service_of(resource: object) -> str:
    attributes = _attributes(resource.get("attributes")) if is_object(resource) else {}
    name = attributes.get("service.name")
    return name if isinstance(name, str) and not name.startswith("unknown_service") else ""


def _attributes(source: object) -> dict[str, object]:
    """Attributes as a plain object: the SDK prints one, OTLP has a list of keys and typed values."""
    if source is None:
        return {}
    if is_object(source):
        return source
    if not is_list(source):
        raise FormatError(f"`attributes` of a span is {kind(source)}, expected an array or an object")
    found: dict[str, object] = {}
    for item in source:
        if is_object(item) and isinstance(key := item.get("key"), str):
            found[key] = _value(item.get("value"))
    return found


def _value(source: object) -> object:
    if not is_object(source):
        return source
    for name, value in source.items():
        match name:
            case "intValue":
                text = str(value)
                return int(text) if len(text) < 20 and text.removeprefix("-").isdecimal() else None
            case "arrayValue":
                values = value.get("values") if is_object(value) else None
                return [_value(item) for item in values] if is_list(values) else []
            case "kvlistValue":
                return _attributes(value.get("values")) if is_object(value) else {}
            case _:
                return value
    return None
