"""What the benchmarks of live rows run: two streams at a steady rate, queries of three kinds.

A third filters, a third sliding averages, a third window joins, as in the mix of `sharing` with
short windows. Each row carries the time at which its producer sent it, and each result the time of
the latest row in it; of a window the time of its end counts, for its rows have waited for that.
Rows are kept, so that DuckDB can say what should have come of them.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TICK_S = 0.1
SENSORS, SITES = 5_000, 100
COLUMNS = {"at": "timestamp", "k": "int", "g": "int", "v": "double", "sent": "double"}
STREAMS = ("a", "b")
MATCHES_A_ROW = 1.0  # of a rule set, on average
Push = Callable[[str, pa.Table], Any]


# -- rows -----------------------------------------------------------------------------------------


def batch(random: np.random.Generator, rows: int, since: float) -> pa.Table:
    """Rows from a time to now, in order: none is older than one before it, which would be late."""
    now = max(time.time(), since + 1e-3)
    at = np.linspace(since, now, rows, endpoint=False) * 1e6
    return pa.table(
        {
            "at": pa.array(at.astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(random.integers(0, SENSORS, rows, np.int32)),
            "g": pa.array(random.integers(0, SITES, rows, np.int32)),
            "v": pa.array(random.uniform(0, 100, rows)),
            "sent": pa.array(np.full(rows, now)),
        }
    )


@dataclass(slots=True)
class Producer:
    """Sends a batch of each stream a tick, in a thread of its own, until it is stopped."""

    push: Push
    streams: tuple[str, ...]
    rate: int  # rows a second in each stream
    seed: int
    sent: dict[str, list[pa.Table]] = field(default_factory=dict)
    pushes: list[float] = field(default_factory=list)
    failure: BaseException | None = None
    began: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Producer":
        self.began = time.time()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _work(self) -> None:
        random = np.random.default_rng(self.seed)
        due = time.time()
        reached = dict.fromkeys(self.streams, due - TICK_S)
        try:
            while not self._stop.is_set():
                for stream in self.streams:
                    rows = batch(random, int(self.rate * TICK_S), reached[stream])
                    reached[stream] = rows["sent"][0].as_py()
                    clock = time.perf_counter()
                    self.push(stream, rows)
                    self.pushes.append(time.perf_counter() - clock)
                    self.sent.setdefault(stream, []).append(rows)
                due = max(due + TICK_S, time.time() - TICK_S)
                time.sleep(max(0.0, due - time.time()))
        except BaseException as error:
            self.failure = error

    def rows(self, stream: str) -> pa.Table:
        return pa.concat_tables(self.sent[stream])

    def rows_sent(self) -> int:
        return sum(t.num_rows for tables in self.sent.values() for t in tables)


# -- queries --------------------------------------------------------------------------------------


def constant_of(number: int, count: int) -> float:
    return round(10 + 80 * (number + 0.5) / count, 3)


def cql(number: int, constant: float) -> str:
    match number % 3:
        case 0:
            return f"SELECT k, v, sent FROM a WHERE v > {constant}D"
        case 1:
            return (
                "SELECT g, avg(v) AS mean FROM a [RANGE 2 SECONDS SLIDE 1 SECOND]"
                f" WHERE v > {constant}D GROUP BY g"
            )
        case _:
            return (
                "SELECT x.k, x.v, y.v AS w, greatest(x.sent, y.sent) AS sent FROM a AS x"
                " [RANGE 5 SECONDS] JOIN b AS y [RANGE 5 SECONDS] ON x.k = y.k"
                f" WHERE x.v > {constant}D"
            )


def duckdb_sql(number: int, constant: float, start_us: int) -> str:
    """A live query over tables a and b, for rows from a start on; the time comes last."""
    start = f"make_timestamptz({start_us})"
    match number % 3:
        case 0:
            return f"SELECT k, v, sent, t FROM a WHERE v > {constant} AND t >= {start}"
        case 1:
            return (
                "WITH e AS (SELECT DISTINCT time_bucket(INTERVAL 1 SECOND, t) + INTERVAL (i)"
                " SECOND AS t FROM a, range(1, 3) AS x(i))"
                " SELECT g, avg(v) AS mean, e.t FROM e JOIN a ON a.t >= e.t - INTERVAL 2 SECOND"
                f" AND a.t < e.t WHERE v > {constant} AND e.t - INTERVAL 2 SECOND >= {start}"
                " GROUP BY g, e.t"
            )
        case _:
            return (
                "SELECT x.k, x.v, y.v AS w, greatest(x.sent, y.sent) AS sent,"
                " greatest(x.t, y.t) AS t FROM a AS x JOIN b AS y ON x.k = y.k"
                " AND greatest(x.t, y.t) <= least(x.t, y.t) + INTERVAL 5 SECOND"
                f" WHERE x.v > {constant} AND x.t >= {start} AND y.t >= {start}"
            )


def limits(random: np.random.Generator, count: int, rules: int) -> list[float]:
    """Limits of rules such that of so many rules a row meets few."""
    low = 100 - 200 * MATCHES_A_ROW / rules
    return [float(x) for x in random.uniform(max(0.0, low), 100, count)]


# -- delays ---------------------------------------------------------------------------------------


def known(rows: pa.Table) -> pa.ChunkedArray:
    """When all that a result needs was there, in seconds."""
    if "sent" in rows.column_names:
        return rows["sent"]
    return pc.divide(pc.cast(pc.cast(rows["ts"], pa.int64()), pa.float64()), 1e6)


@dataclass(slots=True)
class Delays:
    """When results came, and how old the latest row in each was."""

    seen: list[tuple[float, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, sent: pa.ChunkedArray) -> None:
        """Results of one batch; those that wait for the same push count as one."""
        now = time.time()
        with self.lock:
            self.seen += [(now, now - at) for at in pc.unique(sent).to_pylist() if at is not None]

    def figures(self, since: float, until: float = float("inf")) -> dict[str, float | int | None]:
        """Of results that came in a time."""
        found = sorted(delay for at, delay in self.seen if since <= at < until)
        if not found:
            return {"results": 0, "median_s": None, "p95_s": None, "p99_s": None}
        return {
            "results": len(found),
            "median_s": round(found[len(found) // 2], 3),
            "p95_s": round(found[int(len(found) * 0.95)], 3),
            "p99_s": round(found[int(len(found) * 0.99)], 3),
        }
