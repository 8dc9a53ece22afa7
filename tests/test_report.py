"""The report as a document and as files: what it shows, and that a trace can only be read in it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_autogen.diagnostics.report import (
    Distribution,
    FigureFormat,
    FrontierPoint,
    GroupRow,
    Metric,
    ReportData,
    render_figures,
    render_html,
)
from agentloop_autogen.diagnostics.report.escaping import script_json, visible
from agentloop_autogen.diagnostics.report.labels import METRICS, Better, text_of
from agentloop_autogen.diagnostics.report.rows import GroupNames, bin_rows, binned, frontier_rows, step_rows
from agentloop_autogen.errors import MissingExtraError

from .report_samples import HOSTILE, empty_report, full_report, group_row, hostile_report, ratio, single_report

NAMED = (
    "requests", "solved", "lgr", "failure_share", "lgts", "gcr", "post_tool_failure", "repetition",
    "duplicate_calls", "error_results", "cycles", "error_streaks", "monologues", "stable_gates", "stssr",
    "slot_closure", "stable_hit", "stable_stop", "rounds_mean", "model_calls_mean", "tool_calls_mean",
    "input_tokens_mean", "output_tokens_mean", "latency_mean_s", "latency_p50_s", "latency_p90_s",
    "first_token_mean_s", "verifier_share", "verifier_mean_s", "verifier_precision", "verifier_recall",
    "verifier_f1", "redundant_tokens", "redundant_steps_mean", "calls_saved", "tokens_saved", "lost", "unknown",
    "redundant_step_reduction", "progress_degradation",
)  # fmt: skip


class Document(HTMLParser):
    """A page taken apart: its elements with their attributes, its scripts, and the text of everything else."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._raw = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._raw = tag if tag in ("script", "style") else ""
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._raw = ""

    def handle_data(self, data: str) -> None:
        if self._raw == "script":
            self.scripts[-1] += data
        elif not self._raw:
            self.text += data

    @property
    def payload(self) -> dict[str, list[dict[str, object]]]:
        """The data its scripts work on."""
        return json.loads(self.scripts[0])

    @property
    def policy(self) -> str:
        """Its content security policy."""
        return next(found["content"] or "" for _, found in self.elements if "http-equiv" in found)

    def words(self) -> str:
        """Its text in one line."""
        return " ".join(self.text.replace("\u00a0", " ").split())


def one_group(*metrics: Metric) -> ReportData:
    row = GroupRow(source="log", model="m", requests=120, metrics=metrics)
    return replace(empty_report(), groups=(row,))


def placed(label: str = "s", *, calls: int = 10, solved: int = 10, lost: int = 0, saved: int = 1) -> FrontierPoint:
    return FrontierPoint(
        label=label,
        settings="",
        source="log",
        model="m",
        calls=calls,
        calls_saved=saved,
        solved=solved,
        lost=lost,
        unknown=0,
        on_frontier=True,
    )


def of_values(quantity: str, values: list[float]) -> ReportData:
    distinct = tuple(sorted(set(values)))
    counts = tuple(values.count(value) for value in distinct)
    found = Distribution(quantity=quantity, source="log", model="m", solved=None, values=distinct, counts=counts)
    return replace(empty_report(), distributions=(found,))


# The document


@pytest.mark.parametrize("data", [full_report(), hostile_report(), empty_report()], ids=["full", "hostile", "empty"])
def test_only_scripts_of_the_page_may_run(data: ReportData) -> None:
    """The policy allows nothing but the page's two scripts, each by the hash of exactly what stands in it."""
    document = Document(render_html(data))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in document.scripts[1:]]
    assert document.policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    assert len(document.scripts) == 3
    assert "\r" not in "".join(document.scripts)


@pytest.mark.parametrize("data", [full_report(), hostile_report()], ids=["full", "hostile"])
def test_the_page_points_nowhere_outside_itself(data: ReportData) -> None:
    """No element loads anything or links to another document."""
    attributes = [found for _, found in Document(render_html(data)).elements]
    targets = {
        str(found[name]) for found in attributes for name in ("src", "href", "action", "srcset") if name in found
    }
    assert all(target.startswith("#") or target == "data:," for target in targets)


def test_a_trace_adds_no_element_to_the_page() -> None:
    """With every text out to do harm, the page holds the same kinds of elements and attributes as with tame ones."""
    hostile, tame = (Document(render_html(hostile_report(text))) for text in (HOSTILE, "tame text"))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in tame.elements]
    assert {name for _, found in hostile.elements for name in found} == {
        name for _, found in tame.elements for name in found
    }


def test_hostile_text_arrives_whole_and_readable() -> None:
    """What a trace says is shown to the letter, in the static part and in the data, unseen characters included."""
    document = Document(render_html(hostile_report()))
    assert visible(HOSTILE) in document.text
    assert document.payload["timelines"][0]["request"] == visible(HOSTILE)
    assert "\u202e" not in document.text
    assert "\x1b" not in document.text


def test_the_page_can_be_written_whatever_a_trace_holds() -> None:
    """Half a surrogate pair in a trace does not keep the file from being written."""
    assert render_html(hostile_report()).encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 中文, שלום 👩‍🔬", "plain, 中文, שלום 👩‍🔬"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b[31mred", "␛[31mred"),
        ("nul\x00 del\x7f cr\rx", "nul␀ del␡ cr␍x"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("a\u200bb\ufeffc", "a⟨U+200B⟩b⟨U+FEFF⟩c"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("\ud83d", "\ufffd"),
    ],
)
def test_characters_nobody_sees_are_made_visible(text: str, shown: str) -> None:
    """Control, bidi and zero-width characters are shown as what they are; writing systems are left alone."""
    assert visible(text) == shown


@given(st.text())
def test_data_in_a_script_element_cannot_leave_it(text: str) -> None:
    """Any text survives the way through the page's JSON, and none of it can end the element it stands in."""
    dumped = script_json({text: [text]})
    assert not set("<>&\u2028\u2029") & set(dumped)
    assert json.loads(dumped) == {text: [text]}


# The figures


def test_a_share_stands_with_its_counts_and_its_interval() -> None:
    """A reader sees what a share is made of and how sure it is, without any script."""
    metric = Metric(name="lgr", value=37 / 120, count=37, of=120, low=0.23, high=0.394)
    words = Document(render_html(one_group(metric))).words()
    assert "30.8 % 37/120 23–39 %" in words


def test_what_is_not_recorded_is_not_zero() -> None:
    """A figure nothing is known of says so, and so does one that is no number."""
    page = render_html(one_group(Metric(name="stssr", value=None), Metric(name="gcr", value=math.nan)))
    words = Document(page).words()
    assert "STSSR not recorded" in words
    assert "GCR not recorded" in words
    assert "0.0 %" not in words
    assert "nan" not in words


@pytest.mark.parametrize(
    ("metric", "shown"),
    [
        (Metric(name="latency_p90_s", value=12.345), "12.35 s"),
        (Metric(name="input_tokens_mean", value=12_345.6, of=20), "12,346 over 20"),
        (Metric(name="rounds_mean", value=4.25, of=20, low=4, high=4.5), "4.25 over 20 4–4.50"),
        (Metric(name="verifier_f1", value=0.875), "87.5 %"),
        (Metric(name="redundant_tokens", value=0.5, count=1_500, of=3_000), "50.0 % 1,500/3,000"),
    ],
)
def test_figures_carry_their_unit(metric: Metric, shown: str) -> None:
    """Seconds, tokens, means and shares are each written as what they are."""
    assert shown in Document(render_html(one_group(metric))).words()


def test_a_metric_nobody_named_is_shown_as_itself() -> None:
    """A key the page has no words for is its own label."""
    page = render_html(one_group(Metric(name="home_made_figure", value=3.25)))
    assert "home_made_figure 3.25" in Document(page).words()


@pytest.mark.parametrize("key", NAMED)
def test_every_metric_is_explained(key: str) -> None:
    """Each known metric has a name of its own and one sentence that says what it is."""
    text = text_of(key)
    assert text.label != key
    assert text.meaning.endswith(".")
    assert text.meaning in Document(render_html(full_report(groups=1, timelines=1))).text


def test_losses_and_savings_point_opposite_ways() -> None:
    """Saving more calls is better, losing more solved requests is worse."""
    assert METRICS["calls_saved"].better is Better.HIGHER
    assert METRICS["lost"].better is Better.LOWER


def test_the_notes_stand_in_the_page_without_scripts() -> None:
    """What the reader must know about the input does not depend on a script."""
    assert "12 lines of 3,301 were no JSON and were skipped." in Document(render_html(full_report())).text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (empty_report(), "There are no requests to report on."),
        (empty_report(), "No settings were tried on these traces."),
        (single_report(), "There is only one group, and nothing to compare it with."),
        (single_report(), "No request is shown one by one."),
    ],
)
def test_what_is_missing_is_said(data: ReportData, said: str) -> None:
    """A part with nothing in it says why it is empty."""
    assert said in Document(render_html(data)).text


# Rows of the charts


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["rounds", "tokens", "elapsed_s"]),
    st.lists(st.integers(min_value=0, max_value=3_000_000), min_size=1, max_size=40),
)
def test_every_value_lies_in_its_bin(quantity: str, values: list[int]) -> None:
    """Whatever the spread, all requests are counted, in bins that hold their values, and there are few bins."""
    data = of_values(quantity, [float(value) for value in values])
    names = GroupNames(data)
    (bins,) = binned(data, names)
    rows = bin_rows(bins, names)
    assert sum(row["n"] for row in rows) == len(values)
    assert len(bins.labels) <= 35
    for row in rows:
        inside = sum(row["from"] <= value < row["to"] for value in values)
        assert inside == row["n"]


def test_bins_of_whole_numbers_are_named_by_them() -> None:
    """Few whole numbers get a bar each, many share bars, and a wide span is logarithmic."""
    few, many, wide = (
        binned(data, GroupNames(data))[0]
        for data in (
            of_values("rounds", [1, 2, 2, 4]),
            of_values("tool_calls", [0, 120]),
            of_values("tokens", [90, 40_000]),
        )
    )
    assert few.labels[:4] == ("1", "2", "3", "4")
    assert few.edges[0] == 0.5
    assert many.labels[0] == "0 to 4"
    assert (few.log, many.log, wide.log) == (False, False, True)
    assert wide.labels[0] == "50 to under 100"


def test_cumulative_lines_run_over_the_whole_axis() -> None:
    """Every group has a row at either end of the axis that counts nothing."""
    data = full_report(groups=2)
    rows = step_rows(data, GroupNames(data), "tokens")
    low, high = min(row["value"] for row in rows), max(row["value"] for row in rows)
    ends = {(row["group"], row["value"]) for row in rows if row["n"] == 0}
    assert ends == {(group, end) for group in GroupNames(data).labels for end in (low, high)}


def test_settings_that_cannot_be_placed_are_left_out_of_the_chart() -> None:
    """Without calls or without solved requests there is no share to draw."""
    points = (placed(calls=0), placed(solved=0), placed())
    data = replace(empty_report(), frontier=points)
    assert len(frontier_rows(data, GroupNames(data))) == 1
    assert "0/10" in Document(render_html(data)).text


def test_a_setting_without_source_and_model_is_about_all_groups() -> None:
    """Totals over all groups are drawn and listed under that name, and are no group to compare or to filter by."""
    data = full_report(groups=2)
    data = replace(data, frontier=(*data.frontier, replace(placed(), source="", model="")))
    document = Document(render_html(data))
    assert "all groups" in document.words()
    assert len(document.payload["groups"]) == 2
    assert frontier_rows(data, GroupNames(data))[-1]["group"] == "all groups"


def test_a_narrow_interval_keeps_a_digit() -> None:
    """An interval narrower than a percent is not written as if it had no width."""
    metric = Metric(name="lost", value=0.0, count=0, of=900, low=0.0, high=0.0042)
    assert "0.0–0.4 %" in Document(render_html(one_group(metric))).words()


def test_labels_do_not_cover_each_other() -> None:
    """Of settings in nearly the same place only one is labelled, and far ones all are."""
    near = (placed("a", saved=5), placed("b", saved=5), placed("c", saved=1))
    data = replace(empty_report(), frontier=near)
    labels = [row["left_label"] + row["right_label"] for row in frontier_rows(data, GroupNames(data))]
    assert labels == ["a", "", "c"]


def test_groups_are_named_by_what_sets_them_apart() -> None:
    """A chart names the model where only models differ, with a number that no two groups share."""
    rows = tuple(group_row("the same log", f"model {'x' * 60} {place}", 5, place) for place in range(3))
    labels = GroupNames(replace(empty_report(), groups=rows)).labels
    assert [label.split(" · ")[0] for label in labels] == ["1", "2", "3"]
    assert all("the same log" not in label and len(label) < 50 for label in labels)


# Files


@pytest.mark.parametrize("form", list(FigureFormat))
def test_every_chart_becomes_a_file(form: FigureFormat, tmp_path: Path) -> None:
    """Distributions, cumulative shares and the frontier are each written in the format asked for, and listed."""
    paths = render_figures(full_report(timelines=1), tmp_path / "new" / "folder", form=form)
    quantities = ["rounds", "tool-calls", "tokens", "elapsed-s", "calls-saved"]
    names = [f"{kind}-{quantity}" for kind in ("distribution", "ecdf") for quantity in quantities]
    assert [path.stem for path in paths] == [*names, "frontier"]
    start = b"\x89PNG" if form is FigureFormat.PNG else b"<svg"
    assert all(path.suffix == f".{form.value}" and path.read_bytes().startswith(start) for path in paths)


def test_figures_are_white_and_hold_hostile_names_as_text(tmp_path: Path) -> None:
    """A drawing for a paper has a white ground, and a group's name in it is text that refers to nothing."""
    for path in render_figures(hostile_report(), tmp_path, form=FigureFormat.SVG):
        drawing = path.read_text(encoding="utf-8")
        assert 'fill="#ffffff"' in drawing.split(">", 2)[1]
        assert "<script" not in drawing
        assert not re.search(r"(href|src)=", drawing)


def test_nothing_known_makes_no_file(tmp_path: Path) -> None:
    """A report about nothing has no figures."""
    assert render_figures(empty_report(), tmp_path, form=FigureFormat.PNG) == []


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without its libraries the report says what to install, for the page and for files."""
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "jinja2", None)
        with pytest.raises(MissingExtraError, match=r"agentloop-autogen\[report\]"):
            render_html(empty_report())
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtraError, match=r"agentloop-autogen\[report\]"):
        render_figures(full_report(), tmp_path, form=FigureFormat.PNG)


def test_counts_of_a_share_may_be_zero_of_zero() -> None:
    """A share of nothing is not recorded, and its page is still made."""
    assert "not recorded" in Document(render_html(one_group(ratio("lost", 0, 0)))).words()
