"""Questions over paragraphs: searching, looking up, and what counts as an answer."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentloop_autogen.bench.tasks.families import load_tasks
from agentloop_autogen.bench.tasks.hotpot.corpus import Corpus, Paragraph
from agentloop_autogen.bench.tasks.hotpot.grading import f1_score, grade, names_answer
from agentloop_autogen.bench.tasks.task import BenchTask, Half, TaskSession
from agentloop_autogen.errors import MissingExtraError, TaskDataError

from .bench_data import DATA, needs_data

PAGES = {
    "Ada Lovelace": "Ada Lovelace was an English mathematician who wrote the first program for the Analytical Engine.",
    "Analytical Engine": "The Analytical Engine was a mechanical computer designed by Charles Babbage &amp; others.",
    "Charles Babbage": "Charles Babbage was an English polymath, born in London.",
    "Zebra": "Zebras are African equines with black-and-white striped coats.",
}
QUESTIONS = [
    ("1", "easy", "Who designed the engine that Ada Lovelace wrote a program for?", "Charles Babbage"),
    ("2", "hard", "Were both Ada Lovelace and Charles Babbage English?", "yes"),
    ("3", "hard", "Who was a mathematician, Ada Lovelace or Charles Babbage?", "Ada Lovelace"),
]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A data folder with four paragraphs and three questions."""
    corpus = [{"title": title, "text": text} for title, text in PAGES.items()]
    questions = [dict(zip(("id", "split", "question", "answer"), each, strict=True)) for each in QUESTIONS]
    for name, records in (("hotpot_corpus", corpus), ("hotpot_qa", questions)):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt") as file:
            file.write("\n".join(map(json.dumps, records)))
    return tmp_path


@pytest.fixture
def session(pages: Path) -> TaskSession:
    """An attempt at the first question."""
    return next(task for task in load_tasks("hotpot", data=pages) if task.id == "1").open()


async def call(session: TaskSession, tool: str, **arguments: Any) -> str:
    return await next(each for each in session.tools if each.name == tool).run(arguments)


async def test_searching_finds_the_paragraphs_with_the_words(session: TaskSession) -> None:
    """The best paragraph comes first, and those without any of the words do not come."""
    found = (await call(session, "search", query="engine designed by Babbage", k=4)).split("\n\n")
    assert found[0] == (
        "Analytical Engine: The Analytical Engine was a mechanical computer designed by Charles Babbage & others."
    )
    assert len(found) == 3
    assert "Zebra" not in " ".join(found)
    assert len((await call(session, "search", query="English engine", k=1)).split("\n\n")) == 1


@pytest.mark.parametrize("query", ["quetzalcoatl", "of the", "?!"])
async def test_a_search_without_a_hit_says_so(session: TaskSession, query: str) -> None:
    """Unknown words, stop words alone, and no words at all are no crash."""
    assert await call(session, "search", query=query) == "no paragraph has any of these words"


async def test_an_article_is_looked_up_by_its_title(session: TaskSession) -> None:
    """Case does not matter; a title that is not there is an error that names similar ones."""
    assert (await call(session, "lookup", title="charles babbage")).startswith(
        "Charles Babbage: Charles Babbage was an"
    )
    with pytest.raises(LookupError, match=r"no article titled 'Charles Babage'; similar titles: Charles Babbage"):
        await call(session, "lookup", title="Charles Babage")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {}),
        ("search", {"query": 7}),
        ("search", {"query": "x", "k": "many"}),
        ("search", {"query": "x", "k": 0}),
        ("search", {"query": "x", "k": True}),
        ("lookup", {"name": "Zebra"}),
    ],
)
async def test_malformed_arguments_are_an_error_the_model_can_read(
    session: TaskSession, tool: str, arguments: dict[str, Any]
) -> None:
    """The error names the argument and what it must be."""
    with pytest.raises(ValueError, match="the argument `"):
        await call(session, tool, **arguments)


def test_equal_scores_keep_the_order_of_the_corpus() -> None:
    """Which of two equally good paragraphs comes first does not hang on the machine."""
    corpus = Corpus([Paragraph(f"Page {number}", "the same words") for number in range(30)])
    assert [paragraph.title for paragraph in corpus.search("same words", 3)] == ["Page 0", "Page 1", "Page 2"]


def test_searching_without_the_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error says which one to install."""
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtraError, match="bench"):
        Corpus([Paragraph("A", "b")]).search("b", 1)


@pytest.mark.parametrize(
    ("answer", "gold", "correct"),
    [
        ("It was designed by the Charles Babbage.", "Charles Babbage", True),
        ("charles-babbage", "Charles Babbage", False),
        ("It was O’Neil.", "O'Neil", True),
        ("It was Gabor.", "Gábor", True),
        ("It was Charles.", "Charles Babbage", False),
        ("It was Charleston.", "Charles", False),
        ("", "Charles", False),
        ("Yes, both were English, no doubt.", "yes", True),
        ("Both were English: yes.", "yes", True),
        ("No. Yes would be wrong.", "yes", False),
        ("Either yes or no.", "yes", False),
        ("Both were English.", "yes", False),
        ("Nobody was.", "no", False),
        (f"It was Charles. {'More words. ' * 40}", "Charles", False),
        ('{"name": "search", "arguments": {"query": "Charles"}}', "Charles", False),
    ],
)
def test_an_answer_is_right_if_it_contains_the_gold_one(answer: str, gold: str, *, correct: bool) -> None:
    """Whole words after the official normalisation; yes and no only when they are said as such; no listing."""
    found = grade(answer, gold)
    assert found.correct is correct
    assert "F1" in found.detail


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("The Charles Babbage", "Charles Babbage", 1.0),
        ("It was Charles Babbage", "Charles Babbage", 2 / 3),
        ("yes it was", "yes", 0.0),
        ("no", "yes", 0.0),
        ("Zebra", "Charles", 0.0),
    ],
)
def test_f1_is_the_official_one(answer: str, gold: str, score: float) -> None:
    """Words in common, and nothing for a verdict that is not the whole answer."""
    assert f1_score(answer, gold) == pytest.approx(score)


def test_questions_that_name_their_answer_are_left_out(pages: Path) -> None:
    """Repeating such a question would answer it."""
    assert names_answer(QUESTIONS[2][2], QUESTIONS[2][3])
    assert {task.id for task in load_tasks("hotpot", data=pages)} == {"1", "2"}


def test_hotpots_own_file_is_read_too(pages: Path, tmp_path: Path) -> None:
    """The public original gives the same tasks, and the contexts of all its questions are the corpus."""
    own = tmp_path / "own"
    own.mkdir()
    context = [[title, [text[:20], text[20:]]] for title, text in PAGES.items()]
    records = [
        {"_id": key, "level": level, "question": question, "answer": answer, "context": context}
        for key, level, question, answer in QUESTIONS
    ]
    (own / "hotpot_dev_distractor_v1.json").write_text(json.dumps(records))
    cut, original = load_tasks("hotpot", data=pages), load_tasks("hotpot", data=own)
    assert [(task.id, task.half, task.group) for task in original] == [(task.id, task.half, task.group) for task in cut]


@pytest.mark.parametrize("records", [[{"_id": "1"}], {"data": []}, [1]])
def test_a_file_that_is_not_hotpots_is_refused(tmp_path: Path, records: object) -> None:
    """Records without a question or contexts are named as what is wrong."""
    (tmp_path / "hotpot_dev_distractor_v1.json").write_text(json.dumps(records))
    with pytest.raises(TaskDataError, match="is not HotpotQA's file"):
        load_tasks("hotpot", data=tmp_path)


def test_missing_data_say_what_to_put_where(tmp_path: Path) -> None:
    """Without data, the error names files and variable."""
    with pytest.raises(TaskDataError, match=r"AGENTLOOP_DATA.*distractor_v1\.json.*hotpot_corpus\.jsonl\.gz"):
        load_tasks("hotpot", data=tmp_path)


def published() -> tuple[Sequence[BenchTask], dict[str, dict[str, Any]]]:
    with gzip.open(DATA / "tasks" / "hotpot_qa.jsonl.gz", "rt") as file:
        return load_tasks("hotpot", data=DATA), {record["id"]: record for record in map(json.loads, file)}


@needs_data
def test_every_gold_answer_of_the_published_set_is_right() -> None:
    """The gold answers in a sentence are graded right for every task, and other tasks' ones hardly ever."""
    tasks, gold = published()
    assert Counter(task.half for task in tasks) == {Half.DEVELOPMENT: 81, Half.HELD_OUT: 88}
    answers = {
        task.id: f"It is {gold[task.id]['answer']}." for task in tasks if gold[task.id]["answer"] not in ("yes", "no")
    }
    for task in tasks:
        assert task.open().grade(str(gold[task.id]["answer"])).correct, task.request
    passed = asked = 0
    for task in tasks[::4]:
        session = task.open()
        others = [answer for key, answer in answers.items() if key != task.id]
        passed += sum(session.grade(answer).correct for answer in others)
        asked += len(others)
    assert passed / asked < 0.005


@needs_data
async def test_searching_the_published_corpus_finds_three_quarters_of_the_articles() -> None:
    """Of the articles a question needs, about .75 are among the first five for the question itself."""
    tasks, gold = published()
    found = needed = 0
    for task in tasks[::3]:
        shown = await call(task.open(), "search", query=task.request, k=5)
        titles = {paragraph.partition(": ")[0] for paragraph in shown.split("\n\n")}
        found += sum(title.partition(": ")[0] in titles for title in gold[task.id]["supporting_titles"])
        needed += len(gold[task.id]["supporting_titles"])
    assert 0.68 < found / needed < 0.82
