"""What is taken from the package `bfcl-eval`: its data, its interfaces and its checks.

The package asks for some thirty others, PyTorch among them, that its multi-turn part does not use. It is therefore no
dependency of any extra: it is installed by hand, without its own dependencies.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentloop_autogen.bench.tasks.data_place import read_lines
from agentloop_autogen.errors import TaskDataError

__all__ = [
    "INTERFACES",
    "Interface",
    "as_json_schema",
    "checker",
    "documented",
    "make_interface",
    "package_data",
    "short_description",
]

MISSING: Final = (
    "the task family `bfcl` needs the package bfcl-eval, which is installed without its many dependencies: "
    "pip install --no-deps bfcl-eval==2026.3.23 and pip install 'agentloop-autogen[bench]'"
)
_SOURCE: Final = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_CHECKER: Final = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
_KINDS: Final = {"dict": "object", "float": "number", "tuple": "array"}
_PREFIX: Final = "Tool description: "
"""What each description says of its whole interface ends with this; it is the same for every tool of it."""


class Interface(NamedTuple):
    """An interface of the package."""

    module: str
    documents: str
    """File with the descriptions of its functions."""
    stateful: bool = True


INTERFACES: Final[Mapping[str, Interface]] = {
    "GorillaFileSystem": Interface("gorilla_file_system", "gorilla_file_system.json"),
    "MathAPI": Interface("math_api", "math_api.json", stateful=False),
    "MessageAPI": Interface("message_api", "message_api.json"),
    "TicketAPI": Interface("ticket_api", "ticket_api.json"),
    "TradingBot": Interface("trading_bot", "trading_bot.json"),
    "TravelAPI": Interface("travel_booking", "travel_booking.json"),
    "TwitterAPI": Interface("posting_api", "posting_api.json"),
    "VehicleControlAPI": Interface("vehicle_control", "vehicle_control.json"),
}
"""The interfaces that may be opened by name; the others of the package reach the network or write files."""


def package_data() -> Path:
    """Return the folder of the package's data.

    Raises:
        TaskDataError: The package is not installed.
    """
    found = find_spec("bfcl_eval")
    if found is None or not found.submodule_search_locations:
        raise TaskDataError(MISSING)
    return Path(next(iter(found.submodule_search_locations))) / "data"


def documented(interface: str) -> dict[str, dict[str, Any]]:
    """Return the functions of an interface by name, each with its description and parameters as the package has them.

    Raises:
        TaskDataError: There is no such interface, or the package is not installed or damaged.
    """
    path = package_data() / "multi_turn_func_doc" / _known(interface).documents
    return {record["name"]: record for record in read_lines(path)}


def make_interface(interface: str, scenario: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a class of the package
    """Return a fresh instance of an interface.

    Args:
        interface: Its name.
        scenario: What its world holds at the beginning; it is copied.

    Raises:
        TaskDataError: There is no such interface, or the package is not installed.
    """
    known = _known(interface)
    instance = getattr(_imported(f"{_SOURCE}.{known.module}"), interface)()
    if known.stateful:
        # A copy that shares nothing: the scenario comes from JSON.
        instance._load_scenario(json.loads(json.dumps(scenario)), long_context=False)
    return instance


def checker() -> Any:  # noqa: ANN401  # a module of the package
    """Return the package's module with the checks of state and responses.

    Raises:
        TaskDataError: The package is not installed.
    """
    return _imported(_CHECKER)


def as_json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of the package as JSON schema: other names for some types, everything else as it is."""
    kept: dict[str, Any] = dict(schema)
    kept["type"] = _KINDS.get(kept["type"], kept["type"])
    if "properties" in kept:
        kept["properties"] = {name: as_json_schema(each) for name, each in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = as_json_schema(kept["items"])
    return kept


def short_description(text: str) -> str:
    """Return what a description says of the function alone, without what it says of the interface."""
    return text.partition(_PREFIX)[2] or text


def _known(interface: str) -> Interface:
    if interface not in INTERFACES:
        raise TaskDataError(f"BFCL's interface {interface!r} is unknown: install the version of bfcl-eval named here")
    return INTERFACES[interface]


def _imported(module: str) -> Any:  # noqa: ANN401  # a module without types
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TaskDataError(f"{MISSING} ({error})") from error
