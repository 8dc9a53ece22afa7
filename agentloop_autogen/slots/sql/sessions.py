"""Transactions on a store: each on a connection of its own, each in bounded time, what fails put into words."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from agentloop_autogen.errors import MissingExtraError
from agentloop_autogen.slots.sql.address import StoreAddress
from agentloop_autogen.slots.sql.faults import damaged, in_words, is_table_missing, newer, too_slow, unusable
from agentloop_autogen.slots.sql.migrations import MIGRATIONS, Migration
from agentloop_autogen.slots.sql.tables import META, MetaName
from agentloop_autogen.slots.sql.terms import new_key
from agentloop_autogen.waiting import stop_task

__all__ = ["Session", "Sessions"]

T = TypeVar("T")

_WRITE_LOCK: Final = 0x61676C73
"""The number PostgreSQL knows the store's write lock by."""
_BUSY_SHARE: Final = 0.75
"""A database that is locked says so itself, shortly before the whole operation is given up."""
_ERASING: Final = "PRAGMA secure_delete=ON"
"""What is deleted is overwritten."""
_WAL_RETRY_S: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Session:
    """One open transaction."""

    connection: AsyncConnection
    term_key: str
    """What words are hashed with."""
    objects: int
    """How many objects there are."""

    def holding(self, objects: int) -> Session:
        """The same transaction once it has changed how many objects there are.

        Args:
            objects: How many there are now.
        """
        return replace(self, objects=objects)


class Sessions:
    """Opens the transactions of a store.

    No connection outlives its transaction: so the store works from any event loop, thread or forked process, and holds
    nothing open that somebody would have to close.

    Args:
        address: Where the store is.
        timeout_s: Seconds a transaction may take, waiting for locks included.
        migrations: The steps that make the store and bring it up to date.

    Raises:
        MissingExtraError: The database's driver is not installed.
    """

    def __init__(
        self, address: StoreAddress, *, timeout_s: float, migrations: Sequence[Migration] = MIGRATIONS
    ) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._migrations = migrations
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncEngine] = WeakKeyDictionary()
        _check_driver(address)

    async def read(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do something in a transaction that sees one state of the store.

        Args:
            work: Gets the transaction.

        Raises:
            SlotStoreError: The database failed, or took too long.
        """
        return await self._bounded(self._prepared(work, write=False))

    async def write(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do something in a transaction that no other writer interferes with; on return it is durable.

        Args:
            work: Gets the transaction.

        Raises:
            SlotStoreError: The database failed, or took too long.
        """
        return await self._bounded(self._prepared(work, write=True))

    async def tidy(self, statement: str) -> int:
        """Run a statement of SQLite's that goes with no transaction of ours.

        Args:
            statement: The statement.

        Returns:
            How many rows it changed, those of the index itself included.

        Raises:
            SlotStoreError: The database failed, or took too long.
        """
        return await self._bounded(self._autocommitted(statement))

    async def close(self) -> None:
        """Let go of the engines."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.dispose()

    @property
    def _engine(self) -> AsyncEngine:
        # An engine holds no connection here, but a lock that belongs to the event loop it was first used in.
        loop = asyncio.get_running_loop()
        engine = self._engines.get(loop)
        if engine is None:
            engine = self._engines[loop] = _engine(self.address, self._timeout_s)
        return engine

    async def _bounded(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
            if not done:
                raise too_slow(self.address, self._timeout_s)
            return task.result()
        except (SQLAlchemyError, OSError, asyncio.TimeoutError) as error:
            raise in_words(error, self.address) from error
        except (TypeError, ValueError) as error:
            # A driver says so of options it does not know.
            raise unusable(self.address) from error
        finally:
            await stop_task(task)

    async def _prepared(self, work: Callable[[Session], Awaitable[T]], *, write: bool) -> T:
        _prepare_file(self.address)
        while True:
            async with self._begin(write=write) as connection:
                facts = await _facts(connection)
                if self._is_current(facts):
                    return await self._worked(work, connection, facts)
            await self._migrate()

    async def _worked(
        self, work: Callable[[Session], Awaitable[T]], connection: AsyncConnection, facts: dict[str, str]
    ) -> T:
        try:
            key, objects = facts[MetaName.TERM_KEY.value], int(facts[MetaName.OBJECTS.value])
            return await work(Session(connection=connection, term_key=key, objects=objects))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # What was stored does not read as what was written.
            raise damaged(self.address) from error

    def _is_current(self, facts: dict[str, str]) -> bool:
        version = self._version(facts)
        if version > len(self._migrations):
            raise newer(self.address, version, len(self._migrations))
        return version == len(self._migrations)

    def _version(self, facts: dict[str, str]) -> int:
        found = facts.get(MetaName.SCHEMA.value, "0")
        if not (found.isascii() and found.isdigit()):
            raise damaged(self.address)
        return int(found)

    async def _migrate(self) -> None:
        if self.address.path is not None:
            await self._use_wal()
        async with self._begin(write=True) as connection:
            is_new = not await _has_tables(connection)
            # Another process may have been quicker.
            facts = {} if is_new else await _facts(connection)
            if self._is_current(facts):
                return
            version = self._version(facts)
            for step in self._migrations[version:]:
                for statement in step.sqlite if self.address.path is not None else step.postgresql:
                    await connection.exec_driver_sql(statement)
            if version == 0:
                fresh = {MetaName.SCHEMA: "0", MetaName.TERM_KEY: new_key(), MetaName.OBJECTS: "0"}
                rows = [{"name": name.value, "value": value} for name, value in fresh.items()]
                await connection.execute(META.insert(), rows)
            named = META.c.name == MetaName.SCHEMA.value
            await connection.execute(META.update().where(named).values(value=str(len(self._migrations))))

    async def _use_wal(self) -> None:
        # SQLite does not wait for the lock this takes while other processes open the new file, too.
        while True:
            try:
                await self._autocommitted("PRAGMA journal_mode=WAL")
            except DBAPIError as error:
                if "locked" not in str(error.orig):
                    raise
                await asyncio.sleep(_WAL_RETRY_S)
            else:
                return

    async def _autocommitted(self, statement: str) -> int:
        async with self._engine.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            await connection.exec_driver_sql(_ERASING)
            await connection.exec_driver_sql(statement)
            # The connection is new, so that this counts no others.
            return (await connection.exec_driver_sql("SELECT total_changes()")).scalar_one()

    @asynccontextmanager
    async def _begin(self, *, write: bool) -> AsyncGenerator[AsyncConnection]:
        async with self._engine.connect() as plain:
            connection = await plain.execution_options(agentloop_write=write)
            async with connection.begin():
                if write and self.address.path is None:
                    await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _WRITE_LOCK})
                yield connection


async def _facts(connection: AsyncConnection) -> dict[str, str]:
    try:
        rows = await connection.execute(select(META.c.name, META.c.value))
    except DBAPIError as error:
        if is_table_missing(error):
            return {}
        raise
    return {row.name: row.value for row in rows}


async def _has_tables(connection: AsyncConnection) -> bool:
    # In PostgreSQL a statement that fails would end the transaction.
    return await connection.run_sync(lambda plain: plain.dialect.has_table(plain, META.name))


def _check_driver(address: StoreAddress) -> None:
    try:
        address.url.get_dialect().import_dbapi()
    except ModuleNotFoundError as error:
        extra = "slots" if address.path is not None else "postgres"
        raise MissingExtraError(f"the slot store {address.shown}", extra) from error


def _engine(address: StoreAddress, timeout_s: float) -> AsyncEngine:
    busy_s = timeout_s * _BUSY_SHARE
    if address.path is not None:
        arguments: dict[str, Any] = {"timeout": busy_s, "isolation_level": None}
    else:
        limit = str(max(1, int(busy_s * 1000)))
        settings = {"statement_timeout": limit, "lock_timeout": limit, "application_name": "agentloop slots"}
        arguments = {"timeout": busy_s, "server_settings": settings}
    # Without the parameters an error shows no request.
    engine = create_async_engine(address.url, poolclass=NullPool, connect_args=arguments, hide_parameters=True)
    if address.path is not None:
        event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _begin_sqlite(connection: Any) -> None:  # noqa: ANN401 - SQLAlchemy's event gives it no type
    options = connection.get_execution_options()
    if options.get("isolation_level") == "AUTOCOMMIT":
        return
    if not options.get("agentloop_write"):
        connection.exec_driver_sql("BEGIN")
        return
    # A commit is on the disk when it returns.
    connection.exec_driver_sql("PRAGMA synchronous=FULL")
    connection.exec_driver_sql(_ERASING)
    # A reader that becomes a writer may fail at once; whoever means to write waits for its turn first.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _prepare_file(address: StoreAddress) -> None:
    """Make the file where there is none, to be read by this user alone: requests may be personal."""
    path = address.path
    if path is None:
        return
    if address.is_default:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A file that is there must not be opened here: closing it would give back the locks this process holds on it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    # What SQLite cannot open leaves a thread of its driver behind.
    if not path.is_file() or not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
