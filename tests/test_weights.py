"""Where the weights of the local model come from, and what is refused."""

from __future__ import annotations

import errno
import hashlib
import importlib
import logging
import os
import sys
import threading
import types
from pathlib import Path
from typing import NamedTuple

import pytest

from agentloop_autogen.errors import UsageError, WeightsError
from agentloop_autogen.models import weights
from agentloop_autogen.models.weights import QWEN_CODER, ModelFile, WeightsStage, cache_folder, resolve_weights
from agentloop_autogen.models.weights.records import PartPackage

PIECES = (b"GGUF and ", b"a little ", b"more")
WHOLE = b"".join(PIECES)


class Setup(NamedTuple):
    """A tiny model whose parts are installed, and an empty cache."""

    model: ModelFile
    cache: Path
    site: Path


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Install three part packages that fail when they are imported."""
    site = tmp_path / "site"
    parts: list[PartPackage] = []
    for number, piece in enumerate(PIECES, start=1):
        folder = site / f"fake_part{number}"
        (folder / "data").mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
        (folder / "data" / f"part{number:02d}.bin").write_bytes(piece)
        parts.append(PartPackage(module=folder.name, path=f"data/part{number:02d}.bin"))
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model = ModelFile(
        filename="tiny.gguf",
        sha256=hashlib.sha256(WHOLE).hexdigest(),
        size=len(WHOLE),
        hub_repository="someone/tiny",
        parts=tuple(parts),
    )
    return Setup(model, tmp_path / "cache", site)


def offer_hub(monkeypatch: pytest.MonkeyPatch, file: Path | Exception) -> None:
    """Put a fake hub client in place that gives a file or fails."""

    def hf_hub_download(repo_id: str, filename: str) -> str:
        assert (repo_id, filename) == ("someone/tiny", "tiny.gguf")
        if isinstance(file, Exception):
            raise file
        return str(file)

    hub = types.ModuleType("huggingface_hub")
    hub.__dict__["hf_hub_download"] = hf_hub_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_the_parts_are_joined_without_importing_their_packages(setup: Setup) -> None:
    """The installed parts become the cached file, and none of their code runs."""
    path = resolve_weights(cache_dir=setup.cache, model=setup.model)
    assert path == setup.cache / "tiny.gguf"
    assert path.read_bytes() == WHOLE
    assert not any(part.module in sys.modules for part in setup.model.parts)
    assert not list(setup.cache.glob("*.part"))


def test_a_stamped_cache_file_is_not_read_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was checked once and has not changed is used without computing its digest."""
    path = resolve_weights(cache_dir=setup.cache, model=setup.model)

    def fail(*_: object) -> str:
        raise AssertionError("the digest was computed")

    monkeypatch.setattr("agentloop_autogen.models.weights.cache.file_digest", fail)
    assert resolve_weights(cache_dir=setup.cache, model=setup.model) == path


def test_a_good_file_without_a_stamp_is_checked_and_used(setup: Setup) -> None:
    """A file somebody put into the cache is used once its digest matched."""
    setup.cache.mkdir()
    (setup.cache / "tiny.gguf").write_bytes(WHOLE)
    stages: list[str] = []
    resolve_weights(cache_dir=setup.cache, model=setup.model, progress=lambda stage, done, total: stages.append(stage))
    assert set(stages) == {WeightsStage.VERIFYING.value}
    assert (setup.cache / "tiny.gguf.stamp.json").is_file()


@pytest.mark.parametrize("content", [WHOLE[:-1], b"x" * len(WHOLE), b""])
def test_a_bad_cached_file_is_set_aside_and_rebuilt(
    setup: Setup, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A partial or damaged file is kept under another name, a warning says so, and a good one takes its place."""
    resolve_weights(cache_dir=setup.cache, model=setup.model)
    (setup.cache / "tiny.gguf").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        path = resolve_weights(cache_dir=setup.cache, model=setup.model)
    assert path.read_bytes() == WHOLE
    assert (setup.cache / "tiny.gguf.rejected").read_bytes() == content
    assert "set aside" in caplog.text


def test_a_changed_file_of_the_same_size_does_not_pass_by_its_old_stamp(setup: Setup) -> None:
    """Changing the bytes behind a stamp is noticed by the time of change."""
    path = resolve_weights(cache_dir=setup.cache, model=setup.model)
    status = path.stat()
    path.write_bytes(b"x" * len(WHOLE))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert resolve_weights(cache_dir=setup.cache, model=setup.model).read_bytes() == WHOLE


def test_parts_with_another_digest_are_not_used(setup: Setup) -> None:
    """Parts of the right size but other bytes leave nothing in the cache, and the error says what they are."""
    (setup.site / "fake_part2" / "data" / "part02.bin").write_bytes(b"A LITTLE ")
    with pytest.raises(WeightsError, match=r"the packages: the SHA-256 is [0-9a-f]{64}, not"):
        resolve_weights(cache_dir=setup.cache, model=setup.model)
    assert list(setup.cache.iterdir()) == []


def test_missing_parts_are_named(setup: Setup) -> None:
    """With some parts gone the error names them and how to get them."""
    (setup.site / "fake_part2" / "data" / "part02.bin").unlink()
    with pytest.raises(WeightsError, match=r"part 2 of 3 missing.*local-weights"):
        resolve_weights(cache_dir=setup.cache, model=setup.model)


def test_without_any_source_the_error_lists_all_of_them(setup: Setup) -> None:
    """When nothing is to be had, one line says what was tried and what mends it."""
    bare = ModelFile(filename="tiny.gguf", sha256=setup.model.sha256, size=1, hub_repository="someone/tiny")
    with pytest.raises(WeightsError) as caught:
        resolve_weights(cache_dir=setup.cache, model=bare)
    message = str(caught.value)
    for word in (str(setup.cache), "not installed", "huggingface_hub", "agentloop-autogen[hub]", "path"):
        assert word in message
    assert "\n" not in message


def test_the_hub_is_asked_when_parts_are_missing(setup: Setup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the packages the file comes from the hub, checked like any other."""
    (setup.site / "fake_part1" / "data" / "part01.bin").unlink()
    (tmp_path / "blob").write_bytes(WHOLE)
    offer_hub(monkeypatch, tmp_path / "blob")
    assert resolve_weights(cache_dir=setup.cache, model=setup.model).read_bytes() == WHOLE


@pytest.mark.parametrize("failure", [OSError("no route\nto host"), RuntimeError("")])
def test_a_hub_that_fails_is_one_of_the_places_tried(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """A hub that cannot be reached is reported on the same single line."""
    (setup.site / "fake_part1" / "data" / "part01.bin").unlink()
    offer_hub(monkeypatch, failure)
    with pytest.raises(WeightsError, match="the hub: someone/tiny could not be loaded") as caught:
        resolve_weights(cache_dir=setup.cache, model=setup.model)
    assert "\n" not in str(caught.value)


def test_a_given_path_is_used_when_its_digest_matches(setup: Setup, tmp_path: Path) -> None:
    """A path the user gives is used as it is, not copied."""
    own = tmp_path / "own.gguf"
    own.write_bytes(WHOLE)
    assert resolve_weights(own, model=setup.model, cache_dir=setup.cache) == own
    assert not setup.cache.exists()


def test_a_given_path_with_another_digest_is_refused_unless_named(setup: Setup, tmp_path: Path) -> None:
    """Another model is used only when the user states its digest, in either letter case."""
    own = tmp_path / "own.gguf"
    own.write_bytes(b"another model")
    with pytest.raises(WeightsError, match="has the SHA-256"):
        resolve_weights(own, model=setup.model)
    digest = hashlib.sha256(b"another model").hexdigest()
    assert resolve_weights(own, sha256=digest.upper(), model=setup.model) == own


def test_a_given_path_must_exist(tmp_path: Path) -> None:
    """A path that is not there is an error and no reason to look elsewhere."""
    with pytest.raises(UsageError, match="no weights file"):
        resolve_weights(tmp_path / "nothing.gguf")


def test_a_digest_without_a_path_is_refused(setup: Setup) -> None:
    """A digest alone does not say which file is meant."""
    with pytest.raises(UsageError, match="give both"):
        resolve_weights(sha256="00", cache_dir=setup.cache, model=setup.model)


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "no room"), (errno.EROFS, "writable folder"), (errno.EACCES, "writable folder")],
)
def test_a_cache_that_cannot_be_written_is_explained(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    """A full disk or a read-only folder gives one line with the mend, and no piece stays behind."""

    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WeightsError, match=words):
        resolve_weights(cache_dir=setup.cache, model=setup.model)
    assert list(setup.cache.iterdir()) == []


def test_too_little_room_is_noticed_before_writing(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The free space is looked at first."""

    def full(folder: Path) -> types.SimpleNamespace:
        return types.SimpleNamespace(total=10, used=10, free=0)

    monkeypatch.setattr("agentloop_autogen.models.weights.cache.shutil.disk_usage", full)
    with pytest.raises(WeightsError, match="no room"):
        resolve_weights(cache_dir=setup.cache, model=setup.model)


def test_two_at_once_both_get_the_file(setup: Setup) -> None:
    """Assembling twice at the same time ends with one good file for both."""
    barrier = threading.Barrier(2)
    found: list[bytes] = []

    def work() -> None:
        barrier.wait()
        found.append(resolve_weights(cache_dir=setup.cache, model=setup.model).read_bytes())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [WHOLE, WHOLE]
    assert not list(setup.cache.glob("*.part"))


def test_what_a_killed_process_left_is_swept(setup: Setup) -> None:
    """An old unfinished file goes, a young one may still be in the making and stays."""
    setup.cache.mkdir()
    old, young = setup.cache / "tiny.gguf.a.part", setup.cache / "tiny.gguf.b.part"
    old.write_bytes(b"")
    young.write_bytes(b"")
    os.utime(old, (0, 0))
    resolve_weights(cache_dir=setup.cache, model=setup.model)
    assert not old.exists()
    assert young.exists()


def test_progress_ends_at_the_size_of_the_file(setup: Setup) -> None:
    """Assembling is reported in bytes up to the whole."""
    seen: list[tuple[str, int, int]] = []
    resolve_weights(
        cache_dir=setup.cache, model=setup.model, progress=lambda stage, done, total: seen.append((stage, done, total))
    )
    assert seen[-1] == ("assembling", len(WHOLE), len(WHOLE))


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The own variable goes before the user's cache folder, which goes before the home folder."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("AGENTLOOP_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "agentloop"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "agentloop"


def test_the_model_is_the_published_one() -> None:
    """The pinned identity is the digest and size of Qwen's own file, in 22 parts."""
    assert QWEN_CODER.sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    assert QWEN_CODER.size == 1_117_320_768
    assert [part.path for part in QWEN_CODER.parts][::21] == ["data/part01.bin", "data/part22.bin"]
    assert weights.QWEN_CODER is QWEN_CODER
