"""The command `agentloop`: its arguments and exit status. What a subcommand needs is imported once it is asked for."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from agentloop_autogen.console.bench_arguments import BENCH, add_bench_command, run_bench_command, with_bench_default
from agentloop_autogen.console.model_arguments import add_model_arguments, model_options, names_a_model
from agentloop_autogen.console.options import RunSettings
from agentloop_autogen.console.slot_arguments import add_slot_commands, run_slot_command
from agentloop_autogen.console.trace_arguments import TRACE_COMMANDS, add_trace_commands, run_trace_command
from agentloop_autogen.core.config import Policy
from agentloop_autogen.errors import AgentLoopError, MissingExtraError, UsageError

__all__ = ["main"]

_DONE = 0
_FAILED = 1
_WRONG_USE = 2
_INTERRUPTED = 130
_PIPE_CLOSED = 141
_PORTS = 65_535

_EXAMPLES = """examples:
  agentloop run --list
  agentloop run polling --recorded
  agentloop run polling --local
  agentloop run my-scenario.yaml --json --base-url http://127.0.0.1:8000/v1 --model NAME
  agentloop diagnose logs/
  agentloop replay logs/ --set patience=2
  agentloop report logs/ -o report.html
  agentloop bench --systems autogen,agentloop --tasks spider --limit 30 --local --out results.jsonl
  agentloop slots list
"""


class _Parser(argparse.ArgumentParser):
    """Reports wrong use as one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Its arguments; None: those of the process.

    Returns:
        The exit status: 0 done, 1 the run failed or did not show what was expected, 2 wrong use, 130 interrupted.
    """
    try:
        words = sys.argv[1:] if argv is None else argv
        status = _dispatch(_parser().parse_args(with_bench_default(words)))
        sys.stdout.flush()
    except SystemExit as wanted:
        status = wanted.code if isinstance(wanted.code, int) else _DONE
    except AgentLoopError as error:
        _complain(str(error))
        status = _WRONG_USE if isinstance(error, UsageError) else _FAILED
    except KeyboardInterrupt:
        _complain("stopped by you")
        status = _INTERRUPTED
    except BrokenPipeError:
        _detach_stdout()
        status = _PIPE_CLOSED
    return status


def _dispatch(args: argparse.Namespace) -> int:
    if args.command in TRACE_COMMANDS:
        return run_trace_command(args)
    if args.command == BENCH:
        return run_bench_command(args)
    if args.command == "slots":
        return run_slot_command(args)
    try:
        from agentloop_autogen.console import commands
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agentloop_autogen"):
            raise
        raise MissingExtraError("the command line", "cli") from error
    if args.command == "serve-local":
        return commands.serve_local(host=args.host, port=args.port, weights=args.weights)
    if args.list or args.scenario is None:
        _refuse_extras(args)
        return commands.list_scenarios(as_json=args.json)
    return commands.run_scenario_command(
        args.scenario,
        options=model_options(args, purpose="runs it: --base-url URL --model NAME, --local, or --recorded"),
        settings=RunSettings(policy=args.policy, timeout_s=args.timeout),
        as_json=args.json,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="agentloop",
        description="Run an AutoGen agent under loop control and watch each decision; see what recorded runs wasted.",
        epilog=_EXAMPLES,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=20),
    )
    parser.add_argument("--version", action="version", version=f"agentloop {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = "run a scenario and hold it against what it expects"
    _add_run(commands.add_parser("run", help=run, description=f"{run[0].upper()}{run[1:]}."))
    serve = "serve the local model as an OpenAI API"
    _add_serve_local(commands.add_parser("serve-local", help=serve, description=f"{serve[0].upper()}{serve[1:]}."))
    add_trace_commands(commands.add_parser)
    add_bench_command(commands.add_parser)
    add_slot_commands(commands.add_parser)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="a shipped scenario's name or a .yaml file")
    parser.add_argument("--list", action="store_true", help="list the shipped scenarios")
    add_model_arguments(parser, recordable=True)
    loop = parser.add_argument_group("the loop")
    loop.add_argument("--policy", type=_policy, metavar="NAME", help="extended, paper or off (default: the scenario's)")
    loop.add_argument("--timeout", type=_seconds, metavar="S", help="seconds of the whole run")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    output.add_argument("--record", metavar="FILE", type=Path, help="write the model's replies to a file")


def _add_serve_local(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8080, help="port to listen on (default: %(default)s)")
    parser.add_argument("--weights", metavar="PATH", type=Path, help="the model's .gguf file")


def _refuse_extras(args: argparse.Namespace) -> None:
    if names_a_model(args) or args.policy is not None or args.timeout is not None:
        raise UsageError("which scenario? Name one before the options; `agentloop run --list` shows them")


def _policy(text: str) -> Policy:
    try:
        return Policy(text)
    except ValueError as error:
        names = ", ".join(policy.value for policy in Policy)
        raise argparse.ArgumentTypeError(f"{text!r} is none of {names}") from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= _PORTS):
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to {_PORTS}")
    return int(text)


def _version() -> str:
    try:
        return metadata.version("agentloop-autogen")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _complain(message: str) -> None:
    shown = "".join(char if char.isprintable() else " " for char in message)
    sys.stderr.write(f"agentloop: {' '.join(shown.split())}\n")


def _detach_stdout() -> None:
    """Let the interpreter's last flush go nowhere: whoever read standard out has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
