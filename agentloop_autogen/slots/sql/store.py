"""The Slot State Store in an SQL database, as an AutoGen component."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, Final

from autogen_core import Component
from pydantic import SecretStr
from sqlalchemy import ColumnElement, true
from typing_extensions import Self

from agentloop_autogen.errors import SlotStoreError, UsageError
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.sql import reading, writing
from agentloop_autogen.slots.sql.address import parse_address, split_password
from agentloop_autogen.slots.sql.config import SQLSlotStateStoreConfig
from agentloop_autogen.slots.sql.sessions import Session, Sessions
from agentloop_autogen.slots.sql.tables import OBJECTS, microseconds
from agentloop_autogen.slots.store import SimilarRequest, SlotStateStore

__all__ = ["Redaction", "SQLSlotStateStore"]

Redaction = Callable[[RuntimeStateObject], RuntimeStateObject | None]
"""Gets each object before it is kept and returns what may be kept of it; None: nothing."""

_EXTRA_REMOVED: Final = 1_000
"""Objects past their time that one write removes besides as many as it adds: a large store shrinks bit by bit."""

_MERGE: Final = "INSERT INTO agentloop_slot_index (agentloop_slot_index, rank) VALUES ('merge', {pages})"
_MERGED_PAGES: Final = 1_000
"""Pages of the index rewritten in one step: others may write in between."""
_MERGE_WENT_ON: Final = 2
"""Rows a step changes at least while there was something to do."""
_MERGED_EVERY: Final = 20_000
"""Objects written in between: at a million objects it takes about a second."""


class SQLSlotStateStore(SlotStateStore, Component[SQLSlotStateStoreConfig]):
    """Keeps the slot state of past requests in an SQLite file or in a PostgreSQL database.

    Many processes may use one store. Each operation opens a connection of its own and ends it, so that the store works
    from any event loop and has nothing to be closed. Words are indexed as digests keyed with a random number of the
    store; whoever has the store has the key, too, and can try words.

    Args:
        url: The file, or `postgresql://USER@HOST/DATABASE`. None: `slots.sqlite3` in `$AGENTLOOP_CACHE`, else in the
            user's data folder. A file is made where there is none, readable by this user alone.
        password: The server's password; one in the URL is taken out of it. None: `PGPASSWORD` or `~/.pgpass`.
        keep_request_text: False: no request is kept, and similar ones are found by the digests of their words alone;
            an export holds no digests, so that objects imported from it are found by nothing.
        max_age_days: Days after which an object is removed. None: never.
        max_objects: Objects kept; beyond it the oldest are removed. None: any number.
        timeout_s: Seconds a transaction may take, waiting for locks included.
        redact: Gets each object before it is kept and returns what may be kept of it, or None to keep nothing of it.

    Raises:
        pydantic.ValidationError: An argument has the wrong type or is out of range.
        UsageError: The URL names no store that can be used.
        MissingExtraError: The database's driver is not installed.
    """

    component_config_schema = SQLSlotStateStoreConfig
    component_provider_override = "agentloop_autogen.slots.sql.SQLSlotStateStore"
    component_version = 1

    def __init__(
        self,
        url: str | Path | None = None,
        *,
        password: str | SecretStr | None = None,
        keep_request_text: bool = True,
        max_age_days: float | None = None,
        max_objects: int | None = None,
        timeout_s: float = 5.0,
        redact: Redaction | None = None,
    ) -> None:
        bare, inside = (None, None) if url is None else split_password(str(url))
        given: dict[str, Any] = {
            "url": bare,
            "password": password if password is not None else inside,
            "keep_request_text": keep_request_text,
            "max_age_days": max_age_days,
            "max_objects": max_objects,
            "timeout_s": timeout_s,
        }
        self._config = SQLSlotStateStoreConfig.model_validate(given)
        self._redact = redact
        self._sessions = Sessions(parse_address(self._config.url, self._config.password), timeout_s=timeout_s)

    @property
    def place(self) -> str:
        """Where the store is, as it may be shown: never with a password."""
        return self._sessions.address.shown

    @property
    def path(self) -> Path | None:
        """The SQLite file; None: the store is on a server."""
        return self._sessions.address.path

    async def put(self, states: Sequence[RuntimeStateObject]) -> None:
        """Keep these objects; one whose id is already there is replaced.

        Long sequences are written in several transactions. Should one fail, those before it are kept, and putting
        everything again does no harm.

        Args:
            states: The objects.

        Raises:
            SlotStoreError: They could not be kept.
        """
        wanted = list(states)
        if self._redact is not None:
            wanted = [kept for state in wanted if (kept := self._redact(state)) is not None]
        for start in range(0, len(wanted), writing.BATCH):
            some = wanted[start : start + writing.BATCH]
            last = await self._sessions.write(partial(self._keep, states=some))
            if self.path is not None and last // _MERGED_EVERY > (last - len(some)) // _MERGED_EVERY:
                # The objects are kept already, and the index works as well without this, only not as fast.
                with suppress(SlotStoreError):
                    await self._merge_index()

    async def similar(self, request: str, k: int = 3) -> Sequence[SimilarRequest]:
        """Return at most `k` past requests most like this one, the most similar first, of equals the newest.

        The text index gives a bounded number of candidates, which are ranked by ρ. Of an object without text only the
        words are compared.

        Args:
            request: The new request.
            k: How many to return at most; of more than 250 there is no telling.

        Raises:
            SlotStoreError: The store could not be read.
            UsageError: `k` is below 1.
        """
        if k < 1:
            raise UsageError(f"{k} similar requests cannot be looked for: ask for 1 or more")
        return await self._sessions.read(
            lambda session: reading.most_similar(session, request, k, since=self._young_enough())
        )

    async def forget(self, ids: Sequence[str]) -> int:
        """Remove these objects for good.

        In SQLite nothing of them is left in the file; PostgreSQL overwrites them when it next vacuums the tables.

        Args:
            ids: Their ids; unknown ones are no error.

        Returns:
            How many there were.

        Raises:
            SlotStoreError: They could not be removed.
        """
        unique = list(dict.fromkeys(ids))
        removed = 0
        for start in range(0, len(unique), writing.BATCH):
            some = OBJECTS.c.id.in_(unique[start : start + writing.BATCH])
            removed += await self._sessions.write(partial(writing.remove, condition=some, limit=writing.BATCH))
        await self._erase_traces(removed)
        return removed

    async def forget_before(self, moment: datetime | None) -> int:
        """Remove all objects of requests that ended before a moment, for good.

        Args:
            moment: The moment. None: all objects are removed.

        Returns:
            How many there were.

        Raises:
            SlotStoreError: They could not be removed; some may have been.
        """
        old = true() if moment is None else OBJECTS.c.created_us < microseconds(moment)
        removed = 0
        while some := await self._sessions.write(partial(writing.remove, condition=old, limit=writing.BATCH)):
            removed += some
        await self._erase_traces(removed)
        return removed

    async def export(self) -> AsyncIterator[RuntimeStateObject]:
        """Go through all objects, oldest first, in bounded memory.

        Each page is one state of the store: objects put or forgotten meanwhile may or may not be among them.

        Raises:
            SlotStoreError: The store could not be read.
        """
        last: reading.Place | None = None
        while page := await self._sessions.read(partial(reading.page_after, last=last)):
            for _, state in page:
                yield state
            last, _ = page[-1]

    async def get(self, ids: Sequence[str]) -> Sequence[RuntimeStateObject]:
        """Return the objects with these ids, in no particular order; unknown ids are left out.

        Args:
            ids: At most 500 ids.

        Raises:
            SlotStoreError: The store could not be read.
        """
        return await self._sessions.read(partial(reading.by_ids, ids=ids))

    async def newest(self, count: int = 20) -> Sequence[RuntimeStateObject]:
        """Return the objects of the requests that ended last, the newest first.

        Args:
            count: How many at most.

        Raises:
            SlotStoreError: The store could not be read.
        """
        return await self._sessions.read(partial(reading.newest, count=count))

    async def stats(self) -> reading.StoreStats:
        """Say what the store holds.

        Raises:
            SlotStoreError: The store could not be read.
        """
        return await self._sessions.read(reading.stats)

    async def close(self) -> None:
        """Release what the store holds open; it opens again at the next use."""
        await self._sessions.close()

    async def _keep(self, session: Session, states: Sequence[RuntimeStateObject]) -> int:
        objects = await writing.keep(session, states, with_text=self._config.keep_request_text)
        last = await reading.last_number(session)
        limit = len(states) + _EXTRA_REMOVED
        session = session.holding(objects)
        if self._config.max_age_days is not None:
            objects -= await writing.remove(session, self._too_old(self._config.max_age_days), limit=limit)
            session = session.holding(objects)
        if self._config.max_objects is not None and objects > self._config.max_objects:
            await writing.remove(session, true(), limit=min(limit, objects - self._config.max_objects))
        return last

    def _young_enough(self) -> ColumnElement[bool] | None:
        days = self._config.max_age_days
        return None if days is None else ~self._too_old(days)

    @staticmethod
    def _too_old(days: float) -> ColumnElement[bool]:
        return OBJECTS.c.created_us < microseconds(datetime.now(timezone.utc) - timedelta(days=days))

    async def _erase_traces(self, removed: int) -> None:
        if removed and self.path is not None:
            # The index still holds terms of removed objects, and the log their old pages.
            await self._merge_index()
            await self._sessions.tidy("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _merge_index(self) -> None:
        """Make one piece of SQLite's index again, bit by bit: each write adds one, and a search looks into all."""
        # A negative number takes all of the index for unfinished, the positive ones go on with it.
        pages = -_MERGED_PAGES
        while await self._sessions.tidy(_MERGE.format(pages=pages)) >= _MERGE_WENT_ON:
            pages = _MERGED_PAGES

    def _to_config(self) -> SQLSlotStateStoreConfig:
        if self._redact is not None:
            message = (
                f"the slot store {self.place} cannot be saved: `redact` is a function; leave it out and give it again"
                " after loading, or derive a store class that redacts"
            )
            raise UsageError(message)
        return self._config

    @classmethod
    def _from_config(cls, config: SQLSlotStateStoreConfig) -> Self:
        return cls(**{name: getattr(config, name) for name in SQLSlotStateStoreConfig.model_fields})
