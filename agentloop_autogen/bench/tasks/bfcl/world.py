"""The world of a request: fresh interfaces, calls by name from a fixed list, and the official check of them."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import localcontext
from functools import partial
from typing import Any, Final, NamedTuple, cast

from agentloop_autogen.bench.tasks.bfcl import package
from agentloop_autogen.bench.tasks.task import BenchTool, Grade
from agentloop_autogen.errors import TaskDataError

__all__ = ["Call", "InterfaceSession", "Scenario", "read_call"]

_MOST_DIGITS: Final = 1_000
"""Digits of precision a function may be asked for; more only takes time."""
_MAX_CHARS: Final = 4_000
"""Characters of a result a model sees."""


class Call(NamedTuple):
    """A call of the gold solution."""

    name: str
    positional: tuple[Any, ...]
    named: dict[str, Any]


class Scenario(NamedTuple):
    """What a request starts from."""

    interfaces: tuple[str, ...]
    state: Mapping[str, Mapping[str, Any]]
    """What each interface holds at the beginning."""
    hidden: frozenset[str]
    """Functions the request must be carried out without."""
    gold: tuple[Call, ...]


def read_call(text: str) -> Call:
    """Read a call such as `cd(folder='x')`; only literal arguments are accepted, and nothing is run.

    Raises:
        ValueError: It is no call of a plain name with literal arguments.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no call") from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{text!r} is no call of a function")
    named: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError(f"{text!r} spreads its arguments")
        named[keyword.arg] = ast.literal_eval(keyword.value)
    return Call(call.func.id, tuple(ast.literal_eval(argument) for argument in call.args), named)


class World:
    """Fresh interfaces and the functions that may be called on them.

    Args:
        scenario: What the request starts from.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.instances = {
            name: package.make_interface(name, scenario.state.get(name, {})) for name in scenario.interfaces
        }
        self.functions: dict[str, dict[str, Any]] = {}
        self._methods: dict[str, Callable[..., Any]] = {}
        self.results: list[str] = []
        """What the calls returned so far, as the official check compares it."""
        for interface, instance in self.instances.items():
            for name, described in package.documented(interface).items():
                self.functions[name] = described
                self._methods[name] = getattr(instance, name)

    def call(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> str:
        """Call a function and return its result as text.

        Raises:
            Exception: Whatever the function raises; it counts as a result of its own.
        """
        try:
            arguments = self._bound(name, positional, named)
            # Some functions set the precision of decimals for everybody.
            with localcontext():
                result = _as_text(self._methods[name](**arguments))
        except Exception as error:
            self.results.append(f"Error during execution: {error}")
            raise
        self.results.append(result)
        return result

    def _bound(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        if name not in self._methods:
            raise ValueError(f"there is no function {name!r}")
        arguments = inspect.signature(self._methods[name]).bind(*positional, **named).arguments
        precision = arguments.get("precision")
        if isinstance(precision, int) and precision > _MOST_DIGITS:
            raise ValueError(f"the argument `precision` must be at most {_MOST_DIGITS}")
        properties = self.functions[name]["parameters"]["properties"]
        return {key: _as_declared(value, properties.get(key, {})) for key, value in arguments.items()}


class InterfaceSession:
    """One attempt at a request.

    The answer's text is not looked at, as in the official evaluation: what counts is that the interfaces end in the
    state the gold calls leave them in, and that every result the gold calls bring was seen.

    Args:
        scenario: What the request starts from.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._world = World(scenario)

    @property
    def tools(self) -> Sequence[BenchTool]:
        """The functions of the interfaces involved, but for those the request must do without."""
        return tuple(
            BenchTool(
                name=name,
                description=package.short_description(described["description"]),
                parameters=package.as_json_schema(described["parameters"]),
                run=partial(self._run, name),
            )
            for name, described in self._world.functions.items()
            if name not in self._scenario.hidden
        )

    def grade(self, answer: str) -> Grade:
        """Grade the state and the results; the answer's text does not count."""
        if not self._world.results:
            return Grade(correct=False, detail="nothing was called")
        gold = World(self._scenario)
        for call in self._scenario.gold:
            _call_gold(gold, call)
        official = package.checker()
        checked: dict[str, Any] = official.state_checker(self._world.instances, gold.instances)
        if checked["valid"]:
            checked = official.response_checker(list(self._world.results), gold.results, 0)
        return Grade(correct=bool(checked["valid"]), detail="" if checked["valid"] else str(checked["error_type"]))

    def close(self) -> None:
        """There is nothing to release."""

    async def _run(self, name: str, arguments: Mapping[str, Any]) -> str:
        result = self._world.call(name, (), arguments)
        return result if len(result) <= _MAX_CHARS else f"{result[:_MAX_CHARS]}..."


def _call_gold(world: World, call: Call) -> None:
    if call.name not in world.functions:
        raise TaskDataError(
            f"BFCL's gold solution calls {call.name!r}, which its interfaces lack: install bfcl-eval again"
        )
    try:
        world.call(call.name, call.positional, call.named)
    except Exception:  # noqa: BLE001  # some gold calls fail on purpose; the failure is then the result to be seen
        return


def _as_text(result: object) -> str:
    """Write a result as the official evaluation does."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            return str(cast("dict[Any, Any]", result))
    return str(result)


def _as_declared(value: object, schema: Mapping[str, Any]) -> object:
    """Return a whole number as the float it is declared to be: JSON does not tell them apart, printed results do."""
    if schema.get("type") == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if schema.get("type") == "array" and isinstance(value, list):
        return [_as_declared(item, schema.get("items", {})) for item in cast("list[object]", value)]
    return value
