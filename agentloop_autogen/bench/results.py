"""Result files: one attempt a line, written so that a killed run loses nothing that was finished."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, cast

from pydantic import ValidationError
from typing_extensions import Self

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.errors import ResultFileError

try:
    import fcntl
except ImportError:  # pragma: no cover - a system without it has no lock to take
    fcntl = None

__all__ = ["AttemptKey", "ResultFile", "attempts_in", "key_of", "read_attempts"]

_GZIP: Final = b"\x1f\x8b"


class AttemptKey(NamedTuple):
    """What tells attempts of one result file apart."""

    system: str
    family: str
    task: str
    seed: int


def key_of(attempt: Attempt) -> AttemptKey:
    """Return what tells an attempt apart from the others of its file."""
    return AttemptKey(attempt.system, attempt.family, attempt.task, attempt.seed)


def read_attempts(paths: Iterable[str | Path]) -> list[Attempt]:
    """Read the attempts of result files, plain or compressed with gzip.

    Args:
        paths: The files.

    Returns:
        The attempts in the order of their lines; of several at the same thing with the same settings, the last.

    Raises:
        ResultFileError: A file cannot be read, or a line of it is no attempt; a half-written last line is left out.
    """
    found: dict[tuple[AttemptKey, str, str], Attempt] = {}
    for path in paths:
        for attempt in attempts_in(Path(path)):
            same = (key_of(attempt), attempt.model, attempt.settings)
            found.pop(same, None)
            found[same] = attempt
    return list(found.values())


def attempts_in(path: Path) -> Iterator[Attempt]:
    """Read the attempts of one result file, line by line, repeated ones included.

    Args:
        path: The file, plain or compressed with gzip.

    Raises:
        ResultFileError: As `read_attempts` does.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            yield from (attempt for _, attempt in _lines(cast("BinaryIO", stream), path))
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise ResultFileError(f"{path} cannot be read ({why}): give a result file of `agentloop bench run`") from error


def _lines(stream: BinaryIO, path: Path) -> Iterator[tuple[int, Attempt]]:
    """Each whole line's end in the file with its attempt."""
    end = 0
    for number, line in enumerate(stream, start=1):
        if not line.endswith(b"\n"):
            return
        end += len(line)
        if not line.strip():
            continue
        try:
            attempt = Attempt.model_validate_json(line)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "JSON"
            message = f"line {number} of {path} is no attempt ({where} is not as it must be): give another file"
            raise ResultFileError(message) from error
        yield end, attempt


class ResultFile:
    """A result file that a run adds to; one run at a time.

    A half-written last line, as a killed run leaves it, is cut off. Each attempt is on the disk before `add` returns.

    Args:
        path: The file; it is made where there is none.
        settings: Digest of the run's settings; a file with attempts of other settings is refused.

    Raises:
        ResultFileError: It holds something else, or attempts of other settings, or another run is adding to it.
    """

    def __init__(self, path: Path, *, settings: str) -> None:
        self.path = path
        if path.suffix == ".gz":
            raise ResultFileError(f"{path} is compressed: write to a .jsonl file, and compress it when it is complete")
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise ResultFileError(f"{path} cannot be written ({error.strerror}): give another file") from error
        try:
            self._lock()
            self.attempts = self._recover(settings)
            """The attempts it holds, by what tells them apart; of several, the last."""
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, attempt: Attempt) -> None:
        """Append an attempt, and return once it is on the disk."""
        # One write of the whole line: another one never stands in the middle of it.
        self._file.write(attempt.model_dump_json().encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.attempts[key_of(attempt)] = attempt

    def close(self) -> None:
        """Close the file; another run may then add to it."""
        self._file.close()

    def _lock(self) -> None:
        if fcntl is None:  # pragma: no cover - a system without locks
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"another run is adding to {self.path}: wait for it, or give another file by --out"
            raise ResultFileError(message) from error

    def _recover(self, settings: str) -> dict[AttemptKey, Attempt]:
        found: dict[AttemptKey, Attempt] = {}
        whole = 0
        self._file.seek(0)
        for end, attempt in _lines(cast("BinaryIO", self._file), self.path):
            whole = end
            if attempt.settings != settings:
                message = f"{self.path} holds attempts made with other settings (model {attempt.model})"
                raise ResultFileError(f"{message}: give the same settings, or another file by --out")
            found[key_of(attempt)] = attempt
        self._file.truncate(whole)
        return found
