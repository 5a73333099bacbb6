"""The dashboard by keys alone, for screen readers and by contrast: axe finds nothing serious."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import BROWSER_MARKS, Page
from selenium.webdriver.common.keys import Keys

from millstream.edge.dashboard.serving import DashboardServer
from millstream_bench.pages import browser as chromium
from millstream_bench.pages.synthetic_system import FAILED, SyntheticSystem

pytestmark = BROWSER_MARKS
AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
PAGES = ("#/", "#/query/query%203", "#/processor/processor-1", "#/operator/o%3A00012",
         "#/stream/stream_1", "#/editor", "#/graph", "#/decisions", "#/processors")  # fmt: skip
LOOK = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then((found) => done(found.violations
  .filter((v) => ["serious", "critical"].includes(v.impact))
  .map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 200)}`)));
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    system = SyntheticSystem(queries=12, operators=40, processors=3, streams=4)
    with (
        chromium.browser() as driver,
        DashboardServer(system, port=0, interval_s=0.5, token="secret") as server,
    ):
        driver.get(server.link)
        shown = Page(driver, server.url)
        shown.find("#nav-overview")
        yield shown


@pytest.mark.parametrize(("theme", "fragments"), [("light", PAGES), ("dark", PAGES[:2])])
def test_axe_finds_nothing_serious(page: Page, theme: str, fragments: tuple[str, ...]) -> None:
    for fragment in fragments:
        page.open(fragment)
        page.find("main .card, main .graph")
        page.script("document.documentElement.dataset.theme = arguments[0]", theme)
        page.script(AXE.read_text(encoding="utf-8"))
        assert page.driver.execute_async_script(LOOK) == [], (fragment, theme)


def test_a_table_is_sorted_and_a_query_opened_by_keys_alone(page: Page) -> None:
    page.open()
    page.find("#queries th button")
    focus = "document.querySelectorAll('#queries th button')[0].focus()"
    page.script(focus)
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.find("#queries th:first-child[aria-sort=ascending]")
    page.script("document.querySelector('#queries tbody a').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.find("#lineage")


def test_plan_lines_have_figures_and_lead_to_their_operators(page: Page) -> None:
    page.open("#/query/query%203")
    page.shows("aggregate count(*) by host", "#plan")
    page.shows("/s", "#plan tbody tr:nth-child(2) td:nth-child(2)")
    page.click("#plan tbody tr:nth-child(2) a")
    page.shows("for query", "h1")
    assert FAILED in page.text("main")


def test_the_editor_has_examples_and_remembers(page: Page) -> None:
    page.script("sessionStorage.clear(); localStorage.removeItem('millstream-texts')")
    page.open("#/editor")
    page.click("#examples li:nth-child(3) button")
    page.until(lambda: "RANGE 1 MINUTE" in page.find("#cql").get_attribute("value"), "the example")
    page.click("#preview")
    page.shows("rows of result", "#preview-rows")
    page.script("sessionStorage.clear()")
    page.open("#/editor")
    page.click("#past summary")
    page.shows("RANGE 1 MINUTE", "#past")
    page.click("#past button")
    page.until(lambda: "RANGE 1 MINUTE" in page.find("#cql").get_attribute("value"), "the text")


def test_switches_of_algorithms_are_folded(page: Page) -> None:
    page.open("#/decisions")
    page.find("#decisions tbody tr")
    assert page.find(".chip.switch").get_attribute("aria-pressed") == "false"
    assert not page.driver.find_elements("css selector", "#decisions .mark.switch")
    page.click(".chip.switch")
    page.find("#decisions .mark.switch")
