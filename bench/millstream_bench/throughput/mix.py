"""The queries of the sharing benchmark, in CQL, as plain streaming queries and as batch queries.

A third filters, a third sliding window averages (10 s by 5 s), a third window joins (5 s), each
with another constant, over two streams of readings. A reading has a sensor (`k`, the key of joins)
and a site (`g`, the group of averages). In the mix without overlap each query has streams of its
own.
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

KINDS = ("filter", "average", "join")
ROWS_A_SECOND = 1_000
SENSORS, SITES = 5_000, 100
DDL = "at TIMESTAMP, k INT, g INT, v DOUBLE"
COLUMNS = (
    Field("at", "timestamp"),
    Field("k", "int"),
    Field("g", "int"),
    Field("v", "double"),
)
START_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Ask:
    """One query of the mix: its kind, its constant, its streams' folders."""

    name: str
    kind: str
    constant: float
    a: str
    b: str

    def cql(self) -> str:
        match self.kind:
            case "filter":
                return f"SELECT at, k, v FROM {self.a} WHERE v > {self.constant}D"
            case "average":
                return (
                    f"SELECT g, avg(v) AS mean FROM {self.a} [RANGE 10 SECONDS SLIDE 5 SECONDS] "
                    f"WHERE v > {self.constant}D GROUP BY g"
                )
            case _:
                return (
                    "SELECT x.at, y.at AS bt, x.k, x.v, y.v AS bv "
                    f"FROM {self.a} AS x [RANGE 5 SECONDS] JOIN {self.b} AS y [RANGE 5 SECONDS] "
                    f"ON x.k = y.k WHERE x.v > {self.constant}D"
                )


def mix(queries: int, *, overlap: bool = True) -> list[Ask]:
    """So many queries, kinds by turns, constants evenly over 10..90."""
    of_a_kind = -(-queries // len(KINDS))
    asks = []
    for number in range(queries):
        place = number // len(KINDS)
        constant = round(10 + 80 * (place + 0.5) / of_a_kind, 3)
        a, b = ("a", "b") if overlap else (f"a{number}", f"b{number}")
        asks.append(Ask(f"q{number}", KINDS[number % len(KINDS)], constant, a, b))
    return asks


def write_readings(folder: Path, rows: int, files: int, seed: int) -> None:
    """Files of equal size, in order of time; the same seed gives the same files."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    micros = np.arange(rows, dtype=np.int64) * (1_000_000 // ROWS_A_SECOND) + START_US
    table = pa.table(
        {
            "at": pa.array(micros).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(random.integers(0, SENSORS, rows, dtype=np.int32)),
            "g": pa.array(random.integers(0, SITES, rows, dtype=np.int32)),
            "v": pa.array(random.random(rows) * 100),
        }
    )
    size = -(-rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"part-{number:05d}.parquet")


def definition(name: str, folder: Path) -> StreamDefinition:
    return StreamDefinition(name, COLUMNS, "at", source={"path": str(folder), "format": "parquet"})


def plain(ask: Ask, spark: SparkSession, folder: Path, files_a_trigger: int | None) -> DataFrame:
    """The query as Structured Streaming."""

    def stream(name: str) -> DataFrame:
        reader = spark.readStream.schema(DDL)
        if files_a_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", files_a_trigger)
        return reader.parquet(str(folder / name))

    if ask.kind == "filter":
        return _over(ask, stream(ask.a))
    marked = stream(ask.a).withWatermark("at", "0 seconds")
    if ask.kind == "average":
        return _over(ask, marked)
    return _over(ask, marked, stream(ask.b).withWatermark("at", "0 seconds"))


def batch(ask: Ask, a: DataFrame, b: DataFrame) -> DataFrame:
    """The query over all of its input at once."""
    return _over(ask, a, b)


def _over(ask: Ask, a: DataFrame, b: DataFrame | None = None) -> DataFrame:
    chosen = a.where(F.col("v") > ask.constant)
    if ask.kind == "filter":
        return chosen.select("at", "k", "v")
    if ask.kind == "average":
        windows = chosen.groupBy(F.window("at", "10 seconds", "5 seconds").alias("w"), "g")
        return windows.agg(F.avg("v").alias("mean")).selectExpr("g", "mean", "w.end AS ts")
    assert b is not None
    right = b.selectExpr("at AS bt", "k AS bk", "v AS bv")
    near = F.expr("k = bk AND bt >= at - INTERVAL 5 SECONDS AND bt <= at + INTERVAL 5 SECONDS")
    return chosen.join(right, near).select("at", "bt", "k", "v", "bv")
