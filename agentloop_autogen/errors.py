"""Every error this package raises on purpose.

::

    AgentLoopError
    ├── UsageError            the caller asked for something that cannot be done (exit status 2)
    │   ├── ScenarioError     a scenario file cannot be read or does not fit its schema
    │   ├── TraceError        traces cannot be read, or hold nothing to work on
    │   └── MissingExtraError an optional dependency is not installed
    └── ModelError            a model or its server could not do its part (exit status 1)
        ├── WeightsError      no weights were found, or they are not the ones expected
        └── LocalServerError  the local model server did not start, or went away

Messages say what happened, where, and what mends it, on one line.
"""

from __future__ import annotations

__all__ = [
    "AgentLoopError",
    "LocalServerError",
    "MissingExtraError",
    "ModelError",
    "ScenarioError",
    "TraceError",
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


class ModelError(AgentLoopError):
    """A model or its server could not do its part."""


class WeightsError(ModelError):
    """No weights were found, or they are not the ones expected."""


class LocalServerError(ModelError):
    """The local model server did not start, or went away."""
