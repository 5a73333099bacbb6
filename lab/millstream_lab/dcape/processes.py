"""Experiments dcape-4.3, 4.4, 4.6 and 4.8 to 4.10: what real processors and a manager can bear.

Real processes on this machine; times vary with what else it does, so findings compare within one
run. A full run takes minutes, a quick one about one.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from statistics import median
from typing import Any

from millstream.client.manager_client import ManagerClient
from millstream.core.errors import MillstreamError
from millstream.edge.peers.local_cluster import LocalCluster
from millstream.edge.peers.peers import HttpPeers
from millstream.sim.plotting import mark_claim, mark_seed
from millstream.store.moves.records import Place
from millstream_lab.claims import Bound, Claim, Row, Rows, at_least, at_most, change, mean, numbers
from millstream_lab.dcape.cluster import (
    cluster,
    cpu_s,
    queries_over,
    resident_mb,
    stream_table,
    tree,
    until,
    write_rows,
)
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress

DRAIN_S = 300.0
BEAT_S = 0.3  # between reports: the end of a run is seen in them
CALM_SHARE, CALM_S_MAX = 0.2, 60.0  # of a CPU: what a processor takes once it has started


def drained(
    client: ManagerClient, streams: Sequence[str], names: Sequence[str]
) -> Callable[[], bool]:
    """Whether the streams have ended and nothing waits before any operator of the queries."""

    def look() -> bool:
        told = client.streams()
        if not all(told[name]["figures"].get("ended") for name in streams):
            return False
        operators = [o for name in names for o in client.query(name)["operators"]]
        return all(o["figures"] and not o["figures"].get("queue_rows") for o in operators)

    return look


def rows_per_s(made: LocalCluster, label: str, rows: int, count: int, seed: int) -> float:
    """Input rows a second from the start of the streams to the end of all results."""
    folder, client = made.folder / f"input-{label}", made.client
    streams = [f"{side}{label}" for side in ("a", "b")]
    for side, name in enumerate(streams):
        write_rows(folder / f"{name}.parquet", rows, seed + side)
        client.declare(stream_table(name, folder / f"{name}.parquet"))
    made_up = queries_over(streams[0], streams[1], count)
    asked = {f"{name}{label}": cql for name, cql in made_up.items()}
    for name, cql in asked.items():
        client.submit(name, cql, from_beginning=True)
    began = time.monotonic()
    client.start_streams(streams)
    until(drained(client, streams, list(asked)), DRAIN_S, "the run")
    taken = time.monotonic() - began
    for name in asked:
        client.drop(name, wait_s=30.0)
    return 2 * rows / taken


@contextmanager
def repeated(action: Callable[[], object], per_s: float) -> Iterator[list[int]]:
    """Does something so often while the block runs; gives how often it was done."""
    stop, done = threading.Event(), [0]

    def loop() -> None:
        due = time.monotonic()
        while not stop.is_set():
            with suppress(MillstreamError):
                action()
                done[0] += 1
            due = max(due + 1 / per_s, time.monotonic() - 1)
            stop.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=loop, daemon=True)
    if per_s > 0:
        thread.start()
    yield done
    stop.set()
    if per_s > 0:
        thread.join(10)


def requests(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """4.3: throughput of a processor that is asked for its figures ever more often."""
    from millstream.control.protocol.commands import Report  # noqa: PLC0415
    from millstream.edge.processor.client import ProcessorClient  # noqa: PLC0415

    rates = (0, 50) if quick else (0, 10, 50, 100, 200, 500, 1000)
    rows_in, count = (20_000, 4) if quick else (200_000, 20)
    rows: list[Row] = []
    with cluster(1, progress, beat_s=BEAT_S) as made:
        asking = ProcessorClient("p1", made.processors[0].url)
        progress("warming up")
        rows_per_s(made, "warm", rows_in, count, seed)
        for rate in rates:
            progress(f"{rate} requests a second")
            with repeated(lambda: asking.ask(Report()), rate) as done:
                began = time.monotonic()
                found = rows_per_s(made, f"r{rate}", rows_in, count, seed)
                reached = done[0] / (time.monotonic() - began)
            rows.append(
                {"requests_wanted": rate, "requests": round(reached, 1), "rows_per_s": round(found)}
            )
        asking.close()
    return rows


def waiting(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001  (no chance in it)
    """4.4: CPU of a processor whose consumers are told of news, and of one they keep asking."""
    seconds, consumers = (5.0, 4) if quick else (30.0, 12)
    rows: list[Row] = []
    with cluster(1, progress, beat_s=BEAT_S) as made:
        member = made.processors[0]
        write_rows(made.folder / "s.parquet", 1000, 1)
        made.client.declare(stream_table("s", made.folder / "s.parquet", rate=1.0), start=True)
        pid = member.process.pid if member.process else 0
        peers = HttpPeers()
        peer = peers(Place("p1", member.url))
        progress("until it has calmed down")
        _calm(pid)
        for way, wait, pause in (("told", seconds, 0.0), ("polling", 0.0, 0.02)):
            progress(f"{consumers} consumers, {way}")
            before = sum(map(cpu_s, tree(pid)))
            asked = _wait_together(partial(_look, peer, way, wait), consumers, pause, seconds)
            spent = sum(map(cpu_s, tree(pid))) - before
            rows.append(
                {
                    "way": way,
                    "consumers": consumers,
                    "asked_per_s": round(asked / seconds, 1),
                    "cpu_share": round(spent / seconds, 4),
                }
            )
        peers.close()
    return rows


def _calm(pid: int) -> None:
    """Waits until a process that has just started has loaded and compiled what it needs."""
    deadline = time.monotonic() + CALM_S_MAX
    while time.monotonic() < deadline:
        before = sum(map(cpu_s, tree(pid)))
        time.sleep(2.0)
        if (sum(map(cpu_s, tree(pid))) - before) / 2.0 < CALM_SHARE:
            return


def _look(peer: Any, way: str, wait: float, number: int) -> None:
    with suppress(MillstreamError):
        peer.page("s:s", 10**9, f"{way}{number}", 0, wait)


def _wait_together(look: Callable[[int], None], count: int, pause: float, seconds: float) -> int:
    """How often they looked, all together."""
    deadline = time.monotonic() + seconds
    looked = [0] * count

    def loop(number: int) -> None:
        while time.monotonic() < deadline:
            look(number)
            looked[number] += 1
            time.sleep(pause)

    threads = [threading.Thread(target=loop, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 30)
    return sum(looked)


def connections(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """4.6: throughput of a processor whose base stream ever more consumers fetch as it works."""
    counts = (0, 4) if quick else (0, 2, 4, 8, 12, 24)
    rows_in, queries = (20_000, 2) if quick else (200_000, 8)
    rows: list[Row] = []
    with cluster(1, progress, beat_s=BEAT_S) as made:
        progress("warming up")
        rows_per_s(made, "warm", rows_in, queries, seed)
        for count in counts:
            progress(f"{count} connections")
            stop = threading.Event()
            fetchers = [
                threading.Thread(
                    target=_fetch_all,
                    args=(made.processors[0].url, f"s:ac{count}", f"c{n}", stop),
                    daemon=True,
                )
                for n in range(count)
            ]
            for fetcher in fetchers:
                fetcher.start()
            found = rows_per_s(made, f"c{count}", rows_in, queries, seed)
            stop.set()
            for fetcher in fetchers:
                fetcher.join(30)
            rows.append({"connections": count, "rows_per_s": round(found)})
    return rows


def _fetch_all(url: str, stream: str, consumer: str, stop: threading.Event) -> None:
    """What a consuming processor does: asks for segments, fetches, acknowledges."""
    peers = HttpPeers()
    peer = peers(Place("p1", url))
    following = None
    while not stop.is_set():
        try:
            if following is None:
                following, _ = peer.expect(stream, consumer)
            page = peer.page(stream, following, consumer, 0, 1.0)
            for segment in page.segments:
                for _ in peer.fetch(stream, segment.first, segment.last):
                    pass
                following = segment.last + 1
            peer.acknowledge(stream, consumer, following)
        except MillstreamError:
            stop.wait(0.2)  # the stream is not there yet
    with suppress(MillstreamError):
        peer.unexpect(stream, consumer)
    peers.close()


_managed: dict[tuple[int, bool], list[Row]] = {}  # figures 4.8 to 4.10 show the same run


def manager(seed: int, quick: bool, progress: Progress) -> list[Row]:
    if (seed, quick) not in _managed:
        _managed[seed, quick] = managed(seed, quick, progress)
    return _managed[seed, quick]


def managed(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """4.8 to 4.10: a manager with five processors while queries run; a sample a second."""
    count, queries, seconds = (2, 4, 10.0) if quick else (5, 20, 60.0)
    rows: list[Row] = []
    with cluster(count, progress) as made:
        for side, name in enumerate(("a", "b")):
            write_rows(made.folder / f"{name}.parquet", 200_000, seed + side)
            made.client.declare(stream_table(name, made.folder / f"{name}.parquet", rate=100.0))
        pid = made.manager.process.pid if made.manager.process else 0
        phases = (("planning", lambda: _submit(made, queries)), ("quiet", lambda: None))
        for phase, act in phases:
            progress(phase)
            worker = threading.Thread(target=act, daemon=True)
            worker.start()
            until_s = time.monotonic() + seconds
            while worker.is_alive() or time.monotonic() < until_s:
                rows.append({"processors": count, **_second(made, pid, phase)})
            worker.join()
    return rows


def _submit(made: LocalCluster, count: int) -> None:
    for name, cql in queries_over("a", "b", count).items():
        made.client.submit(name, cql, from_beginning=True)
    made.client.start_streams(["a", "b"])


def _second(made: LocalCluster, pid: int, phase: str) -> Row:
    traffic, cpu, began = made.client.status()["traffic"], cpu_s(pid), time.monotonic()
    time.sleep(1.0)
    after, taken = made.client.status()["traffic"], time.monotonic() - began
    return {
        "phase": phase,
        "cpu": round((cpu_s(pid) - cpu) / taken, 4),
        "bytes_in": round((after["in_bytes"] - traffic["in_bytes"]) / taken, 1),
        "bytes_out": round((after["out_bytes"] - traffic["out_bytes"]) / taken, 1),
        "memory_mb": round(resident_mb(pid), 1),
    }


def line(
    x: str, y: str, unit: str, claim: str, figure_y: float | None = None
) -> Callable[[Sequence[Row], Any], None]:
    """A line over a number, bars over names, or a course over seconds where x is empty."""

    def plot(rows: Sequence[Row], figure: Any) -> None:
        axis = figure.subplots()
        values = [row[y] for row in rows]
        if not x:
            axis.plot(values)
        elif isinstance(rows[0][x], str):
            axis.bar([row[x] for row in rows], values, 0.5)
        else:
            axis.plot([row[x] for row in rows], values, marker="o")
        if figure_y is not None:
            mark_seed(axis, y=figure_y, text=f"{figure_y:g}")
            axis.legend(fontsize=7)
        axis.set(xlabel=x or "seconds", ylabel=unit, ylim=(0, None))
        mark_claim(axis, claim)

    return plot


# -- claims ---------------------------------------------------------------------------------------


def _loss(rows: Rows) -> float:
    """The worst change of throughput by up to 50 requests a second."""
    alone = mean(rows, "rows_per_s", requests_wanted=0)
    asked = [n for n in numbers(rows, "requests_wanted") if 0 < n <= 50]
    return min(change(mean(rows, "rows_per_s", requests_wanted=n), alone) for n in asked)


def _most_asked(rows: Rows) -> float:
    return max(numbers(rows, "requests_wanted"))


def _by(column: str, y: str) -> Callable[[Rows], str]:
    return lambda rows: ", ".join(f"{row[column]}: {row[y]:,}" for row in rows)


REQUESTS = Claim(
    "no loss of throughput up to 50 requests a second",
    at_least("worst change up to 50 requests a second", _loss, 0.0, 0.1, "+%"),
    (at_least("requests a second tried", _most_asked, 1000),),
    _by("requests", "rows_per_s"),
)


def _told_over_polling(rows: Rows) -> float:
    return mean(rows, "cpu_share", way="told") / max(mean(rows, "cpu_share", way="polling"), 1e-9)


WAITING = Claim(
    "receivers and distributors that are notified leave more CPU than polling ones",
    at_most("CPU when told of news over CPU when polled", _told_over_polling, 0.9),
    (
        at_least("consumers", lambda rows: max(numbers(rows, "consumers")), 12),
        # A machine that is too busy for the polling makes it look cheap.
        at_least("polls a second", lambda rows: mean(rows, "asked_per_s", way="polling"), 300),
    ),
    _by("way", "cpu_share"),
)


def _at_most_connections(rows: Rows) -> float:
    counts = numbers(rows, "connections")
    few, many = min(counts), max(counts)
    return change(
        mean(rows, "rows_per_s", connections=many), mean(rows, "rows_per_s", connections=few)
    )


CONNECTIONS = Claim(
    "throughput falls with connections",
    at_most("change from no connection to the most", _at_most_connections, -0.1, 0, "+%"),
    (at_least("connections tried", lambda rows: max(numbers(rows, "connections")), 24),),
    _by("connections", "rows_per_s"),
)
FIVE = (at_least("processors", lambda rows: max(numbers(rows, "processors")), 5),)


def _quiet(column: str) -> Callable[[Rows], float]:
    return lambda rows: mean(rows, column, phase="quiet")


MANAGER = {
    "4.8": (
        Claim(
            "CPU near 0 except when planning",
            at_most("share of a CPU when nothing changes", _quiet("cpu"), 0.05, 0, "%"),
            FIVE,
            lambda rows: f"{mean(rows, 'cpu', phase='planning'):.1%} when planning",
        ),
    ),
    "4.9": (
        Claim(
            "about 400 B/s in",
            Bound("bytes in when nothing changes", _quiet("bytes_in"), 400, 400, 200, "B/s"),
            FIVE,
        ),
        Claim(
            "at most 1 kB/s out",
            at_most("bytes out when nothing changes", _quiet("bytes_out"), 1000, 0, "B/s"),
            FIVE,
        ),
    ),
    "4.10": (
        Claim(
            "less than 20 MB of memory",
            at_most("resident memory when nothing changes",
                    lambda rows: median(numbers(rows, "memory_mb", phase="quiet")), 20, 0, "MB"),
            FIVE,
        ),
    ),
}  # fmt: skip
_MANAGED = ("cpu", "bytes_in", "bytes_out", "memory_mb")
FIGURES = {"4.9": 400.0, "4.10": 20.0}  # of the seed, in the unit of the plot
_RATE, _CPU = "input rows a second", "share of a CPU"
for _name, _title, _run, _x, _y, _unit, _claim, _claims, _measured in (
    ("4.3", "a real processor under connection requests", requests, "requests", "rows_per_s", _RATE,
     "no loss up to 50 requests a second", (REQUESTS,), ("rows_per_s", "requests")),
    ("4.4", "a real processor with consumers that wait or poll", waiting, "way", "cpu_share", _CPU,
     "notified ones leave the engine more CPU", (WAITING,), ("cpu_share", "asked_per_s")),
    ("4.6", "a real processor by number of connections", connections, "connections", "rows_per_s",
     _RATE, "falls with connections; 8 to 12 are safe", (CONNECTIONS,), ("rows_per_s",)),
    ("4.8", "CPU of a real manager", manager, "", "cpu", _CPU, "near 0 except when planning",
     MANAGER["4.8"], _MANAGED),
    ("4.9", "network use of a real manager", manager, "", "bytes_in", "bytes a second in",
     "about 400 B/s in, at most 1 kB/s out", MANAGER["4.9"], _MANAGED),
    ("4.10", "memory of a real manager", manager, "", "memory_mb", "resident MB",
     "less than 20 MB", MANAGER["4.10"], _MANAGED),
):  # fmt: skip
    EXPERIMENTS.add(
        f"dcape-{_name}",
        Experiment(
            f"dcape-{_name}",
            _title,
            "dcape",
            _run,
            line(_x, _y, _unit, _claim, FIGURES.get(_name)),
            _claims,
            _measured,
            real=True,
        ),
    )
