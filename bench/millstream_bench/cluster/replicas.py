"""What a second copy of every home costs: rows a second with 1 replica and with 2, by turns.

Two clusters of two processors run side by side, one of them with `--replicas 2`. Producers post
numbered batches to one of the two for a while, then to the other, and so on; a reader takes the
result. A turn is over when every result row of what was posted has been read. With two replicas
neither a producer nor a reader is answered before the follower has synced what it depends on, so
both ends of a row's way are measured. The cluster that rests costs the same in every turn.
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

from millstream.client.manager_client import ManagerClient
from millstream.client.pushing import posted
from millstream.client.results import ResultReader
from millstream.core.errors import ResourceError
from millstream.edge.peers.local_cluster import LocalCluster

REPLICAS = (1, 2)
TARGET = 0.15  # of throughput
TURNS, BATCHES, ROWS = 5, 60, 5_000
PRODUCERS = 4
KEEP_EACH = 10  # one row in so many is a result row
WARM_TURNS = 2
TURN_SECONDS_MAX = 240.0
TABLE = {
    "name": "a", "source": "push", "columns": {"at": "long", "k": "long", "v": "double"},
    "time": "timestamp_micros(at)", "lateness": "1 minute",
}  # fmt: skip
CQL = f"SELECT k, v * 2 AS v FROM a WHERE k % {KEEP_EACH} = 0"
Say = Callable[[str], None]


class Side:
    """A cluster with so many replicas, with one query, its producers and its reader."""

    def __init__(self, folder: Path, replicas: int, say: Say) -> None:
        options = ("--replicas", str(replicas)) if replicas > 1 else ()
        self.replicas, self._say = replicas, say
        self.cluster = LocalCluster(
            folder, 2, spark="local[1]", manager_options=(*options, "--pattern", "grouping"),
        )  # fmt: skip
        self._sent = 0  # batches, by all producers
        self._read: list[int] = []
        self._numbers = [0] * PRODUCERS  # of the last batch of each

    def begin(self) -> None:
        self.cluster.start()
        client = self.cluster.client
        client.declare(TABLE, processor="p1")
        told = client.submit("q", CQL, from_beginning=True, wait_s=TURN_SECONDS_MAX)
        if told["state"] != "running":
            raise ResourceError(f"the query is {told['state']}", detail=str(told.get("reason")))
        client.start_streams()
        self._reader = ResultReader(client, "q")

    def turn(self, batches: int, rows: int) -> float:
        """Rows a second from the first post to the last result row."""
        first, self._sent = self._sent, self._sent + batches
        clock = time.monotonic()
        failed: list[BaseException] = []
        threads = [
            threading.Thread(
                target=self._produce, args=(n, range(first, self._sent), rows, failed), daemon=True
            )
            for n in range(PRODUCERS)
        ]
        for thread in threads:
            thread.start()
        wanted = self._sent * rows // KEEP_EACH
        while len(self._read) < wanted:
            if failed:
                raise failed[0]
            if time.monotonic() > clock + TURN_SECONDS_MAX:
                raise ResourceError(f"{len(self._read)} of {wanted} result rows came")
            for page in self._reader.pages(0.5):
                if page.table is not None:
                    self._read += page.table["k"].to_pylist()
        return batches * rows / (time.monotonic() - clock)

    def _produce(self, number: int, batches: range, rows: int, failed: list[BaseException]) -> None:
        try:
            with ManagerClient(self.cluster.url) as client:
                for batch in batches[number::PRODUCERS]:
                    self._numbers[number] += 1
                    producer = f"producer {number}"
                    posted(client, "a", block(batch, rows), producer, self._numbers[number])
        except BaseException as error:
            failed.append(error)

    def is_right(self, rows: int) -> bool:
        """Whether each result row came once."""
        return sorted(self._read) == list(range(0, self._sent * rows, KEEP_EACH))


def block(batch: int, rows: int) -> pa.Table:
    """Batches overlap in time: producers post them in any order.

    >>> block(3, 2).to_pylist()
    [{'at': 6, 'k': 6, 'v': 6.0}, {'at': 7, 'k': 7, 'v': 7.0}]
    """
    keys = np.arange(batch * rows, (batch + 1) * rows)
    return pa.table({"at": keys, "k": keys, "v": keys.astype(float)})


def run(quick: bool = False, progress: Say = print) -> dict[str, Any]:
    """Rows a second of both sides, and what the second replica costs."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processes end with us
    turns, batches, rows = (1, 8, 500) if quick else (TURNS, BATCHES, ROWS)
    with tempfile.TemporaryDirectory(prefix="millstream-replicas-") as name:
        sides = [Side(Path(name) / f"r{n}", n, progress) for n in REPLICAS]
        try:
            for side in sides:
                side.begin()
            for _ in range(1 if quick else WARM_TURNS):
                for side in sides:
                    side.turn(batches, rows)
            found: dict[int, list[float]] = {n: [] for n in REPLICAS}
            for number in range(turns):
                for side in sides if number % 2 == 0 else sides[::-1]:
                    found[side.replicas].append(side.turn(batches, rows))
                    progress(
                        f"turn {number + 1}, {side.replicas} replicas: "
                        f"{found[side.replicas][-1]:,.0f} rows/s"
                    )
            right = all(side.is_right(rows) for side in sides)
        finally:
            for side in sides:
                side.cluster.stop()
    return _told(found, right, progress)


def _told(found: dict[int, list[float]], right: bool, say: Say) -> dict[str, Any]:
    one, two = (statistics.median(found[n]) for n in REPLICAS)
    cost = 1 - two / one
    met = right and cost <= TARGET
    say(
        f"1 replica {one:,.0f} rows/s, 2 replicas {two:,.0f} rows/s: {cost:.1%} less, "
        f"{TARGET:.0%} allowed, results {'right' if right else 'WRONG'} -> "
        f"{'met' if met else 'missed'}"
    )
    return {
        "rows_s": {str(n): [round(rate, 1) for rate in rates] for n, rates in found.items()},
        "rows_s_one": round(one, 1), "rows_s_two": round(two, 1), "cost": round(cost, 4),
        "right": right, "met": met,
    }  # fmt: skip
