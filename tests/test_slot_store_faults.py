"""What the SQL store does when its database is full, locked, damaged, too new, not there or not to be written."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pydantic import SecretStr
from sqlalchemy import inspect

from agentloop_autogen.errors import MissingExtraError, SlotStoreError, UsageError
from agentloop_autogen.slots.sql import SQLSlotStateStore
from agentloop_autogen.slots.sql.address import StoreAddress, default_path, parse_address, split_password
from agentloop_autogen.slots.sql.migrations import MIGRATIONS, Migration
from agentloop_autogen.slots.sql.sessions import Session, Sessions
from agentloop_autogen.slots.sql.tables import META, OBJECTS, TERMS

from .slot_samples import everything, state, states

if TYPE_CHECKING:
    from .postgres_server import PostgresServer

Operation = Callable[[SQLSlotStateStore], Awaitable[object]]
OPERATIONS: Final[dict[str, Operation]] = {
    "put": lambda store: store.put([state("new")]),
    "similar": lambda store: store.similar("How many inhabitants?"),
    "forget": lambda store: store.forget(["0"]),
    "forget_before": lambda store: store.forget_before(None),
    "export": everything,
    "get": lambda store: store.get(["0"]),
    "newest": lambda store: store.newest(),
    "stats": lambda store: store.stats(),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
SOME: Final = states("How many inhabitants has Vennholm?", "Which hotels in Ostby are open?")
SECOND: Final = "ALTER TABLE agentloop_slot_objects ADD COLUMN note TEXT"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is, on each of the databases."""
    if request.param == "sqlite":
        return str(tmp_path / "slots.sqlite3")
    return request.getfixturevalue("postgres_server").new_database(uuid.uuid4().hex)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a store of two objects."""
    path = tmp_path / "slots.sqlite3"
    asyncio.run(SQLSlotStateStore(path).put(SOME))
    return path


def refused(store: SQLSlotStateStore, operation: Operation, *words: str) -> str:
    """Run an operation that must fail with one line that names the place and holds these words."""
    with pytest.raises(SlotStoreError) as caught:
        asyncio.run(_run(store, operation))
    message = str(caught.value)
    assert message.startswith("the slot store ")
    assert message.isprintable()
    assert all(word in message for word in (*words, store.place)), message
    assert "not-to-be-shown" not in message
    return message


async def _run(store: SQLSlotStateStore, operation: Operation) -> object:
    return await operation(store)


@every_operation
def test_a_missing_folder_is_said(tmp_path: Path, operation: Operation) -> None:
    """A named file is made, but not the folder it is to be in: that is more likely a slip."""
    refused(SQLSlotStateStore(tmp_path / "nowhere" / "x"), operation, "cannot be opened", "its folder exists")


@every_operation
def test_a_folder_is_no_store(tmp_path: Path, operation: Operation) -> None:
    """Naming a folder is said as it is."""
    refused(SQLSlotStateStore(tmp_path), operation, "cannot be opened")


@every_operation
@pytest.mark.parametrize("content", [b"not a database at all " * 100, b"SQLite format 3\x00" + bytes(5_000)])
def test_a_file_of_another_kind_is_said(tmp_path: Path, operation: Operation, content: bytes) -> None:
    """It is left as it is."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    refused(SQLSlotStateStore(path), operation, "move it away")
    assert path.read_bytes() == content


def test_a_damaged_file_fails_with_that_error_or_works(file: Path) -> None:
    """Wherever bytes are changed or cut off, nothing else is ever raised, and most damage is noticed."""
    asyncio.run(SQLSlotStateStore(file).put(states(*(f"request number {number}" for number in range(400)))))
    whole = file.read_bytes()
    dice = random.Random(5)  # noqa: S311 - no secret
    noticed = 0
    for attempt in range(25):
        damaged = bytearray(whole)
        if attempt % 3 == 0:
            del damaged[dice.randrange(100, len(whole)) :]
        else:
            start = dice.randrange(0, len(whole))
            damaged[start : start + 4_096] = dice.randbytes(min(4_096, len(whole) - start))
        for path in file.parent.iterdir():
            path.unlink()
        file.write_bytes(bytes(damaged))
        store = SQLSlotStateStore(file, timeout_s=2)
        for operation in OPERATIONS.values():
            try:
                asyncio.run(_run(store, operation))
            except SlotStoreError:
                noticed += 1
    assert noticed > 25


def test_a_lost_row_of_facts_is_damage(file: Path) -> None:
    """Without its key the store cannot look for words, and says so."""
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM agentloop_slot_meta WHERE name = 'term_key'")
    connection.close()
    refused(SQLSlotStateStore(file), OPERATIONS["similar"], "is damaged", "import an export")


@pytest.mark.parametrize("name", ["put", "forget"])
def test_a_locked_file_is_given_up_in_time(file: Path, name: str) -> None:
    """A writer waits no longer than it may; readers are not held up at all."""
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    store = SQLSlotStateStore(file, timeout_s=2)
    started = time.monotonic()
    refused(store, OPERATIONS[name], "is locked by another process", "raise timeout_s")
    assert time.monotonic() - started < 10
    assert len(asyncio.run(_run_similar(store))) == 2
    holder.execute("COMMIT")
    holder.close()
    asyncio.run(_run(store, OPERATIONS[name]))


async def _run_similar(store: SQLSlotStateStore) -> list[str]:
    return [one.state.id for one in await store.similar("inhabitants open")]


def test_a_writer_waits_for_its_turn(file: Path) -> None:
    """A lock that is given back in time is no error."""
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    async def both() -> None:
        putting = asyncio.create_task(SQLSlotStateStore(file, timeout_s=20).put([state("late")]))
        await asyncio.sleep(0.3)
        assert not putting.done()
        holder.execute("COMMIT")
        await putting

    asyncio.run(both())
    holder.close()


@contextmanager
def without_rights(folder: Path) -> Generator[None]:
    """Be a user who may read the folder and write nothing in it."""
    for path in (folder, *folder.iterdir()):
        path.chmod(path.stat().st_mode & ~0o222 | 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="agentloop-slots-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["put", "forget", "forget_before"])
def test_a_file_that_may_not_be_written_is_said(open_folder: Path, name: str) -> None:
    """The message says whose rights are missing, and what is there stays."""
    path = open_folder / "slots.sqlite3"
    store = SQLSlotStateStore(path)
    asyncio.run(store.put(SOME))
    asyncio.run(_run_similar(store))
    with without_rights(open_folder):
        refused(store, OPERATIONS[name], "may not be written")
    assert asyncio.run(everything(store)) == SOME


def test_a_folder_that_may_not_be_written_is_said(open_folder: Path) -> None:
    """A store that is not there cannot be made in it."""
    store = SQLSlotStateStore(open_folder / "slots.sqlite3")
    with without_rights(open_folder):
        refused(store, OPERATIONS["put"], "cannot be opened", "this user may write it")


FULL: Final = """
import asyncio, resource, sys
from agentloop_autogen.errors import SlotStoreError
from agentloop_autogen.slots.sql import SQLSlotStateStore
from tests.slot_samples import everything, state
store = SQLSlotStateStore(sys.argv[1])
async def fill():
    acknowledged = 0
    try:
        for batch in range(1_000):
            await store.put([state(f"{batch}-{number}", f"request {batch} {number}") for number in range(100)])
            acknowledged += 100
    except SlotStoreError as error:
        print(error)
    print(acknowledged, len(await everything(store)), len(await store.similar("request 0 1")))
async def make():
    await store.put([])
    await store.put([state("first")])
asyncio.run(make())
# Python ignores the signal, so that a write beyond the limit fails as it does on a full disk.
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
asyncio.run(fill())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
asyncio.run(store.put([state("room again")]))
"""


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """The write that does not fit fails as a whole, reading goes on, and with room again writing does."""
    path = tmp_path / "slots.sqlite3"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", FULL, str(path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr
    message, counts = done.stdout.splitlines()
    acknowledged, there, similar = map(int, counts.split())
    assert str(path) in message
    assert "disk" in message
    assert there == acknowledged + 1 > 100
    assert similar == 3


@every_operation
def test_a_store_of_a_newer_version_is_left_alone(place: str, operation: Operation) -> None:
    """Nobody guesses what a later version wrote; the message says which version is known here."""
    newer = Sessions(parse_address_of(place), timeout_s=5, migrations=[*MIGRATIONS, step(SECOND)])
    asyncio.run(newer.write(nothing))
    refused(SQLSlotStateStore(place), operation, "newer agentloop-autogen (version 2 of its tables", "upgrade")


def parse_address_of(place: str) -> StoreAddress:
    """The address of a place, password included."""
    bare, password = split_password(place)
    return parse_address(bare, None if password is None else SecretStr(password))


async def nothing(session: Session) -> None:
    """Do nothing in a transaction."""
    assert session.term_key


def step(statement: str) -> Migration:
    """A step of one statement."""
    return Migration(sqlite=[statement], postgresql=[statement])


def test_an_older_store_is_brought_up_to_date_where_it_is(place: str) -> None:
    """Whoever opens it first migrates it; what it holds stays, and many may open it at the same time."""
    asyncio.run(SQLSlotStateStore(place).put(SOME))
    newer = Sessions(parse_address_of(place), timeout_s=20, migrations=[*MIGRATIONS, step(SECOND)])

    async def columns(session: Session) -> list[str]:
        found = await session.connection.run_sync(lambda plain: inspect(plain).get_columns(OBJECTS.name))
        assert session.objects == 2
        return [column["name"] for column in found]

    async def many() -> list[list[str]]:
        return await asyncio.gather(*(newer.read(columns) for _ in range(5)))

    assert all("note" in found for found in asyncio.run(many()))


def test_a_migration_that_fails_changes_nothing(place: str) -> None:
    """All steps are one transaction: the older version goes on with its store."""
    asyncio.run(SQLSlotStateStore(place).put(SOME))
    steps = [*MIGRATIONS, step(SECOND), step("CREATE TABLE agentloop_slot_meta (name TEXT)")]
    with pytest.raises(SlotStoreError):
        asyncio.run(Sessions(parse_address_of(place), timeout_s=5, migrations=steps).write(nothing))
    assert asyncio.run(everything(SQLSlotStateStore(place))) == SOME


def test_the_tables_are_those_the_statements_name(place: str) -> None:
    """The migrations and the statements agree on every column."""
    sessions = Sessions(parse_address_of(place), timeout_s=5)
    for table in (META, OBJECTS, TERMS):

        async def columns(session: Session, name: str = table.name) -> list[str]:
            found = await session.connection.run_sync(lambda plain: inspect(plain).get_columns(name))
            return [column["name"] for column in found]

        assert asyncio.run(sessions.read(columns)) == [column.name for column in table.columns]


def test_what_is_forgotten_is_no_longer_in_the_file(tmp_path: Path) -> None:
    """Neither text nor digest of the object's words is left in the file or beside it."""
    path = tmp_path / "slots.sqlite3"
    store = SQLSlotStateStore(path)
    asyncio.run(store.put(states(*(f"town number {number} of many" for number in range(3_000)))))
    asyncio.run(store.put([state("gone-for-good", "The Zyxwvutsrq of Quuxville")]))
    with sqlite3.connect(path) as connection:
        query = "SELECT terms FROM agentloop_slot_objects WHERE id = 'gone-for-good'"
        terms = set(str(connection.execute(query).fetchone()[0]).split())
        query = "SELECT terms FROM agentloop_slot_objects WHERE id <> 'gone-for-good'"
        terms -= {term for (found,) in connection.execute(query) for term in found.split()}
    connection.close()
    wanted = [b"Zyxwvutsrq", b"gone-for-good", *(term.encode() for term in terms)]
    asyncio.run(store.forget(["gone-for-good"]))
    left = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert len(wanted) > 4
    assert [word for word in wanted if word in left] == []


def test_many_small_writes_leave_few_pieces_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search looks into every piece, so that they are merged now and then; a write that could not do so is kept."""
    monkeypatch.setattr("agentloop_autogen.slots.sql.store._MERGED_EVERY", 10)
    path = tmp_path / "slots.sqlite3"
    store = SQLSlotStateStore(path)
    for number in range(30):
        asyncio.run(store.put([state(str(number), f"request number {number}")]))
    with sqlite3.connect(path) as connection:
        pieces = connection.execute("SELECT count(DISTINCT segid) FROM agentloop_slot_index_idx").fetchone()
    connection.close()
    assert pieces == (1,)
    monkeypatch.setattr("agentloop_autogen.slots.sql.store._MERGE", "no statement {pages}")
    asyncio.run(store.put(states(*("again and again",) * 20)))
    assert asyncio.run(store.stats()).objects == 30
    assert len(asyncio.run(store.similar("again and again", 50))) == 20


def test_without_text_no_word_is_in_the_file(tmp_path: Path) -> None:
    """With `keep_request_text=False` neither the request nor any of its words can be read from the file."""
    store = SQLSlotStateStore(tmp_path / "slots.sqlite3", keep_request_text=False)
    asyncio.run(store.put([state("1", "The Zyxwvutsrq of Quuxville")]))
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir()).lower()
    assert b"zyxwvutsrq" not in left
    assert b"quuxville" not in left


def test_the_default_file_is_made_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is made when it is needed, where the environment says; nobody else may read it."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "own" / "cache"))
    store = SQLSlotStateStore()
    assert store.dump_component().config == {"keep_request_text": True, "timeout_s": 5.0}
    asyncio.run(store.put(SOME))
    assert store.path == default_path() == tmp_path / "own" / "cache" / "slots.sqlite3"
    assert default_path().stat().st_mode & 0o077 == 0
    monkeypatch.delenv("AGENTLOOP_CACHE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == tmp_path / "data" / "agentloop" / "slots.sqlite3"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://u:not-to-be-shown@h/d", "no slot store is kept in 'mysql'"),
        ("sqlite://", "is a plain file"),
        ("sqlite:///:memory:", "is a plain file"),
        ("sqlite:///x?mode=ro", "is a plain file"),
        ("postgresql://u:not-to-be-shown@h:port/d", "cannot be read"),
        ("://", "cannot be read"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str, words: str) -> None:
    """The message says what to give, and repeats no password."""
    with pytest.raises(UsageError) as caught:
        SQLSlotStateStore(url)
    assert words in str(caught.value)
    assert "not-to-be-shown" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "module", "extra"), [("x", "aiosqlite", "slots"), ("postgresql://h/d", "asyncpg", "postgres")]
)
def test_a_missing_driver_names_its_extra(monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str) -> None:
    """The store says what to install as soon as it is made."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"needs the extra `{extra}`"):
        SQLSlotStateStore(url)


@pytest.mark.parametrize("form", ["postgresql://u:not-to-be-shown@h/d", "postgres://u@h/d?password=not-to-be-shown"])
def test_a_password_is_kept_apart_from_the_url(form: str) -> None:
    """It is in no dump, no repr and no place; the dump without it loads."""
    store = SQLSlotStateStore(form)
    dumped = store.dump_component()
    assert "not-to-be-shown" not in dumped.model_dump_json() + repr(dumped) + store.place + repr(store)
    loaded = SQLSlotStateStore.load_component(json.loads(dumped.model_dump_json()))
    assert loaded.place == store.place.replace(":***", "")


def test_a_server_that_is_not_there_is_said() -> None:
    """The message names host and database, and no password."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = SQLSlotStateStore(f"postgresql://me:not-to-be-shown@127.0.0.1:{port}/slots", timeout_s=5)
    message = refused(store, OPERATIONS["similar"], "cannot be reached", "see that the server runs")
    assert f"127.0.0.1:{port}/slots" in message


def test_options_the_driver_does_not_know_are_said() -> None:
    """A slip in the URL is no damage."""
    store = SQLSlotStateStore("postgresql://127.0.0.1:1/slots?sll=off")
    refused(store, OPERATIONS["similar"], "cannot be connected to in this way", "check the options")


def test_a_server_that_does_not_answer_is_given_up_in_time() -> None:
    """A port that takes the connection and stays silent holds nobody up."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = SQLSlotStateStore(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/slots?ssl=disable", timeout_s=0.5)
        started = time.monotonic()
        refused(store, OPERATIONS["put"])
        assert time.monotonic() - started < 5


@pytest.mark.postgres
def test_a_wrong_password_or_database_is_said(postgres_server: PostgresServer) -> None:
    """Each with its mend."""
    wrong = SQLSlotStateStore(postgres_server.url(password=None), password="also-secret")  # noqa: S106 - a wrong one
    message = refused(wrong, OPERATIONS["put"], "refused this user", "PGPASSWORD")
    assert "also-secret" not in message
    refused(SQLSlotStateStore(postgres_server.url("nowhere")), OPERATIONS["put"], "is not there", "make the database")


@pytest.mark.postgres
def test_a_locked_or_read_only_database_is_said(postgres_server: PostgresServer) -> None:
    """A writer waits no longer than it may, and a read-only database is no riddle."""
    name = uuid.uuid4().hex
    store = SQLSlotStateStore(postgres_server.new_database(name), timeout_s=1)
    asyncio.run(store.put(SOME))
    holder = Sessions(parse_address_of(postgres_server.url(name)), timeout_s=30)

    async def locked() -> None:
        held, give_back = asyncio.Event(), asyncio.Event()

        async def hold(session: Session) -> None:
            assert session.objects == 2
            held.set()
            await give_back.wait()

        holding = asyncio.create_task(holder.write(hold))
        await held.wait()
        with pytest.raises(SlotStoreError, match=r"is locked by another process|took too long"):
            await store.put([state("late")])
        assert len(await store.similar("inhabitants open")) == 2
        give_back.set()
        await holding

    asyncio.run(locked())
    postgres_server.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    refused(store, OPERATIONS["put"], "may not be written")
    assert asyncio.run(everything(store)) == SOME


@pytest.mark.postgres
def test_a_server_that_goes_away_comes_back(postgres_server: PostgresServer) -> None:
    """What was acknowledged is there after a crash of the server, and the same store goes on."""
    store = SQLSlotStateStore(postgres_server.new_database(uuid.uuid4().hex))
    asyncio.run(store.put(SOME))
    postgres_server.stop()
    refused(store, OPERATIONS["similar"], "cannot be reached")
    postgres_server.start()
    assert asyncio.run(everything(store)) == SOME
