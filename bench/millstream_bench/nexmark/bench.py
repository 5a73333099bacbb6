"""`millstream bench nexmark`: the queries at once and one by one, ours and plain, row for row.

Both sides read the same Parquet files and leave their results as Parquet files. Ours runs the
queries in one dataflow; plain Structured Streaming runs a query each, side by side, with all files
in one batch (`availableNow`), its best setting for this. With `--peer flink` one statement set of
Flink runs over the same rows as CSV. Repeats take turns. Rows of ended windows
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
from millstream_bench.nexmark.flink import run_flink, write_csv
from millstream_bench.nexmark.queries import COLUMNS, QUERIES, SHARES, tables
from millstream_bench.throughput.flink import flink_python
from millstream_bench.throughput.resources import Meter

Progress = Callable[[str], None]
WINDOWED = ("q5a", "q7a", "q11", "q12")


def run(
    *,
    quick: bool = False,
    seed: int = 1,
    queries: str | None = None,
    peer: str | None = None,
    progress: Progress = print,
) -> dict[str, Any]:
    """Seconds, CPU seconds and events a second of all queries together, then of each alone."""
    if peer not in (None, "flink"):
        raise UsageError(f"unknown peer {peer!r}", hint="flink")
    python = flink_python() if peer else None
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
        for side, function in (("ours", _ours), ("plain", _plain)):  # code is compiled
            function(spark, folder / "warm", folder / "out" / side, names)
        if python is not None:
            for name in ("warm", "in"):
                write_csv(folder / name, folder / "csv" / name)
        figures: dict[str, Any] = {"events": events, "repeats": repeats, "runs": {}}
        alone = [(name,) for name in names] if len(names) > 1 else []
        for chosen in (names, *alone):
            what = chosen[0] if len(chosen) == 1 else f"all {len(chosen)}"
            found = _repeated(spark, folder, chosen, events, repeats, python)
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
    spark: Any, folder: Path, names: Sequence[str], events: int, repeats: int, python: str | None
) -> dict[str, Any]:
    sides = ["ours", "plain", *(["flink"] if python is not None else [])]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    cpu: dict[str, list[float]] = {side: [] for side in sides}
    counts = {other: [0, 0] for other in sides if other != "ours"}  # rows that differ, compared
    for _ in range(repeats):
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        for side, function in (("ours", _ours), ("plain", _plain)):
            meter = Meter()
            seconds[side].append(function(spark, folder / "in", out / side, names))
            cpu[side].append(meter.usage().cpu_s)
        if python is not None:
            csv = folder / "csv"
            took = run_flink(
                python, csv / "warm", csv / "in", out / "flink", names, _streams(names)
            )
            seconds["flink"].append(took[0])
            cpu["flink"].append(took[1])
        for other, count in counts.items():
            for name in names:
                found, rows = differences(out, name, other)
                count[0], count[1] = count[0] + found, count[1] + rows
    figures: dict[str, Any] = {s: _figures(seconds[s], cpu[s], events) for s in sides}
    for other, (different, compared) in counts.items():
        figures[other] |= {
            "ratio": median(seconds[other]) / median(seconds["ours"]),
            "cpu_ratio": median(cpu[other]) / median(cpu["ours"]),
            "compared_rows": compared,
            "different_rows": different,
        }
    return figures


def _figures(seconds: list[float], cpu: list[float], events: int) -> dict[str, Any]:
    return {
        "seconds": round(median(seconds), 2),
        "range": [round(min(seconds), 2), round(max(seconds), 2)],
        "cpu_s": round(median(cpu), 2),
        "events_a_second": round(events / median(seconds)),
    }


def _told(what: str, found: dict[str, Any]) -> str:
    texts = [
        f"{side} {figures['seconds']} s ({figures['range'][0]} to {figures['range'][1]}), "
        f"CPU {figures['cpu_s']} s, {figures['events_a_second']:,} events/s"
        for side, figures in found.items()
    ]
    texts += [
        f"{side} takes {figures['ratio']:.2f} times as long, {figures['cpu_ratio']:.2f} times the "
        f"CPU; {figures['different_rows']} of {figures['compared_rows']:,} rows differ"
        for side, figures in found.items()
        if "ratio" in figures
    ]
    return f"{what:<7} {'; '.join(texts)}"


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


def differences(out: Path, name: str, other: str = "plain") -> tuple[int, int]:
    """Rows that one side has and the other has not, and how many were compared.

    Ours and Flink close all windows when their input has ended; plain leaves those that no later
    row has passed, so beside plain only windows count that ended before its last one.
    """
    ours = sorted((out / "ours" / name).glob("*.parquet"))
    theirs = sorted((out / other / name).glob("*.parquet" if other == "plain" else "part-*"))
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        mine = f"SELECT * FROM read_parquet([{_listed(ours)}])" if ours else ""
        sides = [mine, _of_other(database, other, theirs, mine)]
        if not all(sides):
            only = sum(_count(database, side) for side in sides if side)
            return only, only
        columns = ", ".join(r[0] for r in database.execute(f"DESCRIBE {sides[1]}").fetchall())
        texts = [f"SELECT {columns} FROM ({side})" for side in sides]
        if name in WINDOWED and other == "plain":
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


def _of_other(
    database: duckdb.DuckDBPyConnection, other: str, files: Sequence[Path], mine: str
) -> str:
    """What the other side has given; Flink's CSV has the columns of ours but for the time."""
    if not files or other == "plain":
        return f"SELECT * FROM read_parquet([{_listed(files)}])" if files else ""
    kinds = {r[0]: r[1] for r in database.execute(f"DESCRIBE {mine}").fetchall()} if mine else {}
    columns = ", ".join(f"'{n}': '{k}'" for n, k in kinds.items() if n != "ts")
    return f"SELECT * FROM read_csv([{_listed(files)}], header = false, columns = {{{columns}}})"


def _listed(files: Sequence[Path]) -> str:
    return ", ".join(f"'{f}'" for f in files)


def _count(database: duckdb.DuckDBPyConnection, text: str) -> int:
    found = database.execute(f"SELECT count(*) FROM ({text})").fetchone()
    return int(found[0]) if found else 0
