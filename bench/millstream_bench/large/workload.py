"""What the benchmark of large input runs: streams of many rows, and the queries of each part.

- *mix*: thirty queries over two streams, as in `bench sharing`: a third filters, a third sliding
  averages, a third joins, each with another constant.
- *skew*: joins whose keys are Zipf-distributed; the first key has a ninth of all rows.
- *day*: averages of the last day, every second of it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.language.cql.catalog import StreamDefinition
from millstream_bench.throughput.mix import COLUMNS, START_US, mix

ROWS_A_FILE = 500_000
CHUNK = 250_000  # rows made at once
KEYS, SITES, DAY_SITES = 5_000, 100, 10
DAY_SLIDE = "1 SECOND"
SKEWED_LIMITS = (97.0, 98.0, 99.0)
DAY_LIMITS = (25.0, 75.0)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows and queries of one part."""

    name: str
    streams: tuple[str, ...]
    rows_a_second: int  # of event time, in each stream
    sites: int
    zipf: bool
    share: float  # of the rows asked for


PARTS = {
    "mix": Part("mix", ("a", "b"), 1_000, SITES, zipf=False, share=1.0),
    "skew": Part("skew", ("a", "b"), 1_000, SITES, zipf=True, share=0.25),
    "day": Part("day", ("a",), 10, DAY_SITES, zipf=False, share=1.0),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A query: its kind says how it is checked."""

    name: str
    kind: str  # filter, average, join or day
    limit: float
    cql: str


def asked(part: str, queries: int) -> list[Asked]:
    """The queries of a part; only the mix has as many as are wanted."""
    if part == "mix":
        return [Asked(a.name, a.kind, a.constant, a.cql()) for a in mix(queries)]
    if part == "skew":
        return [Asked(f"q{n}", "join", c, _join(c)) for n, c in enumerate(SKEWED_LIMITS)]
    return [Asked(f"q{n}", "day", c, _day(c)) for n, c in enumerate(DAY_LIMITS)]


def _join(limit: float) -> str:
    return (
        "SELECT x.at, y.at AS bt, x.k, x.v, y.v AS bv FROM a AS x [RANGE 5 SECONDS] "
        f"JOIN b AS y [RANGE 5 SECONDS] ON x.k = y.k WHERE x.v > {limit}D"
    )


def _day(limit: float) -> str:
    return (
        f"SELECT g, avg(v) AS mean FROM a [RANGE 1 DAY SLIDE {DAY_SLIDE}] "
        f"WHERE v > {limit}D GROUP BY g"
    )


def definition(stream: str, folder: Path) -> StreamDefinition:
    source = {"path": str(folder / stream), "format": "parquet"}
    return StreamDefinition(stream, COLUMNS, "at", source=source)


def write(folder: Path, part: Part, rows: int, seed: int) -> None:
    """Files in order of time; never more than a file's rows in memory."""
    for offset, stream in enumerate(part.streams):
        target = folder / stream
        target.mkdir(parents=True)
        random = np.random.default_rng(seed + offset)
        for number, first in enumerate(range(0, rows, ROWS_A_FILE)):
            size = min(ROWS_A_FILE, rows - first)
            with pq.ParquetWriter(target / f"part-{number:05d}.parquet", SCHEMA) as file:
                for at in range(first, first + size, CHUNK):
                    count = min(CHUNK, first + size - at)
                    file.write_table(_rows(part, at, count, random))


SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("k", pa.int32()),
        ("g", pa.int32()),
        ("v", pa.float64()),
    ]
)


def _rows(part: Part, first: int, count: int, random: np.random.Generator) -> pa.Table:
    numbers = np.arange(first, first + count, dtype=np.int64)
    micros = numbers * (1_000_000 // part.rows_a_second) + START_US
    return pa.table(
        [
            pa.array(micros).cast(pa.timestamp("us", tz="UTC")),
            pa.array(_keys(part, count, random)),
            pa.array(random.integers(0, part.sites, count, dtype=np.int32)),
            pa.array(random.random(count) * 100),
        ],
        schema=SCHEMA,
    )


def _keys(part: Part, count: int, random: np.random.Generator) -> np.ndarray:
    if not part.zipf:
        return random.integers(0, KEYS, count, dtype=np.int32)
    weights = np.cumsum(1 / np.arange(1, KEYS + 1))
    found: np.ndarray = np.searchsorted(weights, random.random(count) * weights[-1])
    return found.astype(np.int32)
