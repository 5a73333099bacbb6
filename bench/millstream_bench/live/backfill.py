"""`millstream bench backfill`: queries that begin with a table of the past, beside live ones.

One session reads a stream of its own at a steady rate all the time. First nothing else runs, then
one query begins with a history in Parquet, then ten do, each time from a session of its own. Told
are seconds and CPU of the backfills, and how late the rows of the live query came meanwhile.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream_bench.throughput.resources import Meter

Progress = Callable[[str], None]
ROWS, ROWS_QUICK = 5_000_000, 500_000
KEYS = 100
COST_TARGET = 1.3  # of ten backfills, in those of one
DELAY_TARGET = 1.2  # of the live query's 99th percentile, in that without a backfill
QUIET_S, QUIET_QUICK_S = 60.0, 15.0
PACE_S = 0.25  # between two pushes
PUSHED = 200
SETTLE_S = 8.0  # first rows are slow: Java compiles
DONE_S = 1800.0
UNTIL = "2024-03-01T00:00:00Z"
BEGIN_US = 1_704_067_200_000_000
COLUMNS = {"at": "timestamp", "k": "long", "v": "long"}
LIVE = "SELECT k, v, at FROM live WHERE v >= 0"


def run(quick: bool = False, progress: Progress = print) -> dict[str, Any]:
    """All figures, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        rows = ROWS_QUICK if quick else ROWS
        write_past(Path(folder) / "past", rows)
        quiet_s = QUIET_QUICK_S if quick else QUIET_S
        sides = [_side(Path(folder), count, quiet_s) for count in (0, 1, 10)]
    return verdict(rows, sides, progress)


def verdict(
    rows: int, sides: Sequence[dict[str, Any]], progress: Progress = print
) -> dict[str, Any]:
    """Of what was measured without a backfill, beside one, and beside ten.

    >>> quiet = {"queries": 0, "seconds": 9.0, "cpu_s": 1.0, "delays_ms": [10.0, 20.0]}
    >>> one = {"queries": 1, "seconds": 4.0, "cpu_s": 9.0, "delays_ms": [20.0, 22.0]}
    >>> ten = {"queries": 10, "seconds": 8.0, "cpu_s": 18.0, "delays_ms": [30.0, 40.0]}
    >>> verdict(1000, [quiet, one, ten])["met"]
    0 backfills: live rows after 15 ms in the median, 20 ms at 99 %
    1 backfill: 4.0 s, 250 rows/s; live rows after 21 ms in the median, 22 ms at 99 %
    10 backfills: 8.0 s, 125 rows/s; live rows after 35 ms in the median, 40 ms at 99 %
    ten cost 2.00 times one in seconds, 2.00 times in CPU: missed, at most 1.3
    live rows at 99 %: 2.00 times those without a backfill: missed, at most 1.2
    False
    """
    told = [_told(rows, side) for side in sides]
    for one in told:
        count = one["queries"]
        work = "" if not count else f"{one['seconds']:.1f} s, {one['rows_s']:,.0f} rows/s; "
        progress(
            f"{count} backfill{'' if count == 1 else 's'}: {work}live rows after"
            f" {one['median_ms']:.0f} ms in the median, {one['p99_ms']:.0f} ms at 99 %"
        )
    quiet, one, ten = told
    cost, cpu = ten["seconds"] / one["seconds"], ten["cpu_s"] / one["cpu_s"]
    delay = ten["p99_ms"] / quiet["p99_ms"]
    cheap, undisturbed = cost <= COST_TARGET, delay <= DELAY_TARGET
    progress(
        f"ten cost {cost:.2f} times one in seconds, {cpu:.2f} times in CPU:"
        f" {'met' if cheap else 'missed'}, at most {COST_TARGET}"
    )
    progress(
        f"live rows at 99 %: {delay:.2f} times those without a backfill:"
        f" {'met' if undisturbed else 'missed'}, at most {DELAY_TARGET}"
    )
    return {
        "history_rows": rows, "sides": told, "cost": cost, "cpu": cpu, "delay": delay,
        "met": cheap and undisturbed,
    }  # fmt: skip


def _told(rows: int, side: dict[str, Any]) -> dict[str, Any]:
    delays = np.asarray(side["delays_ms"])
    return {
        "queries": side["queries"], "seconds": side["seconds"], "cpu_s": side["cpu_s"],
        "rows_s": rows / side["seconds"], "live_rows": len(delays),
        "median_ms": float(np.median(delays)),
        "p99_ms": float(np.percentile(delays, 99, method="higher")),
    }  # fmt: skip


def write_past(folder: Path, rows: int) -> None:
    """Ten files of rows of two months, in order of time in each."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    for part in range(10):
        count = rows // 10
        times = np.sort(rng.integers(0, 59 * 86_400, count)) * 1_000_000 + BEGIN_US
        table = pa.table(
            {
                "at": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "k": pa.array(rng.integers(0, KEYS, count)),
                "v": pa.array(rng.integers(0, 1000, count)),
            }
        )
        pq.write_table(table, folder / f"{part}.parquet")


def _texts(count: int) -> list[str]:
    window = "[RANGE 1 HOUR SLIDE 1 HOUR]"
    return [
        f"CREATE QUERY b{number} FROM HISTORY UNTIL '{UNTIL}' AS SELECT k, count(*) AS n,"
        f" sum(v) AS v FROM s {window} WHERE v >= {number * 50} GROUP BY k"
        for number in range(count)
    ]


def _side(folder: Path, count: int, quiet_s: float) -> dict[str, Any]:
    """A session with so many backfills beside its live query."""
    import millstream  # noqa: PLC0415  (brings Spark)

    with millstream.Session() as session:
        session.stream("live", columns=COLUMNS, time="at")
        history = {"format": "parquet", "path": str(folder / "past")}
        session.stream("s", columns=COLUMNS, time="at", history=history)
        live = Live(session)
        time.sleep(SETTLE_S)
        live.measuring.set()
        meter, begun = Meter(), time.perf_counter()
        texts = _texts(count)
        for text in texts:
            session.query(text)
        while texts and time.perf_counter() - begun < DONE_S:
            queries = session.status()["queries"]
            if not any("history_rows" in queries[f"b{n}"] for n in range(count)):
                break
            time.sleep(0.1)
        if not texts:
            time.sleep(quiet_s)
        seconds, usage = time.perf_counter() - begun, meter.usage()
        live.stop()
    return {
        "queries": count, "seconds": seconds, "cpu_s": usage.cpu_s, "delays_ms": live.delays_ms,
    }  # fmt: skip


class Live:
    """Pushes rows at a pace, and notes how long each batch took to its query's reader."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.measuring = threading.Event()
        self.delays_ms: list[float] = []
        self._sent: dict[int, float] = {}
        self._stopped = threading.Event()
        session.query(LIVE, "live_rows").on_batch(self._came)
        session.start()
        self._thread = threading.Thread(target=self._push, daemon=True)
        self._thread.start()

    def _push(self) -> None:
        number = 0
        while not self._stopped.wait(PACE_S):
            number += 1
            rows = [
                {"at": f"2024-03-02T00:00:00.{number % 1_000_000:06d}Z", "k": number, "v": v}
                for v in range(PUSHED)
            ]
            self._sent[number] = time.perf_counter()
            with suppress(Exception):
                self._session.push("live", rows)

    def _came(self, table: Any, _number: int) -> None:
        now = time.perf_counter()
        for number in set(table["k"].to_pylist()):
            sent = self._sent.pop(number, None)
            if sent is not None and self.measuring.is_set():
                self.delays_ms.append((now - sent) * 1000)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
