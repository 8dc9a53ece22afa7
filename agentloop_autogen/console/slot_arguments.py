"""Arguments of `agentloop slots`; what it needs is imported once it is asked for."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agentloop_autogen.errors import MissingExtraError, UsageError

__all__ = ["add_slot_commands", "run_slot_command"]

_AddParser = Callable[..., argparse.ArgumentParser]

_HELP: Final = "look into the store of past requests, and clear it"
_MOST_DAYS: Final = 100_000


def add_slot_commands(add_parser: _AddParser) -> None:
    """Add `slots` with its own subcommands.

    Args:
        add_parser: Adds one subcommand and returns its parser.
    """
    slots = add_parser("slots", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.")
    commands = slots.add_subparsers(dest="slot_command", metavar="COMMAND", required=True)

    listing = _added(commands.add_parser, "list", "list the newest objects")
    listing.add_argument("--limit", metavar="N", type=_count, default=20, help="how many (default: %(default)s)")
    _add_json(listing)

    show = _added(commands.add_parser, "show", "show one object whole")
    show.add_argument("id", metavar="ID")
    _add_json(show)

    forget = _added(commands.add_parser, "forget", "remove objects for good")
    forget.add_argument("ids", nargs="*", metavar="ID")
    forget.add_argument("--all", action="store_true", help="all there are")
    forget.add_argument("--older-than", metavar="DAYS", type=_days, help="those whose requests ended so long ago")
    _add_json(forget)

    export = _added(commands.add_parser, "export", "write all objects as JSON lines")
    export.add_argument("-o", "--output", metavar="FILE", type=Path, help="where to (default: standard output)")

    import_ = _added(commands.add_parser, "import", "put the objects of JSON lines into the store")
    import_.add_argument("input", metavar="FILE", help="what `export` wrote, or - for standard input")
    _add_json(import_)

    _add_json(_added(commands.add_parser, "stats", "say what the store holds"))


def run_slot_command(args: argparse.Namespace) -> int:
    """Run one of the subcommands of `slots`.

    Args:
        args: The arguments as parsed.

    Returns:
        The exit status.

    Raises:
        UsageError: The arguments do not go together, or there is no such store or object.
        SlotStoreError: The store could not do it.
    """
    try:
        from agentloop_autogen.console import slot_commands
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agentloop_autogen"):
            raise
        raise MissingExtraError("`agentloop slots`", "slots") from error
    match args.slot_command:
        case "list":
            return slot_commands.list_objects(args.store, limit=args.limit, as_json=args.json)
        case "show":
            return slot_commands.show_object(args.store, args.id, as_json=args.json)
        case "forget":
            _check_one_kind(args)
            if args.ids:
                return slot_commands.forget_objects(args.store, args.ids, as_json=args.json)
            return slot_commands.forget_older(args.store, args.older_than, as_json=args.json)
        case "export":
            return slot_commands.export_objects(args.store, args.output)
        case "import":
            return slot_commands.import_objects(args.store, args.input, as_json=args.json)
        case _:
            return slot_commands.show_stats(args.store, as_json=args.json)


def _added(add_parser: _AddParser, name: str, help_: str) -> argparse.ArgumentParser:
    parser = add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    parser.add_argument(
        "--store", metavar="PLACE", help="a file, or postgresql://USER@HOST/DATABASE (default: this user's file)"
    )
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def _check_one_kind(args: argparse.Namespace) -> None:
    if bool(args.ids) + args.all + (args.older_than is not None) != 1:
        raise UsageError("what is to be forgotten? Name ids, or give --older-than DAYS, or --all")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not (0 <= days <= _MOST_DAYS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 0 to {_MOST_DAYS:,}")
    return days
