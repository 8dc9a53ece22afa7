"""The benchmark's page in a real browser, without a network, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentloop_autogen.bench.report.collect import collect_bench_report
from agentloop_autogen.bench.report.page import bench_html
from agentloop_autogen.bench.report.reading import Results, ResultsGroup

from .bench_samples import many
from .test_report_browser import ARGUMENTS, chromium_path

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.mark.parametrize("width", [1360, 390])
def test_the_page_shows_its_figures_and_asks_for_nothing(tmp_path: Path, width: int) -> None:
    """Every figure is drawn, the styles apply, the page is no wider than the window, and nothing is complained of."""
    from playwright.sync_api import sync_playwright

    group = ResultsGroup(model="tiny", settings="s", attempts=tuple(many(4)), notes=())
    path = tmp_path / "page.html"
    path.write_text(bench_html(collect_bench_report(Results(groups=(group,)))), encoding="utf-8")
    complaints: list[str] = []
    requests: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": width, "height": 900}, offline=True)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        drawn = page.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth > 100)")
        styled = page.eval_on_selector("body", "body => getComputedStyle(body).marginTop")
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        browser.close()
    assert drawn == [True] * 10
    assert (styled, overflow, complaints) == ("0px", 0, [])
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
