"""What can go wrong with a database, in words that say what mends it."""

from __future__ import annotations

import asyncio
from typing import Final

from sqlalchemy.exc import DBAPIError

from agentloop_autogen.errors import SlotStoreError
from agentloop_autogen.slots.sql.address import StoreAddress

__all__ = ["damaged", "in_words", "is_table_missing", "newer", "too_slow", "unusable"]

_NO_TABLE: Final = "42P01"

_DAMAGED: Final = ("is damaged", "move it away, and import an export of it into a new one")

# What SQLite says, what that means, what mends it; the first match counts.
_SQLITE: Final = (
    ("database is locked", "is locked by another process", "end whatever holds it, or raise timeout_s"),
    ("database table is locked", "is locked by another process", "end whatever holds it, or raise timeout_s"),
    ("disk is full", "has no room left on its disk", "free some, or move the store"),
    ("readonly database", "may not be written", "let this user write the file and its folder"),
    ("unable to open", "cannot be opened", "see that its folder exists and this user may write it"),
    ("not a database", "is no slot store, or damaged", "move it away, and import an export of it into a new one"),
    ("malformed", *_DAMAGED),
    ("vtable constructor failed", *_DAMAGED),
    ("no such module", "needs an SQLite with FTS5", "use a Python whose SQLite has it"),
    ("disk i/o error", "cannot be read or written", "check its disk, and the room on it"),
    ("interrupted", "took too long", "raise timeout_s"),
    ("no such table", *_DAMAGED),
)

# SQLSTATEs or their beginnings, what they mean, what mends it.
_POSTGRESQL: Final = (
    ("28", "refused this user", "check the user and the password (PGPASSWORD, ~/.pgpass)"),
    ("3D", "is not there", "make the database, or name another one"),
    ("53100", "has no room left on its disk", "free some on the server"),
    ("53", "has no room for this connection", "close others, or raise the server's limits"),
    ("55P03", "is locked by another process", "end whatever holds it, or raise timeout_s"),
    ("57014", "took too long", "raise timeout_s, or see what the server is busy with"),
    ("25006", "may not be written", "connect to the primary server"),
    ("42501", "may not be used by this user", "grant it the rights on the schema and the tables"),
    ("57P", "is shutting down or starting up", "wait until the server is ready"),
    ("08", "cannot be reached", "see that the server runs and the URL names its host and port"),
    ("XX", "is damaged", "restore it from a backup, or import an export into a new one"),
    (_NO_TABLE, "lacks tables of the store", "restore it from a backup, or import an export into a new one"),
)


def in_words(error: Exception, address: StoreAddress) -> SlotStoreError:
    """Say what went wrong, where, and what mends it.

    Args:
        error: What the database or its driver raised.
        address: Where the store is.
    """
    cause: BaseException = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = " ".join(str(cause).split())
    if address.path is not None:
        for pattern, problem, mend in _SQLITE:
            if pattern in said.lower():
                return _error(address, problem, mend)
        if isinstance(cause, OSError):
            return _error(address, "cannot be opened", "see that its folder exists and this user may write it")
    else:
        state = _state(cause)
        for pattern, problem, mend in _POSTGRESQL:
            if state.startswith(pattern):
                return _error(address, problem, mend)
        if isinstance(cause, OSError | asyncio.TimeoutError) or "connection" in said.lower():
            return _error(address, "cannot be reached", "see that the server runs and the URL names its host and port")
    return _error(address, f"failed ({type(cause).__name__})", "see the cause of this error")


def too_slow(address: StoreAddress, timeout_s: float) -> SlotStoreError:
    """Say that an operation was given up.

    Args:
        address: Where the store is.
        timeout_s: How long it was waited for.
    """
    return _error(address, f"did not answer in {timeout_s:g} s", "raise timeout_s, or see what it is busy with")


def damaged(address: StoreAddress) -> SlotStoreError:
    """Say that what the store holds cannot be read.

    Args:
        address: Where the store is.
    """
    return _error(address, *_DAMAGED)


def newer(address: StoreAddress, found: int, known: int) -> SlotStoreError:
    """Say that the store was written by a later version of this package.

    Args:
        address: Where the store is.
        found: Its version.
        known: The last version known here.
    """
    problem = f"was written by a newer agentloop-autogen (version {found} of its tables, this one knows {known})"
    return _error(address, problem, "upgrade the package, or name another store")


def unusable(address: StoreAddress) -> SlotStoreError:
    """Say that the driver does not take the URL's options.

    Args:
        address: Where the store is.
    """
    return _error(address, "cannot be connected to in this way", "check the options after the ? of its URL")


def is_table_missing(error: DBAPIError) -> bool:
    """Return whether a statement failed because the store has not been made yet.

    Args:
        error: What it raised.
    """
    return error.orig is not None and ("no such table" in str(error.orig) or _state(error.orig) == _NO_TABLE)


def _state(error: BaseException | None) -> str:
    while error is not None:
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
        error = error.__cause__
    return ""


def _error(address: StoreAddress, problem: str, mend: str) -> SlotStoreError:
    return SlotStoreError(f"the slot store {address.shown} {problem}: {mend}")
