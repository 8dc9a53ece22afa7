"""Requests to simulated services: reading the gold calls, the world of an attempt, and the official check."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import pytest

from agentloop_autogen.bench.tasks.bfcl import package
from agentloop_autogen.bench.tasks.bfcl.package import as_json_schema, short_description
from agentloop_autogen.bench.tasks.bfcl.world import Call, InterfaceSession, Scenario, read_call
from agentloop_autogen.bench.tasks.data_place import read_lines
from agentloop_autogen.bench.tasks.families import load_tasks
from agentloop_autogen.bench.tasks.task import BenchTask, Half, TaskSession
from agentloop_autogen.errors import TaskDataError

needs_package = pytest.mark.skipif(
    find_spec("bfcl_eval") is None or find_spec("mpmath") is None,
    reason="needs bfcl-eval: pip install --no-deps bfcl-eval==2026.3.23, and mpmath",
)

FILES: Mapping[str, Any] = {
    "GorillaFileSystem": {
        "root": {
            "home": {
                "type": "directory",
                "contents": {"notes.txt": {"type": "file", "content": "one\ntwo"}},
            }
        }
    }
}


def scenario(
    *gold: str, interfaces: tuple[str, ...] = ("GorillaFileSystem",), hidden: tuple[str, ...] = ()
) -> Scenario:
    return Scenario(interfaces, FILES, frozenset(hidden), tuple(map(read_call, gold)))


async def call(session: TaskSession, tool: str, **arguments: Any) -> str:
    return await next(each for each in session.tools if each.name == tool).run(arguments)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("cd(folder='document')", Call("cd", (), {"folder": "document"})),
        (" sort('a.txt') ", Call("sort", ("a.txt",), {})),
        ("f(a=[1, -2.5], b={'x': None}, c=True)", Call("f", (), {"a": [1, -2.5], "b": {"x": None}, "c": True})),
    ],
)
def test_a_gold_call_is_read(text: str, read: Call) -> None:
    """A call is its name and its literal arguments."""
    assert read_call(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "cd",
        "cd(folder='x'); ls()",
        "os.remove('x')",
        "cd(folder=open('x').read())",
        "cd(**{'folder': 'x'})",
        "(lambda: 1)()",
        "cd(folder='x'",
        "cd(f'{1}')",
        "__import__('os').system('true')",
    ],
)
def test_anything_but_a_literal_call_is_refused(text: str) -> None:
    """Text from the data is parsed, never run."""
    with pytest.raises(ValueError, match=r"is no call|spreads|malformed"):
        read_call(text)


def test_schemas_become_json_schemas() -> None:
    """Types get their JSON names at every depth, and the rest stays."""
    schema = {
        "type": "dict",
        "properties": {
            "numbers": {"type": "array", "items": {"type": "float"}, "description": "d"},
            "more": {"type": "dict", "properties": {"n": {"type": "integer", "default": 3}}},
        },
        "required": ["numbers"],
    }
    assert as_json_schema(schema) == {
        "type": "object",
        "properties": {
            "numbers": {"type": "array", "items": {"type": "number"}, "description": "d"},
            "more": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}},
        },
        "required": ["numbers"],
    }


def test_descriptions_are_those_of_the_function_alone() -> None:
    """What every function of an interface says of the interface is left out; a plain description stays."""
    assert short_description("This tool belongs to X. Tool description: Move a file.") == "Move a file."
    assert short_description("Move a file.") == "Move a file."


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is no dependency, so the error is the only place to learn of it."""
    monkeypatch.setattr(package, "find_spec", dict[str, object]().get)
    with pytest.raises(TaskDataError, match="pip install --no-deps bfcl-eval"):
        load_tasks("bfcl")


@pytest.mark.parametrize("name", ["WebSearchAPI", "MemoryAPI_kv", "os"])
def test_only_the_simulated_interfaces_can_be_opened(name: str) -> None:
    """Interfaces that reach the network or write files are not on the list."""
    with pytest.raises(TaskDataError, match="is unknown"):
        package.make_interface(name, {})


@needs_package
async def test_calls_work_on_a_world_of_their_own() -> None:
    """What one attempt changes, another does not see, and the scenario stays as it was."""
    first, second = InterfaceSession(scenario("ls()")), InterfaceSession(scenario("ls()"))
    await call(first, "rm", file_name="notes.txt")
    assert await call(first, "ls") == '{"current_directory_content": []}'
    assert await call(second, "ls") == '{"current_directory_content": ["notes.txt"]}'


MAKE = "mkdir(dir_name='new')"
MOVE = "mv(source='notes.txt', destination='new')"


@needs_package
@pytest.mark.parametrize(
    ("calls", "correct"),
    [
        ([MAKE, MOVE], True),
        (["ls()", MAKE, MOVE], True),
        ([MAKE], False),
        (["ls()"], False),
        ([], False),
        ([MAKE, MOVE, "touch(file_name='x')"], False),
    ],
)
async def test_what_the_calls_left_behind_is_graded(calls: list[str], *, correct: bool) -> None:
    """The state must be that of the gold calls; looking around does no harm, changing more does."""
    session = InterfaceSession(scenario(MAKE, MOVE))
    await play(session, [read_call(text) for text in calls])
    assert session.grade("I moved the file.").correct is correct


@needs_package
async def test_the_results_of_the_gold_calls_must_have_been_seen() -> None:
    """Where nothing is to be changed, the right thing must have been looked at."""
    session = InterfaceSession(scenario("cat(file_name='notes.txt')"))
    await call(session, "ls")
    assert session.grade("It says one, two.").detail == "multi_turn:execution_response_mismatch"
    await call(session, "cat", file_name="notes.txt")
    assert session.grade("").correct


@needs_package
async def test_whole_numbers_are_the_floats_they_are_declared_to_be() -> None:
    """JSON writes 2.0 as 2, which must not make another result of it."""
    session = InterfaceSession(scenario("add(a=2.0, b=3.0)", "mean(numbers=[1.0, 3.0])", interfaces=("MathAPI",)))
    assert await call(session, "add", a=2, b=3) == '{"result": 5.0}'
    await call(session, "mean", numbers=[1, 3])
    assert session.grade("5").correct


@needs_package
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("cd", {}),
        ("cd", {"folder": "home", "more": 1}),
        ("logarithm", {"value": 2, "base": 10, "precision": 10**9}),
        ("power", {"base": 10, "exponent": 10**9}),
    ],
)
async def test_malformed_and_runaway_calls_are_errors(tool: str, arguments: dict[str, Any]) -> None:
    """A call that does not fit, or would compute for hours, raises at once, and the session goes on."""
    session = InterfaceSession(scenario("ls()", interfaces=("GorillaFileSystem", "MathAPI")))
    with pytest.raises((TypeError, ValueError, OverflowError)):
        await call(session, tool, **arguments)
    await call(session, "ls")
    assert session.grade("").correct


@needs_package
async def test_the_precision_of_decimals_is_left_alone() -> None:
    """A function that sets the precision of decimals does so for its own call only."""
    session = InterfaceSession(scenario("ls()", interfaces=("GorillaFileSystem", "MathAPI")))
    before = decimal.getcontext().prec
    await call(session, "square_root", number=2, precision=3)
    assert decimal.getcontext().prec == before


@needs_package
def test_functions_the_request_must_do_without_are_no_tools() -> None:
    """The package leaves some functions out of some tasks."""
    names = {tool.name for tool in InterfaceSession(scenario("ls()", hidden=("cp", "mv"))).tools}
    assert "ls" in names
    assert not names & {"cp", "mv"}
    assert not any(name.startswith("_") for name in names)


@pytest.fixture(scope="module")
def tasks() -> Sequence[BenchTask]:
    """All tasks of the package."""
    return load_tasks("bfcl")


@pytest.fixture(scope="module")
def gold() -> Mapping[str, Sequence[Call]]:
    """The gold calls of every task."""
    records = read_lines(package.package_data() / "possible_answer" / "BFCL_v4_multi_turn_base.json")
    return {record["id"]: [read_call(text) for text in record["ground_truth"][0]] for record in records}


async def play(session: TaskSession, calls: Sequence[Call]) -> None:
    """Make calls through the tools, as an agent would."""
    tools = {tool.name: tool for tool in session.tools}
    for each in calls:
        names = tools[each.name].parameters["properties"]
        arguments = dict(zip(names, each.positional, strict=False)) | each.named
        await tools[each.name].run(arguments)


@needs_package
async def test_the_gold_calls_are_right_for_every_task(
    tasks: Sequence[BenchTask], gold: Mapping[str, Sequence[Call]]
) -> None:
    """All 200 first turns are solved by their gold calls, made through the tools."""
    assert len(tasks) == len({task.id for task in tasks}) == 200
    assert Counter(task.half for task in tasks) == {Half.DEVELOPMENT: 98, Half.HELD_OUT: 102}
    for task in tasks:
        session = task.open()
        await play(session, gold[task.id])
        assert session.grade("Done.").correct, task.id


@needs_package
async def test_the_calls_of_other_tasks_are_refused(
    tasks: Sequence[BenchTask], gold: Mapping[str, Sequence[Call]]
) -> None:
    """Of the gold calls of other tasks over the same interfaces, hardly any pass; doing nothing never does."""
    passed = asked = 0
    for task in tasks[::6]:
        assert not task.open().grade("Done.").correct
        offered = {tool.name for tool in task.open().tools}
        for other in tasks:
            calls = gold[other.id]
            unlike = other.group == task.group and calls != gold[task.id]
            if not unlike or not {each.name for each in calls} <= offered:
                continue
            session = task.open()
            with suppress(Exception):
                await play(session, calls)
            passed += session.grade("Done.").correct
            asked += 1
    assert asked > 200
    assert passed / asked < 0.05
