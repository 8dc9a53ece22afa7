"""Scenario files: a request, the tools it may use, settings of the loop and what a right run shows.

Read with a safe YAML loader and checked against a schema that refuses unknown keys. A scenario names its tools by a
registered toolset, never by an import path.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from agentloop_autogen.core.records import StopReason
from agentloop_autogen.demo_tools import TOOLSETS
from agentloop_autogen.errors import ScenarioError
from agentloop_autogen.scenario_team import LoopSettings, ScenarioTeam

__all__ = [
    "Expectation",
    "Scenario",
    "ToolCount",
    "find_scenario",
    "load_scenario",
    "scenario_folder",
    "shipped_scenarios",
    "validated",
]

_MAX_BYTES = 64_000
_MAX_DEPTH = 12
_SUFFIXES = (".yaml", ".yml")
_Model = TypeVar("_Model", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCount(_Part):
    """How often a tool is to be called in a right run, both ends included."""

    min: int = Field(default=0, ge=0)
    max: int | None = Field(default=None, ge=0)
    """None: no upper end."""


class Expectation(_Part):
    """What a right run shows; a field left out is not checked."""

    words: str = ""
    """The expectation in words, shown to whoever runs the scenario."""
    stop_reasons: tuple[StopReason, ...] = ()
    """The run ends for one of these reasons."""
    answer_contains: tuple[str | tuple[str, ...], ...] = ()
    """Each is found in the answer, whatever the case; of a list of alternatives one is enough."""
    answer_lacks: tuple[str, ...] = ()
    """None of these is found in the answer."""
    min_rounds: int | None = Field(default=None, ge=0)
    max_rounds: int | None = Field(default=None, ge=0)
    unresolved: Literal["empty", "non-empty"] | None = None
    """Whether slots are left open at the end."""
    unresolved_names: tuple[str | tuple[str, ...], ...] = ()
    """Each is found in the name of some slot left open; of a list of alternatives one is enough."""
    tools_called: Mapping[str, ToolCount] = Field(default_factory=dict[str, ToolCount])
    """By name of the tool: how often it ran."""
    max_tool_calls: int | None = Field(default=None, ge=0)
    figures_grounded: bool = False
    """True: every figure of the answer is found in the evidence or the request."""


def _known_toolset(name: str) -> str:
    if name not in TOOLSETS:
        raise ValueError(f"no toolset `{name}`; there are: {', '.join(sorted(TOOLSETS))}")
    return name


class Scenario(_Part):
    """One scenario, as its file states it."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str = Field(min_length=1)
    request: str = Field(min_length=1)
    tools: Annotated[str, AfterValidator(_known_toolset)]
    """Name of the toolset."""
    system_message: str | None = None
    """None: the agent's own."""
    loop: LoopSettings = Field(default_factory=dict[str, Any])
    """Settings of `LoopConfig` that differ from its defaults."""
    warm_up: str | None = Field(default=None, min_length=1)
    """A request that runs first, so that the run finds it in its slot store. None: there is no store."""
    team: ScenarioTeam | None = None
    """Who works together. None: one agent, `assistant`, works alone."""
    expect: Expectation | None = None
    """None: any run that does not fail is right."""

    @property
    def asked(self) -> str:
        """All that is asked in it, by which a recording is known to be of it."""
        return self.request if self.warm_up is None else f"{self.warm_up}\n{self.request}"

    @model_validator(mode="after")
    def _warms_up_alone(self) -> Self:
        if self.warm_up is not None and self.team is not None:
            raise ValueError("`warm_up` is for one agent, and this scenario has a `team`: leave one of them out")
        return self


class _StrictLoader(yaml.SafeLoader):
    """Plain data only, and no key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            word = str(key.value)
            if word in seen:
                raise yaml.MarkedYAMLError(problem=f"`{word}` is given twice", problem_mark=key.start_mark)
            seen.add(word)
        return super().construct_mapping(node, deep)


def scenario_folder() -> Path:
    """Where the shipped scenarios lie: inside an installed package, or beside it in a checkout.

    Returns:
        The folder, which may not exist.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_scenarios"
    return installed if installed.is_dir() else package.parent / "scenarios"


def shipped_scenarios() -> tuple[Path, ...]:
    """Find the scenarios that come with this package.

    Returns:
        Their files, by name.
    """
    return tuple(sorted(scenario_folder().glob("*.yaml")))


def find_scenario(wanted: str) -> Path:
    """Find a scenario by the name of a shipped one or by the path of a file.

    Args:
        wanted: A name such as `polling`, or a path that ends in `.yaml`.

    Returns:
        The file.

    Raises:
        ScenarioError: There is none.
    """
    by_name = {path.stem: path for path in shipped_scenarios()}
    if wanted in by_name:
        return by_name[wanted]
    path = Path(wanted)
    if path.suffix in _SUFFIXES:
        if path.is_file():
            return path
        raise ScenarioError(f"no scenario file at {wanted!r}: check the path, or see `agentloop run --list`")
    close = difflib.get_close_matches(wanted, by_name, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`agentloop run --list` shows them; a path must end in .yaml"
    raise ScenarioError(f"no scenario named {wanted!r}: {hint}")


def load_scenario(path: Path) -> Scenario:
    """Read one scenario file.

    Args:
        path: The YAML file.

    Returns:
        The scenario.

    Raises:
        ScenarioError: It cannot be read, is no YAML or does not fit the schema; the message names file and place.
    """
    return validated(Scenario, _parsed(path), path=path)


def validated(model: type[_Model], data: object, *, path: Path) -> _Model:
    """Check data from a file against a model.

    Args:
        model: What it has to be.
        data: What the file holds.
        path: The file, for the message.

    Returns:
        The data as the model.

    Raises:
        ScenarioError: It does not fit; the message is one line and names file and place.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(f"{path}: {_first_problem(error)}") from error


def _parsed(path: Path) -> object:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ScenarioError(f"{path}: longer than {_MAX_BYTES:,} bytes: a scenario is a short file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror}): check path and permissions") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: is not UTF-8 text at byte {error.start}: save it as UTF-8") from error
    try:
        _refuse_tricks(text)
        data: object = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - the loader is a SafeLoader
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}{_yaml_problem(error)}") from error
    except ValueError as error:
        raise ScenarioError(f"{path}: is no scenario: {type(error).__name__} while reading it") from error
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: holds no mapping: start with `name:`, `title:`, `request:` and `tools:`")
    return data  # pyright: ignore[reportUnknownVariableType] - its keys and values are checked against the schema next


def _refuse_tricks(text: str) -> None:
    """Refuse what no scenario needs and what makes a small file cost a lot: aliases and deep nesting."""
    parse = cast("Callable[..., Iterable[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType] - untyped
    depth = 0
    for event in parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        problem = "aliases are not allowed: write it out" if isinstance(event, yaml.AliasEvent) else ""
        if depth > _MAX_DEPTH:
            problem = "nested too deeply: a scenario is flat"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _yaml_problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f": is no YAML: {' '.join(str(error).split())}"
    mark = error.problem_mark
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{place}: is no valid YAML here: {error.problem or error.context or 'unknown problem'}"


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    first = problems[0]
    place = ".".join(str(part) for part in first["loc"]) or "the file"
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValidationError):
        inner = cause.errors(include_url=False)[0]
        place = ".".join([place, *(str(part) for part in inner["loc"])])
        first = inner
    words = {"extra_forbidden": "unknown key: remove it or correct its spelling", "missing": "is missing: add it"}
    message = words.get(first["type"], first["msg"].removeprefix("Value error, "))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"`{place}`: {' '.join(message.split())}{more}"
