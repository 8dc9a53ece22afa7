"""Grading an answer as HotpotQA normalises answers, by whether it contains the gold one.

The official scores compare a short answer as a whole; agents answer in sentences. An answer is right here if the words
of the gold answer follow one another in it after the official normalisation, without accents. Exact match and F1, both
as the official evaluation has them, stand beside it.

What is done against being fooled:

- Yes and no must be said as such: at the beginning, or else one of them anywhere and the other nowhere.
- An answer that quotes paragraphs contains what is in them. It may have sixty words beside the gold answer's;
  most paragraphs are longer.
- A question that names its gold answer ("which of A or B") is answered by repeating it. Such tasks are dropped.
- A tool call is what a model wanted to do. It is cut out before grading.

What is left: a short answer that names several candidates, one of them right, passes, and so does a short paragraph
that holds the answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Final

from agentloop_autogen.bench.tasks.stated import plain, prose
from agentloop_autogen.bench.tasks.task import Grade

__all__ = ["f1_score", "grade", "names_answer", "normalised"]

_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_VERDICTS: Final = frozenset({"yes", "no"})
_SPARE_WORDS: Final = 60
"""Words an answer may have beside the gold answer's."""


def normalised(text: str) -> str:
    """Return a text as HotpotQA's evaluation compares it: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1_score(answer: str, gold: str) -> float:
    """Return HotpotQA's F1 of the words of an answer, 0 to 1; yes and no count only as a whole.

    Args:
        answer: An answer.
        gold: The gold answer.
    """
    said, wanted = normalised(answer), normalised(gold)
    if said != wanted and not _VERDICTS.isdisjoint({said, wanted}):
        return 0.0
    words, golden = said.split(), wanted.split()
    common = sum((Counter(words) & Counter(golden)).values())
    return 2 * common / (len(words) + len(golden)) if common else 0.0


def names_answer(question: str, gold: str) -> bool:
    """Return whether the question already holds the gold answer."""
    return _contains(_compared(question), _compared(gold))


def grade(answer: str, gold: str) -> Grade:
    """Grade an answer.

    Args:
        answer: What the system replied.
        gold: The gold answer.
    """
    said, wanted = _compared(prose(answer)), _compared(gold)
    scores = f"F1 {f1_score(answer, gold):.2f}, EM {int(normalised(answer) == normalised(gold))}"
    if not said:
        return Grade(correct=False, detail=f"no answer in words; {scores}")
    if wanted in _VERDICTS:
        right = _verdict(said) == wanted
        return Grade(correct=right, detail=scores if right else f"does not say {wanted}; {scores}")
    if not _contains(said, wanted):
        return Grade(correct=False, detail=f"does not contain the answer; {scores}")
    if len(said.split()) > _SPARE_WORDS + len(wanted.split()):
        return Grade(correct=False, detail=f"too long for an answer; {scores}")
    return Grade(correct=True, detail=scores)


def _compared(text: str) -> str:
    # Typographic quotes and missing accents are no other answer.
    return normalised(plain(text))


def _contains(text: str, words: str) -> bool:
    return f" {words} " in f" {text} "


def _verdict(said: str) -> str | None:
    words = said.split()
    if words[0] in _VERDICTS:
        return words[0]
    found = [verdict for verdict in _VERDICTS if verdict in words]
    return found[0] if len(found) == 1 else None
