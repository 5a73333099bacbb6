"""Both ways a result can go, collected by the driver or written by the executors: equal rows.

Once with every kind of operator in this process, and once with executors that are processes of
their own.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_engines import bag, stream
from test_crashes import SECOND, write_input

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane

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
    "times": "SELECT ts AS t, n FROM a WHERE n < 5",
}


def answers(
    spark: Any, folder: Path, home: Path, queries: Mapping[str, str], collect_bytes_max: int
) -> tuple[dict[str, Any], set[bool], set[str]]:
    """Rows of each query; whether steps were collected; kinds of operators that ran."""
    settings = EngineSettings(
        batch_rows=200, step_rows_max=400, collect_bytes_max=collect_bytes_max
    )
    engine = Engine(home, SparkPlane(spark), settings)
    for name in ("a", "b"):
        engine.add_stream(stream(name, path=folder / name, lateness_us=3 * SECOND))
    for name, cql in queries.items():
        engine.add_query(name, cql)
    collected: set[bool] = set()
    engine.on_step.append(lambda report: collected.add(report.collected) if report.rows_out else 0)
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


@pytest.mark.spark
def test_collected_and_written_results_are_equal(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path)
    collected, how, kinds = answers(spark, tmp_path, tmp_path / "one", QUERIES, 1 << 30)
    assert how == {True}
    written, how, _ = answers(spark, tmp_path, tmp_path / "two", QUERIES, 0)
    assert how == {False}
    for name, rows in collected.items():
        assert rows, f"{name} has no rows to compare"
        assert written[name] == rows, name
    from millstream.spark.operators import LOGIC  # noqa: PLC0415

    assert kinds == set(LOGIC), "every kind of operator has run"


def main(folder: Path) -> None:
    """What the other process does: both ways on executors of their own."""
    from millstream.spark.session import session  # noqa: PLC0415

    spark = session("local-cluster[2,1,1024]", {"spark.executor.memory": "1g"})
    chosen = {name: QUERIES[name] for name in ("join", "combine", "running", "times")}
    one, _, _ = answers(spark, folder, folder / "one", chosen, 1 << 30)
    two, how, _ = answers(spark, folder, folder / "two", chosen, 0)
    executors = spark._jsc.sc().statusTracker().getExecutorInfos()
    told = {
        "equal": one == two,
        "rows": {name: sum(rows.values()) for name, rows in one.items()},
        "collected": sorted(how),
        "executors": len(executors) - 1,  # the driver is in the list
    }
    (folder / "told.json").write_text(json.dumps(told))
    spark.stop()


@pytest.mark.spark
@pytest.mark.process
def test_executors_that_are_processes_of_their_own(tmp_path: Path) -> None:
    write_input(tmp_path)
    command = f"import test_local_cluster as t, pathlib; t.main(pathlib.Path({str(tmp_path)!r}))"
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(here)!r}]; {command}"],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["equal"]
    assert told["collected"] == [False]
    assert told["executors"] == 2
    assert all(count > 0 for count in told["rows"].values())
