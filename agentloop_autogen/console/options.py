"""What the command line says about a run: where the model is, and what changes about the scenario."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agentloop_autogen.core.config import Policy

__all__ = ["ModelOptions", "ModelPlace", "RunSettings"]


class ModelPlace(str, Enum):
    """Where the model of a run is."""

    SERVER = "server"
    LOCAL = "local"
    RECORDED = "recorded"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model runs a scenario."""

    place: ModelPlace
    base_url: str = ""
    model: str = ""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; None: the server asks for none."""
    weights: Path | None = None
    """The file with the local model's weights; None: found by themselves."""
    record: Path | None = None
    """Where to write the replies down; None: nowhere."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What changes about a scenario."""

    policy: Policy | None = None
    """None: the scenario's."""
    timeout_s: float | None = None
    """None: the scenario's."""
