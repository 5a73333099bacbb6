"""`millstream bench replanning`: a real cluster whose load changes is planned again, and is right.

A manager and three processors, as processes. Two streams are pushed at a rate, and queries that
overlap (filters, windowed counts, joins, some of them word for word alike) are submitted one after
the other. Then one stream's rate doubles. Told are: how many queries run, when moves that planning
asked for begin and how many there are, how far results are behind their streams, how many bytes
readers have sent on for the owner, and whether every result has DuckDB's rows, each once.
"""

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from millstream.client.manager_client import ManagerClient
from millstream.client.pushing import entrance, posted
from millstream.client.results import ResultReader
from millstream.control.admission.estimates import CYCLE_S
from millstream.core.errors import MillstreamError
from millstream.edge.peers.local_cluster import LocalCluster

Progress = Callable[[str], None]
STREAMS = ("a", "b")
DOUBLED = "b"
KEYS = 200
TICK_S = 0.5  # between two batches of a stream
BEHIND_S_MAX = 2 * CYCLE_S
PLANNED_S_MAX = 30.0  # after the rate has doubled
END_S_MAX = 120.0  # for the rest, once the streams have ended
TEXTS = 24  # different ones


@dataclass(frozen=True, slots=True)
class Plan:
    """How much, and for how long."""

    queries: int = 60
    rate: int = 300  # rows a second of each stream, before one of them doubles
    # what processors say they have: rows enter at the first, which has little room for more
    cpu: tuple[float, ...] = (0.1, 0.8, 0.8)
    copies: float = 3.5  # of one stream's first rate: what the first processor may send
    settle_s: float = 30.0  # between the last query and the change
    watch_s: float = 600.0  # after it


QUICK = Plan(queries=12, cpu=(0.03, 0.25, 0.25), settle_s=10.0, watch_s=40.0)


@dataclass(slots=True)
class Feeder:
    """Pushes rows as time goes by; event time is the time since it began."""

    client: ManagerClient
    rate: dict[str, int]
    began: float = 0.0
    rows: dict[str, list[pa.Table]] = field(default_factory=lambda: {s: [] for s in STREAMS})
    trouble: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self.began = time.monotonic()
        for number, stream in enumerate(STREAMS):
            thread = threading.Thread(target=self._feed, args=(stream, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _feed(self, stream: str, seed: int) -> None:
        chance = np.random.default_rng(seed)
        sequence, done_s = 0, 0.0
        try:
            while not self._stop.wait(TICK_S):
                now_s = time.monotonic() - self.began
                count = round(self.rate[stream] * (now_s - done_s))
                if count == 0:
                    continue
                table = batch(chance, done_s, now_s, count)
                sequence, done_s = sequence + 1, now_s
                posted(self.client, stream, table, f"feeder {stream}", sequence)
                self.rows[stream].append(table)
            self.client.ask("POST", f"{entrance(self.client, stream)}/end", {})
        except MillstreamError as error:
            self.trouble = f"{stream}: {error.message}"

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60.0)

    def all(self, stream: str) -> pa.Table:
        return pa.concat_tables(self.rows[stream])


def batch(chance: np.random.Generator, begin_s: float, end_s: float, count: int) -> pa.Table:
    """Rows between two moments, in order of time; no time is on a window's edge."""
    at = np.sort(chance.integers(round(begin_s * 1000), round(end_s * 1000), count))
    return pa.table(
        {
            "ms": pa.array(at | 1, pa.int64()),
            "k": pa.array(chance.integers(0, KEYS, count), pa.int32()),
            "v": pa.array(chance.integers(0, 1000, count), pa.int32()),
        }
    )


def declared(name: str, rate: int) -> dict[str, Any]:
    return {
        "name": name, "source": "push", "rate": rate,
        "columns": {"ms": "long", "k": "int", "v": "int"}, "time": "timestamp_millis(ms)",
    }  # fmt: skip


def texts(number: int) -> tuple[str, str]:
    """A query, and what gives the same rows in DuckDB, by turns of three kinds.

    >>> texts(0)[1]
    'SELECT k, v FROM a WHERE v % 3 = 0'
    """
    some = number % TEXTS // 3
    match number % 3:
        case 0:
            where = f"v % {some + 3} = 0"
            return f"SELECT k, v FROM a WHERE {where}", f"SELECT k, v FROM a WHERE {where}"
        case 1:
            group = f"k % {some + 2}"
            return (
                f"SELECT {group} AS g, count(*) AS n, sum(v) AS s"
                f" FROM b [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY {group}",
                f"SELECT {group} AS g, count(*) AS n, sum(v) AS s FROM b GROUP BY ms // 5000, g",
            )
        case _:
            where = f"l.v + r.v < {200 + 50 * some}"
            return (
                "SELECT l.k AS k, l.v AS x, r.v AS y FROM a [RANGE 2 SECONDS] l"
                f" JOIN b [RANGE 2 SECONDS] r ON l.k = r.k WHERE {where}",
                "SELECT l.k AS k, l.v AS x, r.v AS y FROM a l JOIN b r ON l.k = r.k"
                f" WHERE abs(l.ms - r.ms) < 2000 AND {where}",
            )


def run(quick: bool = False, seed: int = 1, progress: Progress = print) -> dict[str, Any]:
    """All figures, ready for JSON. Rows are the same for every seed: what varies is the machine."""
    del seed
    return measure(QUICK if quick else Plan(), progress)


def measure(plan: Plan, progress: Progress) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    cluster = LocalCluster(
        folder / "cluster", len(plan.cpu), spark="local[1]", heap="700m",
        manager_options=("--placer", "sqpr", "--beat", "1", "-q"),
        processor_options=("--slots", "1"),
    )  # fmt: skip
    for member, cpu in zip(cluster.processors, plan.cpu, strict=True):
        member.arguments += ("--property", f"cpu={cpu}")
    first = cluster.processors[0]
    first.arguments += ("--property", f"bandwidth_out={plan.copies * plan.rate * 64:g}")
    try:
        progress(f"starting a manager and {len(plan.cpu)} processors")
        cluster.start()
        feeder = Feeder(cluster.client, dict.fromkeys(STREAMS, plan.rate))
        try:
            return _measured(cluster.client, feeder, plan, progress)
        finally:
            feeder.end()
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measured(
    client: ManagerClient, feeder: Feeder, plan: Plan, progress: Progress
) -> dict[str, Any]:
    for name in STREAMS:
        client.declare(declared(name, plan.rate), processor="p1")
    client.start_streams()
    taken, refused = _submitted(client, plan.queries, progress)
    progress(f"{len(taken)} queries run on {_spread(client)}; {len(refused)} were refused")
    feeder.start()
    worst = _watched(client, taken, plan.settle_s)
    before = {m["id"] for m in client.moves()}
    feeder.rate[DOUBLED] *= 2
    changed = time.monotonic()
    progress(f"stream {DOUBLED} brings twice as much from now on")
    planned: list[float] = []
    behind: list[float] = []
    while (since := time.monotonic() - changed) < plan.watch_s:
        time.sleep(1.0)
        behind.append(_behind(client, taken))
        if not planned and any(m["id"] not in before for m in client.moves()):
            planned.append(since)
    moves = [m for m in client.moves() if m["id"] not in before]
    reasons = sorted({m["reason"] for m in moves})
    relayed = _relayed(client)
    routes = [e for e in client.placement()["edges"] if e["relayed_by"]]
    feeder.end()
    if feeder.trouble:
        raise MillstreamError(f"rows could not be pushed: {feeder.trouble}")
    wrong = _wrong(client, feeder, taken)
    figures: dict[str, Any] = {
        "queries": len(taken), "refused": refused, "places": _spread(client),
        "rows": {s: feeder.all(s).num_rows for s in STREAMS},
        "behind_s_before": round(worst, 2),
        "behind_s": round(max(behind), 2),
        "behind_s_end": round(max(behind[-10:]), 2),
        "planned_after_s": round(planned[0], 1) if planned else None,
        "moves": len(moves), "reasons": reasons, "relayed_bytes": relayed,
        "relays": sorted({f"{e['stream']}: {e['relayed_by']} to {e['to']}" for e in routes}),
        "wrong": wrong,
    }  # fmt: skip
    figures["targets"] = targets(figures, plan)
    for target in figures["targets"]:
        progress(f"{'met' if target['met'] else 'NOT MET'}: {target['what']}")
    return figures


def targets(figures: dict[str, Any], plan: Plan) -> list[dict[str, Any]]:
    """What was asked for, and whether it was so."""
    after = figures["planned_after_s"]
    return [
        {
            "what": "every query is taken", "measured": figures["queries"],
            "target": plan.queries, "met": figures["queries"] == plan.queries,
        },
        {
            "what": "moves begin soon after the rate has doubled, s", "measured": after,
            "target": f"<= {PLANNED_S_MAX:g}",
            "met": after is not None and after <= PLANNED_S_MAX,
        },
        {
            "what": "every result stays near its streams, s behind at most",
            "measured": figures["behind_s"], "target": f"<= {BEHIND_S_MAX:g}",
            "met": figures["behind_s"] <= BEHIND_S_MAX,
        },
        {
            "what": "every result has DuckDB's rows, each once", "measured": figures["wrong"],
            "target": [], "met": not figures["wrong"],
        },
    ]  # fmt: skip


def _submitted(
    client: ManagerClient, count: int, progress: Progress
) -> tuple[dict[str, int], dict[str, str]]:
    taken: dict[str, int] = {}
    refused: dict[str, str] = {}
    for number in range(count):
        name = f"q{number:02}"
        try:
            client.submit(name, texts(number)[0], from_beginning=True, wait_s=120.0)
            taken[name] = number
        except MillstreamError as error:
            refused[name] = error.message
            progress(f"{name}: {error.message}")
    return taken, refused


def _watched(client: ManagerClient, names: dict[str, int], seconds: float) -> float:
    """The most that a result is behind, of the second half of that time."""
    seen = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(1.0)
        seen.append(_behind(client, names))
    return max(seen[len(seen) // 2 :], default=0.0)


def _behind(client: ManagerClient, names: dict[str, int]) -> float:
    """How far the latest result is behind the streams, in event time; a windowed count waits for
    its window's end."""
    marks = {q["name"]: q["watermark_us"] for q in client.queries()}
    heads = [s["figures"].get("watermark_us") for s in client.streams().values()]
    if any(head is None for head in heads):
        return 0.0
    head = min(heads) / 1e6
    late = [head - (marks[name] or 0) / 1e6 for name in names]
    return max(late, default=0.0)


def _spread(client: ManagerClient) -> dict[str, int]:
    return dict(Counter(o["processor"] for o in client.placement()["operators"]))


def _relayed(client: ManagerClient) -> int:
    edges = {(e["stream"], e["to"]): e["figures"] for e in client.placement()["edges"]}
    return int(sum(f.get("relayed_bytes", 0) for f in edges.values()))


def _wrong(client: ManagerClient, feeder: Feeder, taken: dict[str, int]) -> list[str]:
    """Queries whose rows are not DuckDB's, once they have ended."""
    streams = {name: feeder.all(name) for name in STREAMS}
    known: dict[int, Counter[tuple[Any, ...]]] = {}
    found = []
    with duckdb.connect() as db:
        for name, table in streams.items():
            db.register(name, table)
        for name, number in taken.items():
            text = number % TEXTS
            if text not in known:
                known[text] = Counter(db.execute(texts(text)[1]).fetchall())
            got = Counter(_rows(client, name))
            if got != known[text]:
                missing, more = known[text] - got, got - known[text]
                found.append(f"{name}: {missing.total()} missing, {more.total()} too many")
    return found


def _rows(client: ManagerClient, name: str) -> Iterator[tuple[Any, ...]]:
    reader = ResultReader(client, name, 1)
    deadline = time.monotonic() + END_S_MAX
    columns: tuple[str, ...] = ()
    while time.monotonic() < deadline:
        for page in reader.pages(1.0):
            if page.table is not None:
                columns = columns or tuple(n for n in page.table.column_names if n != "ts")
                yield from zip(*(page.table.column(n).to_pylist() for n in columns), strict=True)
            if page.ended:
                return
        if reader.ended:
            return
