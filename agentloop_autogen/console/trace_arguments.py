"""Arguments of the subcommands that read recorded runs; what they need is imported once one is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from agentloop_autogen.console.model_arguments import add_model_arguments, model_options, names_a_model
from agentloop_autogen.core.config import Policy
from agentloop_autogen.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from agentloop_autogen.console.options import ModelOptions

__all__ = ["TRACE_COMMANDS", "add_trace_commands", "run_trace_command"]

_AddParser = Callable[..., argparse.ArgumentParser]

TRACE_COMMANDS: Final = ("diagnose", "replay", "report", "convert")
_FORMS: Final = ("record", "openai", "autogen", "otel")
_FORMATS: Final = ("html", "png", "svg")
_VERDICTS: Final = ("mechanical", "recorded", "model")
_PATHS_HELP: Final = "files or folders of traces (.jsonl, .json, each also .gz), or - for standard input"


def add_trace_commands(add_parser: _AddParser) -> None:
    """Add `diagnose`, `replay`, `report` and `convert`.

    Args:
        add_parser: Adds one subcommand and returns its parser.
    """
    help_ = "say how much of the work in recorded runs was wasted"
    diagnose = _added(add_parser, "diagnose", help_)
    diagnose.add_argument("--by", choices=("source,model", "source", "model", "all"), default="source,model")
    _add_json(diagnose)

    help_ = "say what the loop would have saved and lost in recorded runs"
    replay = _added(add_parser, "replay", help_)
    _add_loop(replay)
    replay.add_argument("--verdicts", choices=_VERDICTS, default=_VERDICTS[0], help="who judges the rounds")
    replay.add_argument("--sweep", action="store_true", help="replay many settings and mark the best")
    replay.add_argument("--rows", metavar="FILE", type=Path, help="write one JSON line for each trace to a file")
    add_model_arguments(replay, recordable=False)
    _add_json(replay)

    help_ = "draw recorded runs as one HTML page, or as figures"
    report = _added(add_parser, "report", help_)
    report.add_argument(
        "-o", "--output", metavar="PATH", type=Path, required=True, help="the page, or a folder of figures"
    )
    report.add_argument("--format", choices=_FORMATS, default=_FORMATS[0], help="default: %(default)s")
    report.add_argument("--title", default="Agent runs", help="heading of the page")
    report.add_argument("--requests", metavar="N", type=_count, help="requests to show round by round (default: 200)")
    report.add_argument(
        "--no-frontier", action="store_true", help="leave out the comparison of settings: it replays each"
    )
    _add_loop(report)
    report.add_argument("--verdicts", choices=_VERDICTS[:2], default=_VERDICTS[0], help="who judges the rounds")

    help_ = "write traces in another form"
    convert = _added(add_parser, "convert", help_)
    convert.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="JSON lines; .gz compresses")
    convert.add_argument("--form", choices=_FORMS, default=_FORMS[0], help="default: %(default)s")


def _added(add_parser: _AddParser, name: str, help_: str) -> argparse.ArgumentParser:
    parser = add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    parser.add_argument("traces", nargs="+", metavar="TRACES", help=_PATHS_HELP)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _add_loop(parser: argparse.ArgumentParser) -> None:
    loop = parser.add_argument_group("the loop to replay")
    loop.add_argument("--policy", choices=[policy.value for policy in Policy], help="default: extended")
    loop.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="any setting of LoopConfig; may be repeated"
    )


def run_trace_command(args: argparse.Namespace) -> int:
    """Run one of the subcommands.

    Args:
        args: The arguments as parsed.

    Returns:
        The exit status.

    Raises:
        UsageError: The arguments do not go together, or nothing could be read.
    """
    try:
        from agentloop_autogen.console import trace_commands
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agentloop_autogen"):
            raise
        raise MissingExtraError("the command line", "cli") from error
    match args.command:
        case "diagnose":
            by = () if args.by == "all" else tuple(args.by.split(","))
            return trace_commands.diagnose(args.traces, by=by, as_json=args.json)
        case "replay":
            loop = trace_commands.loop_of(args.policy, args.set)
            judge = _judge(args)
            if args.sweep:
                _refuse_with_sweep(args)
                return trace_commands.replay_many(args.traces, loop, verdicts=args.verdicts, as_json=args.json)
            return trace_commands.replay_one(args.traces, loop, verdicts=judge, rows=args.rows, as_json=args.json)
        case "report":
            wanted = trace_commands.ReportWish(
                form=args.format,
                title=args.title,
                loop=trace_commands.loop_of(args.policy, args.set),
                verdicts=args.verdicts,
                requests=args.requests,
                with_frontier=not args.no_frontier,
            )
            return trace_commands.report(args.traces, args.output, wanted)
        case _:
            return trace_commands.convert(args.traces, args.output, form=args.form)


def _judge(args: argparse.Namespace) -> Literal["mechanical", "recorded"] | ModelOptions:
    if args.verdicts == "model":
        return model_options(args, purpose="gives the verdicts: --base-url URL --model NAME, or --local")
    if names_a_model(args):
        raise UsageError("a model is asked only with --verdicts model: add it, or leave the model out")
    return "recorded" if args.verdicts == "recorded" else "mechanical"


def _refuse_with_sweep(args: argparse.Namespace) -> None:
    if args.verdicts == "model":
        raise UsageError("--sweep asks no model: leave --verdicts model out")
    if args.rows is not None:
        raise UsageError("--rows goes with one setting: leave --sweep or --rows out")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)
