"""Statements that change a store; each runs inside a transaction that holds the write lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.sql.sessions import Session
from agentloop_autogen.slots.sql.tables import META, OBJECTS, TERMS, MetaName, microseconds
from agentloop_autogen.slots.sql.terms import request_terms

__all__ = ["BATCH", "keep", "remove"]

BATCH: Final = 500
"""Objects one transaction writes at most, and ids one statement names."""


async def keep(session: Session, states: Sequence[RuntimeStateObject], *, with_text: bool) -> int:
    """Write objects; those whose ids are there already are replaced.

    Args:
        session: A transaction for writing.
        states: At most `BATCH` objects; of several with one id the last counts.
        with_text: Whether the requests are kept.

    Returns:
        How many objects the store holds now.
    """
    wanted = {state.id: state for state in states}
    gone, change = await _delete(session, OBJECTS.c.id.in_(list(wanted)))
    rows = [_row(state, session.term_key, with_text=with_text) for state in wanted.values()]
    if rows:
        await session.connection.execute(insert(OBJECTS), rows)
    for row in rows:
        change.update(str(row["terms"]).split())
    return await _settle(session, change, session.objects + len(rows) - gone)


async def remove(session: Session, condition: ColumnElement[bool], *, limit: int) -> int:
    """Delete objects, the oldest first.

    Args:
        session: A transaction for writing, in which nothing else was written.
        condition: Which ones.
        limit: How many at most.

    Returns:
        How many there were.
    """
    oldest = select(OBJECTS.c.seq).where(condition).order_by(OBJECTS.c.created_us, OBJECTS.c.id).limit(limit)
    gone, change = await _delete(session, OBJECTS.c.seq.in_(oldest.scalar_subquery()))
    await _settle(session, change, session.objects - gone)
    return gone


async def _delete(session: Session, condition: ColumnElement[bool]) -> tuple[int, Counter[str]]:
    rows = (await session.connection.execute(select(OBJECTS.c.seq, OBJECTS.c.terms).where(condition))).all()
    change: Counter[str] = Counter()
    for row in rows:
        change.subtract(row.terms.split())
    for start in range(0, len(rows), BATCH):
        numbers = [row.seq for row in rows[start : start + BATCH]]
        await session.connection.execute(delete(OBJECTS).where(OBJECTS.c.seq.in_(numbers)))
    return len(rows), change


async def _settle(session: Session, change: Counter[str], objects: int) -> int:
    """Bring the counts up to date: of objects in all, and of those with each term."""
    changed = [{"term": term, "objects": count} for term, count in sorted(change.items()) if count]
    if changed:
        await session.connection.execute(_adding(session), changed)
    fewer = [str(row["term"]) for row in changed if int(row["objects"]) < 0]
    for start in range(0, len(fewer), BATCH):
        gone = TERMS.c.term.in_(fewer[start : start + BATCH]) & (TERMS.c.objects <= 0)
        await session.connection.execute(delete(TERMS).where(gone))
    if objects != session.objects:
        named = META.c.name == MetaName.OBJECTS.value
        await session.connection.execute(update(META).where(named).values(value=str(objects)))
    return objects


def _adding(session: Session) -> Any:  # noqa: ANN401 - the two dialects' classes of statement share no type with this method
    make = sqlite.insert if session.connection.dialect.name == "sqlite" else postgresql.insert
    adding = make(TERMS)
    added = {"objects": TERMS.c.objects + adding.excluded.objects}
    return adding.on_conflict_do_update(index_elements=[TERMS.c.term], set_=added)


def _row(state: RuntimeStateObject, term_key: str, *, with_text: bool) -> dict[str, object]:
    request = state.request
    terms = request_terms(request, term_key, pairs=with_text) if request is not None else ()
    return {
        "id": state.id,
        "created_us": microseconds(state.created_at),
        "request": request.encode() if with_text and request is not None else None,
        "terms": " ".join(sorted(terms)),
        "body": state.model_dump_json(exclude={"request"}),
    }
