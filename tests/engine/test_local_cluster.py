"""Both ways a result can go, collected by the driver or written by the executors: equal rows.

Once with every kind of operator in this process, and once on a standalone cluster of Spark that
loses workers meanwhile.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_engines import bag, stream
from test_crashes import SECOND, write_input

import millstream
from millstream.core.errors import ResourceError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.spark.attached import plane_of
from millstream.spark.plane import SparkPlane
from standalone_cluster import Cluster, standalone

STEPS_BETWEEN = 4  # after so many steps a worker may die
QUERIES = {
    "map": "SELECT name, n * 2 AS d FROM a WHERE n > 10",
    "join": "SELECT x.n AS n, y.n AS m FROM a [RANGE 3 SECONDS] x JOIN b [RANGE 3 SECONDS] y"
    " ON x.name = y.name",
    "combine": "SELECT name, count(*) AS c, avg(n) AS v, count(DISTINCT n) AS d"
    " FROM a [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY name",
    "interval": "SELECT name, max(n) AS m FROM a [PARTITION BY name ROWS 3] GROUP BY name",
    "dstream": "DSTREAM(SELECT n FROM a [RANGE 7 SECONDS])",
    "rstream": "RSTREAM(SELECT n FROM a [RANGE 2 SECONDS SLIDE 5 SECONDS])",
    "distinct": "SELECT DISTINCT name, n % 5 AS r FROM b",
    "running": "SELECT name, count(*) AS c, avg(n) AS v FROM b GROUP BY name",
    "running_emit": "ISTREAM(SELECT count(*) AS c FROM b [UNBOUNDED SLIDE 20 SECONDS])",
    "union": "SELECT n FROM a UNION ALL SELECT n FROM b",
    "semijoin": "SELECT n FROM a [RANGE 3 SECONDS] x LEFT SEMI JOIN b [RANGE 3 SECONDS] y"
    " ON x.name = y.name",
    "session": "SELECT name, count(*) AS c FROM a [SESSION 2 SECONDS] GROUP BY name",
    "rank": "SELECT name, count(*) AS c FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY name"
    " ORDER BY c DESC, name LIMIT 2",
    "over": "SELECT name, n - LAG(n) OVER w AS d, LEAD(n) OVER w AS m, sum(n) OVER w AS t,"
    " avg(n) OVER (w RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) AS v FROM a"
    " WINDOW w AS (PARTITION BY name ORDER BY ts)",
    "calendar": "SELECT name, count(*) AS c, window_start AS d FROM a"
    " [RANGE 1 DAY SLIDE 1 DAY IN 'Europe/Berlin'] GROUP BY name",
    "match": "SELECT * FROM a MATCH_RECOGNIZE (PARTITION BY name ORDER BY ts MEASURES count(*) AS c"
    ", LAST(UP.n) AS top PATTERN (UP{2,} DOWN) WITHIN INTERVAL '30' SECONDS"
    " DEFINE UP AS n > PREV(n), DOWN AS n < FIRST(UP.n)) AS m",
    "table_join": "SELECT x.name, x.c, y.c AS d FROM (SELECT name, count(*) AS c FROM a GROUP BY"
    " name) x JOIN (SELECT name, count(*) AS c FROM b GROUP BY name) y ON x.name = y.name",
    "table_semijoin": "SELECT name, c FROM (SELECT name, count(*) AS c FROM a GROUP BY name) x"
    " WHERE name IN (SELECT name FROM b GROUP BY name)",
    "table_rank": "SELECT name, count(*) AS c FROM a GROUP BY name ORDER BY c DESC, name LIMIT 2",
    "table_over": "SELECT name, c, sum(c) OVER (ORDER BY c, name ROWS 1 PRECEDING) AS s FROM"
    " (SELECT name, count(*) AS c FROM a GROUP BY name) x",
    "times": "SELECT ts AS t, n FROM a WHERE n < 5",
}
BY_HAND = {"rules"}  # somebody adds the rows of a rule table: test_rules.py


def answers(
    spark: Any,
    folder: Path,
    home: Path,
    queries: Mapping[str, str],
    collect_bytes_max: int,
    now_and_then: Callable[[], None] = lambda: None,
    *,
    local_disk: bool = True,
) -> tuple[dict[str, Any], set[bool], set[str]]:
    """Rows of each query; whether steps were collected; kinds of operators that ran."""
    settings = EngineSettings(
        batch_rows=200,
        step_rows_max=400,
        collect_bytes_max=collect_bytes_max,
        local_disk=local_disk,
    )
    engine = Engine(home, plane_of(spark, attached=False), settings)
    for name in ("a", "b"):
        engine.add_stream(stream(name, path=folder / name, lateness_us=3 * SECOND))
    for name, cql in queries.items():
        engine.add_query(name, cql)
    collected: set[bool] = set()
    engine.on_step.append(lambda report: collected.add(report.collected) if report.rows_out else 0)
    steps = itertools.count(1)
    engine.on_step.append(lambda _: None if next(steps) % STEPS_BETWEEN else now_and_then())
    Loop(engine).run()
    found = {}
    for name, query in engine.queries.items():
        if query.plan.relation:
            found[name] = bag(engine.table(name).drop_columns(["ts"]).to_pylist())
        else:
            found[name] = bag(engine.result(name).to_pylist())
    kinds = {str(o.kind) for o in engine.operators.values()}
    engine.close()
    return found, collected, kinds


@pytest.fixture(scope="module")
def here(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every query in this process: rows, whether they were collected, kinds of operators."""
    folder = tmp_path_factory.mktemp("here")
    write_input(folder)
    return answers(spark, folder, folder / "home", QUERIES, 1 << 30)


@pytest.mark.spark
def test_collected_and_written_results_are_equal(spark: Any, here: Any, tmp_path: Path) -> None:
    collected, how, kinds = here
    assert how == {True}
    write_input(tmp_path)
    written, how, _ = answers(spark, tmp_path, tmp_path / "two", QUERIES, 0)
    assert how == {False}
    for name, rows in collected.items():
        assert rows, f"{name} has no rows to compare"
        assert written[name] == rows, name
    from millstream.spark.operators import LOGIC  # noqa: PLC0415

    assert kinds == set(LOGIC) - BY_HAND, "every kind of operator has run"


CHOSEN = ("join", "combine", "running", "times")


def main(folder: Path, url: str, workers: Sequence[int], chosen: Sequence[str]) -> None:
    """What the other process does: both ways on executors elsewhere, which die meanwhile."""
    from millstream.spark import surroundings  # noqa: PLC0415
    from millstream.spark.session import session  # noqa: PLC0415

    greedy = session(url, {"spark.executor.memory": "64g"})
    # so little that its end comes before its jobs have begun
    surroundings.EXECUTORS_WAIT_S, patience = 0.01, surroundings.EXECUTORS_WAIT_S
    full = refused(greedy, folder / "full")
    surroundings.EXECUTORS_WAIT_S = patience
    greedy.stop()
    spark = session(url, configured(folder))
    unseen = refused(spark, Path("/proc/self/cwd/unseen"))  # another folder for each process
    slow = one_task_stands(spark, folder)
    queries = {name: QUERIES[name] for name in chosen}
    doomed = list(workers)

    def kill() -> None:
        if doomed:
            os.kill(doomed.pop(0), signal.SIGKILL)

    one, _, _ = answers(spark, folder, folder / "one", queries, 1 << 30, kill, local_disk=False)
    two, how, _ = answers(spark, folder, folder / "two", queries, 0, kill, local_disk=False)
    told = {"one": shown(one), "two": shown(two), "collected": sorted(how), "left": doomed}
    told |= {"full": full, "unseen": unseen, "slow": slow}
    (folder / "told.json").write_text(json.dumps(told))
    spark.stop()


def configured(folder: Path) -> dict[str, str]:
    """As clusters are: executors come and go and do work twice; events are logged."""
    (folder / "events").mkdir()
    return {
        "spark.executor.memory": "512m",
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false", "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1", "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.initialExecutors": "2",
        "spark.speculation": "true", "spark.speculation.interval": "100ms",
        "spark.speculation.task.duration.threshold": "1s",  # also of a task that is alone
    }  # fmt: skip


STANDS_S = 600.0  # longer than the test waits: only a second attempt gets by


def one_task_stands(spark: Any, folder: Path) -> list[int]:
    """Rows that executors wrote, where the first attempt of one task stops in the middle."""
    mark, count = folder / "stood", 4000

    def passed(n: int) -> int:
        if n == count // 4:
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                return n  # the second attempt
            time.sleep(STANDS_S)
        return n

    settings = {"collect_bytes_max": 0, "local_disk": False}
    with millstream.attach(spark, folder / "slow", settings=settings) as own:
        own.stream("p", columns={"at": "long", "n": "int"}, time="timestamp_seconds(at)")
        own.register_function("passed", passed, "int")
        query = own.query("SELECT passed(n) AS n FROM p")
        own.push("p", [{"at": n, "n": n} for n in range(count)])
        own.finish("p")
        own.wait()
        return sorted(query.to_arrow()["n"].to_pylist())


def refused(spark: Any, home: Path) -> str:
    """Why an engine cannot be opened there."""
    try:
        Engine(home, SparkPlane(spark)).close()
    except ResourceError as error:
        return str(error)
    return ""


def speculated(events: Path) -> bool:
    """Whether the log of Spark tells of a second attempt of a task that had not ended."""
    logs = [path for path in events.rglob("*") if path.is_file()]
    return any(b'"Speculative":true' in path.read_bytes() for path in logs)


def shown(found: Mapping[str, Any]) -> dict[str, list[str]]:
    return {name: sorted(map(repr, rows.elements())) for name, rows in found.items()}


def on_a_cluster(
    folder: Path, cluster: Cluster, doomed: Sequence[int], chosen: Sequence[str]
) -> Any:
    arguments = f"pathlib.Path({str(folder)!r}), {cluster.url!r}, {list(doomed)}, {list(chosen)}"
    here = Path(__file__).parent
    program = f"import sys; sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]\n"
    program += f"import test_local_cluster as t, pathlib; t.main({arguments})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=800, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "told.json").read_text())


@pytest.mark.spark
@pytest.mark.process
def test_a_cluster_loses_a_worker_and_gives_the_same(here: Any, tmp_path: Path) -> None:
    write_input(tmp_path)
    expected = {name: rows for name, rows in shown(here[0]).items() if name in CHOSEN}
    with standalone(tmp_path / "cluster") as cluster:
        told = on_a_cluster(tmp_path, cluster, cluster.workers[:1], CHOSEN)
    assert told["left"] == [], "the worker was killed in the middle"
    assert told["collected"] == [False]
    assert all(told["one"].values())
    assert told["one"] == expected
    assert told["two"] == expected
    assert (tmp_path / "stood").exists()
    assert told["slow"] == list(range(4000)), "of two attempts one counts"
    assert speculated(tmp_path / "events")
    assert not list(tmp_path.rglob("*.probe"))
    assert "gave no executor within 0.01 s" in told["full"]
    assert "ask for less (spark.executor.memory" in told["full"]
    assert "do not see the folder /proc/self/cwd/unseen" in told["unseen"]
    assert "under the same name" in told["unseen"]
