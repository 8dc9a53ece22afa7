"""Statements that read a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from heapq import nlargest
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select, tuple_

from agentloop_autogen.core.normalise import similarity_tokens
from agentloop_autogen.core.similarity import jaccard, mixed_similarity
from agentloop_autogen.slots.records import RuntimeStateObject
from agentloop_autogen.slots.sql.sessions import Session
from agentloop_autogen.slots.sql.tables import OBJECTS, TERMS
from agentloop_autogen.slots.sql.terms import COMPARED_CHARS, compared_text, hashed_words, plan_probes, request_terms
from agentloop_autogen.slots.sql.text_index import best_candidates
from agentloop_autogen.slots.store import SimilarRequest

__all__ = ["Place", "StoreStats", "by_ids", "last_number", "most_similar", "newest", "page_after", "stats"]

_PAGE: Final = 500
"""Objects read at a time."""
_CANDIDATES: Final = 200
"""Objects compared with a new request at most."""
_BYTES_PER_CHAR: Final = 4
Place = tuple[int, str]
"""Where an object stands in the order of age: its time in microseconds, then its id."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """What a store holds."""

    objects: int
    with_text: int
    """Objects whose request is kept."""
    oldest: datetime | None
    """When the oldest request ended; None: there is none."""
    newest: datetime | None

    @property
    def ends(self) -> dict[str, datetime | None]:
        """When the first and the last of them ended, by name."""
        return {"oldest": self.oldest, "newest": self.newest}


async def most_similar(
    session: Session, request: str, k: int, *, since: ColumnElement[bool] | None
) -> Sequence[SimilarRequest]:
    """Return the objects whose requests are most like this one, the most similar first, of equals the newest.

    Args:
        session: An open transaction.
        request: The new request.
        k: How many at most.
        since: What the objects must satisfy; None: nothing.
    """
    terms = request_terms(request, session.term_key, pairs=True)
    counted = select(TERMS.c.term, TERMS.c.objects).where(TERMS.c.term.in_(sorted(terms)))
    entries = {row.term: int(row.objects) for row in await session.connection.execute(counted)}
    probes = plan_probes(entries, session.objects)
    if not probes:
        return []
    best = best_candidates(session.connection.dialect.name, probes, limit=_CANDIDATES)
    query = select(OBJECTS).where(OBJECTS.c.seq.in_(best.scalar_subquery()))
    if since is not None:
        query = query.where(since)
    rows = (await session.connection.execute(query)).all()
    asked = compared_text(request)
    new = _New(text=asked, tokens=similarity_tokens(asked), words=hashed_words(terms))
    ranked = nlargest(k, ((_similarity(row, new), row.created_us, row.seq, row) for row in rows))
    return [SimilarRequest(state=_state(row), similarity=rho) for rho, _, _, row in ranked]


async def page_after(
    session: Session, last: tuple[int, str] | None
) -> Sequence[tuple[tuple[int, str], RuntimeStateObject]]:
    """Return the next objects in the order of their age, each with its place in that order.

    Args:
        session: An open transaction.
        last: Place of the last object seen; None: begin with the oldest.
    """
    place = (OBJECTS.c.created_us, OBJECTS.c.id)
    query = select(*place, OBJECTS.c.request, OBJECTS.c.body).order_by(*place).limit(_PAGE)
    if last is not None:
        query = query.where(tuple_(*place) > tuple_(*last))
    return [((row.created_us, row.id), _state(row)) for row in await session.connection.execute(query)]


async def newest(session: Session, count: int) -> Sequence[RuntimeStateObject]:
    """Return the newest objects, the newest first.

    Args:
        session: An open transaction.
        count: How many at most.
    """
    order = (OBJECTS.c.created_us.desc(), OBJECTS.c.id.desc())
    query = select(OBJECTS.c.request, OBJECTS.c.body).order_by(*order).limit(count)
    return [_state(row) for row in await session.connection.execute(query)]


async def by_ids(session: Session, ids: Iterable[str]) -> Sequence[RuntimeStateObject]:
    """Return the objects that have one of these ids.

    Args:
        session: An open transaction.
        ids: The ids.
    """
    query = select(OBJECTS.c.request, OBJECTS.c.body).where(OBJECTS.c.id.in_(list(ids)))
    return [_state(row) for row in await session.connection.execute(query)]


async def stats(session: Session) -> StoreStats:
    """Say what a store holds.

    Args:
        session: An open transaction.
    """
    query = select(
        func.count(), func.count(OBJECTS.c.request), func.min(OBJECTS.c.created_us), func.max(OBJECTS.c.created_us)
    )
    count, with_text, first, last = (await session.connection.execute(query)).one()
    return StoreStats(objects=count, with_text=with_text, oldest=_moment(first), newest=_moment(last))


@dataclass(frozen=True, kw_only=True)
class _New:
    """The new request, ready for comparison."""

    text: str
    tokens: frozenset[str]
    words: frozenset[str]
    """The same tokens as digests."""


async def last_number(session: Session) -> int:
    """Return the row number of the object that was written last; 0: there is none.

    Args:
        session: An open transaction.
    """
    return (await session.connection.execute(select(func.max(OBJECTS.c.seq)))).scalar_one() or 0


def _similarity(row: Any, new: _New) -> float:  # noqa: ANN401 - rows have the columns asked for
    if row.request is None:
        # Without text only the words can be compared, and only hashed.
        return jaccard(new.words, hashed_words(frozenset(row.terms.split())))
    # The cut may go through a character.
    start = bytes(row.request[: COMPARED_CHARS * _BYTES_PER_CHAR]).decode(errors="ignore")
    text = compared_text(start)
    return mixed_similarity(new.text, new.tokens, text, similarity_tokens(text))


def _state(row: Any) -> RuntimeStateObject:  # noqa: ANN401 - rows have the columns asked for
    request = bytes(row.request).decode() if row.request is not None else None
    return RuntimeStateObject.model_validate_json(row.body).model_copy(update={"request": request})


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
