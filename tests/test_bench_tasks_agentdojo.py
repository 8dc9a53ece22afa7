"""Office work in simulated accounts: the world of an attempt, and the package's own checks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from agentloop_autogen.bench.tasks.agentdojo import package
from agentloop_autogen.bench.tasks.families import load_tasks
from agentloop_autogen.bench.tasks.task import BenchTask, TaskSession
from agentloop_autogen.errors import MissingExtraError

needs_package = pytest.mark.skipif(
    find_spec("agentdojo") is None, reason="needs agentdojo: pip install 'agentloop-autogen[bench]'"
)


async def call(session: TaskSession, tool: str, **arguments: Any) -> str:
    return await next(each for each in session.tools if each.name == tool).run(arguments)


@pytest.fixture(scope="module")
def tasks() -> Mapping[str, BenchTask]:
    """All tasks by id."""
    return {task.id: task for task in load_tasks("agentdojo")}


@pytest.fixture(scope="module")
def gold() -> Mapping[str, tuple[Sequence[Any], str]]:
    """Calls and answer of the gold solution of every task of the package."""
    found: dict[str, tuple[Sequence[Any], str]] = {}
    for name, suite in package.suites().items():
        accounts = suite.load_and_inject_default_environment({})
        for key, task in suite.user_tasks.items():
            calls = task.ground_truth(task.init_environment(accounts.model_copy(deep=True)))
            found[f"{name}-{key}"] = calls, task.GROUND_TRUTH_OUTPUT
    return found


async def solve(session: TaskSession, calls: Sequence[Any]) -> None:
    """Make calls through the tools, as an agent would."""
    for each in calls:
        await call(session, each.function, **each.args)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error says which one to install."""
    for module in [name for name in sys.modules if name.partition(".")[0] == "agentdojo"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "agentdojo", None)
    with pytest.raises(MissingExtraError, match="bench"):
        load_tasks("agentdojo")


@needs_package
async def test_the_gold_solutions_are_right_for_every_task(
    tasks: Mapping[str, BenchTask], gold: Mapping[str, tuple[Sequence[Any], str]]
) -> None:
    """The gold calls and answer solve every task, and doing nothing solves none."""
    assert Counter(task.group for task in tasks.values()) == {"workspace": 36, "travel": 20, "banking": 11, "slack": 21}
    for number, (key, task) in enumerate(tasks.items()):
        session = task.open()
        await solve(session, gold[key][0])
        assert session.grade(gold[key][1]).correct, key
        # Loading has left out those that doing nothing solves; this looks at a few of the rest.
        assert number % 8 or not task.open().grade("").correct, key


@needs_package
async def test_the_solutions_of_other_tasks_are_refused(
    tasks: Mapping[str, BenchTask], gold: Mapping[str, tuple[Sequence[Any], str]]
) -> None:
    """Of the gold solutions of other tasks of the suite, hardly any pass."""
    passed = asked = 0
    for key, task in list(tasks.items())[::29]:
        for other in tasks.values():
            if other.group != task.group or other.id == key:
                continue
            session = task.open()
            await solve(session, gold[other.id][0])
            passed += session.grade(gold[other.id][1]).correct
            asked += 1
    assert asked > 60
    assert passed / asked < 0.05


@needs_package
async def test_attempts_have_accounts_of_their_own(tasks: Mapping[str, BenchTask]) -> None:
    """What one attempt sends or deletes, another does not see."""
    task = next(task for task in tasks.values() if task.group == "slack")
    first, second = task.open(), task.open()
    before = await call(second, "get_channels")
    await call(first, "add_user_to_channel", user="Alice", channel="private")
    await call(first, "send_direct_message", recipient="Alice", body="Hello")
    assert await call(second, "get_channels") == before
    assert "Hello" in await call(first, "read_inbox", user="Alice")
    assert "Hello" not in await call(second, "read_inbox", user="Alice")


@needs_package
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_inbox", {}),
        ("read_inbox", {"user": 7}),
        ("read_inbox", {"user": "Nobody"}),
        ("send_direct_message", {"recipient": "Alice"}),
    ],
)
async def test_malformed_arguments_are_an_error_the_model_can_read(
    tasks: Mapping[str, BenchTask], tool: str, arguments: dict[str, Any]
) -> None:
    """Missing, mistyped and unknown arguments raise what the package says of them."""
    session = next(task for task in tasks.values() if task.group == "slack").open()
    with pytest.raises(ValueError, match="Error"):
        await call(session, tool, **arguments)


@needs_package
async def test_long_results_are_cut(tasks: Mapping[str, BenchTask]) -> None:
    """The list of all files is longer than a model is shown, and says that it was cut."""
    session = next(task for task in tasks.values() if task.group == "workspace").open()
    assert (await call(session, "list_files")).endswith("(cut)")


@needs_package
def test_tools_are_described_without_repeating_names(tasks: Mapping[str, BenchTask]) -> None:
    """Every tool has a description and an object schema, and no titles."""
    groups = {task.group: task for task in tasks.values()}
    tools = [tool for task in groups.values() for tool in task.open().tools]
    assert len({tool.name for tool in tools}) > 60
    for tool in tools:
        assert tool.description
        assert tool.parameters["type"] == "object"
        assert all("title" not in schema for schema in tool.parameters["properties"].values())
