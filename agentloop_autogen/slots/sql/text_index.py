"""Candidates from the database's own text index: FTS5 in SQLite, a GIN index over a tsvector in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentloop_autogen.slots.sql.migrations import TERMS_VECTOR
from agentloop_autogen.slots.sql.terms import Probe

__all__ = ["find_candidates"]

_SQLITE: Final = (
    "SELECT seq, {weight} AS weight FROM (SELECT rowid AS seq FROM agentloop_slot_index"
    " WHERE agentloop_slot_index MATCH {query} ORDER BY rowid DESC LIMIT {limit})"
)
# OFFSET keeps the planner from walking through the whole table newest first.
_POSTGRESQL: Final = (
    "SELECT seq, {weight} AS weight FROM (SELECT seq FROM (SELECT seq FROM agentloop_slot_objects"
    f" WHERE {TERMS_VECTOR} @@ CAST({{query}} AS tsquery) OFFSET 0) AS found ORDER BY seq DESC LIMIT {{limit}})"
    " AS newest{number}"
)
_BEST: Final = "SELECT seq FROM ({probes}) AS found GROUP BY seq ORDER BY SUM(weight) DESC, seq DESC LIMIT :candidates"


async def find_candidates(connection: AsyncConnection, probes: Sequence[Probe], *, limit: int) -> Sequence[int]:
    """Return the row numbers of the objects that share the most telling terms with a request.

    Args:
        connection: An open transaction.
        probes: What to ask.
        limit: Row numbers to return at most, the best first.
    """
    if not probes:
        return ()
    is_sqlite = connection.dialect.name == "sqlite"
    parts: list[str] = []
    values: dict[str, Any] = {"candidates": limit}
    for number, probe in enumerate(probes):
        # Terms are digests: letters and digits only, which both languages of query take as they are.
        joined = (" AND " if is_sqlite else " & ").join(probe.terms)
        values |= {f"query{number}": joined, f"weight{number}": probe.weight, f"limit{number}": probe.limit}
        form = _SQLITE if is_sqlite else _POSTGRESQL
        weight = f":weight{number}" if is_sqlite else f"CAST(:weight{number} AS double precision)"
        parts.append(form.format(weight=weight, query=f":query{number}", limit=f":limit{number}", number=number))
    rows = await connection.execute(text(_BEST.format(probes=" UNION ALL ".join(parts))), values)
    return [int(row.seq) for row in rows]
