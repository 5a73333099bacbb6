"""300 queries for an hour: driver heap, threads, files and ledger stay flat.

`make soak` runs it; MILLSTREAM_SOAK_SECONDS and MILLSTREAM_SOAK_QUERIES make it shorter or longer.
"""

import gc
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW
from millstream.store.delivery import CallbackSink

SECONDS = float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "3600"))
QUERIES = int(os.environ.get("MILLSTREAM_SOAK_QUERIES", "300"))
ROWS = 2_000  # of each stream a round
SAMPLES = 24
SLACK = 1.25  # what the last quarter may exceed the second one by


@dataclass(frozen=True)
class Sample:
    seconds: float
    heap_mb: float
    threads: int
    files: int
    ledger_kb: float
    segments: int
    rows: int


@pytest.mark.soak
@pytest.mark.spark
def test_nothing_grows(spark: Any, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(slots=2))
    columns = (Field("k", "int"), Field("v", "double"), Field("at", "timestamp"))
    for name in ("a", "b"):
        engine.add_stream(StreamDefinition(name, columns, "at", source={"source": "push"}))
    received: list[int] = []
    for number in range(QUERIES):
        engine.add_query(f"q{number}", _text(number))
        engine.deliver(f"q{number}", CallbackSink(lambda table, _: received.append(table.num_rows)))
    loop = Loop(engine)
    loop.start()
    random = np.random.default_rng(1)
    samples: list[Sample] = []
    started, at = time.time(), 0
    try:
        while time.time() - started < SECONDS:
            for name in ("a", "b"):
                engine.appenders[name].append(_rows(random, at), {})
            at += ROWS * 1_000
            loop.wake()
            while any(s for o in engine.operators.values() for s in _waiting(engine, o)):
                assert loop.failure is None, loop.failure
                time.sleep(0.2)
            if time.time() - started > len(samples) * SECONDS / SAMPLES:
                samples.append(_sample(engine, spark, time.time() - started, sum(received)))
                print(samples[-1], file=sys.stderr, flush=True)
    finally:
        loop.stop()
        engine.close()
    assert sum(received) > 0
    early, late = samples[len(samples) // 4 : len(samples) // 2], samples[-len(samples) // 4 :]
    for measure in ("heap_mb", "threads", "files", "ledger_kb", "segments"):
        before = max(getattr(s, measure) for s in early)
        after = min(getattr(s, measure) for s in late)
        assert after <= SLACK * before, f"{measure} grew from {before} to {after}"


def _text(number: int) -> str:
    constant = number / QUERIES * 100
    kind = number % 4
    if kind == 0:
        return f"SELECT k, v FROM a WHERE v > {constant:.3f}D"
    if kind == 1:
        return (
            "SELECT k, avg(v) AS mean FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] "
            f"WHERE v > {constant:.3f}D GROUP BY k"
        )
    if kind == 2:
        return (
            "SELECT a.k, a.v, b.v AS w FROM a [RANGE 5 SECONDS] JOIN b [RANGE 5 SECONDS] "
            f"ON a.k = b.k WHERE a.v > {constant:.3f}D AND b.v > 95D"
        )
    return f"SELECT k, count(*) AS n, max(v) AS top FROM b WHERE v > {constant:.3f}D GROUP BY k"


def _rows(random: np.random.Generator, at: int) -> pa.Table:
    ts = at + np.arange(ROWS, dtype=np.int64) * 1_000
    nothing = pa.nulls(ROWS, pa.string())
    return pa.table(
        [
            pa.array(random.integers(0, 50, ROWS, dtype=np.int32)),
            pa.array(random.random(ROWS) * 100),
            pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
            pa.array(ts),
            nothing,
            nothing,
            nothing,
            pa.array(np.arange(ROWS, dtype=np.int64)),
        ],
        ["c0", "c1", "c2", "_ts", REASON, RECORD, FILE, ROW],
    )


def _waiting(engine: Engine, operator: Any) -> list[Any]:
    return [s for found in engine.pending(operator).values() for s in found]


def _sample(engine: Engine, spark: Any, seconds: float, rows: int) -> Sample:
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    gc.collect()
    spark._jvm.java.lang.System.gc()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
    threads = spark._jvm.java.lang.Thread.activeCount() + threading.active_count()
    ledger = engine.ledger.size_bytes() / 1e3
    segments = sum(len(engine.ledger.segments(s["id"])) for s in engine.ledger.streams())
    return Sample(
        round(seconds), round(heap), threads, len(engine.store.files()), ledger, segments, rows
    )
