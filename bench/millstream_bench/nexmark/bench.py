"""`millstream bench nexmark`: the queries at once and one by one, ours and plain, row for row.

Both sides read the same Parquet files and leave their results as Parquet files. Ours runs the
queries in one dataflow; plain Structured Streaming runs a query each, side by side, with all files
in one batch (`availableNow`), its best setting for this. Repeats take turns. Rows of ended windows
are compared; of the last ones, which a watermark has not passed on one side, only those that both
have.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow.parquet as pq

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane
from millstream.spark.session import session
from millstream.store.delivery import FileSink
from millstream_bench.nexmark.queries import COLUMNS, QUERIES, SHARES, tables
from millstream_bench.throughput.resources import Meter

Progress = Callable[[str], None]
WINDOWED = ("q5a", "q7a", "q11", "q12")


def run(
    *, quick: bool = False, seed: int = 1, queries: str | None = None, progress: Progress = print
) -> dict[str, Any]:
    """Seconds, CPU seconds and events a second of all queries together, then of each alone."""
    names = tuple(QUERIES) if queries is None else tuple(queries.split(","))
    for name in names:
        if name not in QUERIES:
            hint = f"one of {', '.join(QUERIES)}"
            raise UsageError(f"unknown query {name}{did_you_mean(name, QUERIES)}", hint=hint)
    events, pieces, repeats = (25_000, 3, 1) if quick else (2_000_000, 20, 5)
    folder = Path(tempfile.mkdtemp(prefix="millstream-nexmark-"))
    spark = session(log=folder / "spark.log")
    try:
        _write(folder / "warm", 5_000, 2, seed + 1)
        _write(folder / "in", events, pieces, seed)
        for side in (_ours, _plain):  # code is generated and compiled
            side(spark, folder / "warm", folder / "out", names)
        figures: dict[str, Any] = {"events": events, "repeats": repeats, "runs": {}}
        alone = [(name,) for name in names] if len(names) > 1 else []
        for chosen in (names, *alone):
            what = chosen[0] if len(chosen) == 1 else f"all {len(chosen)}"
            found = _repeated(spark, folder, chosen, events, repeats)
            figures["runs"][what] = found
            progress(_told(what, found))
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, events: int, pieces: int, seed: int) -> None:
    for name in SHARES:
        (folder / name).mkdir(parents=True)
    for number, piece in enumerate(tables(events, pieces, seed)):
        for name, table in piece.items():
            pq.write_table(table, folder / name / f"{number:04d}.parquet")


def _repeated(
    spark: Any, folder: Path, names: Sequence[str], events: int, repeats: int
) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    cpu: dict[str, list[float]] = {"ours": [], "plain": []}
    different = compared = 0
    for _ in range(repeats):
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        for side, function in (("ours", _ours), ("plain", _plain)):
            meter = Meter()
            seconds[side].append(function(spark, folder / "in", out / side, names))
            cpu[side].append(meter.usage().cpu_s)
        for name in names:
            found, rows = differences(out, name)
            different, compared = different + found, compared + rows
    return {
        **{side: _figures(seconds[side], cpu[side], events) for side in seconds},
        "ratio": median(seconds["plain"]) / median(seconds["ours"]),
        "cpu_ratio": median(cpu["plain"]) / median(cpu["ours"]),
        "compared_rows": compared,
        "different_rows": different,
    }


def _figures(seconds: list[float], cpu: list[float], events: int) -> dict[str, Any]:
    return {
        "seconds": round(median(seconds), 2),
        "range": [round(min(seconds), 2), round(max(seconds), 2)],
        "cpu_s": round(median(cpu), 2),
        "events_a_second": round(events / median(seconds)),
    }


def _told(what: str, found: dict[str, Any]) -> str:
    sides = "; ".join(
        f"{side} {found[side]['seconds']} s ({found[side]['range'][0]} to "
        f"{found[side]['range'][1]}), CPU {found[side]['cpu_s']} s, "
        f"{found[side]['events_a_second']:,} events/s"
        for side in ("ours", "plain")
    )
    return (
        f"{what:<7} {sides}; plain takes {found['ratio']:.2f} times as long, "
        f"{found['cpu_ratio']:.2f} times the CPU; {found['different_rows']} of "
        f"{found['compared_rows']:,} rows differ"
    )


# -- sides ----------------------------------------------------------------------------------------


def _ours(spark: Any, folder: Path, out: Path, names: Sequence[str]) -> float:
    engine = Engine(
        out / "home", SparkPlane(spark), EngineSettings(batch_rows=500_000, step_rows_max=1_000_000)
    )
    try:
        clock = time.perf_counter()
        for stream in _streams(names):
            columns = tuple(Field(n, t) for n, t in COLUMNS[stream].items())
            source = {"path": str(folder / stream), "format": "parquet"}
            engine.add_stream(StreamDefinition(stream, columns, "date_time", source=source))
        for name in names:
            engine.add_query(name, QUERIES[name].ours)
            engine.deliver(name, FileSink(out / name, "parquet"))
        Loop(engine).run()
        return time.perf_counter() - clock
    finally:
        engine.close()


def _plain(spark: Any, folder: Path, out: Path, names: Sequence[str]) -> float:
    ddl = {s: ", ".join(f"{n} {t}" for n, t in COLUMNS[s].items()) for s in COLUMNS}
    clock = time.perf_counter()
    for stream in _streams(names):
        rows = spark.readStream.schema(ddl[stream]).parquet(str(folder / stream))
        timed = any(name in WINDOWED for name in names)
        (rows.withWatermark("date_time", "0 seconds") if timed else rows).createOrReplaceTempView(
            stream
        )
    started = []
    for name in names:
        writer = spark.sql(QUERIES[name].plain).writeStream.format("parquet").outputMode("append")
        writer = writer.option("path", str(out / name)).trigger(availableNow=True)
        started.append(writer.option("checkpointLocation", str(out / f"{name}.log")).start())
    for query in started:
        query.awaitTermination()
    return time.perf_counter() - clock


def _streams(names: Sequence[str]) -> list[str]:
    return sorted({s for name in names for s in QUERIES[name].streams})


# -- rows -----------------------------------------------------------------------------------------


def differences(out: Path, name: str) -> tuple[int, int]:
    """Rows that one side has and the other has not, and how many were compared.

    Ours closes all windows when its input has ended; plain leaves those that no later row has
    passed, so of windows only those count that ended before its last one.
    """
    ours, plain = (sorted((out / side / name).glob("*.parquet")) for side in ("ours", "plain"))
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        sides = []
        for files in (ours, plain):
            if not files:
                sides.append("")
                continue
            listed = ", ".join(f"'{f}'" for f in files)
            sides.append(f"SELECT * FROM read_parquet([{listed}])")
        if not all(sides):
            only = sum(_count(database, side) for side in sides if side)
            return only, only
        columns = ", ".join(r[0] for r in database.execute(f"DESCRIBE {sides[1]}").fetchall())
        texts = [f"SELECT {columns} FROM ({side})" for side in sides]
        if name in WINDOWED:
            found = database.execute(f"SELECT max(endtime) FROM ({sides[1]})").fetchone()
            if found is None or found[0] is None:
                return 0, 0  # no window has ended on both sides
            texts = [f"{text} WHERE endtime <= TIMESTAMPTZ '{found[0]}'" for text in texts]
        first, second = texts
        different = sum(
            _count(database, f"({a}) EXCEPT ALL ({b})")
            for a, b in ((first, second), (second, first))
        )
        return different, _count(database, second)


def _count(database: duckdb.DuckDBPyConnection, text: str) -> int:
    found = database.execute(f"SELECT count(*) FROM ({text})").fetchone()
    return int(found[0]) if found else 0
