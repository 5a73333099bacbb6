"""What a step reads, by Spark's own metrics: the new rows and the reachable tail, no more.

Also: nobody but Spark evaluates operators.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_runner import arrived
from small_engines import stream

from millstream.engine.engine import Engine
from millstream.engine.maintenance import FAN_IN
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.trains import alone
from millstream.spark import frames, operators
from millstream.spark.plane import SparkPlane
from millstream.store import segments

pytestmark = pytest.mark.spark

SECOND = 1_000_000
GROUP_ROWS = 50  # of a Parquet row group, here; reading skips whole groups
ROWS = 50  # of a batch: five seconds of a stream
OLD = 30  # batches that gather before we measure
ROUNDS = OLD + 3
COLUMNS = {"ts": "timestamp", "k": "int", "n": "int"}
SHORT = 20  # seconds
LONG = 3600
QUERIES = {
    f"{kind}_{name}": text.replace("RANGE_", f"RANGE {length} SECONDS")
    for name, length in (("short", SHORT), ("long", LONG))
    for kind, text in {
        "join": "SELECT x.n AS n FROM a [RANGE_] x JOIN b [RANGE_] y ON x.k = y.k",
        "sliding": "SELECT k, sum(n) AS s FROM a [RANGE_ SLIDE 5 SECONDS] GROUP BY k",
    }.items()
}


def batch(number: int) -> pa.Table:
    """Five seconds of rows, ten a second."""
    start = 5 * number * SECOND
    times = [start + i * SECOND // 10 for i in range(ROWS)]
    moments = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    keys = pa.array([i % 7 for i in range(ROWS)], pa.int32())
    return arrived(pa.table({"ts": moments, "k": keys, "n": keys}))


@pytest.fixture
def scans(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Rows that the file scans of all collected frames have given since the last call."""
    collected: list[Any] = []
    frame = type(spark.range(1))
    plain = frame.toArrow

    def recorded(self: Any) -> pa.Table:
        table = plain(self)
        collected.append(self._jdf.queryExecution().executedPlan())
        return table

    monkeypatch.setattr(frame, "toArrow", recorded)

    def taken() -> int:
        rows = sum(_scanned(plan) for plan in collected)
        collected.clear()
        return rows

    return taken


def _scanned(plan: Any) -> int:
    leaves = plan.collectLeaves()
    found = [leaves.apply(i) for i in range(leaves.size())]
    files = [leaf for leaf in found if "Scan parquet" in leaf.nodeName()]
    return sum(int(leaf.metrics().apply("numOutputRows").value()) for leaf in files)


@pytest.fixture
def engine(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr(frames, "SKIPPED_ROWS_MIN", 0)  # skip as if there were many
    # as steps of many rows read: small ones take theirs from memory
    opened = Engine(tmp_path / "home", SparkPlane(spark, prepared=False), EngineSettings())
    for name in ("a", "b"):
        opened.add_stream(stream(name, COLUMNS, "ts", source="push"))
    for name, cql in QUERIES.items():
        opened.add_query(name, cql)
    yield opened
    opened.close()


def test_a_step_reads_new_rows_and_the_reachable_tail(
    engine: Engine, scans: Callable[[], int]
) -> None:
    """The long windows keep old rows in the same files; the short ones must not read them."""
    read: dict[str, list[int]] = {}
    tails: list[int] = []
    for number in range(ROUNDS):
        for name in ("a", "b"):
            engine.appenders[name].append(batch(number), {})
        if number < OLD and number % 6 != 5:
            continue  # few steps while old rows gather: they cost a job for each operator
        for operator in list(engine.operators.values()):
            scans()
            report = engine.runner.run(alone(operator), 10**6)
            read.setdefault(operator.id, []).append(scans())
            tails.append(report.whole.tail_segments if report else 0)
            engine.maintenance.retain(operator.inputs)
        for row in engine.ledger.streams():
            while engine.maintenance.compact(row["id"]):
                pass
    merged = [s for s in engine.ledger.segments("s:a") if s.last > s.first]
    assert sum(s.rows for s in merged) > 3 * SHORT * 10, "old rows lie in compacted files"
    assert max(tails) <= 32

    def late(query: str, index: int = -1) -> int:
        """The most that a query's operator has read in one of the last steps."""
        return max(read[engine.queries[query].operators[index]][OLD - ROUNDS :])

    window, group = SHORT * 10, GROUP_ROWS
    # of two inputs, new rows of the second meet old and new rows of the first: read twice
    new = 3 * ROWS
    slack = 4 * group  # a row group at the edge of each tail, in compacted and fresh files
    assert late("join_short") <= new + 2 * window + slack
    assert late("join_long") > late("join_short"), "the metric sees the longer tail"
    panes = 7  # partials of a pane: one a key
    assert late("sliding_short", 0) == ROWS, "partials are made of new rows alone"
    assert late("sliding_short") <= panes * (SHORT // 5 + 2) + group
    assert late("sliding_long") > late("sliding_short")


def test_segments_a_window_scan_opens_stay_few(engine: Engine) -> None:
    """Hundreds of small steps: compaction keeps the files of an hour's window few."""
    for name in list(engine.queries):
        if name != "join_long":
            engine.drop_query(name)
    (join,) = [engine.operators[o] for o in engine.queries["join_long"].operators]
    opened = 0
    for number in range(200):
        for name in ("a", "b"):
            engine.appenders[name].append(batch(number).slice(0, 2), {})
        with engine.ledger.transaction() as ledger:  # stands for a step, which costs a job
            for name in ("a", "b"):
                head = ledger.stream(f"s:{name}")
                assert head is not None
                ledger.set_cursor(join.id, f"s:{name}", head["next"], head["watermark"])
        for name in ("a", "b"):
            while engine.maintenance.compact(f"s:{name}"):
                pass
        files = sum(len(engine.ledger.segments(f"s:{name}")) for name in ("a", "b"))
        opened = max(opened, files)
    assert sum(s.rows for s in engine.ledger.segments("s:a")) == 400, "an hour keeps them all"
    assert opened <= 32
    assert opened > 2 * FAN_IN - 4


COMPUTING = {"pyarrow", "pandas", "numpy", "duckdb", "polars"}


def test_operators_are_evaluated_by_spark_alone() -> None:
    folder = Path(operators.__file__).parent
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found = {name.split(".")[0] for name in names} & COMPUTING
            assert not found, f"{path.name} imports {found}"
            if isinstance(node, ast.Attribute):
                gathered = ("collect", "toArrow", "toPandas", "mapInArrow", "mapInPandas", "rdd")
                assert node.attr not in gathered, f"{path.name} uses {node.attr}"
