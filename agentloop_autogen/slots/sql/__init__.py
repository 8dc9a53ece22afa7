"""The Slot State Store in an SQL database: an SQLite file, or PostgreSQL for many processes and machines.

Its parts: `address` and `config` say where the store is; `tables` and `migrations` how it is laid out; `terms` what
requests are found by, and `text_index` asks the database's own text index for it; `sessions` opens and ends
transactions; `faults` puts what goes wrong into words; `writing` and `reading` are the statements, and `store` is the
component on top of them.
"""

from __future__ import annotations

from agentloop_autogen.errors import MissingExtraError

try:
    from agentloop_autogen.slots.sql.config import SQLSlotStateStoreConfig
    from agentloop_autogen.slots.sql.reading import StoreStats
    from agentloop_autogen.slots.sql.store import Redaction, SQLSlotStateStore
except ModuleNotFoundError as error:
    if (error.name or "").startswith("agentloop_autogen"):
        raise
    raise MissingExtraError("SQLSlotStateStore", "slots") from None

__all__ = ["Redaction", "SQLSlotStateStore", "SQLSlotStateStoreConfig", "StoreStats"]
