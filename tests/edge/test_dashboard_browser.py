"""The dashboard in a real browser: every page by clicking, and what is stale."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pages import BROWSER_MARKS, Page
from selenium.webdriver.common.keys import Keys

from millstream.edge.dashboard.histories import Histories
from millstream.edge.dashboard.serving import DashboardServer
from millstream_bench.pages import browser as chromium
from millstream_bench.pages.synthetic_system import FAILED, SLOW, SyntheticSystem

pytestmark = BROWSER_MARKS
PAGES = ("#/", "#/query/query%203", "#/processor/processor-1", "#/operator/o%3A00012",
         "#/stream/stream_1", "#/editor", "#/graph", "#/decisions", "#/processors")  # fmt: skip


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium.browser() as opened:
        yield opened


@pytest.fixture
def system() -> SyntheticSystem:
    return SyntheticSystem(queries=12, operators=40, processors=3, streams=4)


@pytest.fixture
def page(driver: Any, system: SyntheticSystem) -> Iterator[Page]:
    """Let in by a link, as people are."""
    with DashboardServer(system, port=0, interval_s=0.2, token="secret") as server:
        shown = Page(driver, server.url)
        driver.get(server.link)
        shown.find("#nav-overview")
        yield shown
        driver.get("about:blank")


def test_the_slowest_query_and_its_cause_in_three_clicks(page: Page) -> None:
    page.open()
    page.shows("42 s behind", "#slowest")
    page.click("#slowest")  # one
    page.find("#cause")
    page.shows("held up by", "#cause")
    page.click("#cause")  # two
    page.shows("9,000", ".tiles")
    page.shows("Reads")
    assert page.complaints() == []


def test_every_page_by_clicking(page: Page) -> None:
    page.open()
    page.until(
        lambda: len(page.driver.find_elements("css selector", "#queries tbody tr")) == 12, "queries"
    )
    page.shows(f"query {FAILED} failed", "#alarms")
    page.click("#nav-graph")
    page.until(lambda: page.script("return millstreamGraph.nodes.size") == 44, "all nodes")
    spot = page.script("return millstreamGraph.screenOf('o:00012')")
    _click_at(page, spot)
    page.shows("join", "#details h1")
    assert "00012" not in page.text("#details h1")  # by the names of its queries, not by a digest
    alarming = "getComputedStyle(document.documentElement).getPropertyValue('--bad').trim()"
    assert page.script(f"return millstreamGraph.colours.chosen !== {alarming}")
    page.shows("Computes", "#details")
    page.click("#collapse")
    page.until(lambda: page.script("return millstreamGraph.nodes.size") == 3, "processors alone")
    page.click("#nav-processors")
    page.click("#processors tbody tr a")
    page.shows("Scores of the scheduling algorithms")
    page.find("#scores canvas")
    page.shows("processor-2")
    page.click("#nav-decisions")
    page.shows("was taken", "#decisions")
    page.click("#nav-overview")
    page.click("#queries tbody tr a")
    page.shows("GROUP BY", ".cql")
    page.find("table.results tbody tr")
    assert page.complaints() == []


def _click_at(page: Page, spot: dict[str, float]) -> None:
    from selenium.webdriver.common.actions.action_builder import ActionBuilder  # noqa: PLC0415

    move = ActionBuilder(page.driver)
    move.pointer_action.move_to_location(int(spot["x"]), int(spot["y"])).click()
    move.perform()


def test_what_stands_comes_first_and_meets_no_goal(page: Page) -> None:
    page.open()
    page.shows(FAILED, "#queries tbody tr")
    first = page.text("#queries tbody tr")
    assert "division by zero" in first
    assert "met" not in first


def test_a_failed_query_shows_the_row(page: Page) -> None:
    page.open("#/query/" + FAILED.replace(" ", "%20"))
    page.shows("division by zero", "#failure")
    page.shows("row 12 of stream_1", "#failure")
    page.find("#restart").click()
    page.until(lambda: page.script("return !document.querySelector('#restart')"), "it goes on")


def test_the_editor_underlines_explains_previews_and_registers(page: Page) -> None:
    page.open("#/editor")
    area = page.find("#cql")
    area.send_keys("SELECT host,\n  wrong FROM stream_1")
    page.until(lambda: page.text("#wrong") == "wrong", "the wrong word, once all is typed")
    page.shows("line 2, column 3: unknown column wrong", "#mistake")
    assert not page.find("#register").is_enabled()
    font = "return getComputedStyle(document.querySelector(arguments[0])).font"
    assert page.script(font, ".editor pre") == page.script(font, "#cql")  # the caret is in the text
    area.clear()
    area.send_keys("SELECT host FROM stream_1")
    page.shows("would be taken on processor-1", "#admission")
    page.shows("stream stream_1", "#meaning")
    page.click("#preview")
    page.shows("host4", "#preview-rows")
    page.find("#name").send_keys("mine")
    page.click("#register")
    page.shows("query mine was taken", "#said")
    page.click("#said a")
    page.shows("mine", "h1")
    # that a text is wrong is an answer with status 400, which Chromium notes
    assert [c for c in page.complaints() if "/api/explain" not in c] == []


def test_the_editor_offers_what_may_follow(page: Page) -> None:
    page.open("#/editor")
    area = page.find("#cql")
    area.clear()
    area.send_keys("SELECT ho")
    page.shows("host", "#offers")
    area.send_keys(Keys.TAB)
    area.send_keys(" FROM str")
    page.shows("stream_3", "#offers")
    page.click("#offers li:first-child")
    page.until(
        lambda: area.get_attribute("value") == "SELECT host FROM stream_1", "the taken words"
    )
    page.shows("stream stream_1", "#meaning")
    assert not page.driver.find_elements("css selector", "#offers")
    assert [c for c in page.complaints() if "/api/explain" not in c] == []  # unfinished texts


def test_figures_move_and_what_is_stale_says_so(driver: Any, system: SyntheticSystem) -> None:
    with DashboardServer(system, port=0, interval_s=0.2) as server:
        page = Page(driver, server.url)
        page.open()
        page.shows("live", "#freshness")
        before = page.script("return millstream.taken")
        page.until(lambda: page.script("return millstream.taken") > before + 0.5, "new figures")
        server.feed.stop()  # the source gives no more
        page.shows("stale", "#freshness")
        assert page.driver.title.startswith("(stale)")
    page.shows("connection lost", "#banner")
    driver.get("about:blank")
    driver.get_log("browser")  # it complained of the lost connection, rightly


def test_an_operator_that_moves_is_marked(page: Page, system: SyntheticSystem) -> None:
    page.open("#/graph")
    page.until(lambda: page.script("return millstreamGraph.nodes.size") == 44, "all nodes")
    page.until(
        lambda: page.script(
            "return [...millstreamGraph.nodes.values()].filter((n) => n.marked).length"
        ),
        "a mark on a moved operator",
    )


def test_dark_and_light(page: Page) -> None:
    page.open()
    ground = "return getComputedStyle(document.body).backgroundColor"
    page.find("header button")
    first = page.script(ground)
    page.click("header button")
    assert page.script(ground) != first
    page.driver.refresh()
    page.find("header button")
    assert page.script(ground) != first  # it is remembered
    page.click("header button")


# Tables that do not fit into their cards.
CUT = """return [...document.querySelectorAll('.card, .scroll')]
    .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent)"""


def test_a_narrow_window_needs_no_scrolling_aside(page: Page) -> None:
    for width in (390, 760):
        phone = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        for fragment in PAGES:
            page.open(fragment)
            page.find("main .card, main .graph")
            aside = page.script("return document.documentElement.scrollWidth - innerWidth")
            assert aside <= 0, (width, fragment)
            if width == 390:
                assert page.script(CUT) == [], fragment
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_stream_has_a_page(page: Page) -> None:
    page.open()
    page.click("#streams tbody tr a")
    page.shows("stream_1", "h1")
    page.shows("Read by")
    page.shows("The last hour")
    page.click("#sample button")
    page.shows("host4", "#sample")
    # this system keeps no rejected rows, and a browser may ask for an icon
    assert [c for c in page.complaints() if "/results" not in c and "/favicon" not in c] == []


def test_the_last_hour_is_there_again_after_a_reload(driver: Any, system: SyntheticSystem) -> None:
    with DashboardServer(system, port=0, interval_s=0.2) as server:
        server.feed.histories = Histories(every_s=0.1)
        page = Page(driver, server.url)
        page.until(lambda: len(server.feed.histories.of("query", SLOW)["at"]) > 3, "some points")
        for fragment in PAGES[1:5]:
            page.open(fragment)
            page.find(".history canvas")
        assert page.complaints() == []


def test_a_large_system_stays_usable(driver: Any) -> None:
    """That it works; how fast is told by `millstream bench dashboard`."""
    with DashboardServer(SyntheticSystem(500, 2000, 5), port=0) as server:
        page = Page(driver, server.url)
        page.open()
        page.shows("500 queries")
        page.find("#find-query").send_keys("query 499")
        page.until(
            lambda: len(page.driver.find_elements("css selector", "#queries tbody tr")) == 1, "one"
        )
        page.click("#nav-graph")
        page.click("#collapse")
        page.until(lambda: page.script("return millstreamGraph.nodes.size") == 2020, "all nodes")
        page.script(
            "const s = document.querySelector('#graph-query'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('change', {bubbles: true}))",
            SLOW,
        )
        needed = page.until(
            lambda: page.script("return millstreamGraph.kept && millstreamGraph.kept.size"), "kept"
        )
        assert 1 < needed < 40
        driver.get("about:blank")


def let_in_as_admin(page: Page) -> None:
    """As `millstream token --link` does."""
    headers = {"authorization": "Bearer secret", "x-millstream": "1"}
    path = httpx.post(f"{page.url.rstrip('/')}/api/links", headers=headers, json={}).json()["path"]
    page.driver.get(page.url.rstrip("/") + path)
    page.find("#nav-overview")


def test_what_is_offered_is_done(page: Page) -> None:
    """A query is paused, a processor drained, an operator moved: by their buttons."""
    page.open("#/query/query%205")
    page.click("#pause")
    page.shows("parked", "h1")
    page.until(lambda: page.text("#pause") == "resume", "a way back")
    page.click("#pause")
    page.shows("running", "h1")
    page.open("#/processor/processor-1")
    page.shows("last heard of at", "h1")
    page.click("#drain")
    page.accept("Drain processor-1?")
    page.shows("that is for admin", "#done")  # the link that a dashboard prints may submit
    let_in_as_admin(page)
    page.open("#/processor/processor-1")
    page.click("#drain")
    page.accept("Drain processor-1?")
    page.shows("draining", "h1")
    page.find("#undrain")
    page.open("#/operator/o%3A00012")
    before = page.text(".crumbs")
    page.script(
        "const s = document.querySelector('#move'); s.value = s.options[1].value;"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.accept("Move")
    page.shows("move of o:00012", "#moved")
    page.until(lambda: page.text(".crumbs") != before, "another processor")
    assert [complaint for complaint in page.complaints() if "403" not in complaint] == []
