"""Where weights come from: installed part packages and a model hub."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentloop_autogen.models.weights.records import ModelFile, PartPackage, Progress, SourceError, WeightsStage

__all__ = ["hub_file", "part_files"]

_MAX_NAMED = 4


def part_files(model: ModelFile) -> list[Path]:
    """Locate the pieces in installed packages, without importing any of them: their publisher is unknown.

    Args:
        model: The file to put together.

    Returns:
        The pieces in order.

    Raises:
        SourceError: Pieces are missing, or together they do not have the size of the file.
    """
    found = [_part_file(part) for part in model.parts]
    pieces = [piece for piece in found if piece is not None]
    if not pieces:
        raise SourceError("not installed")
    missing = [number for number, piece in enumerate(found, start=1) if piece is None]
    if missing:
        raise SourceError(f"part {_listed(missing)} of {len(found)} missing")
    size = sum(piece.stat().st_size for piece in pieces)
    if size != model.size:
        raise SourceError(f"they hold {size:,} bytes instead of {model.size:,}; install them again")
    return pieces


def hub_file(model: ModelFile, progress: Progress) -> Path:
    """Load the file from the model hub, or take it from the hub's own cache.

    Args:
        model: The file to load.
        progress: Told when loading begins and ends; the hub's client draws its own bar.

    Returns:
        The file as the hub's client stored it; its digest is still to be checked.

    Raises:
        SourceError: The hub's client is not installed, or the file could not be loaded.
    """
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError:
        raise SourceError("huggingface_hub is not installed") from None
    progress(WeightsStage.DOWNLOADING.value, 0, model.size)
    try:
        file = Path(hub.hf_hub_download(repo_id=model.hub_repository, filename=model.filename))
    except Exception as error:  # The hub's client raises its own, its HTTP library's and the system's errors.
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SourceError(f"{model.hub_repository} could not be loaded ({first_line})") from error
    progress(WeightsStage.DOWNLOADING.value, model.size, model.size)
    return file


def _part_file(part: PartPackage) -> Path | None:
    try:
        spec = importlib.util.find_spec(part.module)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder, part.path)
        if file.is_file():
            return file
    return None


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_MAX_NAMED])
    return shown if len(numbers) <= _MAX_NAMED else f"{shown} and {len(numbers) - _MAX_NAMED} more"
