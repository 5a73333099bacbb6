"""Three real processors balance a skewed load by themselves, no manager among them.

All queries are put on the first processor; as long as somebody speaks for a manager, and for half a
minute after, nobody moves anything, which gives the peer: the load as it was placed. Then they
balance. The standard deviation of their loads must fall by half within a minute, and every result
must be what it is without moves. The deviation is the seed's (section 4.1), over the last ten
seconds. The seed's load is the time that processors are busy; what they balance by is the time that
is needed (decide/balance/needed_time.py). The target must hold for both.
"""

import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.control.protocol.commands import (
    Compile,
    Declare,
    Hold,
    Host,
    Release,
    StartStream,
    TakeInventory,
)
from millstream.core.errors import AwayError, ResourceError
from millstream.edge.http.reserved_port import KeptPort
from millstream.edge.processor.client import ProcessorClient
from millstream_bench.cluster.daemon import Daemon

PROCESSORS = 3
JOINS, COUNTS = 6, 3
PACE_SECONDS = 2.0  # so that three processors fit on two cores after jobs were split
FLOW_SECONDS = 0.5  # between files
FLOW_ROWS = 1_000  # of each stream, a file
STEP_US = 500  # of event time between rows: as fast as they come
BEFORE_SECONDS = 15.0  # of load as it was placed, at the end of the time without moves
BUSY = 0.3
STEADY, STEADY_SECONDS = 0.9, 20.0  # busy for this share of what it was so long before
WARM_SECONDS = 300.0
MINUTE_SECONDS = 60.0  # within which the deviation must fall by half
AFTER_SECONDS = 120.0
OVER_SECONDS = 10.0
SETTLE_SECONDS = 300.0
Say = Callable[[str], None]


def _balanced(peers: Iterable[str]) -> tuple[str, ...]:
    own = ("--slots", "1", "--pace", str(PACE_SECONDS))
    return ("--balance", "placement", "--peers", ",".join(peers), *own)


class Flow:
    """Two streams as folders that grow while this lasts: the same keys in both."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, 0
        self._files = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)

    def table(self, name: str) -> dict[str, Any]:
        return {
            "name": name, "path": str(self.folder / name), "format": "parquet", "follow": True,
            "columns": {"at": "long", "k": "long", "v": "long"}, "time": "timestamp_micros(at)",
        }  # fmt: skip

    def _run(self) -> None:
        while not self._stopping.wait(FLOW_SECONDS):
            self._write()

    def _write(self) -> None:
        keys = np.arange(self.written, self.written + FLOW_ROWS)
        for name, modulus in (("a", 97), ("b", 89)):
            rows = {"at": keys * STEP_US, "k": keys, "v": keys % modulus}
            draft = self.folder / name / f".{self._files:06d}.parquet"
            pq.write_table(pa.table({c: pa.array(v) for c, v in rows.items()}), draft)
            draft.rename(self.folder / name / f"{self._files:06d}.parquet")
        self.written += FLOW_ROWS
        self._files += 1

    def __enter__(self) -> "Flow":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def queries() -> dict[str, str]:
    """Joins and counts that share nothing but the streams."""
    found = {
        f"join{n}": f"SELECT x.k AS k, x.v AS v, y.v AS w FROM a [RANGE {n + 1} SECONDS] x "
        f"JOIN b [RANGE {n + 1} SECONDS] y ON x.k = y.k WHERE x.v > y.v + {10 * n}"
        for n in range(JOINS)
    }
    for n in range(COUNTS):
        found[f"count{n}"] = (
            f"SELECT k % {n + 3} AS g, count(*) AS c, sum(v) AS s FROM a "
            f"[RANGE {2 * n + 2} SECONDS SLIDE {n + 1} SECONDS] GROUP BY k % {n + 3}"
        )
    return found


def run(quick: bool = False, progress: Say = print) -> dict[str, Any]:
    """Loads before and after, what moved, and whether results are right."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processors end with us
    with tempfile.TemporaryDirectory(prefix="millstream-balancing-") as name:
        folder = Path(name)
        kept = [KeptPort() for _ in range(PROCESSORS)]
        urls = [f"http://127.0.0.1:{port.number}" for port in kept]
        daemons = [
            Daemon(f"p{n}", folder, _balanced(u for u in urls if u != urls[n]), port)
            for n, port in enumerate(kept)
        ]
        try:
            for daemon in daemons:
                daemon.wait()
            return _measure(folder, [d.client for d in daemons], quick, progress)
        finally:
            for daemon in daemons:
                daemon.stop()


def _measure(folder: Path, clients: list[ProcessorClient], quick: bool, say: Say) -> dict[str, Any]:
    flow, texts = Flow(folder / "flow"), queries()
    if quick:
        texts = {name: cql for name, cql in texts.items() if name[-1] in "012"}
    for number, client in enumerate(clients):
        client.do(*(Declare(flow.table(s), ingest=number == 0) for s in ("a", "b")))
    for name, cql in texts.items():
        _deploy(name, cql, clients[0])
    clients[0].do(StartStream("a"), StartStream("b"))
    with flow:
        _led(clients, say)
        say("the processors are left alone; without a manager for half a minute they begin")
        before = _watch(clients, say, lambda seen: not any(s["led"] for s in seen))
        still = _deviation(before, BEFORE_SECONDS)
        say(f"load as placed: deviation {still:.3f}; now they balance")
        begun = time.monotonic()
        after = _watch(clients, say, lambda _: time.monotonic() - begun > AFTER_SECONDS)
    in_a_minute = [one for one in after if one.at_s <= begun + MINUTE_SECONDS]
    minute = _deviation(in_a_minute, OVER_SECONDS)
    busy_still = _deviation(before, BEFORE_SECONDS, "busy")
    busy_minute = _deviation(in_a_minute, OVER_SECONDS, "busy")
    wrong = _wrong(clients, texts, flow.written)
    seen = [_seen(client) for client in clients]
    halved = [
        look.at_s
        for number, look in enumerate(after, 1)
        if look.at_s >= begun + OVER_SECONDS
        and _deviation(after[:number], OVER_SECONDS) <= still / 2
    ]
    result = {
        "queries": len(texts),
        "rows": 2 * flow.written,
        "deviation_before": round(still, 4),
        "deviation_after_a_minute": round(minute, 4),
        "deviation_after": round(_deviation(after, OVER_SECONDS), 4),
        "ratio": round(minute / max(still, 1e-9), 3),
        "halved_after_s": round(min(halved) - begun, 1) if halved else None,
        "busy_deviation_before": round(busy_still, 4),
        "busy_deviation_after_a_minute": round(busy_minute, 4),
        "busy_deviation_after": round(_deviation(after, OVER_SECONDS, "busy"), 4),
        "loads_before": _means(before, BEFORE_SECONDS),
        "loads_after": _means(after, OVER_SECONDS),
        "moves": sum(s["moved"] for s in seen),
        "undone": sum(s["undone"] for s in seen),
        "operators": {s["processor"]: len(s["operators"]) for s in seen},
        "wrong": wrong,
        "met": max(minute / still, busy_minute / busy_still) <= 0.5 and not wrong,
    }
    say(
        f"deviation of load {result['deviation_before']} -> {result['deviation_after_a_minute']} "
        f"in a minute, {result['deviation_after']} in two "
        f"({result['moves']} moves, halved after {result['halved_after_s']} s); "
        f"of busy time {result['busy_deviation_before']} -> "
        f"{result['busy_deviation_after_a_minute']}, {result['busy_deviation_after']}; "
        f"results {'differ: ' + ', '.join(wrong) if wrong else 'are right'} "
        f"-> {'met' if result['met'] else 'missed'}"
    )
    return result


def _deploy(query: str, cql: str, where: ProcessorClient) -> None:
    streams = ("s:a", "s:b")
    (held,) = where.do(Hold(query, streams))
    start = max(m.watermark for m in held.streams.values())
    (compiled,) = where.do(Compile(cql))
    names = tuple(o.id for o in compiled.starting(start).operators)
    where.do(Host(query, cql, start, names, result=True), Release(query, streams))


def _seen(client: ProcessorClient) -> dict[str, Any]:
    return client.get("/balance")


@dataclass(frozen=True, slots=True)
class Look:
    """All processors at a moment."""

    at_s: float
    load: list[float]  # share of the time that what they run needs
    busy: list[float]  # share of the time that they spent in steps


Looks = list[Look]


def _led(clients: list[ProcessorClient], say: Say) -> Looks:
    """As long as a manager asks, nobody moves anything: until the first processor is busy, with its
    first and slowest steps behind it. A load that falls by itself would prove nothing."""
    deadline = time.monotonic() + WARM_SECONDS
    busy: list[tuple[float, float]] = []

    def mean(back_s: float, until_s: float) -> float:
        return statistics.fmean([b for at, b in busy if back_s < at <= until_s] or [0.0])

    def enough(seen: list[dict[str, Any]]) -> bool:
        for client in clients:
            client.do(TakeInventory())
        now = time.monotonic()
        busy.append((now, seen[0]["busy"]))
        lately = mean(now - STEADY_SECONDS, now)
        if now > deadline and lately < BUSY:
            raise ResourceError("the load never came about")
        before = mean(now - 2 * STEADY_SECONDS, now - STEADY_SECONDS)
        steady = lately >= max(BUSY, STEADY * before) and now - busy[0][0] > 2 * STEADY_SECONDS
        return (steady and not any(s["priming"] for s in seen)) or now > deadline

    return _watch(clients, say, enough)


def _watch(
    clients: list[ProcessorClient], say: Say, enough: Callable[[list[dict[str, Any]]], bool]
) -> Looks:
    """Loads once a second, until it is enough."""
    found: Looks = []
    while True:
        seen = [_seen(client) for client in clients]
        loads, busy = ([float(s[what]) for s in seen] for what in ("load", "busy"))
        found.append(Look(time.monotonic(), loads, busy))
        if len(found) % 5 == 1:
            told = (f"{s['processor']} {s['load']:.2f} (busy {s['busy']:.2f})" for s in seen)
            say(f"{'  '.join(told)}  moves {sum(s['moved'] for s in seen)}")
        if enough(seen):
            return found
        time.sleep(1.0)


def _last(looks: Looks, seconds: float) -> Looks:
    return [look for look in looks if look.at_s >= looks[-1].at_s - seconds]


def _deviation(looks: Looks, seconds: float, what: str = "load") -> float:
    return statistics.fmean(statistics.stdev(getattr(one, what)) for one in _last(looks, seconds))


def _means(looks: Looks, seconds: float) -> list[float]:
    columns = zip(*(look.load for look in _last(looks, seconds)), strict=True)
    return [round(statistics.fmean(column), 3) for column in columns]


# -- results --------------------------------------------------------------------------------------


def _wrong(clients: list[ProcessorClient], texts: dict[str, str], written: int) -> list[str]:
    """Queries whose rows are not those of the whole input; waits until all have come."""
    deadline = time.monotonic() + SETTLE_SECONDS
    waiting = dict(texts)
    while waiting and time.monotonic() < deadline:
        for name in list(waiting):
            if _right(name, _rows(clients, name), written):
                del waiting[name]
        time.sleep(1.0)
    return sorted(waiting)


def _right(name: str, rows: list[dict[str, Any]], written: int) -> bool:
    number = int(name[-1])
    if name.startswith("join"):
        wanted = [k for k in range(written) if k % 97 > k % 89 + 10 * number]
        return sorted(int(r["k"]) for r in rows) == wanted
    length, slide, groups = 2 * number + 2, number + 1, number + 3
    last = (written - 1) * STEP_US  # the watermark: windows up to it have been given
    expected: Counter[tuple[int, int, int]] = Counter()
    for end in range(slide, last // 1_000_000 + 1, slide):
        low = max(0, -(-(end - length) * 1_000_000 // STEP_US))
        high = min(written, -(-end * 1_000_000 // STEP_US))
        keys = np.arange(low, high)
        for group in range(groups):
            mine = keys[keys % groups == group]
            if len(mine):
                expected[group, len(mine), int((mine % 97).sum())] += 1
    return Counter((int(r["g"]), int(r["c"]), int(r["s"])) for r in rows) == expected


def _rows(clients: list[ProcessorClient], query: str) -> list[dict[str, Any]]:
    """All rows of a result, from whoever has it now."""
    for client in clients:
        found: list[dict[str, Any]] = []
        following = 0
        try:
            while True:
                answer = client.get(f"/queries/{query}/rows", after=following)
                if answer["moved"]:
                    break
                found += answer["rows"]
                if answer["next"] == following or not answer["rows"]:
                    return found
                following = answer["next"]
        except AwayError:
            continue
    return []
