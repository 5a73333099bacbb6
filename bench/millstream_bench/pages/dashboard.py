"""How fast the dashboard is in a real browser: first paint, updates, the whole graph.

A made-up system of 500 queries and 2,000 operators, a headless Chromium, all on this machine. Each
page is loaded anew in a fresh profile; an update's age is the time from the moment its figures were
true to the frame that shows them. Targets stand beside the figures.
"""

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from millstream.edge.dashboard.serving import DashboardServer
from millstream_bench.pages.browser import browser
from millstream_bench.pages.synthetic_system import SyntheticSystem

FIRST_PAINT_S = 2.0
UPDATE_S = 1.0
# page, and what must be on it before it counts as painted
PAGES = {
    "overview": ("#/", "document.querySelectorAll('#queries tbody tr').length >= {queries}"),
    "graph": ("#/graph", "millstreamGraph.nodes.size >= {nodes} && millstreamGraph.drawn"),
    "query": ("#/query/query%207", "document.querySelector('#plan')"),
    "processor": ("#/processor/processor-1", "document.querySelector('#scores canvas')"),
    "decisions": ("#/decisions", "document.querySelector('#decisions tbody tr')"),
}
WAIT = """
const done = arguments[arguments.length - 1];
const met = () => { try { return %s } catch { return false } };
const look = () => met() ? requestAnimationFrame(() => done(performance.now()))
                         : setTimeout(look, 5);
look();
"""


def _silent(_: str) -> None:
    return None


def run(
    *,
    quick: bool = False,
    seed: int = 1,
    progress: Callable[[str], None] = _silent,
) -> dict[str, Any]:
    """Figures, ready for JSON."""
    queries, operators, rounds = (50, 200, 1) if quick else (500, 2000, 3)
    system = SyntheticSystem(queries, operators, seed=seed)
    pages: dict[str, Any] = {}
    with DashboardServer(system, port=0) as server, browser() as driver:
        driver.set_script_timeout(60)
        for name, (fragment, condition) in PAGES.items():
            shown = condition.format(queries=min(100, queries), nodes=5)
            painted = [_paint(driver, server.url + fragment, shown) for _ in range(rounds)]
            ages = _ages(driver, 3 if quick else 8)
            pages[name] = {
                "first_paint_s": round(median(painted), 3),
                "update_s_median": round(median(ages), 3),
                "update_s_max": round(max(ages), 3),
            }
            progress(
                f"{name:<10} first paint {median(painted):.2f} s (target {FIRST_PAINT_S:g}), "
                f"update {median(ages):.2f} s, at most {max(ages):.2f} s (target {UPDATE_S:g})"
            )
        pages["graph, all operators"] = whole = _whole_graph(driver, server.url, operators)
        progress(
            f"all {operators} operators drawn in {whole['first_paint_s']:.2f} s, "
            f"update at most {whole['update_s_max']:.2f} s"
        )
        tick = server.feed.seconds
    return {
        "queries": queries,
        "operators": operators,
        "cores": os.cpu_count(),
        "pages": pages,
        "snapshot_s": round(tick, 3),
        "targets": {"first_paint_s": FIRST_PAINT_S, "update_s": UPDATE_S},
        "met": all(
            p["first_paint_s"] <= FIRST_PAINT_S and p["update_s_max"] <= UPDATE_S
            for p in pages.values()
        ),
    }


def _paint(driver: Any, url: str, condition: str) -> float:
    """Seconds from asking for a page to the frame that shows its content."""
    driver.get("about:blank")
    driver.get(url)
    return float(driver.execute_async_script(WAIT % condition)) / 1000


def _whole_graph(driver: Any, url: str, operators: int) -> dict[str, float]:
    """Opens all processors at once: every operator and edge on the canvas."""
    _paint(driver, url + "#/graph", "window.millstreamGraph && millstreamGraph.nodes.size > 4")
    clock = time.perf_counter()
    driver.execute_script(
        "const box = document.querySelector('#collapse'); if (box && box.checked) box.click();"
    )
    driver.execute_async_script(WAIT % f"millstreamGraph.nodes.size >= {operators}")
    drawn = time.perf_counter() - clock
    ages = _ages(driver, 6)
    return {
        "first_paint_s": round(drawn, 3),
        "update_s_median": round(median(ages), 3),
        "update_s_max": round(max(ages), 3),
    }


def _ages(driver: Any, count: int) -> list[float]:
    """The age of figures when they are drawn, of the next updates."""
    script = """
    const done = arguments[arguments.length - 1], wanted = arguments[0], ages = [];
    let last = millstream.taken;
    const look = () => {
      if (millstream.taken > last) {
        last = millstream.taken;
        requestAnimationFrame(() => setTimeout(() => ages.push(Date.now() / 1000 - last), 0));
      }
      ages.length >= wanted ? done(ages) : setTimeout(look, 1);
    };
    look();
    """
    return [float(a) for a in driver.execute_async_script(script, count)]
