"""What the subcommands do, once the arguments are read."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from agentloop_autogen.console.output import write_json, write_line
from agentloop_autogen.core.config import Policy
from agentloop_autogen.diagnostics import to_record
from agentloop_autogen.errors import UsageError
from agentloop_autogen.scenario import Scenario, find_scenario, load_scenario, shipped_scenarios

if TYPE_CHECKING:
    from agentloop_autogen.console.options import ModelOptions, RunSettings
    from agentloop_autogen.console.view import RunReport, RunView

__all__ = ["list_scenarios", "run_scenario_command", "serve_local"]

_DONE = 0
_FAILED = 1
_INTERRUPTED = 130
_UNHEARD = logging.NullHandler()
_SYMBOLS = "✓◐○≠✗▸→←“”…─│╭"


def list_scenarios(*, as_json: bool) -> int:
    """List the shipped scenarios.

    Args:
        as_json: Whether to print them as one JSON document.

    Returns:
        The exit status.
    """
    found = [(load_scenario(path), tape_of(path).is_file()) for path in shipped_scenarios()]
    if as_json:
        rows = [{"name": item.name, "title": item.title, "recorded": taped} for item, taped in found]
        write_json({"scenarios": rows})
        return _DONE
    if not found:
        raise UsageError("no scenarios come with this installation: give the path of a .yaml file")
    room = max(len(item.name) for item, _ in found)
    for item, taped in found:
        write_line(f"{item.name:<{room}}  {item.title}{' (recorded)' if taped else ''}")
    write_line("")
    write_line("Run one: agentloop run NAME --recorded | --local | --base-url URL --model NAME")
    return _DONE


def run_scenario_command(wanted: str, *, options: ModelOptions, settings: RunSettings, as_json: bool) -> int:
    """Run a scenario and show it.

    Args:
        wanted: Its name or the path of its file.
        options: Which model runs it.
        settings: What changes about it.
        as_json: Whether standard out gets one JSON document and nothing else.

    Returns:
        The exit status.
    """
    path = find_scenario(wanted)
    scenario = load_scenario(path)
    report = _run(scenario, path, options, settings, as_json=as_json)
    if report.stopped_after is not None:
        if as_json:
            write_line(f"agentloop: stopped by you after round {report.stopped_after}", stream=sys.stderr)
        return _INTERRUPTED
    if as_json:
        write_json(document(scenario, report))
    return _DONE if report.passed else _FAILED


def _run(scenario: Scenario, path: Path, options: ModelOptions, settings: RunSettings, *, as_json: bool) -> RunReport:
    import asyncio

    from agentloop_autogen.console.models import open_model
    from agentloop_autogen.console.running import loop_settings, run_scenario

    # In a team AutoGen logs the traceback of every turn that is cancelled; without a handler that goes to the terminal.
    logging.getLogger("autogen_core").addHandler(_UNHEARD)
    loop, view = loop_settings(scenario, settings), _view(as_json=as_json)
    with open_model(options, scenario, tape=tape_of(path)) as model, warnings.catch_warnings():
        # AutoGen's client dumps each parsed reply for its log, and pydantic remarks on the type of the parsed part.
        warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
        report = asyncio.run(run_scenario(scenario, model, view, loop=loop))
    finished = report.stopped_after is None
    if finished:
        model.check_followed()
    if not as_json:
        view.finish(report)
    if finished and options.record is not None:
        model.save_tape(scenario, policy=Policy(loop.policy).value)
        write_line(f"recorded in {options.record}", stream=sys.stderr)
    return report


def document(scenario: Scenario, report: RunReport) -> dict[str, object]:
    """Put a finished run into the shape `--json` prints.

    Args:
        scenario: What ran.
        report: How it ended.

    Returns:
        Plain data; `trace` is what `agentloop diagnose` reads of it.
    """
    return {
        "scenario": scenario.name,
        "passed": report.passed,
        "answer": report.answer,
        "outcome": report.outcome.model_dump(mode="json") if report.outcome else None,
        "checks": [check.model_dump(mode="json") for check in report.checks],
        "trace": to_record(report.trace) if report.trace else None,
    }


def tape_of(path: Path) -> Path:
    """Say where the recording of a scenario lies.

    Args:
        path: The scenario's file.

    Returns:
        The recording's file, which may not exist.
    """
    return path.parent / "recorded" / f"{path.stem}.json"


def serve_local(*, host: str, port: int, weights: Path | None) -> int:
    """Serve the local model until Ctrl-C.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0: any free one.
        weights: The weights; None: found by themselves.

    Returns:
        The exit status.
    """
    from agentloop_autogen.console.models import serving

    with serving(weights, host=host, port=port) as server:
        write_line(f"serving {server.model_id} at {server.base_url} (Ctrl-C stops it)")
        write_line(f"try: agentloop run polling --base-url {server.base_url} --model {server.model_id}")
        with suppress(KeyboardInterrupt):
            server.wait()
    return _DONE


def _view(*, as_json: bool) -> RunView:
    from agentloop_autogen.console.view import PlainView, SilentView

    stream = sys.stderr if as_json else sys.stdout
    if as_json and not stream.isatty():
        return SilentView()
    if not _is_rich_terminal(stream):
        return PlainView(lambda line: write_line(line, stream=stream))
    from rich.console import Console

    from agentloop_autogen.live import LiveView

    return LiveView(Console(file=stream, highlight=False))


def _is_rich_terminal(stream: TextIO) -> bool:
    """Whether a stream shows colour, moves its cursor and knows the symbols."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("dumb", "unknown"):
        return False
    try:
        _SYMBOLS.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
