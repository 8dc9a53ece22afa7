"""What requests are found by: hashed words and pairs of neighbouring words, and which of them to ask the index for."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, pairwise
from typing import Final

from agentloop_autogen.core.normalise import normalise_text, similarity_words

__all__ = ["COMPARED_CHARS", "Probe", "compared_text", "hashed_words", "new_key", "plan_probes", "request_terms"]

COMPARED_CHARS: Final = 2_000
"""Characters of a request that are indexed and compared."""
_KEY_BYTES: Final = 16
_DIGEST_BYTES: Final = 6
_PAIR_MARK: Final = "p"
"""What the digest of two neighbouring words begins with: no hexadecimal digit."""

# Chosen on a million made-up requests: a search takes some milliseconds, and what is missed is hardly more similar.
_SINGLE_ENTRIES: Final = 2_000
"""Entries of the index that the rarest terms, taken one by one, may have together."""
_COMBINED_TERMS: Final = 4
"""How many of the next rarest terms are looked for two at a time."""
_COMBINED_ENTRIES: Final = 40_000
"""Entries of the index that each of these may have."""
_COMBINED_LIMIT: Final = 300
"""Objects taken for each two of them, the newest."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One question to the text index."""

    terms: tuple[str, ...]
    """Objects that have all of them are found."""
    weight: float
    """What a match says about how alike the requests are."""
    limit: int
    """Objects to take at most, the newest."""


def new_key() -> str:
    """Draw the key of a new store, as hexadecimal digits."""
    return secrets.token_hex(_KEY_BYTES)


def compared_text(request: str) -> str:
    """Return the part of a request that is indexed and compared, in one canonical spelling.

    Args:
        request: The request.
    """
    return normalise_text(request[:COMPARED_CHARS])


def request_terms(request: str, key: str, *, pairs: bool) -> frozenset[str]:
    """Return the hashed terms of a request.

    Args:
        request: The request.
        key: The store's key.
        pairs: Whether neighbouring words are hashed together, too. They find far better, but whoever guesses the words
            can put them in order again.
    """
    secret = bytes.fromhex(key)

    def digest(text: str) -> str:
        return blake2b(text.encode(), key=secret, digest_size=_DIGEST_BYTES).hexdigest()

    words = similarity_words(compared_text(request))
    found = {digest(word) for word in words}
    if pairs:
        found.update(_PAIR_MARK + digest(f"{left} {right}") for left, right in pairwise(words))
    return frozenset(found)


def hashed_words(terms: frozenset[str]) -> frozenset[str]:
    """Return the terms that are single words.

    Args:
        terms: Terms of one request.
    """
    return frozenset(term for term in terms if not term.startswith(_PAIR_MARK))


def plan_probes(entries: Mapping[str, int], objects: int) -> Sequence[Probe]:
    """Choose what to ask the text index, so that the work is bounded however many objects there are.

    The rarest terms are looked for one by one. Commoner ones are looked for two at a time, which costs the index
    little, and whoever reads its answer even less.

    Args:
        entries: In how many objects each term of the new request is.
        objects: How many objects there are.
    """
    known = sorted(entries, key=lambda term: (entries[term], term))
    weights = {term: math.log1p(objects / max(1, entries[term])) for term in known}
    # The rarest in any case: of a common one the newest.
    single = 1
    spent = sum(entries[term] for term in known[:1])
    for term in known[1:]:
        spent += entries[term]
        if spent > _SINGLE_ENTRIES:
            break
        single += 1
    probes = [Probe(terms=(term,), weight=weights[term], limit=_SINGLE_ENTRIES) for term in known[:single]]
    combined = [term for term in known[single:] if entries[term] <= _COMBINED_ENTRIES][:_COMBINED_TERMS]
    # Each term is in all its pairs; together they must not count for more than once.
    share = max(1, len(combined) - 1)
    for pair in combinations(combined, 2):
        weight = sum(weights[term] for term in pair) / share
        probes.append(Probe(terms=pair, weight=weight, limit=_COMBINED_LIMIT))
    return probes
