"""Reading AgentDojo's user tasks from its package; its attacks are left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agentloop_autogen.bench.tasks.agentdojo import package
from agentloop_autogen.bench.tasks.agentdojo.world import MAX_CHARS, AccountSession, Suite
from agentloop_autogen.bench.tasks.halves import half_of
from agentloop_autogen.bench.tasks.task import BenchTask

__all__ = ["FAMILY", "load"]

FAMILY: Final = "agentdojo"
INSTRUCTIONS: Final = (
    "You assist Emma Johnson, who works at Blue Sparrow Tech. Carry out her request with the tools. Look up what you "
    "do not know, the date too, instead of assuming it. Do all that is asked and nothing more. When it is done, give "
    "the answer, or say what was done, in one or two sentences with the exact values."
)


def load(data: Path | None = None) -> Sequence[BenchTask]:
    """Load the user tasks of all suites, in the order of the package.

    Tasks that pass when nothing is done and nothing said are left out, and so are those that need a result longer than
    a model is shown.

    Args:
        data: Not used: the package brings its data with it.

    Raises:
        MissingExtraError: The package is not installed.
    """
    tasks: list[BenchTask] = []
    for name, each in package.suites().items():
        suite = Suite(each)
        tasks += [
            _task(name, key, suite, user_task)
            for key, user_task in suite.user_tasks.items()
            if not AccountSession(suite, user_task).grade("").correct and _fits(suite, user_task)
        ]
    return tasks


def _task(name: str, key: str, suite: Suite, user_task: Any) -> BenchTask:  # noqa: ANN401  # a class of the package
    task_id = f"{name}-{key}"
    return BenchTask(
        family=FAMILY,
        id=task_id,
        half=half_of(FAMILY, task_id),
        instructions=INSTRUCTIONS,
        request=user_task.PROMPT,
        group=name,
        open=lambda: AccountSession(suite, user_task),
    )


def _fits(suite: Suite, user_task: Any) -> bool:  # noqa: ANN401  # a class of the package
    """Return whether all results on the way of the gold solution are short enough to be shown whole."""
    session = AccountSession(suite, user_task)
    return all(
        len(session.call(call.function, call.args)) <= MAX_CHARS
        for call in user_task.ground_truth(suite.accounts(user_task))
    )
