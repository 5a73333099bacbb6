"""`millstream bench push`: what a pushed batch costs, read by Arrow and, as before, by Spark.

The same rows go to two streams of one engine, batch by batch in turns: the door of the first is the
engine's own, that of the second has every row parsed by a Spark job. Once nobody reads the streams
yet (a registration holds the rows), once a query runs over both. Then many producers push at once:
how many batches does one commit hold? Every push is acknowledged after its commit.
"""

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.sources.push_source import PushSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import base_stream
from millstream.spark.ingest.row_parsing import SparkRowParser
from millstream.spark.plane import SparkPlane
from millstream.spark.session import session

Progress = Callable[[str], None]
Row = Mapping[str, Any]
COLUMNS = {"host": "string", "at": "long", "url": "string", "status": "int", "bytes": "double"}
SMALL, LARGE = 100, 1_000  # rows of a batch
PRODUCERS = 16
TARGET_MS, TARGET_ROWS_S = 5.0, 50_000
START_MS = 1_700_000_000_000


def batches(count: int, rows: int, seed: int) -> list[list[Row]]:
    """Requests to a site, a millisecond apart.

    >>> batches(1, 2, 1)[0][1]["at"] - batches(1, 2, 1)[0][0]["at"]
    1
    """
    chance = random.Random(seed)
    return [
        [
            {
                "host": f"host{chance.randrange(50)}",
                "at": START_MS + number * rows + row,
                "url": f"/page/{chance.randrange(5_000)}",
                "status": chance.choice((200, 200, 200, 404, 500)),
                "bytes": chance.random() * 1e5,
            }
            for row in range(rows)
        ]
        for number in range(count)
    ]


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile in milliseconds.

    >>> spread([0.001, 0.002, 0.003])
    {'median_ms': 2.0, 'p95_ms': 2.9}
    """
    times = np.asarray(seconds) * 1e3
    return {
        "median_ms": round(float(np.median(times)), 3),
        "p95_ms": round(float(np.percentile(times, 95)), 3),
    }


def run(quick: bool = False, seed: int = 1, progress: Progress = print) -> dict[str, Any]:
    """All figures, ready for JSON."""
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    spark = session(log=folder / "spark.log")
    engine = Engine(folder / "home", SparkPlane(spark))
    loop = Loop(engine)
    try:
        doors = {"arrow": _door(engine, "a", None), "spark": _door(engine, "b", spark)}
        sizes = (40, 10) if quick else (300, 60)
        figures: dict[str, Any] = {"target": {"median_ms": TARGET_MS, "rows_s": TARGET_ROWS_S}}
        for source in doors.values():
            _push(source, batches(10, SMALL, seed))  # warm
        figures["parts_ms"] = _parts(engine, doors["arrow"], seed)
        progress("  ".join(f"{k} {v:.2f} ms" for k, v in figures["parts_ms"].items()))
        figures["unread"] = _sides(doors, sizes, seed, progress, "nobody reads")
        figures["together"] = _together(engine, doors["arrow"], 10 if quick else 50, seed)
        told = figures["together"]
        progress(
            f"{PRODUCERS} producers, batches of {SMALL}: {told['rows_s']:,.0f} rows/s, "
            f"{told['batches_a_commit']:.1f} batches a commit, median {told['median_ms']:.2f} ms"
        )
        for name in ("a", "b"):
            engine.add_query(f"q{name}", f"SELECT host, url FROM {name} WHERE status >= 500")
        loop.start()
        figures["read"] = _sides(doors, sizes, seed + 1, progress, "a query runs over both")
    finally:
        loop.stop()
        engine.close()
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def _door(engine: Engine, name: str, spark: Any | None) -> PushSource:
    """Where a stream's rows come in; through Spark where a session is given."""
    fields = tuple(Field(column, type_) for column, type_ in COLUMNS.items())
    late = 10**15  # every batch is as good as any other
    definition = StreamDefinition(name, fields, "timestamp_millis(at)", late)
    engine.add_stream(definition)
    with engine.ledger.transaction() as ledger:
        ledger.set_cursor("bench", base_stream(name), 1, BEGINNING)  # else rows would go at once
    own = engine.sources[name]
    assert isinstance(own, PushSource)
    if spark is None:
        return own
    return PushSource(
        definition, own.appender, SparkRowParser(definition, spark).table, engine.arrived
    )


def _push(source: PushSource, given: Sequence[Sequence[Row]], producer: str = "p") -> list[float]:
    """Seconds of each push."""
    times = []
    for rows in given:
        begun = time.perf_counter()
        source.push(producer, None, rows)
        times.append(time.perf_counter() - begun)
    return times


def _sides(
    doors: Mapping[str, PushSource],
    sizes: tuple[int, int],
    seed: int,
    progress: Progress,
    words: str,
) -> dict[str, Any]:
    """Batches of both sizes through both doors, by turns."""
    rounds, figures = 5, dict[str, Any]()
    for rows, count in zip((SMALL, LARGE), sizes, strict=True):
        times: dict[str, list[float]] = {side: [] for side in doors}
        for turn in range(rounds):
            given = batches(max(1, count // rounds), rows, seed + turn)
            for side, source in doors.items():
                # Spark's side is the slow one: fewer of them say as much
                times[side] += _push(source, given if side == "arrow" else given[:10])
        for side, found in times.items():
            rate = rows * len(found) / sum(found)
            figures.setdefault(side, {})[str(rows)] = {**spread(found), "rows_s": round(rate)}
            told = figures[side][str(rows)]
            progress(
                f"{words}: {rows} rows by {side}: median {told['median_ms']:.2f} ms, "
                f"p95 {told['p95_ms']:.2f} ms, {rate:,.0f} rows/s"
            )
    return figures


def _parts(engine: Engine, source: PushSource, seed: int) -> dict[str, float]:
    """Where the time of a small batch goes: the median of each part alone, in milliseconds."""
    given = batches(50, SMALL, seed)
    read, written, committed = [], [], []
    for rows in given:
        begun = time.perf_counter()
        table = source._parse(rows, "p")
        read.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        part = engine.store.write(table)
        written.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        with engine.ledger.transaction() as ledger:
            ledger.set_meta("bench", str(begun))
        committed.append(time.perf_counter() - begun)
        engine.store.remove(str(part.file))
    parts = {"read": read, "segment": written, "commit": committed}
    return {name: round(median(times) * 1e3, 3) for name, times in parts.items()}


def _together(engine: Engine, source: PushSource, count: int, seed: int) -> dict[str, float]:
    """Many producers, each waiting for its own answer before the next batch."""
    given = batches(count, SMALL, seed)
    before = engine.ledger.segments(base_stream("a"))[-1].last
    times: list[float] = []
    threads = [
        threading.Thread(target=lambda n=n: times.extend(_push(source, given, f"p{n}")))
        for n in range(PRODUCERS)
    ]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    commits = engine.ledger.segments(base_stream("a"))[-1].last - before
    rate = PRODUCERS * count * SMALL / seconds
    return {
        **spread(times),
        "rows_s": round(rate),
        "batches_a_commit": round(PRODUCERS * count / commits, 2),
    }
