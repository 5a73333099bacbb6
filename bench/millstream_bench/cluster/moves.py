"""How long a move stops an operator, against the size of its window; two real processors.

A window join over two streams lies on one processor and is moved to the other and back while rows
keep coming. The pause is from the old owner's last commit to the new one's first, with input
waiting; it must not grow with the window: at most one warm step and half a second. Its peer is the
operator that stays: its warm step, and its rows a second, are measured in the same run.
"""

import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.control.protocol.commands import (
    Compile,
    Complete,
    Declare,
    Expect,
    Hold,
    Host,
    Prepare,
    Progress,
    Release,
    Report,
    Seal,
    StartStream,
    TakeOver,
    Unhost,
)
from millstream.control.protocol.records import Peer
from millstream.core.errors import ResourceError
from millstream.edge.processor.client import ProcessorClient
from millstream_bench.cluster.daemon import Daemon

WINDOWS = (10_000, 100_000, 1_000_000)  # rows of each side
SECONDS = 100  # event time that a window spans
SLACK_SECONDS = 0.5  # allowed beside one warm step
FLOW_ROWS = 2_000  # of each stream, a file
FLOW_SECONDS = 0.5  # between files
MOVES = 4
STEPS_LEAST = 3  # of the stretch without a move
STILL_SECONDS_MAX = 40.0
Say = Callable[[str], None]


class Flow:
    """Two streams as folders of files that grow: first a window's worth, then a steady flow."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.step_us = SECONDS * 1_000_000 // rows
        self.written = 0
        self._files = 0
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)

    def write(self, count: int) -> None:
        keys = np.arange(self.written, self.written + count)
        for name in ("a", "b"):
            table = pa.table(
                {
                    "at": pa.array(keys * self.step_us),
                    "k": pa.array(keys),
                    "v": pa.array(keys % 97),
                }
            )
            draft = self.folder / name / f".{self._files:06d}.parquet"
            pq.write_table(table, draft)
            draft.rename(self.folder / name / f"{self._files:06d}.parquet")
        self.written += count
        self._files += 1


def run(quick: bool = False, progress: Say = print) -> dict[str, Any]:
    """Pause, warm step and throughput around moves, for each window."""
    windows = (2_000, 10_000) if quick else WINDOWS
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processors end with us
    with tempfile.TemporaryDirectory(prefix="millstream-moves-") as folder:
        daemons = [Daemon(f"p{i}", Path(folder)) for i in range(2)]
        try:
            for daemon in daemons:
                daemon.wait()
            found = [
                _measure(Path(folder), daemons, rows, 2 if quick else MOVES, progress)
                for rows in windows
            ]
        finally:
            for daemon in daemons:
                daemon.stop()
    least, most = found[0], found[-1]
    return {
        "windows": found,
        "pause_ratio": round(most["pause_s"] / max(least["pause_s"], 1e-9), 2),
        "state_ratio": most["window_rows"] / least["window_rows"],
        "met": all(w["met"] for w in found),
    }


def _measure(
    folder: Path, daemons: list[Daemon], rows: int, moves: int, say: Say
) -> dict[str, Any]:
    first, second = (d.client for d in daemons)
    flow = Flow(folder / f"w{rows}", rows)
    names = {s: f"{s}{rows}" for s in ("a", "b")}
    for short, name in names.items():
        table = {
            "name": name, "path": str(flow.folder / short), "format": "parquet", "follow": True,
            "columns": {"at": "long", "k": "long", "v": "long"}, "time": "timestamp_micros(at)",
        }  # fmt: skip
        first.do(Declare(table, ingest=True))
        second.do(Declare(table, ingest=False))
    cql = (
        f"SELECT x.k AS k, x.v + y.v AS v FROM {names['a']} [RANGE {SECONDS} SECONDS] x "
        f"JOIN {names['b']} [RANGE {SECONDS} SECONDS] y ON x.k = y.k"
    )
    host = deploy(f"q{rows}", cql, first, [f"s:{n}" for n in names.values()])
    (operator,) = host.operators
    first.do(*(StartStream(n) for n in names.values()))
    for _ in range(10):
        flow.write(rows // 10)
    _until(lambda: figures(first, operator).get("rows_out", 0) >= rows, None, 240)
    measured = _Measured(flow, operator)
    for number in range(moves):
        old, new = (first, second) if number % 2 == 0 else (second, first)
        measured.around(old, new, lambda o=old, n=new, i=number: _move(  # type: ignore[misc]
            f"w{rows}-{i}", host, o, n, first, names.values(), flow
        ))  # fmt: skip
    owner = first if moves % 2 == 0 else second
    owner.do(Unhost(host.query, host.operators))
    result = measured.result(rows)
    say(
        f"window {rows:>9,} rows: pause {result['pause_s']:.2f} s"
        f" (most {result['pause_s_max']:.2f}), {result['handover_s']:.2f} s of it to hand over,"
        f" warm step {result['warm_step_s']:.2f} s,"
        f" copied ahead in {result['prepare_s']:.1f} s,"
        f" {result['rows_s_moving']:,.0f} rows/s around moves against {result['rows_s']:,.0f}"
        f" -> {'met' if result['met'] else 'missed'}"
    )
    return result


def deploy(query: str, cql: str, where: ProcessorClient, bases: list[str]) -> Host:
    """A query as a whole on one processor."""
    (held,) = where.do(Hold(query, tuple(bases)))
    start = max(m.watermark for m in held.streams.values())
    (compiled,) = where.do(Compile(cql))
    names = tuple(o.id for o in compiled.starting(start).operators)
    host = Host(query, cql, start, names, False)
    where.do(host, Release(query, tuple(bases)))
    return host


def figures(client: ProcessorClient, operator: str) -> dict[str, float]:
    """What a processor reports of an operator."""
    (report,) = client.do(Report())
    found: dict[str, float] = report.operators.get(operator, {})
    return found


def _until(done: Callable[[], bool], flow: Flow | None, seconds: float) -> None:
    """Waits; rows keep coming meanwhile."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise ResourceError("the benchmark does not come to its end")
        if flow is not None:
            flow.write(FLOW_ROWS)
        time.sleep(FLOW_SECONDS)


def _move(
    name: str,
    host: Host,
    old: ProcessorClient,
    new: ProcessorClient,
    source: ProcessorClient,
    streams: Any,
    flow: Flow,
) -> float:
    """One move; gives the seconds it took to get ready."""
    inputs: dict[str, Peer] = {}
    clock = time.monotonic()
    if new is not source:
        for stream in streams:
            (expected,) = source.do(Expect(f"s:{stream}", new.name))
            inputs[f"s:{stream}"] = source.peer(expected.epoch)
    new.do(Prepare(name, (host,), inputs, old.peer()))
    _until(lambda: new.do(Progress(name))[0].phase == "ready", flow, 240)
    ready = time.monotonic() - clock
    old.do(Seal(name, host.operators, new.peer()))
    new.do(TakeOver(name, old.peer()))
    _until(lambda: new.do(Progress(name))[0].phase == "owned", flow, 60)
    old.do(Complete(name))
    new.do(Complete(name))
    return ready


class _Measured:
    """Figures of all moves of one window."""

    def __init__(self, flow: Flow, operator: str) -> None:
        self.flow, self.operator = flow, operator
        self.pauses: list[float] = []
        self.handovers: list[float] = []
        self.firsts: list[float] = []
        self.ready: list[float] = []
        self.steps: list[float] = []
        self.still: list[float] = []
        self.moving: list[float] = []

    def around(self, old: ProcessorClient, new: ProcessorClient, move: Callable[[], float]) -> None:
        """A stretch without and one with a move, each as long."""
        before = self._rate(old)
        self.still.append(before[0])
        if before[1]:
            self.steps.append(before[1])
        clock, rows = time.monotonic(), figures(old, self.operator).get("rows_out", 0.0)
        self.ready.append(move())
        self._flow(3.0)
        _until(lambda: "pause_s" in figures(new, self.operator), self.flow, 60)
        after = figures(new, self.operator)
        self.moving.append((after["rows_out"] - rows) / (time.monotonic() - clock))
        self.pauses.append(after["pause_s"])
        self.handovers.append(after["handover_s"])
        self.firsts.append(after["first_step_s"])

    def _flow(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.flow.write(FLOW_ROWS)
            time.sleep(FLOW_SECONDS)

    def _rate(self, client: ProcessorClient) -> tuple[float, float]:
        """Rows a second, and seconds a step, over a few steps."""
        clock, before = time.monotonic(), figures(client, self.operator)
        while True:
            self._flow(1.0)
            after, span = figures(client, self.operator), time.monotonic() - clock
            steps = after["steps"] - before.get("steps", 0)
            if steps >= STEPS_LEAST or span > STILL_SECONDS_MAX:
                break
        seconds = after["seconds"] - before.get("seconds", 0)
        rows = after["rows_out"] - before.get("rows_out", 0)
        return rows / span, seconds / steps if steps else 0.0

    def result(self, rows: int) -> dict[str, Any]:
        step = statistics.median(self.steps) if self.steps else 0.0
        pause = statistics.median(self.pauses)
        return {
            "window_rows": rows,
            "moves": len(self.pauses),
            "pause_s": round(pause, 3),
            "pause_s_max": round(max(self.pauses), 3),
            "handover_s": round(statistics.median(self.handovers), 3),
            "first_step_s": round(statistics.median(self.firsts), 3),
            "warm_step_s": round(step, 3),
            "prepare_s": round(statistics.median(self.ready), 2),
            "rows_s": round(statistics.median(self.still), 1),
            "rows_s_moving": round(statistics.median(self.moving), 1),
            "allowed_s": round(step + SLACK_SECONDS, 3),
            "met": pause <= step + SLACK_SECONDS,
        }
