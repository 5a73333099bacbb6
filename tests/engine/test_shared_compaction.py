"""Files with rows of many streams are merged for all of them at once, and nobody sees it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_runner import arrived, settle

from millstream.engine.engine import Engine
from millstream.engine.steps.trains import Trains
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

SECOND = 1_000_000
QUERIES = {
    f"above_{least}": (
        "SELECT k, sum(v) AS total, count(*) AS n FROM s [RANGE 200 SECONDS SLIDE 10 SECONDS] "
        f"WHERE v > {least} GROUP BY k"
    )
    for least in (0, 3, 50, 80)
}


def rows(number: int) -> pa.Table:
    """Ten seconds of a row a second; only now and then one that the last query wants."""
    ts = [(number * 10 + i) * SECOND for i in range(10)]
    values = [
        (number * 7 + i * 13) % 60 + (40 if number % 6 == 0 and i == 0 else 0) for i in range(10)
    ]
    moments = pa.array(ts, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": moments, "k": pa.array([i % 2 for i in range(10)], pa.int32()),
                     "v": pa.array(values, pa.int32())})  # fmt: skip


def opened(home: Path, spark: Any) -> Engine:
    engine = Engine(home, SparkPlane(spark))
    columns = (Field("ts", "timestamp"), Field("k", "int"), Field("v", "int"))
    engine.add_stream(StreamDefinition("s", columns, "ts", source={"source": "push"}))
    return engine


def test_a_group_stays_together_over_a_long_window(tmp_path: Path, spark: Any) -> None:
    shared, alone = opened(tmp_path / "shared", spark), opened(tmp_path / "alone", spark)
    alone.settings_changed(sharing="exact")
    for engine in (shared, alone):
        for name, cql in QUERIES.items():
            engine.add_query(name, cql)
    merged = 0
    for number in range(14):
        for engine in (shared, alone):
            engine.appenders["s"].append(arrived(rows(number)), {})
            settle(engine)
        panes = [o for o in shared.operators.values() if o.kind == "partial"]
        files = {s.file for o in panes for s in shared.ledger.segments(o.id) if s.file}
        merged = max(merged, sum(s.last > s.first for s in shared.ledger.segments(panes[0].id)))
        assert len(files) <= 8
        kinds = [(u.operators[0].kind, len(u.operators)) for u in Trains(shared).units()]
        assert ("combine", len(QUERIES)) in kinds, "they no longer run in one job"
    assert merged, "nothing was merged"
    for engine in (shared, alone):
        engine.appenders["s"].finish()
        settle(engine)
    for name in QUERIES:
        one, other = (
            sorted(engine.result(name).to_pylist(), key=repr) for engine in (shared, alone)
        )
        assert one == other
        assert one, name
    shared.close()
    alone.close()
