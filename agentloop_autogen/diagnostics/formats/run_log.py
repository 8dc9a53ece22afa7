"""What `agentloop run NAME --json` prints: a scenario, how it ended, and the record of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agentloop_autogen.core.records import LoopOutcome
from agentloop_autogen.diagnostics.formats.fields import (
    FormatError,
    completed_of,
    flag,
    is_object,
    kind,
    record_of,
    text,
)
from agentloop_autogen.diagnostics.formats.place import Place
from agentloop_autogen.diagnostics.formats.record import read_record
from agentloop_autogen.diagnostics.trace import Trace

__all__ = ["read_run_log"]


def read_run_log(document: Mapping[str, object], place: Place) -> Trace:
    """Read one run of a scenario.

    Args:
        document: The JSON object; without a `trace` only its outcome is known, and it has no rounds.
        place: Where it stands.

    Returns:
        The trace; it is correct where the scenario passed.

    Raises:
        FormatError: A field is not what it must be.
    """
    record = document.get("trace")
    if record is not None and not is_object(record):
        raise FormatError(f"`trace` is {kind(record)}, expected a record")
    trace = read_record(record or {}, place)
    outcome = trace.outcome or record_of(LoopOutcome, document, "outcome")
    passed = flag(document, "passed")
    says_completed = record is not None and record.get("completed") is not None
    return replace(
        trace,
        final=trace.final or text(document, "answer"),
        source=text(record or {}, "source") or text(document, "scenario") or place.source,
        correct=trace.correct if passed is None else passed,
        outcome=outcome,
        completed=trace.completed if says_completed else completed_of(outcome),
        elapsed_s=trace.elapsed_s or (outcome.elapsed_s or None if outcome else None),
        verifier_s=trace.verifier_s or (outcome.verifier_s or None if outcome else None),
    )
