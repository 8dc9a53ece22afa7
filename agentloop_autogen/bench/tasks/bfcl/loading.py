"""Reading the first turns of BFCL's multi-turn tasks from the package `bfcl-eval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agentloop_autogen.bench.tasks.bfcl import package
from agentloop_autogen.bench.tasks.bfcl.world import InterfaceSession, Scenario, read_call
from agentloop_autogen.bench.tasks.data_place import read_lines
from agentloop_autogen.bench.tasks.halves import half_of
from agentloop_autogen.bench.tasks.task import BenchTask
from agentloop_autogen.errors import TaskDataError

__all__ = ["FAMILY", "load"]

FAMILY: Final = "bfcl"
INSTRUCTIONS: Final = (
    "Carry out the user's request with the tools. Do all that is asked and nothing more. "
    "When it is done, say in one or two sentences what was done or found."
)
_FILE: Final = "BFCL_v4_multi_turn_base.json"


def load(data: Path | None = None) -> Sequence[BenchTask]:
    """Load the first turn of every task, in the order of the package.

    Args:
        data: Not used: the package brings its data with it.

    Raises:
        TaskDataError: The package is not installed, or is not as expected.
    """
    folder = package.package_data()
    gold = {record["id"]: record for record in read_lines(folder / "possible_answer" / _FILE)}
    try:
        return [_task(record, gold[record["id"]]) for record in read_lines(folder / _FILE)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise TaskDataError(f"the tasks of bfcl-eval are not as expected ({error}): install 2026.3.23") from error


def _task(record: Mapping[str, Any], gold: Mapping[str, Any]) -> BenchTask:
    scenario = Scenario(
        interfaces=tuple(record["involved_classes"]),
        state=record["initial_config"],
        hidden=frozenset(record.get("excluded_function", ())),
        gold=tuple(read_call(text) for text in gold["ground_truth"][0]),
    )
    return BenchTask(
        family=FAMILY,
        id=str(record["id"]),
        half=half_of(FAMILY, str(record["id"])),
        instructions=INSTRUCTIONS,
        request=str(record["question"][0][0]["content"]),
        group="+".join(sorted(scenario.interfaces)),
        open=lambda: InterfaceSession(scenario),
    )
