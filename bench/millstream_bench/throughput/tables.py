"""How many changes a second a query's table takes on its way into a target.

Changes lie in a ledger, as operators leave them: segments of updates, each a `-` and a `+`, over so
many keys. They are delivered as a run delivers them, with a commit of ours after each of the
target's. PostgreSQL is reached by MILLSTREAM_BENCH_DSN; Delta tables lie in a folder.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.control.definitions.sink_table import sink_of
from millstream.language.plan.schema import Field
from millstream.store.consumers import Consumer
from millstream.store.delivery import Delivery, Result
from millstream.store.sinks.opening import open_sink
from millstream.store.streams import Streams

DSN = "MILLSTREAM_BENCH_DSN"
COLUMNS = (Field("host", "string"), Field("n", "bigint"), Field("total", "double"))
BATCH_CHANGES = 10_000  # what a step leaves at once


def run(
    quick: bool = False, seed: int = 1, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Changes a second of each target that can be reached."""
    changes, keys = (100_000, 20_000) if quick else (1_000_000, 20_000)
    targets: dict[str, dict[str, Any]] = {"delta": {"type": "delta", "key": ["host"]}}
    if DSN in os.environ:
        table = f"millstream_bench_{os.getpid()}"
        targets["postgres"] = {
            "type": "postgres", "dsn": f"env:{DSN}", "table": table, "key": ["host"],
        }  # fmt: skip
    else:
        progress(f"postgres  not measured: set {DSN} to a database that tables may be made in")
    figures: dict[str, Any] = {"changes": changes, "keys": keys, "batch": BATCH_CHANGES}
    for kind, target in targets.items():
        with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
            place = {"path": f"{folder}/table"} if kind == "delta" else {}
            seconds = _deliver(Path(folder), target | place, changes, keys, random.Random(seed))
        figures[kind] = {"seconds": round(seconds, 2), "changes_per_s": round(changes / seconds)}
        progress(f"{kind:10}{changes / seconds:10,.0f} changes/s")
    return figures


def _deliver(
    folder: Path, target: Mapping[str, Any], changes: int, keys: int, chance: random.Random
) -> float:
    """Seconds that delivering takes, batch by batch as they come; making them does not count."""
    streams = Streams(folder / "home")
    result = Result("bench", "r:bench", COLUMNS, changes=True)
    sink = open_sink(sink_of(target))
    delivery = Delivery(Consumer("sink", "bench"), result, sink, streams.ledger, streams.files)
    with streams.ledger.transaction() as ledger:
        ledger.add_stream("r:bench", "result")
        delivery.install()
    known: dict[int, tuple[int, float, int]] = {}
    seconds, made = 0.0, 0
    while made < changes:
        table = _changes(min(BATCH_CHANGES, changes - made), keys, known, chance)
        written = streams.files.write(table)
        with streams.ledger.transaction() as ledger:
            ledger.publish("r:bench", [written], made)
        began = time.perf_counter()
        made += delivery.advance()
        seconds += time.perf_counter() - began
    delivery.close()
    streams.close()
    return seconds


def _changes(
    count: int, keys: int, known: dict[int, tuple[int, float, int]], chance: random.Random
) -> pa.Table:
    """Updates, each a row that goes and one that comes; of a key that is new, the latter alone."""
    rows: list[tuple[str, int, float, int, int]] = []
    while len(rows) < count:
        key = chance.randrange(keys)
        old = known.get(key)
        if old is not None:
            rows.append((f"host-{key}", *old, -1))
        before = old or (0, 0.0, 0)
        known[key] = (before[0] + 1, before[1] + chance.random(), before[2] + 1)
        rows.append((f"host-{key}", *known[key], 1))
    types = (pa.string(), pa.int64(), pa.float64(), pa.int64(), pa.int8())
    columns = zip(zip(*rows, strict=True), types, strict=True)
    arrays = [pa.array(values, kind) for values, kind in columns]
    return pa.table(arrays, ["c0", "c1", "c2", "_ts", "_op"])
