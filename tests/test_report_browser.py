"""The report in a real browser: opened from disk, without a network, by mouse, by keyboard, and on a phone.

Every page of these tests must make no request, write nothing to the console and raise nothing; see `open_report`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentloop_autogen.diagnostics.report import ReportData, render_html
from agentloop_autogen.diagnostics.report.escaping import visible

from .report_samples import GROUPS, HOSTILE, empty_report, full_report, hostile_report, single_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

OpenReport = Callable[..., "Page"]
ARGUMENTS = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
BAR = "#histogram .mark-rect path"
LINE = "#ecdf .mark-line path"
POINT = "#frontier-chart .mark-symbol path"


def chromium_path() -> str:
    """Return the browser to test with; that there is none is a failure where these tests were asked for."""
    named = os.environ.get("AGENTLOOP_CHROMIUM", "")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not found:
        pytest.fail("no chromium: install one, or give its path in AGENTLOOP_CHROMIUM")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A chromium that asks nobody for anything."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("playwright is not installed: pip install 'agentloop-autogen[browser]'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[OpenReport]:
    """Opens reports from disk with the network cut, and holds against a page whatever it complained of or asked for."""
    complaints: list[str] = []

    def open_page(data: ReportData, *, width: int = 1360, **options: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_text(render_html(data), encoding="utf-8")
        context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(45_000)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: requested.append(request.url))
        requested: list[str] = []
        page.goto(path.as_uri())
        assert requested.pop(0) == path.as_uri()
        opened.append((page, requested))
        return page

    opened: list[tuple[Page, list[str]]] = []
    yield open_page
    for page, requested in opened:
        page.wait_for_timeout(100)
        complaints += [f"request: {url[:200]}" for url in requested]
        page.context.close()
    assert complaints == []


def drawn(page: Page, marks: str) -> int:
    """Wait for a chart, and return how many of its marks there are."""
    page.locator(marks).first.wait_for(state="attached")
    return page.locator(marks).count()


def counts(page: Page, selector: str, number: int) -> None:
    """Wait until there are so many of something."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(number)


def facets(page: Page, chart: str) -> int:
    """Wait for a chart of small charts, and return how many they are."""
    page.locator(f"{chart} svg").wait_for()
    return page.locator(f"{chart} .mark-group.role-scope.cell > g").count()


def colour(page: Page, selector: str, prop: str) -> str:
    """Return a colour as the reader sees it."""
    return page.locator(selector).first.evaluate(f"element => getComputedStyle(element).{prop}")


def visible_groups(page: Page) -> list[str]:
    """Return the models of the overview's rows."""
    return page.locator(".overview tbody:visible .model").all_inner_texts()


def rounds_of(page: Page, inside: str = "#detail") -> int:
    """Return how many rounds the strip of a request shows."""
    return page.locator(f"{inside} .strip .cell").count()


# Charts


def test_every_chart_draws(open_report: OpenReport) -> None:
    """Each quantity has its histogram for each group and its lines, and the frontier has its points."""
    page = open_report(full_report())
    assert facets(page, "#frontier-chart") == len(GROUPS)
    assert drawn(page, POINT) == 8 * len(GROUPS)
    for name in ("Rounds", "Tool calls", "Tokens", "Time", "Calls saved"):
        page.get_by_role("button", name=name, exact=True).click()
        page.locator("#ecdf-title", has_text=f"{name}:").wait_for()
        page.locator("#histogram").get_by_text("per request").first.wait_for()
        assert facets(page, "#histogram") == len(GROUPS)
        assert drawn(page, BAR) > 20
        assert drawn(page, LINE) == len(GROUPS)


def test_a_chart_says_in_words_what_it_shows(open_report: OpenReport) -> None:
    """Each chart carries a summary for those who do not see it, and its figures as a table."""
    page = open_report(full_report())
    drawn(page, LINE)
    for chart in ("#histogram", "#ecdf"):
        assert "median" in (page.locator(chart).get_attribute("aria-label") or "")
    assert "the default extended saves" in (page.locator("#frontier-chart").get_attribute("aria-label") or "")
    page.get_by_text("These charts in numbers").click()
    assert page.locator("#quantiles tbody tr").count() == len(GROUPS)


def test_a_bar_tells_its_counts(open_report: OpenReport) -> None:
    """The pointer on a bar shows what it stands for."""
    page = open_report(full_report())
    drawn(page, BAR)
    page.locator(BAR).first.hover()
    assert "requests" in page.locator("#tip").inner_text()


def test_one_value_and_no_frontier_still_draw(open_report: OpenReport) -> None:
    """A group of which one value is known has a bar and a point; what is missing is said."""
    page = open_report(single_report())
    assert drawn(page, BAR) == 1
    assert drawn(page, "#ecdf .mark-symbol path") == 1
    assert page.get_by_text("No settings were tried on these traces.").is_visible()


def test_a_report_about_nothing_says_so(open_report: OpenReport) -> None:
    """Without any input the page stands, and every part says that it is empty."""
    page = open_report(empty_report())
    assert page.get_by_text("There are no requests to report on.").is_visible()
    assert page.get_by_text("No distribution is known of these traces.").is_visible()


def test_settings_without_a_solved_request_are_not_drawn(open_report: OpenReport) -> None:
    """Where nothing is known to be solved there is no chart of losses, and the reason stands in its place."""
    data = full_report(groups=1)
    page = open_report(replace(data, frontier=tuple(replace(point, solved=0, lost=0) for point in data.frontier)))
    assert page.get_by_text("none of these requests is known to be solved").is_visible()


# Filters


def test_source_and_model_leave_their_groups_everywhere(open_report: OpenReport) -> None:
    """A filter on groups changes the table, the charts, the list and the count."""
    page = open_report(full_report())
    assert facets(page, "#histogram") == len(GROUPS)
    page.get_by_label("Source").select_option("airline-desk")
    page.locator("#histogram svg").wait_for()
    counts(page, LINE, 1)
    assert visible_groups(page) == ["gpt-4o"]
    assert facets(page, "#histogram") == facets(page, "#frontier-chart") == 1
    assert set(page.locator("#request-list .badge").all_inner_texts()) == {"4"}
    assert page.locator("#status").inner_text().startswith("1 of 4 groups")
    page.get_by_label("Model").select_option("vicuna-13b")
    assert page.get_by_text("No group fits the filters.").is_visible()
    assert page.get_by_text("No request fits the filters.").is_visible()
    page.get_by_role("button", name="Reset filters").click()
    assert len(visible_groups(page)) == len(GROUPS)


def test_totals_are_shown_while_all_groups_are(open_report: OpenReport) -> None:
    """What is about all groups together goes as soon as a filter leaves some of them."""
    data = full_report()
    totals = tuple(replace(point, source="", model="") for point in data.frontier[:8])
    page = open_report(replace(data, frontier=(*data.frontier, *totals)))
    assert facets(page, "#frontier-chart") == len(GROUPS) + 1
    page.get_by_label("Model").select_option("gpt-3.5")
    counts(page, POINT, 16)
    assert page.locator("#frontier-chart").get_by_text("all groups").count() == 0


def test_the_outcome_leaves_its_bars_and_requests(open_report: OpenReport) -> None:
    """A filter on the outcome changes distributions and list."""
    page = open_report(full_report())
    before = drawn(page, BAR)
    page.get_by_label("Outcome").select_option("not solved")
    page.locator("#histogram-title").wait_for()
    page.wait_for_timeout(500)
    assert 0 < drawn(page, BAR) < before
    assert set(page.locator("#request-list .outcome").all_inner_texts()) == {"✗ not solved"}


def test_requests_are_found_by_text_loss_and_cut(open_report: OpenReport) -> None:
    """The list keeps what was searched for, what was cut short, and what is of low value."""
    page = open_report(full_report())
    page.get_by_label("Find request").fill("TASK-007")
    counts(page, ".request", 1)
    assert page.locator(".request .id").inner_text() == "task-007"
    page.get_by_label("Find request").fill("")
    counts(page, ".request", 20)
    page.get_by_label("cut short by the loop").check()
    assert page.locator(".request").count() == page.locator(".request:has(.saves)").count() > 0
    page.get_by_label("low-value only").check()
    assert page.locator(".request").count() == page.locator(".request:has-text('low value')").count() > 0


def test_the_list_comes_in_pages(open_report: OpenReport) -> None:
    """Of many requests twenty are listed at a time, in the order asked for."""
    page = open_report(full_report(timelines=45))
    assert page.locator(".request").count() == 20
    pages = page.get_by_role("group", name="Pages")
    pages.get_by_role("button", name="Next").click()
    pages.get_by_role("button", name="Next").click()
    assert page.locator(".request").count() == 5
    assert pages.get_by_role("button", name="Next").is_disabled()
    page.get_by_label("Order").select_option("most rounds")
    assert "12 rounds" in page.locator(".request").first.inner_text()


# A request


def test_a_chosen_request_shows_its_rounds(open_report: OpenReport) -> None:
    """Request, outcome, what the loop would have done, and each round with calls, results, decision and slots."""
    page = open_report(full_report())
    page.locator(".request", has_text="task-006").click()
    detail = page.locator("#detail")
    assert "Which" not in detail.locator("h3").inner_text()
    assert "ends it after round 6: 6 rounds, 5 calls saved" in detail.inner_text()
    assert rounds_of(page) == 10
    first = detail.locator("details.round").first
    first.locator("summary").click()
    text = first.inner_text()
    for shown in ("run_sql", "SELECT COUNT", "[(3,)]", "continue", "need_tool_round", "information is still missing"):
        assert shown in text
    assert "○ missing" in text
    assert detail.get_by_text("2 more rounds not shown.").is_visible()


def test_rounds_after_the_stop_are_marked_as_saved(open_report: OpenReport) -> None:
    """Where the loop stops is written into the strip, and what follows is told apart by more than its shade."""
    page = open_report(full_report())
    page.locator(".request", has_text="task-006").click()
    labels = [cell.get_attribute("aria-label") or "" for cell in page.locator("#detail .cell").all()]
    assert [label.endswith("the loop stops here") for label in labels].index(True) == 5
    assert [label.endswith(", saved") for label in labels] == [False] * 6 + [True] * 4
    assert page.locator("#detail .stop").inner_text().startswith("■ loop stops")
    assert page.locator("#detail .saved-word").count() == 4


def test_the_keyboard_alone_is_enough(open_report: OpenReport) -> None:
    """From the skip link to a round: Tab reaches the list, Enter chooses, arrows walk the strip, Enter opens."""
    page = open_report(full_report())
    focused = "document.activeElement.getAttribute({!r}) || document.activeElement.textContent"
    page.keyboard.press("Tab")
    assert page.evaluate(focused.format("none")) == "Skip to the figures"
    for _ in range(80):
        page.keyboard.press("Tab")
        if "task-006" in page.evaluate(focused.format("none")):
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "detail"
    page.keyboard.press("Tab")
    assert page.evaluate(focused.format("aria-label")).startswith("Round 6:")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused.format("aria-label")).startswith("Round 2: error")
    page.keyboard.press("Enter")
    assert page.locator("#detail details.round").nth(1).get_attribute("open") == ""
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert page.evaluate("document.activeElement.matches(':focus-visible')")


def test_two_groups_stand_side_by_side(open_report: OpenReport) -> None:
    """Figures of two groups with their difference, and the same request in both with both strips."""
    page = open_report(full_report())
    page.locator("#compare-a").select_option("1")
    page.locator("#compare-b").select_option("3")
    solved = page.locator("#compare-table tr", has=page.get_by_text("Solved", exact=True))
    assert solved.locator("td").nth(0).inner_text().startswith("36.7")
    assert solved.locator("td").nth(1).inner_text().startswith("41.5")
    assert solved.locator("td").nth(2).inner_text() == "+4.8 points"
    assert solved.locator("td").nth(3).inner_text() == "overlap"
    page.locator("#compare").get_by_role("button", name="Next").click()
    assert page.locator(".pair-request").inner_text().startswith("List the names of all singers")
    sides = page.locator(".side")
    assert [side.locator(".model").inner_text() for side in sides.all()] == ["vicuna-13b", "gpt-4o"]
    left, right = (side.bounding_box() for side in sides.all())
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    assert rounds_of(page, ".side:nth-of-type(1)") > 0
    page.get_by_role("button", name="Swap A and B").click()
    assert solved.locator("td").nth(2).inner_text() == "−4.8 points"


# Text that is out to do harm


def test_hostile_text_is_read_and_not_run(open_report: OpenReport) -> None:
    """No text of a trace becomes an element or runs, wherever it is shown, and all of it can be read."""
    page = open_report(hostile_report())
    drawn(page, BAR)
    page.locator(BAR).first.hover()
    for summary in page.locator("summary:visible").all():
        summary.click()
    page.get_by_label("Find request").fill(visible(HOSTILE)[:40])
    page.wait_for_timeout(300)
    assert page.locator(".request").count() == 2
    assert page.evaluate("window.harmed") is None
    assert page.locator("script").count() == 3
    assert page.locator("img, iframe, object, embed, base").count() == 0
    for place in ("h1", "#detail h3", "#detail .arguments", "#detail .result", ".notes li", ".overview .model"):
        assert visible(HOSTILE) in (page.locator(place).first.text_content() or "")


def test_text_from_right_to_left_stays_in_its_place(open_report: OpenReport) -> None:
    """A right-to-left name is set apart from the direction of the page around it."""
    page = open_report(hostile_report())
    assert page.locator("#detail .id").first.evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"
    assert "⟨U+202E⟩" in page.locator("h1").inner_text()


def test_a_very_long_text_stays_in_its_box(open_report: OpenReport) -> None:
    """A megabyte without a space neither widens the page nor stretches it without end."""
    data = hostile_report("x" * 1_000_000)
    tame = replace(data, title="t", loop="", notes=(), groups=(), distributions=(), frontier=())
    page = open_report(tame)
    page.locator("#detail .result").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1360
    box = page.locator("#detail .result").first.bounding_box()
    assert box is not None
    assert box["height"] < 400


# Looks


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_and_charts_follow_the_scheme_and_its_button(open_report: OpenReport, scheme: str) -> None:
    """The page comes up as the system has it; the button turns it over, and the charts with it."""
    page = open_report(full_report(), color_scheme=scheme)
    drawn(page, BAR)
    before = [colour(page, "body", "backgroundColor"), colour(page, BAR, "fill"), colour(page, "#ecdf text", "fill")]
    assert (before[0] == "rgb(15, 20, 26)") == (scheme == "dark")
    page.locator("#scheme").click()
    after = [colour(page, "body", "backgroundColor"), colour(page, BAR, "fill"), colour(page, "#ecdf text", "fill")]
    assert all(old != new for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("data", [full_report(), hostile_report(), single_report()], ids=["full", "hostile", "single"])
def test_a_phone_needs_no_sideways_scrolling(open_report: OpenReport, data: ReportData) -> None:
    """At 360 pixels everything fits the width, opened or closed, and charts are drawn to it."""
    page = open_report(data, width=360)
    drawn(page, BAR)
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    chart = page.locator("#ecdf svg").bounding_box()
    assert chart is not None
    assert 200 < chart["width"] <= 360


def test_charts_are_drawn_again_for_another_width(open_report: OpenReport) -> None:
    """A window made narrower gets narrower charts."""
    page = open_report(full_report())
    drawn(page, LINE)
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_timeout(1_000)
    chart = page.locator("#ecdf svg").bounding_box()
    assert chart is not None
    assert 400 < chart["width"] < 700


def test_without_scripts_the_figures_can_be_read(open_report: OpenReport) -> None:
    """With JavaScript off the overview and the notes are there, and controls that do nothing are not."""
    page = open_report(full_report(), java_script_enabled=False)
    assert page.get_by_text("12 lines of 3,301").is_visible()
    assert len(visible_groups(page)) == len(GROUPS)
    page.locator(".overview summary").first.click()
    assert page.locator(".topic").first.is_visible()
    assert page.locator("#filters, #requests, #scheme").locator("visible=true").count() == 0
    assert page.get_by_text("need JavaScript").is_visible()


def test_on_paper_the_page_is_light_and_without_controls(open_report: OpenReport) -> None:
    """Printing from a dark screen gives a light page that leaves out what cannot be pressed."""
    page = open_report(full_report(), color_scheme="dark")
    drawn(page, BAR)
    page.emulate_media(media="print")
    assert colour(page, "body", "backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#filters").is_visible()
    assert page.locator(".overview").is_visible()


def test_a_large_report_stays_quick(open_report: OpenReport) -> None:
    """Twenty groups and 200 requests of 30 rounds come up, and filter and choose, without a reader waiting."""
    page = open_report(full_report(groups=20, timelines=200, rounds=30))
    assert drawn(page, LINE) == 20
    took = page.evaluate(
        """() => {
            const start = performance.now();
            document.querySelectorAll('.request')[3].click();
            const low = document.getElementById('filter-low');
            low.click();
            return performance.now() - start;
        }"""
    )
    assert took < 1_000
    assert rounds_of(page) == 30
