"""`agentloop slots` as a user meets it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop_autogen.cli import main
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.sql import SQLSlotStateStore

from .cli_process import command, environment
from .slot_samples import everything, state, states

REQUESTS = ("How many inhabitants has Vennholm?", "Which hotels in Ostby are open?", "Is the bridge of Kelstad closed?")
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe\r\nsecond line\x00\x9b2J"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with three objects; the default store is elsewhere, and not there yet."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "slots.sqlite3"
    asyncio.run(SQLSlotStateStore(path).put(states(*REQUESTS)))
    return path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Run `agentloop slots` and return its status and what it wrote."""
    status = main(["slots", *args])
    out, err = capsys.readouterr()
    return status, out, err


def kept(path: Path) -> list[RuntimeStateObject]:
    """What a store holds."""
    return list(asyncio.run(everything(SQLSlotStateStore(path))))


def test_list_shows_the_newest_first(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """A line each: id, when, how it ended, slots closed, the request."""
    status, out, err = run(capsys, "list", "--store", str(store))
    assert (status, err) == (0, "")
    first, *rest = out.splitlines()
    assert first == "2  2026-01-05 10:02 UTC  synthesised, 1 of 2 slots  Is the bridge of Kelstad closed?"
    assert len(rest) == 2
    _, out, _ = run(capsys, "list", "--store", str(store), "--limit", "1")
    assert out == f"{first}\n"


def test_json_is_one_document_of_whole_objects(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """What is listed or shown as JSON reads as the objects that were kept."""
    _, out, _ = run(capsys, "list", "--store", str(store), "--json")
    listed = [RuntimeStateObject.model_validate(one) for one in json.loads(out)["objects"]]
    assert listed == states(*REQUESTS)[::-1]
    _, out, _ = run(capsys, "show", "1", "--store", str(store), "--json")
    assert RuntimeStateObject.model_validate_json(out) == states(*REQUESTS)[1]


def test_show_says_what_closed_which_slot(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """Everything that is kept of a request, in words."""
    status, out, _ = run(capsys, "show", "0", "--store", str(store))
    assert status == 0
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "id 0",
        "request How many inhabitants has Vennholm?",
        "ended 2026-01-05 10:00 UTC, synthesised by integrate_answer_retry_break, confidence 0.85, after 3 rounds",
        "model scripted",
        "slot inhabitants: supported, closed by register",
        "slot year: missing",
        "tool register: 2 calls, 1 in error",
    ]


def test_stats_say_what_the_store_holds(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """Where it is, how many objects, how many with text, the oldest and the newest, and its size."""
    status, out, _ = run(capsys, "stats", "--store", str(store))
    assert status == 0
    assert f"store       {store}\nobjects     3\nwith text   3\n" in out
    _, out, _ = run(capsys, "stats", "--store", str(store), "--json")
    found = json.loads(out)
    assert (found["objects"], found["with_text"], found["oldest"]) == (3, 3, "2026-01-05T10:00:00+00:00")
    assert found["bytes"] == store.stat().st_size


@pytest.mark.parametrize(
    ("args", "left", "words"),
    [
        (["0", "2", "nobody"], ["1"], "forgot 2 objects"),
        (["nobody"], ["0", "1", "2"], "forgot 0 objects"),
        (["--all"], [], "forgot 3 objects"),
        (["--older-than", "0"], [], "forgot 3 objects"),
        (["--older-than", "90000"], ["0", "1", "2"], "forgot 0 objects"),
    ],
)
def test_forget_removes_what_was_named(
    capsys: pytest.CaptureFixture[str], store: Path, args: list[str], left: list[str], words: str
) -> None:
    """By id, by age or all; the count is said."""
    assert run(capsys, "forget", *args, "--store", str(store)) == (0, f"{words}\n", "")
    assert [one.id for one in kept(store)] == left


def test_forget_as_json(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """The count is one document."""
    assert json.loads(run(capsys, "forget", "1", "--json", "--store", str(store))[1]) == {"forgotten": 1}


def test_an_export_can_be_imported(capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    """Through a file or a pipe, into a store that is made for it, twice without harm."""
    lines, copy = tmp_path / "lines.jsonl", tmp_path / "copy.sqlite3"
    status, out, _ = run(capsys, "export", "--store", str(store), "-o", str(lines))
    assert (status, out) == (0, f"wrote 3 objects to {lines}\n")
    assert lines.stat().st_mode & 0o077 == 0
    assert run(capsys, "export", "--store", str(store))[1] == lines.read_text(encoding="ascii")
    for _ in range(2):
        assert run(capsys, "import", str(lines), "--store", str(copy)) == (0, "imported 3 objects\n", "")
    assert kept(copy) == kept(store)
    piped = subprocess.run(  # noqa: S603 - our own interpreter
        command("slots", "import", "-", "--json", "--store", str(tmp_path / "piped.sqlite3")),
        env=environment(),
        input=lines.read_bytes(),
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert (piped.returncode, json.loads(piped.stdout), piped.stderr) == (0, {"imported": 3}, b"")
    assert kept(tmp_path / "piped.sqlite3") == kept(store)


def test_the_default_store_is_the_users_own(capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    """Without `--store` it is the file the agents use, too, made by an import."""
    lines = tmp_path / "lines.jsonl"
    run(capsys, "export", "--store", str(store), "-o", str(lines))
    assert run(capsys, "import", str(lines))[0] == 0
    assert kept(tmp_path / "cache" / "slots.sqlite3") == kept(store)
    assert "Kelstad" in run(capsys, "list")[1]


def test_a_bad_line_stops_an_import_where_it_is(
    capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path
) -> None:
    """Status 2 and its number; what stands before it is kept."""
    lines, copy = tmp_path / "lines.jsonl", tmp_path / "copy.sqlite3"
    lines.write_text(states(*REQUESTS)[0].model_dump_json() + "\n{\x1b[31m]\n", encoding="utf-8")
    status, out, err = run(capsys, "import", str(lines), "--store", str(copy))
    assert (status, out) == (2, "")
    assert err.startswith(f"agentloop: line 2 of {lines} is no Runtime State Object (")
    assert err.endswith("the 1 before it are kept\n")
    assert err.strip().isprintable()
    assert kept(copy) == kept(store)[:1]


def test_hostile_text_reaches_no_terminal(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """Colours, titles, direction marks and line ends of what is kept neither steer the terminal nor forge lines."""
    bad = state("evil\x1b[2J", HOSTILE, minutes=9)
    bad = bad.model_copy(
        update={"model": HOSTILE, "slots": tuple(s.model_copy(update={"name": HOSTILE}) for s in bad.slots)}
    )
    asyncio.run(SQLSlotStateStore(store).put([bad]))
    for args in (["list"], ["show", "evil\x1b[2J"], ["list", "--json"], ["show", "evil\x1b[2J", "--json"], ["export"]):
        status, out, _ = run(capsys, *args, "--store", str(store))
        assert status == 0
        assert all(line.isprintable() for line in out.splitlines())
    _, out, _ = run(capsys, "list", "--store", str(store))
    assert out.splitlines()[0] == "evil  2026-01-05 10:09 UTC  synthesised, 1 of 2 slots  red gnp.exe second line2J"
    assert len(out.splitlines()) == 4


def test_a_request_that_was_not_kept_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An object without text is listed all the same."""
    path = tmp_path / "bare.sqlite3"
    asyncio.run(SQLSlotStateStore(path, keep_request_text=False).put(states(*REQUESTS)))
    assert run(capsys, "list", "--store", str(path))[1].count("(request not kept)") == 3
    assert "with text   0" in run(capsys, "stats", "--store", str(path))[1]


def test_an_empty_store_is_said(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    """It is no error."""
    run(capsys, "forget", "--all", "--store", str(store))
    assert run(capsys, "list", "--store", str(store)) == (0, "the store is empty\n", "")
    assert run(capsys, "export", "--store", str(store)) == (0, "", "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["list"], "there is no slot store at "),
        (["list", "--store", "/no/such/file"], "there is no slot store at /no/such/file: name one with --store"),
        (["list", "--store", "STORE", "--limit", "0"], "'0' is no whole number from 1"),
        (["list", "--store", "mysql://h/d"], "no slot store is kept in 'mysql'"),
        (["show", "nobody", "--store", "STORE"], "no object has the id 'nobody'"),
        (["forget", "--store", "STORE"], "what is to be forgotten?"),
        (["forget", "1", "--all", "--store", "STORE"], "what is to be forgotten?"),
        (["forget", "--older-than", "-1", "--store", "STORE"], "'-1' is no number of days"),
        (["forget", "--older-than", "nan", "--store", "STORE"], "'nan' is no number of days"),
        (["import", "/no/such/file"], "/no/such/file cannot be read"),
        (["export", "--store", "STORE", "-o", "/no/such/folder/x"], "/no/such/folder/x cannot be written"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_mends_it(
    capsys: pytest.CaptureFixture[str], store: Path, args: list[str], words: str
) -> None:
    """Status 2, nothing on standard out, and nothing forgotten or made."""
    status, out, err = run(capsys, *[str(store) if arg == "STORE" else arg for arg in args])
    assert (status, out) == (2, "")
    assert err.startswith("agentloop: ")
    assert words in err
    assert err.count("\n") == 1
    assert len(kept(store)) == 3
    assert not (store.parent / "cache").exists()


def test_a_store_that_fails_is_status_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A damaged file is no wrong use; the message names it."""
    path = tmp_path / "slots.sqlite3"
    path.write_bytes(b"no database " * 500)
    status, out, err = run(capsys, "list", "--store", str(path))
    assert (status, out) == (1, "")
    problem = "is no slot store, or damaged: move it away, and import an export of it into a new one"
    assert err == f"agentloop: the slot store {path} {problem}\n"


def test_without_the_extra_the_command_says_what_to_install() -> None:
    """The rest of the command line needs no database."""
    code = (
        "import sys\nsys.modules['sqlalchemy'] = None\nfrom agentloop_autogen.cli import main\n"
        "assert main(['run', '--list']) == 0\nsys.exit(main(['slots', 'stats']))"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 2
    needs = "needs the extra `slots`: pip install 'agentloop-autogen[slots]'"
    assert done.stderr == f"agentloop: SQLSlotStateStore {needs}\n"


def test_a_closed_pipe_ends_quietly(store: Path) -> None:
    """Whoever reads only the first line leaves no traceback behind."""
    asyncio.run(SQLSlotStateStore(store).put([state(f"n{number}", "x" * 500) for number in range(500)]))
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        command("slots", "export", "--store", str(store)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["id"]
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=30) in (0, 141)


def test_a_narrow_terminal_gets_lines_that_fit(store: Path) -> None:
    """Requests are cut with an ellipsis where the window ends."""
    asyncio.run(SQLSlotStateStore(store).put([state("long", "words and words " * 50, minutes=99)]))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        ["/bin/sh", "-c", 'stty cols 70; exec "$@"', "sh", *command("slots", "list", "--store", str(store))],
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    assert process.wait(timeout=30) == 0
    lines = shown.decode().splitlines()
    assert len(lines) == 4
    assert lines[0].endswith("…")
    assert max(map(len, lines)) <= 70


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # How Linux says that the other end is gone.
        return b""
