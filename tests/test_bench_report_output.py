"""The benchmark's report as Markdown, page, figures, lines and JSON, by the command."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from agentloop_autogen.bench.report.collect import collect_bench_report
from agentloop_autogen.bench.report.markdown import filled_in, markdown_parts
from agentloop_autogen.bench.report.page import bench_html
from agentloop_autogen.bench.report.reading import read_results
from agentloop_autogen.bench.tasks.task import Half
from agentloop_autogen.cli import main
from agentloop_autogen.errors import UsageError

from .bench_samples import attempt, many, write_results

ROOT = Path(__file__).parent.parent
HOSTILE = "a|b\n<img src=x onerror=alert(1)> `c` \x1b[31m \u202e"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A result file with every kind of system at two families."""
    return write_results(tmp_path / "all.jsonl.gz", many(8))


def hostile(folder: Path) -> Path:
    return write_results(folder / "bad.jsonl", [attempt(family=HOSTILE), attempt(f"evil{HOSTILE}", family=HOSTILE)])


def test_the_document_of_the_repository_is_up_to_date() -> None:
    """Its generated parts are exactly what its result files give."""
    files = sorted((ROOT / "bench" / "results").glob("*.jsonl.gz"))
    names = [path.name for path in files]
    report = collect_bench_report(read_results(files, half=Half.HELD_OUT), files=names)
    document = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    renew = "agentloop bench report bench/results/*.jsonl.gz --into docs/benchmark.md"
    assert filled_in(document, markdown_parts(report)) == document, f"renew it by `{renew}`"


def test_without_results_the_report_says_that_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    """No result file, no figure."""
    assert main(["bench", "report"]) == 0
    assert "There are no results yet" in capsys.readouterr().out


def test_a_document_is_renewed_in_place_and_stays_so(results: Path, tmp_path: Path) -> None:
    """What stands outside the markers is kept, and a second time changes nothing."""
    document = tmp_path / "doc.md"
    document.write_text("Mine.\n\n<!-- bench report: summary -->\nold\n<!-- end of summary -->\n\nAlso mine.\n\n"
                        "<!-- bench report: tables --><!-- end of tables -->\n")  # fmt: skip
    assert main(["bench", "report", str(results), "--into", str(document)]) == 0
    once = document.read_text()
    assert main(["bench", "report", str(results), "--into", str(document)]) == 0
    assert document.read_text() == once
    assert once.startswith("Mine.\n\n<!-- bench report: summary -->\n\n## Where AgentLoop does worse\n")
    assert "Also mine." in once
    assert "old" not in once
    assert "| langgraph | 8 |" in once


def test_a_document_without_markers_is_refused() -> None:
    """The error says what to put into it."""
    with pytest.raises(UsageError, match="put <!-- bench report: summary -->"):
        filled_in("nothing here", {"summary": "x"})


def test_hostile_names_stay_one_cell_of_markdown(tmp_path: Path) -> None:
    """Pipes, line ends, markup and controls in names neither break a table nor become markup."""
    out = tmp_path / "out.md"
    assert main(["bench", "report", str(hostile(tmp_path)), "-o", str(out)]) == 0
    text = out.read_text()
    (header, *_) = [line for line in text.splitlines() if line.startswith("| System | Tasks")]
    row = next(line for line in text.splitlines() if line.startswith("| evil"))
    bars = re.compile(r"(?<!\\)\|")
    assert len(bars.findall(row)) == len(bars.findall(header))
    assert not re.search(r"(?<!\\)<img", text)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_hostile_names_stay_text_on_the_page_and_nothing_may_run(tmp_path: Path) -> None:
    """The page escapes them, holds no script, and its policy allows none and no request."""
    page = bench_html(collect_bench_report(read_results([hostile(tmp_path)])))
    assert "<img src=x" not in page
    assert "<script" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_every_family_has_its_figures_as_files(results: Path, tmp_path: Path) -> None:
    """Five charts for each family, as images that are not empty."""
    folder = tmp_path / "figures"
    assert main(["bench", "report", str(results), "--figures", str(folder), "--format", "png"]) == 0
    names = {path.name for path in folder.iterdir()}
    charts = ("latency", "breakdown", "tokens", "work", "frontier")
    assert names == {f"{family}-{chart}.png" for family in ("bfcl", "spider") for chart in charts}
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5_000 for path in folder.iterdir())


def test_names_of_families_lead_nowhere_else(tmp_path: Path) -> None:
    """A family's name cannot put a figure outside the folder asked for."""
    path = write_results(tmp_path / "a.jsonl", [attempt(family="../../etc/x")])
    assert main(["bench", "report", str(path), "--figures", str(tmp_path / "figures")]) == 0
    assert {found.name for found in (tmp_path / "figures").iterdir()} >= {"------etc-x-latency.svg"}


@pytest.mark.parametrize("columns", [30, 80])
def test_lines_fit_the_terminal(
    results: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However narrow it is, no line is wider, and what is worse comes first."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["bench", "report", str(results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0] == "Where AgentLoop does worse"


def test_the_json_document_holds_the_figures(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Systems, comparisons and targets as plain data, infinite figures in words."""
    assert main(["bench", "report", str(results), "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert len(group["systems"]) == 12
    assert {one["against"] for one in group["comparisons"]} >= {"autogen", "agentloop-paper"}
    assert group["systems"][0]["figures"]["solved"]["of"] == 8
    assert group["targets"]


def test_groups_are_shown_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each model has tables of its own under its own heading."""
    attempts = [attempt(system, model=model) for model in ("m1", "m2") for system in ("agentloop", "autogen")]
    path = write_results(tmp_path / "a.jsonl", attempts)
    assert main(["bench", "report", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Figures (m1, settings 0123456789abcdef)" in out
    assert "Figures (m2, settings 0123456789abcdef)" in out


def test_without_scipy_the_extra_is_named(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing for intervals and tests is said with the command that brings it."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    assert main(["bench", "report", str(results)]) == 2
    assert "pip install 'agentloop-autogen[bench]'" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_one_line(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing folder is reported with its name and what to do, as wrong use."""
    assert main(["bench", "report", str(results), "-o", "/nowhere/at/all.md"]) == 2
    assert "/nowhere/at/all.md cannot be used" in capsys.readouterr().err
