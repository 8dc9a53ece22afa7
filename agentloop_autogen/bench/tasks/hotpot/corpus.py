"""The paragraphs of all questions, found by their words (BM25) or by their title."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from rapidfuzz import fuzz, process, utils

from agentloop_autogen.errors import MissingExtraError

__all__ = ["Corpus", "Paragraph"]

_K1: Final = 1.5
_B: Final = 0.75
_SIMILAR: Final = 5
"""Titles that are named where one is not found."""


class Paragraph(NamedTuple):
    """The first paragraph of an article."""

    title: str
    text: str


class Corpus:
    """Paragraphs that are indexed once, at the first search.

    Args:
        paragraphs: Paragraphs with distinct titles.
    """

    def __init__(self, paragraphs: Sequence[Paragraph]) -> None:
        self._paragraphs = tuple(paragraphs)
        self._by_title = {paragraph.title.casefold(): paragraph for paragraph in self._paragraphs}

    def __len__(self) -> int:
        return len(self._paragraphs)

    def search(self, query: str, k: int) -> list[Paragraph]:
        """Return the best paragraphs for a query by BM25, the best first; those without a word of it are left out.

        Args:
            query: Words, or a question.
            k: Paragraphs at most.

        Raises:
            MissingExtraError: The package for BM25 is not installed.
        """
        index = self._index
        words = index.words([query])[0]
        if not words:
            return []
        scores = index.scores(words)
        # Equal scores keep the order of the corpus, so that every machine finds the same.
        best = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:k]
        return [self._paragraphs[place] for place in best if scores[place] > 0]

    def lookup(self, title: str) -> Paragraph | None:
        """Return the paragraph of an article, None where there is none of that title; case does not matter."""
        return self._by_title.get(title.strip().casefold())

    def similar_titles(self, title: str) -> list[str]:
        """Return titles that look like one that is not there, the likest first."""
        titles = [paragraph.title for paragraph in self._paragraphs]
        found = process.extract(
            title, titles, scorer=fuzz.WRatio, processor=utils.default_process, limit=_SIMILAR, score_cutoff=60
        )
        return [match for match, _, _ in found]

    @cached_property
    def _index(self) -> _Index:
        return _Index([f"{paragraph.title}. {paragraph.text}" for paragraph in self._paragraphs])


class _Index:
    """The index of the package for BM25, which has no types of its own."""

    def __init__(self, texts: Sequence[str]) -> None:
        try:
            import bm25s  # pyright: ignore[reportMissingTypeStubs]  # the package has none
        except ImportError:
            raise MissingExtraError("searching paragraphs", "bench") from None
        self._package: Any = bm25s
        self._index: Any = self._package.BM25(k1=_K1, b=_B)
        self._index.index(self.words(texts), show_progress=False)

    def words(self, texts: Sequence[str]) -> list[list[str]]:
        return self._package.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)

    def scores(self, words: list[str]) -> list[float]:
        return self._index.get_scores(words).tolist()
