"""Candidates from the database's own text index: FTS5 in SQLite, a GIN index over a tsvector in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, TextualSelect, column, text

from agentloop_autogen.slots.sql.migrations import TERMS_VECTOR
from agentloop_autogen.slots.sql.terms import Probe

__all__ = ["best_candidates"]

_SQLITE: Final = (
    "SELECT seq, :weight{number} AS weight FROM (SELECT rowid AS seq FROM agentloop_slot_index"
    " WHERE agentloop_slot_index MATCH :query{number} ORDER BY rowid DESC LIMIT :limit{number})"
)
# OFFSET keeps the planner from walking through the whole table newest first.
_POSTGRESQL: Final = (
    "SELECT seq, CAST(:weight{number} AS double precision) AS weight FROM (SELECT seq FROM"
    " (SELECT seq FROM agentloop_slot_objects WHERE {vector} @@ CAST(:query{number} AS tsquery) OFFSET 0) AS found"
    " ORDER BY seq DESC LIMIT :limit{number}) AS newest{number}"
)
_BEST: Final = "SELECT seq FROM ({probes}) AS found GROUP BY seq ORDER BY SUM(weight) DESC, seq DESC LIMIT :candidates"


def best_candidates(dialect: str, probes: Sequence[Probe], *, limit: int) -> TextualSelect:
    """Return a query for the row numbers (`seq`) of the objects that share the most telling terms with a request.

    Args:
        dialect: `sqlite` or `postgresql`.
        probes: What to ask; at least one.
        limit: Row numbers to return at most.
    """
    is_sqlite = dialect == "sqlite"
    form = _SQLITE if is_sqlite else _POSTGRESQL
    parts: list[str] = []
    values: dict[str, Any] = {"candidates": limit}
    for number, probe in enumerate(probes):
        # Terms are digests: letters and digits only, which both languages of query take as they are.
        joined = (" AND " if is_sqlite else " & ").join(probe.terms)
        values |= {f"query{number}": joined, f"weight{number}": probe.weight, f"limit{number}": probe.limit}
        parts.append(form.format(number=number, vector=TERMS_VECTOR))
    return text(_BEST.format(probes=" UNION ALL ".join(parts))).bindparams(**values).columns(column("seq", BigInteger))
