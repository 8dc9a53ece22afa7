"""Reading the questions of HotpotQA, from the set cut for this benchmark or from HotpotQA's own files."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from agentloop_autogen.bench.tasks.arguments import object_schema, text_argument, whole_argument
from agentloop_autogen.bench.tasks.data_place import data_folder, find_file, read_json, read_lines
from agentloop_autogen.bench.tasks.halves import half_of
from agentloop_autogen.bench.tasks.hotpot import grading
from agentloop_autogen.bench.tasks.hotpot.corpus import Corpus, Paragraph
from agentloop_autogen.bench.tasks.task import BenchTask, BenchTool, Grade
from agentloop_autogen.errors import TaskDataError

__all__ = ["FAMILY", "load"]

FAMILY: Final = "hotpot"
INSTRUCTIONS: Final = (
    "Answer the user's question from the encyclopedia. Use the tools to search paragraphs and to look up articles; "
    "an answer may need facts from two articles. Give the final answer in one short sentence, as exact as the articles "
    "have it; to a yes-or-no question, begin with yes or no."
)
MISSING: Final = (
    "no HotpotQA data: name a folder (--data or AGENTLOOP_DATA) with HotpotQA's own `hotpot_dev_distractor_v1.json`, "
    "or with `tasks/hotpot_qa.jsonl.gz` and `tasks/hotpot_corpus.jsonl.gz`"
)
_CUT_QUESTIONS: Final = ("tasks/hotpot_qa.jsonl.gz", "hotpot_qa.jsonl.gz")
_CUT_CORPUS: Final = ("tasks/hotpot_corpus.jsonl.gz", "hotpot_corpus.jsonl.gz")
_OWN_QUESTIONS: Final = ("hotpot_dev_distractor_v1.json", "hotpotqa/hotpot_dev_distractor_v1.json")
_RESULTS: Final = 3
_MOST_RESULTS: Final = 10
_MAX_CHARS: Final = 1_200
"""Characters of a paragraph a search shows."""
_MAX_LOOKUP: Final = 6_000
"""Characters of a paragraph a look-up shows."""


class Question(NamedTuple):
    """A question as either source has it."""

    id: str
    level: str
    text: str
    answer: str


def load(data: Path | None = None) -> Sequence[BenchTask]:
    """Load the questions that do not name their own answer, in the order of the file.

    Args:
        data: The data folder: HotpotQA's own development set with contexts, which then are the corpus, or the cut set.
            None: the one `AGENTLOOP_DATA` names.

    Raises:
        TaskDataError: There are no data, or they are damaged.
    """
    folder = data_folder(data)
    found = _cut_set(folder) or _own_set(folder)
    if found is None:
        raise TaskDataError(MISSING)
    questions, corpus = found
    return [
        _task(question, corpus)
        for question in questions
        if grading.normalised(question.answer) and not grading.names_answer(question.text, question.answer)
    ]


class SearchSession:
    """One attempt at a question; the corpus is only read, so all attempts share it.

    Args:
        corpus: The paragraphs.
        answer: The gold answer.
    """

    def __init__(self, corpus: Corpus, answer: str) -> None:
        self._corpus = corpus
        self._answer = answer

    @property
    def tools(self) -> Sequence[BenchTool]:
        """The tools over the corpus."""
        return (
            BenchTool(
                name="search",
                description="Search the encyclopedia; returns the first paragraphs of the articles that fit best.",
                parameters=object_schema(
                    {
                        "query": {"type": "string", "description": "What to search for."},
                        "k": {
                            "type": "integer",
                            "description": f"How many paragraphs to return, 1 to {_MOST_RESULTS}; default {_RESULTS}.",
                        },
                    },
                    optional=("k",),
                ),
                run=self._search,
            ),
            BenchTool(
                name="lookup",
                description="Return the first paragraph of the article with this exact title.",
                parameters=object_schema({"title": {"type": "string", "description": "Title of the article."}}),
                run=self._lookup,
            ),
        )

    def grade(self, answer: str) -> Grade:
        """Grade the answer by whether it contains the gold one."""
        return grading.grade(answer, self._answer)

    def close(self) -> None:
        """There is nothing to release."""

    async def _search(self, arguments: Mapping[str, Any]) -> str:
        query = text_argument(arguments, "query")
        k = whole_argument(arguments, "k", default=_RESULTS, most=_MOST_RESULTS)
        found = self._corpus.search(query, k)
        return (
            "\n\n".join(_shown(paragraph, _MAX_CHARS) for paragraph in found) or "no paragraph has any of these words"
        )

    async def _lookup(self, arguments: Mapping[str, Any]) -> str:
        title = text_argument(arguments, "title")
        if paragraph := self._corpus.lookup(title):
            return _shown(paragraph, _MAX_LOOKUP)
        similar = self._corpus.similar_titles(title)
        hint = f"; similar titles: {', '.join(similar)}" if similar else ""
        raise LookupError(f"there is no article titled {title!r}{hint}")


def _task(question: Question, corpus: Corpus) -> BenchTask:
    return BenchTask(
        family=FAMILY,
        id=question.id,
        half=half_of(FAMILY, question.id),
        instructions=INSTRUCTIONS,
        request=question.text,
        group=question.level,
        open=lambda: SearchSession(corpus, question.answer),
    )


def _paragraph(title: str, text: str) -> Paragraph:
    # The originals have HTML entities in them.
    return Paragraph(html.unescape(title).strip(), html.unescape(text).strip())


def _shown(paragraph: Paragraph, most: int) -> str:
    text = paragraph.text if len(paragraph.text) <= most else f"{paragraph.text[:most]}..."
    return f"{paragraph.title}: {text}"


def _cut_set(folder: Path | None) -> tuple[list[Question], Corpus] | None:
    path, paragraphs = find_file(folder, _CUT_QUESTIONS), find_file(folder, _CUT_CORPUS)
    if path is None or paragraphs is None:
        return None
    try:
        questions = [
            Question(record["id"], record["split"], record["question"].strip(), record["answer"])
            for record in read_lines(path)
        ]
        corpus = Corpus([_paragraph(record["title"], record["text"]) for record in read_lines(paragraphs)])
    except (KeyError, AttributeError) as error:
        raise TaskDataError(f"{str(path)!r} or its corpus holds a record without {error}: fetch them again") from error
    return questions, corpus


def _own_set(folder: Path | None) -> tuple[list[Question], Corpus] | None:
    path = find_file(folder, _OWN_QUESTIONS)
    if path is None:
        return None
    questions: list[Question] = []
    paragraphs: dict[str, Paragraph] = {}
    try:
        for record in cast("list[dict[str, Any]]", read_json(path)):
            level = str(record.get("level", ""))
            questions.append(Question(record["_id"], level, record["question"].strip(), record["answer"]))
            for title, sentences in record["context"]:
                paragraphs.setdefault(title, _paragraph(title, "".join(sentences)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TaskDataError(f"{str(path)!r} is not HotpotQA's file with contexts ({error}): fetch it again") from error
    return questions, Corpus(list(paragraphs.values()))
