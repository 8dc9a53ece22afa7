"""The tables of a store as its statements name them; `migrations` makes them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Final

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, Table, Text

__all__ = ["META", "OBJECTS", "TERMS", "MetaName", "microseconds"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TABLES: Final = MetaData()


class MetaName(str, Enum):
    """The rows of the table of facts about the store."""

    SCHEMA = "schema"
    """Number of the last migration applied."""
    TERM_KEY = "term_key"
    """What words are hashed with; drawn at random when the store is made."""
    OBJECTS = "objects"
    """How many objects there are: counting a million rows takes longer than reading one."""


META: Final = Table(
    "agentloop_slot_meta", _TABLES, Column("name", Text, primary_key=True), Column("value", Text, nullable=False)
)

OBJECTS: Final = Table(
    "agentloop_slot_objects",
    _TABLES,
    # What SQLite's text index refers to; later objects have higher ones.
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    # Bytes, since PostgreSQL takes no text with a NUL character.
    Column("request", LargeBinary, nullable=True),
    Column("terms", Text, nullable=False),
    Column("body", Text, nullable=False),
)

TERMS: Final = Table(
    "agentloop_slot_terms",
    _TABLES,
    Column("term", Text, primary_key=True),
    Column("objects", BigInteger, nullable=False),
)


def microseconds(moment: datetime) -> int:
    """Return a moment as microseconds since 1970; one without a time zone is taken as UTC.

    Args:
        moment: The moment.
    """
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(microseconds=1)
