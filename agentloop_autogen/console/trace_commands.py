"""What `diagnose`, `replay`, `report` and `convert` do, once the arguments are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agentloop_autogen.console.options import ModelOptions
from agentloop_autogen.console.output import write_json, write_line
from agentloop_autogen.console.trace_input import TraceInput, reading
from agentloop_autogen.console.trace_text import savings_lines, summary_lines, sweep_lines
from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.diagnostics import ReplayResult, summarize, sweep
from agentloop_autogen.diagnostics import replay as replay_traces
from agentloop_autogen.diagnostics.sweep import STANDARD_SWEEP
from agentloop_autogen.errors import UsageError

__all__ = ["ReportWish", "convert", "diagnose", "loop_of", "replay_many", "replay_one", "report"]

_DONE = 0
_Verdicts = Literal["mechanical", "recorded"]


def diagnose(paths: Sequence[str], *, by: Sequence[str], as_json: bool) -> int:
    """Print the metrics of traces.

    Args:
        paths: Where they are.
        by: What makes a group.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.
    """
    with reading(paths) as traces:
        summary = summarize(traces, by=by)
    if as_json:
        write_json({**summary.to_dict(), **_counts(traces)})
        return _DONE
    for row in summary.rows:
        for line in summary_lines(row):
            write_line(line)
    _write_skipped(traces)
    return _DONE


def replay_one(
    paths: Sequence[str], loop: LoopConfig, *, verdicts: _Verdicts | ModelOptions, rows: Path | None, as_json: bool
) -> int:
    """Print what one setting saves and loses.

    Args:
        paths: Where the traces are.
        loop: The setting.
        verdicts: `mechanical`, `recorded`, or the model that gives them.
        rows: A file for one JSON line on each trace; None: none.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.
    """
    with reading(paths) as traces:
        result = _replayed(traces, loop, verdicts)
    if rows is not None:
        _write_rows(rows, result)
    if as_json:
        write_json({**result.to_dict(), **_counts(traces)})
        return _DONE
    for savings in result.savings():
        for line in savings_lines(savings):
            write_line(line)
    _write_skipped(traces)
    return _DONE


def replay_many(paths: Sequence[str], loop: LoopConfig, *, verdicts: _Verdicts, as_json: bool) -> int:
    """Print what many settings save and lose, the best marked.

    Args:
        paths: Where the traces are.
        loop: A setting to try besides the standard ones.
        verdicts: `mechanical` or `recorded`.
        as_json: Whether to print one JSON document.

    Returns:
        The exit status.
    """
    settings = dict(STANDARD_SWEEP)
    if loop not in settings.values():
        settings["as given"] = loop
    with reading(paths) as traces:
        points = sweep(traces, settings, verdicts=verdicts)
    if as_json:
        found = [
            {"label": point.label, "on_frontier": point.on_frontier, **point.savings.to_dict()} for point in points
        ]
        write_json({"points": found, **_counts(traces)})
        return _DONE
    for line in sweep_lines(points):
        write_line(line)
    _write_skipped(traces)
    return _DONE


@dataclass(frozen=True, kw_only=True)
class ReportWish:
    """What a report is to look like."""

    form: str
    """`html`, `png` or `svg`."""
    title: str
    loop: LoopConfig
    """The setting to replay."""
    verdicts: _Verdicts
    requests: int | None
    """Requests to show round by round; None: the usual number."""
    with_frontier: bool
    """Whether other settings are replayed too."""


def report(paths: Sequence[str], output: Path, wanted: ReportWish) -> int:
    """Write the report.

    Args:
        paths: Where the traces are.
        output: The page, or the folder of figures.
        wanted: What it is to look like.

    Returns:
        The exit status.
    """
    from agentloop_autogen.diagnostics.report.collect import MOST_TIMELINES, collect_report
    from agentloop_autogen.diagnostics.report.writing import check_output, write_report

    check_output(output, form=wanted.form)
    with reading(paths) as traces:
        data = collect_report(
            traces,
            wanted.loop,
            title=wanted.title,
            verdicts=wanted.verdicts,
            settings=None if wanted.with_frontier else {},
            timelines=MOST_TIMELINES if wanted.requests is None else wanted.requests,
            skipped=traces.skipped_words,
        )
    for path in write_report(data, output, form=wanted.form):
        write_line(f"wrote {path}")
    _write_skipped(traces)
    return _DONE


def convert(paths: Sequence[str], output: Path, *, form: str) -> int:
    """Write traces in another form.

    Args:
        paths: Where they are.
        output: The file to write.
        form: `record`, `openai`, `autogen` or `otel`.

    Returns:
        The exit status.
    """
    from agentloop_autogen.diagnostics.writing import TraceFormat, write_traces

    with reading(paths) as traces:
        written = write_traces(traces, output, form=TraceFormat(form))
    write_line(f"wrote {written:,} traces to {output}")
    _write_skipped(traces)
    return _DONE


def loop_of(policy: str | None, changes: Sequence[str]) -> LoopConfig:
    """Return the setting that the command line describes.

    Args:
        policy: Name of the policy; None: the default.
        changes: Other settings, each as `NAME=VALUE`; values are JSON, or text where they are none.

    Raises:
        UsageError: There is no such setting, or it does not take that value.
    """
    given: dict[str, object] = {} if policy is None else {"policy": policy}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"--set {change!r} is no NAME=VALUE, such as patience=2")
        try:
            given[name.strip()] = json.loads(value)
        except ValueError:
            given[name.strip()] = value
    try:
        return LoopConfig.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the setting"
        unknown = first["type"] == "extra_forbidden"
        names = f"; there are {', '.join(LoopConfig.model_fields)}" if unknown else ""
        raise UsageError(f"--set {where}: {'no such setting' if unknown else first['msg']}{names}") from error


def _replayed(traces: TraceInput, loop: LoopConfig, verdicts: _Verdicts | ModelOptions) -> ReplayResult:
    if not isinstance(verdicts, ModelOptions):
        return replay_traces(traces, loop, verdicts=verdicts)
    from agentloop_autogen.console.models import open_judge
    from agentloop_autogen.diagnostics.judges import judged
    from agentloop_autogen.verify import ModelSlotVerifier

    with open_judge(verdicts) as client:
        found = judged(traces, loop, ModelSlotVerifier(client), finish=client.close)
        return ReplayResult(loop=loop, rows=tuple(one.row for one in found))


def _write_rows(path: Path, result: ReplayResult) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            for row in result.rows:
                file.write(json.dumps(row.to_dict(), ensure_ascii=True) + "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): give --rows another file") from error


def _counts(traces: TraceInput) -> dict[str, object]:
    return {"traces": traces.read, "skipped": traces.skipped}


def _write_skipped(traces: TraceInput) -> None:
    if traces.skipped:
        write_line(f"{traces.read:,} traces read; {traces.skipped_words()}")
