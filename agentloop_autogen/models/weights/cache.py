"""The folder assembled weights are kept in, and the checks they pass before they are used."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from agentloop_autogen.errors import WeightsError
from agentloop_autogen.models.weights.records import ModelFile, Progress, SourceError, WeightsStage

__all__ = ["cache_folder", "cached_file", "file_digest", "store"]

_logger = logging.getLogger("agentloop_autogen.models")

_CHUNK = 4 * 1024 * 1024
_STALE_S = 3600
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def cache_folder() -> Path:
    """The folder weights are kept in: `$AGENTLOOP_CACHE`, else the user's cache folder."""
    own = os.environ.get("AGENTLOOP_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "agentloop"


def cached_file(model: ModelFile, folder: Path, progress: Progress) -> Path | None:
    """Return the cached file if it is the right one.

    A file that was checked before and has not changed since, going by its stamp, is not read again. A wrong file
    is renamed, so that it can be looked at, and a warning says so.

    Args:
        model: The file wanted.
        folder: The cache.
        progress: Told how far the check has come.

    Returns:
        The file, or None when the cache does not hold it.

    Raises:
        WeightsError: The cached file cannot be read, or not be set aside.
    """
    file = folder / model.filename
    try:
        if not file.is_file():
            return None
        stamp = _stamp_of(file.stat(), model)
        if _read_stamp(file) == stamp:
            return file
        if stamp["size"] == model.size and file_digest(file, progress) == model.sha256:
            _write_stamp(file, stamp)
            return file
        aside = file.with_name(f"{file.name}.rejected")
        os.replace(file, aside)
    except FileNotFoundError:
        # Another process has just set it aside.
        return None
    except OSError as error:
        raise WeightsError(f"cannot use {file} ({error.strerror}): check its permissions") from error
    _logger.warning("%s is damaged or not the file expected: set aside as %s and fetched anew", file, aside.name)
    return None


def store(sources: Sequence[Path], model: ModelFile, folder: Path, progress: Progress) -> Path:
    """Join pieces into the cached file; it appears under its name only when whole and checked.

    Args:
        sources: The pieces in order.
        model: The file they make up.
        folder: The cache, made if it is not there.
        progress: Told how far the joining has come.

    Returns:
        The file in the cache.

    Raises:
        SourceError: The pieces do not make up the file; the cache is as it was.
        WeightsError: There is no room, or the folder cannot be written.
    """
    target = folder / model.filename
    temporary: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder, model)
        _check_room(folder, model)
        descriptor, name = tempfile.mkstemp(prefix=f"{model.filename}.", suffix=".part", dir=folder)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as out:
            found = _copy(sources, out, model.size, progress)
            out.flush()
            os.fsync(out.fileno())
        if found != model.sha256:
            raise SourceError(f"the SHA-256 is {found}, not {model.sha256}; install or load them again")
        stamp = _stamp_of(temporary.stat(), model)
        os.replace(temporary, target)
        _write_stamp(target, stamp)
    except OSError as error:
        raise _explained(error, folder, model) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    return target


def file_digest(file: Path, progress: Progress) -> str:
    """The SHA-256 of a file, as lower-case hexadecimal digits."""
    digest = hashlib.sha256()
    total = file.stat().st_size
    done = 0
    for chunk in _chunks(file):
        digest.update(chunk)
        done += len(chunk)
        progress(WeightsStage.VERIFYING.value, done, total)
    return digest.hexdigest()


def _copy(sources: Sequence[Path], out: IO[bytes], total: int, progress: Progress) -> str:
    digest = hashlib.sha256()
    done = 0
    for source in sources:
        for chunk in _chunks(source):
            digest.update(chunk)
            out.write(chunk)
            done += len(chunk)
            progress(WeightsStage.ASSEMBLING.value, done, total)
    return digest.hexdigest()


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            yield chunk


def _sweep(folder: Path, model: ModelFile) -> None:
    """Remove what a killed process left behind; a file still being written is younger than that."""
    for file in folder.glob(f"{model.filename}.*.part"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > _STALE_S:
                file.unlink()


def _check_room(folder: Path, model: ModelFile) -> None:
    if shutil.disk_usage(folder).free < model.size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _explained(error: OSError, folder: Path, model: ModelFile) -> WeightsError:
    if error.errno in _NO_SPACE:
        room = f"{model.size / 1e9:.1f} GB"
        return WeightsError(f"no room for {room} in {folder}: free some, or set AGENTLOOP_CACHE to another folder")
    reason = error.strerror or type(error).__name__
    return WeightsError(
        f"cannot put the weights together in {folder} ({reason}): set AGENTLOOP_CACHE to a writable folder"
    )


def _stamp_of(status: os.stat_result, model: ModelFile) -> dict[str, object]:
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": model.sha256}


def _stamp_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.stamp.json")


def _read_stamp(file: Path) -> object:
    try:
        return json.loads(_stamp_file(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write_stamp(file: Path, stamp: dict[str, object]) -> None:
    # A stamp only saves time: in a read-only cache the digest is computed each time instead.
    with suppress(OSError):
        _stamp_file(file).write_text(json.dumps(stamp), encoding="utf-8")
