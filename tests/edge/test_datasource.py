"""`format("millstream")`: results read by anybody's Spark, each row once; rows for a stream."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_manager_app import Process, all_up, wait

from millstream import Session
from millstream.core.errors import UsageError
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark
COLUMNS = {"at": "long", "k": "string", "v": "int"}


@pytest.fixture
def cluster(spark: Any, tmp_path: Path) -> Iterator[str]:
    manager = Process(tmp_path / "m")
    url = manager.client.url
    processor = ProcessorServer(
        "p1", tmp_path / "p1", SparkPlane(spark), ProcessorSettings(manager=url)
    )
    processor.start()
    try:
        wait(lambda: bool(manager.client.status()["processors"]) and all_up(manager))
        yield url
    finally:
        processor.stop()
        manager.close()


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_rows_go_in_and_results_come_out_each_once(
    spark: Any, cluster: str, tmp_path: Path
) -> None:
    from millstream.datasource import MillstreamSource  # noqa: PLC0415

    spark.dataSource.register(MillstreamSource)

    def of(what: Any, **options: str) -> Any:
        return what.format("millstream").options(manager=cluster, **options)

    def post(first: int, count: int) -> None:
        rows = [(n, f"k{n % 3}", n) for n in range(first, first + count)]
        frame = spark.createDataFrame(rows, "at LONG, k STRING, v INT").coalesce(1)
        of(frame.write, stream="s").mode("append").save()

    with Session(manager=cluster) as session:
        session.stream("s", columns=COLUMNS, time="timestamp_seconds(at)")
        session.query("SELECT k, v FROM s WHERE v % 2 = 0", name="even")
        session.query("SELECT k, count(*) AS n FROM s GROUP BY k", name="counted")
        session.start()
        post(0, 40)

        def kept() -> list[tuple[Any, ...]]:
            return rows_of(of(spark.read, query="even").load().select("k", "v"))

        wanted = sorted((f"k{n % 3}", n) for n in range(0, 40, 2))
        wait(lambda: kept() == wanted)
        assert kept() == wanted, "reading takes nothing away"
        changes = of(spark.read, query="counted").load()
        assert changes.columns == ["k", "n", "ts", "op"]

        def follow() -> None:
            """A job of somebody else's, begun anew from its checkpoint each time."""
            frame = of(spark.readStream, query="even").load().select("k", "v")
            writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            job = writer.format("parquet").start(str(tmp_path / "copied"))
            try:
                job.processAllAvailable()
            finally:
                job.stop()

        def copied() -> list[tuple[Any, ...]]:
            return rows_of(spark.read.parquet(str(tmp_path / "copied")))

        follow()
        assert copied() == wanted
        post(40, 40)
        wanted = sorted((f"k{n % 3}", n) for n in range(0, 80, 2))

        def all_came() -> bool:
            follow()
            return copied() == wanted

        wait(all_came)
        assert copied() == wanted
        wait(lambda: len(kept()) < len(wanted))  # what was committed is acknowledged, and goes

    with pytest.raises(Exception, match="which query"):
        of(spark.read).load()
    with pytest.raises(Exception, match="cannot be overwritten"):
        of(spark.createDataFrame([(1,)], "at LONG").write, stream="s").mode("overwrite").save()
    with pytest.raises(UsageError, match="which manager"):
        MillstreamSource({"query": "even"}).schema()
