"""The dashboard of a real run in a real browser: pictures for the README are taken here."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pages import BROWSER_MARKS, Page

from millstream.app import demo
from millstream.app.config import Job, load_job
from millstream.app.runs.folder import RunFolder
from millstream.app.runs.job_run import Interrupted, RunSettings, run_job
from millstream.edge.http.serving import Address
from millstream.edge.run.dashboard import RunDashboard
from millstream_bench.pages import browser as chromium

pytestmark = [*BROWSER_MARKS, pytest.mark.spark]
STREAMS = ("requests", "speed", "occupancy", "trades")
QUERIES = ("errors", "traffic", "hourly_traffic", "busy_hosts", "lost_visitors", "totals", "jams",
           "hourly_speed", "sudden_braking", "bars", "large_trades")  # fmt: skip
SPARK_S = 150.0  # patience with a busy machine
BATCH_ROWS = 300  # small batches, so that there is something to see for a while


def part_of_the_demo() -> Job:
    """Some of its queries over four of its streams, in small batches."""
    job = load_job(demo.job_path())
    queries = tuple(q for q in job.queries if q.name in QUERIES)
    streams = tuple(s for s in job.streams if s.name in STREAMS)
    return replace(
        job, streams=streams, queries=queries, engine=dict(job.engine) | {"batch_rows": BATCH_ROWS}
    )


class Running:
    """A run in another thread, with its dashboard."""

    def __init__(self, folder: Path) -> None:
        self.job, self.enough, self.trouble = part_of_the_demo(), threading.Event(), None
        self.dashboard = RunDashboard("demo.toml", Address(port=0), lambda _: None)
        self._folder = folder
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Running":
        self.dashboard.__enter__()
        self._thread.start()
        return self

    def stop(self) -> None:
        self.enough.set()
        self._thread.join(120)

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.dashboard.__exit__(None, None, None)

    def _run(self) -> None:
        settings = RunSettings(watch=self.dashboard.watch)
        try:
            with RunFolder(self._folder) as folder:
                folder.claim(self.job, settings.format)
                run_job(self.job, folder, settings, poll=self._poll)
        except Interrupted:
            pass
        except BaseException as error:
            self.trouble = error

    def _poll(self) -> None:
        if self.enough.is_set():
            raise Interrupted(2)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium.browser(1280, 1020) as opened:
        yield opened


def test_a_run_from_its_start_to_its_end(spark: Any, driver: Any, tmp_path: Path) -> None:
    with Running(tmp_path / "out") as running:
        page = Page(driver, running.dashboard.link)
        page.open()
        page.until(
            lambda: page.script("return millstream.overview.rows_out > 0"), "results", SPARK_S
        )
        page.click("#nav-editor")
        area = page.find("#cql")
        area.send_keys("SELECT host, cont(*) AS requests\nFROM requests [RANGE 5 MINUTES]")
        page.find("#wrong")
        page.picture("editor-mistake")
        area.clear()
        area.send_keys(
            "SELECT host, url, bytes\nFROM requests\nWHERE bytes > 100000 AND response = 200"
        )
        page.shows("would be taken", "#admission")
        page.click("#preview")
        page.until(
            lambda: page.driver.find_element("css selector", "#preview-rows table"), "rows", SPARK_S
        )
        page.picture("editor")
        page.find("#name").send_keys("large_files")
        page.click("#register")
        page.until(
            lambda: "query large_files was taken" in page.text("#said"), "registration", SPARK_S
        )
        page.click("#nav-overview")
        page.shows("large_files", "#queries")
        page.until(lambda: page.script("return millstream.history.length > 25"), "a curve")
        page.picture("overview")
        page.click("#nav-graph")
        page.until(lambda: page.script("return millstreamGraph.nodes.size > 10"), "operators")
        page.picture("dataflow")
        page.open("#/query/traffic")
        page.until(
            lambda: page.driver.find_element("css selector", "table.results tbody tr"),
            "rows of traffic", SPARK_S,
        )  # fmt: skip
        page.picture("query")
        running.stop()
        assert running.trouble is None
        page.shows("stopped", "#freshness")
        page.shows("final figures", "#banner")
        page.open("#/decisions")
        page.shows("query large_files was taken", "#decisions")
