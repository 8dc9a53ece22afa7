"""The options that say which model does the work, the same for every subcommand that needs one."""

from __future__ import annotations

import argparse
from pathlib import Path

from agentloop_autogen.console.options import ModelOptions, ModelPlace
from agentloop_autogen.errors import UsageError

__all__ = ["add_model_arguments", "model_options", "names_a_model"]


def add_model_arguments(parser: argparse.ArgumentParser, *, recordable: bool) -> None:
    """Add the options to a parser.

    Args:
        parser: The subcommand's.
        recordable: Whether replies recorded earlier will do, and whether they can be recorded.
    """
    places = ["--base-url with --model", "--local", *(["--recorded"] if recordable else [])]
    model = parser.add_argument_group(f"the model: one of {', '.join(places)}")
    model.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible server, such as vLLM")
    model.add_argument("--model", metavar="NAME", help="the model's name on that server")
    model.add_argument("--api-key-env", metavar="VAR", help="environment variable that holds the server's key")
    model.add_argument("--local", action="store_true", help="a 1.5B model in this process")
    model.add_argument("--weights", metavar="PATH", type=Path, help="the local model's .gguf file")
    if recordable:
        model.add_argument("--recorded", action="store_true", help="replies recorded earlier; no model, about a second")
    else:
        parser.set_defaults(recorded=False, record=None)


def names_a_model(args: argparse.Namespace) -> bool:
    """Return whether any of the options was given."""
    model = (args.base_url, args.model, args.api_key_env, args.weights, args.record)
    return any(value is not None for value in model) or args.local or args.recorded


def model_options(args: argparse.Namespace, *, purpose: str) -> ModelOptions:
    """Return what was said about the model.

    Args:
        args: The arguments as parsed.
        purpose: What the model is for, as the end of "say which model ...".

    Raises:
        UsageError: None was named, or the options do not go together.
    """
    places = [("--base-url", args.base_url is not None), ("--local", args.local), ("--recorded", args.recorded)]
    given = [name for name, there in places if there]
    if not given:
        raise UsageError(f"say which model {purpose}")
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: give one of them")
    for option, value, needs in (
        ("--model", args.model, "--base-url"),
        ("--api-key-env", args.api_key_env, "--base-url"),
        ("--weights", args.weights, "--local"),
    ):
        if value is not None and given != [needs]:
            raise UsageError(f"{option} goes with {needs}: add {needs} or leave {option} out")
    if given == ["--base-url"] and args.model is None:
        raise UsageError("--base-url needs --model NAME, the model's name on that server")
    if given == ["--recorded"] and args.record is not None:
        raise UsageError("--record needs a model to record: leave --recorded out")
    by_option = {"--base-url": ModelPlace.SERVER, "--local": ModelPlace.LOCAL, "--recorded": ModelPlace.RECORDED}
    return ModelOptions(
        place=by_option[given[0]],
        base_url=args.base_url or "",
        model=args.model or "",
        api_key_env=args.api_key_env,
        weights=args.weights,
        record=args.record,
    )
