"""Input for benchmarks: two streams of made-up readings, and queries over them in both languages.

Rows come at a thousand a second of event time; the same seed gives the same files. Plain queries
are Structured Streaming as its documentation writes them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field

ROWS_A_SECOND = 1_000
TWO_STREAMS = ("join", "left")  # kinds that read b, too
KEYS = 1_000
COLUMNS = (Field("at", "timestamp"), Field("k", "int"), Field("v", "double"))
DDL = "at TIMESTAMP, k INT, v DOUBLE"


def write_stream(folder: Path, rows: int, files: int, seed: int, keys: int = KEYS) -> None:
    """Files of equal size, in order of time."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    micros = np.arange(rows, dtype=np.int64) * (1_000_000 // ROWS_A_SECOND)
    table = pa.table(
        {
            "at": pa.array(micros + 1_700_000_000_000_000).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(random.integers(0, keys, rows, dtype=np.int32)),
            "v": pa.array(random.random(rows) * 100),
        }
    )
    size = -(-rows // files)
    for number in range(files):
        part = table.slice(number * size, size)
        pq.write_table(part, folder / f"part-{number:05d}.parquet")


def definition(name: str, folder: Path) -> StreamDefinition:
    return StreamDefinition(name, COLUMNS, "at", source={"path": str(folder), "format": "parquet"})


@dataclass(frozen=True, slots=True)
class Contest:
    """One query in both languages."""

    name: str
    cql: str
    plain: str  # which function below
    constant: float


def plain_query(
    spark: SparkSession, kind: str, constant: float, a: Path, b: Path, files_a_trigger: int | None
) -> DataFrame:
    """The same query as a Structured Streaming DataFrame."""

    def stream(folder: Path) -> DataFrame:
        reader = spark.readStream.schema(DDL)
        if files_a_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", files_a_trigger)
        return reader.parquet(str(folder))

    if kind == "filter":
        return stream(a).where(F.col("v") > constant).select("at", "k", "v")
    if kind == "average":
        marked = stream(a).withWatermark("at", "0 seconds").where(F.col("v") > constant)
        windows = marked.groupBy(F.window("at", "10 seconds", "5 seconds"), "k")
        return windows.agg(F.avg("v").alias("mean"))
    left = stream(a).withWatermark("at", "0 seconds").where(F.col("v") > constant)
    right = stream(b).withWatermark("at", "0 seconds")
    right = right.select(F.col("at").alias("bt"), F.col("k").alias("bk"), F.col("v").alias("bv"))
    near = F.expr("k = bk AND bt >= at - INTERVAL 5 SECONDS AND bt <= at + INTERVAL 5 SECONDS")
    how = "leftOuter" if kind == "left" else "inner"
    return left.join(right, near, how).select("at", "bt", "k", "v", "bv")


def cql(kind: str, constant: float) -> str:
    """The same query in CQL."""
    if kind == "filter":
        return f"SELECT at, k, v FROM a WHERE v > {constant}D"
    if kind == "average":
        return (
            "SELECT k, avg(v) AS mean FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] "
            f"WHERE v > {constant}D GROUP BY k"
        )
    if kind == "top":
        return (
            "SELECT k, count(*) AS n FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] "
            f"WHERE v > {constant}D GROUP BY k ORDER BY n DESC, k LIMIT 3"
        )
    how = "LEFT JOIN" if kind == "left" else "JOIN"
    return (
        "SELECT a.at, b.at AS bt, a.k, a.v, b.v AS bv FROM a [RANGE 5 SECONDS] "
        f"{how} b [RANGE 5 SECONDS] ON a.k = b.k WHERE a.v > {constant}D"
    )
