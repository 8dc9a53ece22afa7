"""The arguments of `agentloop bench` and its subcommands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from agentloop_autogen.console.bench_options import BenchRun, ModelPlaces
from agentloop_autogen.console.bench_report import REPORT, add_report_command, run_report_command
from agentloop_autogen.console.model_arguments import add_model_arguments, model_options
from agentloop_autogen.errors import MissingExtraError, UsageError

__all__ = ["BENCH", "add_bench_command", "run_bench_command", "with_bench_default"]

BENCH: Final = "bench"
_RUN: Final = "run"
_HALVES: Final = ("development", "held_out", "both")


class _Add(Protocol):
    def __call__(self, name: str, *, help: str, description: str) -> argparse.ArgumentParser: ...


def with_bench_default(argv: Sequence[str]) -> list[str]:
    """Return the arguments with `run` put in where `bench` is followed by options alone.

    Args:
        argv: The arguments of the process.
    """
    words = list(argv)
    if words[:1] == [BENCH] and len(words) > 1 and words[1].startswith("-") and words[1] not in ("-h", "--help"):
        words.insert(1, _RUN)
    return words


def add_bench_command(add: _Add) -> None:
    """Add `bench` with its subcommands.

    Args:
        add: Adds a subcommand to the program.
    """
    bench = "put systems to machine-graded tasks and count what each costs"
    parser = add(BENCH, help=bench, description=f"{bench[0].upper()}{bench[1:]}.")
    commands = parser.add_subparsers(dest="bench_command", metavar="COMMAND", required=True)
    run = "run systems on tasks; what a run finished is kept, and the same command goes on"
    _add_run(commands.add_parser(_RUN, help=run, description=f"{run[0].upper()}{run[1:]}."))
    add_report_command(commands.add_parser)
    for name, words in (("systems", "list the systems"), ("tasks", "list the task families")):
        listing = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        listing.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run_bench_command(args: argparse.Namespace) -> int:
    """Run a subcommand of `bench`.

    Args:
        args: The arguments as parsed.

    Returns:
        The exit status.

    Raises:
        MissingExtraError: Something it needs is not installed.
    """
    if args.bench_command == REPORT:
        return run_report_command(args)
    try:
        from agentloop_autogen.console import bench_commands
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agentloop_autogen"):
            raise
        raise MissingExtraError("the benchmark", "bench") from error
    if args.bench_command == "systems":
        return bench_commands.list_systems(as_json=args.json)
    if args.bench_command == "tasks":
        return bench_commands.list_families(as_json=args.json)
    return bench_commands.run_benchmark(_run_of(args), as_json=args.json)


def _run_of(args: argparse.Namespace) -> BenchRun:
    _check_ray(args)
    purpose = "does the tasks: --base-url URL[,URL] --model NAME, or --local"
    return BenchRun(
        systems=args.systems,
        families=args.tasks,
        places=ModelPlaces.of(model_options(args, purpose=purpose)),
        out=args.out,
        data=args.data,
        limit=args.limit,
        half=None if args.half == "both" else args.half,
        order=args.order,
        seeds=args.seeds,
        rounds=args.rounds,
        timeout_s=args.timeout,
        max_completion_tokens=args.max_completion_tokens,
        temperature=args.temperature,
        stream=args.stream,
        guided=args.tool_mode == "guided",
        concurrency=args.concurrency,
        most_requests=args.endpoint_concurrency,
        rate=args.rate,
        poisson=args.poisson,
        retry_failed=args.retry_failed,
        ray=args.ray,
        workers=args.workers,
    )


def _check_ray(args: argparse.Namespace) -> None:
    if args.ray is None:
        return
    if args.endpoint_concurrency is not None:
        raise UsageError("--endpoint-concurrency does not go with --ray: each worker sees only its own requests")
    if args.ray and args.local:
        raise UsageError("--local serves this machine alone: give --ray no address, or --base-url in place of --local")
    if args.ray and args.tool_mode == "guided":
        raise UsageError("--tool-mode guided guides on this machine alone: give --ray no address, or leave it out")


def _add_run(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what is run")
    what.add_argument("--systems", type=_names, required=True, metavar="NAME[,NAME]", help="`bench systems` lists them")
    what.add_argument("--tasks", type=_names, required=True, metavar="NAME[,NAME]", help="`bench tasks` lists them")
    what.add_argument("--limit", type=_whole(1), metavar="N", help="tasks of each family (default: all)")
    what.add_argument("--half", choices=_HALVES, default="both", help="half of each family (default: %(default)s)")
    what.add_argument("--order", type=_whole(0), default=0, metavar="N", help="another number is another sample")
    what.add_argument("--seeds", type=_seeds, default=(0,), metavar="N[,N]", help="one attempt each (default: 0)")
    what.add_argument("--data", type=Path, metavar="DIR", help="the tasks' data (default: AGENTLOOP_DATA)")
    add_model_arguments(parser, recordable=False)
    parser.add_argument("--tool-mode", choices=("native", "guided"), default="native", help="guided: for any model")
    limits = parser.add_argument_group("limits, the same for every system")
    limits.add_argument(
        "--rounds", type=_whole(1), default=10, metavar="N", help="model calls with tools (default: 10)"
    )
    limits.add_argument(
        "--timeout", type=_positive, default=180.0, metavar="S", help="seconds an attempt (default: 180)"
    )
    limits.add_argument(
        "--max-completion-tokens", type=_whole(1), default=512, metavar="N", help="a reply (default: 512)"
    )
    limits.add_argument("--temperature", type=_share, default=0.0, metavar="T", help="of the model (default: 0)")
    limits.add_argument("--stream", action="store_true", help="stream replies, to time the first token")
    load = parser.add_argument_group("load")
    load.add_argument("--concurrency", type=_whole(1), default=1, metavar="N", help="attempts at once (default: 1)")
    load.add_argument("--endpoint-concurrency", type=_whole(1), metavar="N", help="requests at once at each endpoint")
    load.add_argument("--rate", type=_positive, metavar="R", help="attempts that begin per second (default: no limit)")
    load.add_argument("--poisson", action="store_true", help="let them begin at random, at that rate on average")
    load.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="run on Ray; no address: on this machine")
    load.add_argument("--workers", type=_whole(1), default=2, metavar="N", help="workers of --ray (default: 2)")
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, default=Path("bench.jsonl"), metavar="FILE", help="(default: %(default)s)")
    output.add_argument("--retry-failed", action="store_true", help="make failed attempts again")
    output.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("name at least one")
    return names


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_whole(0)(part) for part in text.split(",")))


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least}")
        return int(text)

    return read


def _positive(text: str) -> float:
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def _share(text: str) -> float:
    number = _number(text)
    if not 0 <= number <= 2:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 2")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
