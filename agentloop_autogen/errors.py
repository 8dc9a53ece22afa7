"""Every error this package raises on purpose.

::

    AgentLoopError
    ├── UsageError            the caller asked for something that cannot be done (exit status 2)
    │   ├── ScenarioError     a scenario file cannot be read or does not fit its schema
    │   ├── TraceError        traces cannot be read, or hold nothing to work on
    │   ├── ResultFileError   a benchmark's result file cannot be read, or holds something else
    │   ├── TaskDataError     the data of a task family are missing, or not what they should be
    │   └── MissingExtraError an optional dependency is not installed
    ├── SlotStoreError        the store of past requests could not do what it was asked (exit status 1)
    └── ModelError            a model or its server could not do its part (exit status 1)
        ├── WeightsError      no weights were found, or they are not the ones expected
        ├── LocalServerError  the local model server did not start, or went away
        └── ModelServerError  a model server refused a request
            ├── ToolParserMissingError  it was started without a parser for tool calls
            ├── ContextTooLongError     prompt and reply do not fit the context
            ├── UnknownModelError       it has no model of that name
            └── ServerUnreachableError  it is down, or does not answer in time

Messages say what happened, where, and what mends it, on one line.
"""

from __future__ import annotations

__all__ = [
    "AgentLoopError",
    "ContextTooLongError",
    "LocalServerError",
    "MissingExtraError",
    "ModelError",
    "ModelServerError",
    "ResultFileError",
    "ScenarioError",
    "ServerUnreachableError",
    "SlotStoreError",
    "TaskDataError",
    "ToolParserMissingError",
    "TraceError",
    "UnknownModelError",
    "UsageError",
    "WeightsError",
]


class AgentLoopError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(AgentLoopError):
    """The caller asked for something that cannot be done as asked."""


class ScenarioError(UsageError):
    """A scenario file cannot be read or does not fit its schema."""


class TraceError(UsageError):
    """Traces cannot be read, or hold nothing to work on."""


class TaskDataError(UsageError):
    """The data of a task family are missing, or not what they should be."""


class ResultFileError(UsageError):
    """A benchmark's result file cannot be read or written, or holds something else than it should."""


class MissingExtraError(UsageError):
    """An optional dependency is not installed.

    Args:
        feature: What was asked for, as the user would name it.
        extra: The extra of this package that brings it.
    """

    def __init__(self, feature: str, extra: str) -> None:
        self.feature = feature
        self.extra = extra
        super().__init__(f"{feature} needs the extra `{extra}`: pip install 'agentloop-autogen[{extra}]'")


class SlotStoreError(AgentLoopError):
    """The store of past requests could not do what it was asked: full, locked, unreachable, damaged or too new."""


class ModelError(AgentLoopError):
    """A model or its server could not do its part."""


class WeightsError(ModelError):
    """No weights were found, or they are not the ones expected."""


class LocalServerError(ModelError):
    """The local model server did not start, or went away."""


class ModelServerError(ModelError):
    """A model server refused a request.

    Args:
        problem: What happened, in words.
        setting: The server flag or client setting that mends it.
        status_code: HTTP status of the refusal. None: there was no reply.
    """

    def __init__(self, problem: str, *, setting: str, status_code: int | None = None) -> None:
        self.problem = problem
        self.setting = setting
        self.status_code = status_code
        super().__init__(f"{problem}: {setting}")

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the finished message alone.
        return _rebuilt, (type(self), self.problem, self.setting, self.status_code)


def _rebuilt(kind: type[ModelServerError], problem: str, setting: str, status_code: int | None) -> ModelServerError:
    return kind(problem, setting=setting, status_code=status_code)


class ToolParserMissingError(ModelServerError):
    """The server was started without a parser for tool calls."""


class ContextTooLongError(ModelServerError):
    """Prompt and reply together do not fit the model's context."""


class UnknownModelError(ModelServerError):
    """The server has no model of that name."""


class ServerUnreachableError(ModelServerError):
    """The server is down, still loading, or does not answer in time."""
