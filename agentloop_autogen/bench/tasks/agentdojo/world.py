"""The world of a task: a private copy of the accounts, the functions over them, and AgentDojo's own check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, cast

from agentloop_autogen.bench.tasks.agentdojo import package
from agentloop_autogen.bench.tasks.task import BenchTool, Grade

__all__ = ["MAX_CHARS", "AccountSession", "Suite"]

MAX_CHARS: Final = 8_000
"""Characters of a result a model sees."""


class Suite:
    """A suite whose accounts are loaded once and copied for each attempt.

    Args:
        suite: The suite as the package has it.
    """

    def __init__(self, suite: Any) -> None:  # noqa: ANN401  # a class of the package
        self._suite = suite

    @property
    def user_tasks(self) -> Mapping[str, Any]:
        """The user tasks by name."""
        return self._suite.user_tasks

    @property
    def functions(self) -> Sequence[Any]:
        """The functions of the suite."""
        return self._suite.tools

    @cached_property
    def _accounts(self) -> Any:  # noqa: ANN401  # a model of the package
        # Without injections the accounts hold harmless texts only.
        return self._suite.load_and_inject_default_environment({})

    def accounts(self, user_task: Any) -> Any:  # noqa: ANN401  # models of the package
        """Return a fresh copy of the accounts as a task finds them."""
        return user_task.init_environment(self._accounts.model_copy(deep=True))


class AccountSession:
    """One attempt at a task.

    Graded by the task's own check, which looks at the accounts before and after, at the answer, and for some tasks at
    the calls.

    Args:
        suite: The suite.
        user_task: The task as the package has it.
    """

    def __init__(self, suite: Suite, user_task: Any) -> None:  # noqa: ANN401  # a class of the package
        self._suite = suite
        self._task = user_task
        self._accounts = suite.accounts(user_task)
        self._before = self._accounts.model_copy(deep=True)
        self._runtime = package.functions_runtime(suite.functions)
        self._calls: list[Any] = []

    @property
    def tools(self) -> Sequence[BenchTool]:
        """The functions of the suite."""
        return tuple(
            BenchTool(
                name=function.name,
                description=function.description,
                parameters=_without_titles(function.parameters.model_json_schema()),
                run=partial(self._run, function.name),
            )
            for function in self._suite.functions
        )

    def grade(self, answer: str) -> Grade:
        """Grade the accounts, the answer and the calls by the task's own check."""
        after = self._accounts
        try:
            found = self._task.utility_from_traces(answer, self._before, after, self._calls)
            if found is None:
                found = self._task.utility(answer, self._before, after)
        except Exception as error:  # noqa: BLE001  # the checks take for granted what an agent may have deleted
            return Grade(correct=False, detail=f"the check fails: {type(error).__name__}: {error}")
        return Grade(correct=bool(found), detail="" if found else "the check is not met")

    def close(self) -> None:
        """There is nothing to release."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a function and return its whole result as text.

        Raises:
            ValueError: The arguments do not fit, or the function fails.
        """
        self._calls.append(package.function_call(name, arguments))
        result, error = self._runtime.run_function(self._accounts, name, dict(arguments))
        if error is not None:
            raise ValueError(error)
        return package.result_text(result)

    async def _run(self, name: str, arguments: Mapping[str, Any]) -> str:
        result = self.call(name, arguments)
        return result if len(result) <= MAX_CHARS else f"{result[:MAX_CHARS]}... (cut)"


def _without_titles(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the titles Pydantic gives everything: they repeat the names."""
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        kept[key] = _without_titles(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
    return kept
