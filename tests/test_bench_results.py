"""Result files: nothing finished is lost, nothing foreign is touched."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from agentloop_autogen.bench.results import ResultFile, read_attempts
from agentloop_autogen.errors import ResultFileError

from .bench_tasks import stub_attempt


def test_a_result_file_gives_back_what_was_put_in(tmp_path: Path) -> None:
    """Attempts are read back as they were written, plain or compressed, the last of several at the same thing."""
    path = tmp_path / "r.jsonl"
    with ResultFile(path, settings="s") as file:
        file.add(stub_attempt("door-1", error="timeout", correct=False))
        file.add(stub_attempt("door-2"))
        file.add(stub_attempt("door-1", answer="Zürich 東京"))
    packed = tmp_path / "r.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for place in (path, packed):
        found = read_attempts([place])
        assert [(one.task, one.error) for one in found] == [("door-2", None), ("door-1", None)]
        assert found[1].answer == "Zürich 東京"
    assert read_attempts([path, packed]) == read_attempts([path])


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_half_written_last_line_is_cut_off_and_the_rest_kept(tmp_path: Path, cut: int) -> None:
    """What a killed run left half written is dropped, so that the attempt is made again and the file stays readable."""
    path = tmp_path / "r.jsonl"
    with ResultFile(path, settings="s") as file:
        file.add(stub_attempt("door-1"))
        file.add(stub_attempt("door-2"))
    path.write_bytes(path.read_bytes()[:-cut])
    assert [one.task for one in read_attempts([path])] == ["door-1"]
    with ResultFile(path, settings="s") as file:
        assert [key.task for key in file.attempts] == ["door-1"]
        file.add(stub_attempt("door-3"))
    assert [one.task for one in read_attempts([path])] == ["door-1", "door-3"]


def test_a_file_with_other_settings_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Attempts of other settings are never mixed: the file is refused in a sentence that says what to do."""
    path = tmp_path / "r.jsonl"
    with ResultFile(path, settings="s") as file:
        file.add(stub_attempt())
    before = path.read_bytes()
    with pytest.raises(ResultFileError, match=r"other settings .*--out"):
        ResultFile(path, settings="another")
    assert path.read_bytes() == before


def test_a_file_another_run_is_adding_to_is_refused(tmp_path: Path) -> None:
    """Two runs never write to the same file."""
    path = tmp_path / "r.jsonl"
    with ResultFile(path, settings="s"), pytest.raises(ResultFileError, match="another run is adding"):
        ResultFile(path, settings="s")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("r.jsonl", '{"half": 1}\n{"system": "x"}\n', "line 1 of .* is no attempt"),
        ("r.jsonl", "no json\n", "line 1 of .* is no attempt"),
        ("r.jsonl.gz", "", "is compressed"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, name: str, text: str, says: str) -> None:
    """A file that holds no attempts is never written over."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ResultFileError, match=says):
        ResultFile(path, settings="s")
    assert path.read_text(encoding="utf-8") == text


def test_a_result_file_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    """Reading what is missing, or broken, says which file it was."""
    with pytest.raises(ResultFileError, match=r"gone\.jsonl cannot be read"):
        read_attempts([tmp_path / "gone.jsonl"])
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(b"{}\n" * 100)[:-9])
    with pytest.raises(ResultFileError, match=r"line 1|cannot be read"):
        read_attempts([broken])
