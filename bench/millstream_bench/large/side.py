"""Our side of the benchmark of large input, in a process of its own, and what it weighs.

Started by `bench large` with a task as JSON on standard input; prints what came of it as one line.
A process of its own shows the memory of this run alone.
"""

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane
from millstream.spark.session import session
from millstream.store.delivery import FileSink
from millstream_bench.large.workload import PARTS, asked, definition
from millstream_bench.throughput.resources import Meter, children

LOOK_S = 1.0
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes and the home weighed at one moment, in megabytes."""

    at_s: float
    read_rows: int
    python_mb: float
    java_mb: float
    heap_mb: float  # of Java's heap, after the last collection
    home_mb: float
    segments: int


@dataclass(slots=True)
class Scales:
    """Weighs now and then, in a thread of its own."""

    spark: Any
    engine: Engine
    samples: list[Sample] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stop.set()

    def _work(self) -> None:
        began = time.perf_counter()
        while not self._stop.wait(LOOK_S):
            self.samples.append(self._look(time.perf_counter() - began))

    def _look(self, at_s: float) -> Sample:
        ledger = self.engine.ledger
        segments = sum(len(ledger.segments(o)) for o in list(self.engine.operators))
        return Sample(
            at_s=at_s,
            read_rows=sum(i.rows for i in list(self.engine.ingests.values())),
            python_mb=_resident_mb("self"),
            java_mb=sum(_resident_mb(str(pid)) for pid in children(_own_pid())),
            heap_mb=_heap_mb(self.spark),
            home_mb=size_mb(self.engine.streams.home),
            segments=segments,
        )


def _own_pid() -> int:
    return int(Path("/proc/self").resolve().name)


def _resident_mb(pid: str) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * 4096 / MEGABYTE


def _heap_mb(spark: Any) -> float:
    """What of the heap was in use after the last collection of each of its parts."""
    java = spark.sparkContext._jvm.java.lang.management
    pools = java.ManagementFactory.getMemoryPoolMXBeans()
    used = [p.getCollectionUsage() for p in pools if p.getType().toString() == "Heap memory"]
    return float(sum(u.getUsed() for u in used if u is not None)) / MEGABYTE


def size_mb(folder: Path) -> float:
    """Files below a folder; some may go while one looks."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total / MEGABYTE


def figures(samples: list[Sample], rows: int, seconds: float) -> dict[str, Any]:
    """What grew: the most of each quarter of the time, and the rows read in it.

    >>> samples = [Sample(t, 100 * t, 50, 500, 10 + t % 2, 5, 3) for t in range(8)]
    >>> found = figures(samples, 700, 8.0)
    >>> found["rows_a_second"], found["peak_mb"], found["heap_mb"]
    (88, 550, [11, 11, 11, 11])
    """
    quarters: list[list[Sample]] = [[], [], [], []]
    for sample in samples:
        quarters[min(3, int(4 * sample.at_s / max(seconds, 1e-9)))].append(sample)

    def most(name: str) -> list[int]:
        return [round(max((getattr(s, name) for s in q), default=0)) for q in quarters]

    return {
        "rows_a_second": round(rows / seconds),
        "peak_mb": round(max((s.python_mb + s.java_mb for s in samples), default=0)),
        "python_mb": most("python_mb"),
        "java_mb": most("java_mb"),
        "heap_mb": most("heap_mb"),
        "home_mb": most("home_mb"),
        "segments": most("segments"),
        "read_rows": most("read_rows"),
    }


def main() -> None:
    task: dict[str, Any] = json.load(sys.stdin)
    part, out, data = PARTS[task["part"]], Path(task["out"]), Path(task["data"])
    rows = task["rows"] * len(part.streams)
    spark = session(log=out / "spark.log")
    engine = Engine(out / "home", SparkPlane(spark), EngineSettings())
    scales, meter, clock = Scales(spark, engine), Meter(), time.perf_counter()
    thread = scales.follow()
    try:
        for stream in part.streams:
            engine.add_stream(definition(stream, data))
        for ask in asked(part.name, task["queries"]):
            engine.add_query(ask.name, ask.cql)
            engine.deliver(ask.name, FileSink(out / ask.name, "parquet"))
        loop = Loop(engine)
        loop.run()
        seconds, used = time.perf_counter() - clock, meter.usage()
    finally:
        scales.stop()
        thread.join()
        engine.close()
    told = {
        "seconds": round(seconds, 1),
        "cpu_s": round(used.cpu_s, 1),
        "steps": loop.steps,
        **figures(scales.samples, rows, seconds),
    }
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
