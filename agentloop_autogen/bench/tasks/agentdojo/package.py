"""What is taken from the package `agentdojo`, which has no types worth the name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from agentloop_autogen.errors import MissingExtraError

__all__ = ["function_call", "functions_runtime", "result_text", "suites"]

VERSION: Final = "v1.2.2"
"""Version of the tasks; later versions of the package keep it."""


def suites() -> Mapping[str, Any]:
    """Return the suites by name.

    Raises:
        MissingExtraError: The package is not installed.
    """
    return _imported("agentdojo.task_suite.load_suites").get_suites(VERSION)


def functions_runtime(functions: object) -> Any:  # noqa: ANN401  # a class of the package
    """Return the package's runtime for the functions of a suite."""
    return _imported("agentdojo.functions_runtime").FunctionsRuntime(functions)


def function_call(name: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a class of the package
    """Return the package's record of a call."""
    return _imported("agentdojo.functions_runtime").FunctionCall(function=name, args=dict(arguments))


def result_text(result: object) -> str:
    """Return a result as the package shows it to models."""
    return _imported("agentdojo.agent_pipeline.tool_execution").tool_result_to_str(result)


def _imported(module: str) -> Any:  # noqa: ANN401  # a module without types
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("the task family `agentdojo`", "bench") from error
