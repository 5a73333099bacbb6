"""Real processors in real networks: what a plan promises beside what the links carry.

A manager and three processors, each a process in a network namespace of its own, with distances
between them (`namespaces`). Two streams enter at two sites, a query joins them, its result is read
at the third. The query is placed by one planner after the other, by live moves; for each, the bytes
a second that the plan promises stand beside those that the kernel counts on the links, and the way
of a row that it promises beside the delay of results as they arrive.

What crosses besides rows (reports, questions) is measured before any row comes and
left out; headers of TCP and HTTP are not.
"""

import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.client.manager_client import ManagerClient
from millstream.client.results import ResultReader
from millstream.core.errors import AwayError, MillstreamError, ResourceError, StateError
from millstream.edge.peers.local_cluster import LAUNCH
from millstream_lab.namespaces import PORT, Namespaces

# One-way milliseconds between sites; the manager is near the home of the result.
DISTANCES: Mapping[tuple[str, str], float] = {
    ("north", "south"): 15.0, ("south", "north"): 15.0,
    ("north", "home"): 80.0, ("home", "north"): 80.0,
    ("south", "home"): 80.0, ("home", "south"): 80.0,
    ("head", "north"): 20.0, ("north", "head"): 20.0,
    ("head", "south"): 20.0, ("south", "head"): 20.0,
    ("head", "home"): 5.0, ("home", "head"): 5.0,
}  # fmt: skip
MANAGER, HOME = "head", "home"
SITES = ("north", "south", HOME)
QUERY = "pairs"
CQL = (
    "SELECT a.k AS k, a.sent AS a_sent, b.sent AS b_sent "
    "FROM calls [RANGE 1 SECOND] a JOIN answers [RANGE 1 SECOND] b ON a.k = b.k"
)
ENTERING: Mapping[str, tuple[str, int]] = {"calls": ("north", 1500), "answers": ("south", 600)}
PAYLOAD = 180  # random bytes of a row, which do not compress
POST_S = 0.5
LOOK_S = 4.0  # two reports
BEHIND_ROWS_MAX = 2000  # a second's
KEYS = 40_000  # few pairs: the result is small beside what it is made of
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One planner: promised and measured."""

    planner: str
    placement: Mapping[str, str]
    promised_bytes_per_s: float
    measured_bytes_per_s: float
    promised_delay_ms: float  # of the slowest way, by distance
    promised_arrival_ms: float  # the same as rows are pulled, without the time of steps
    median_delay_ms: float | None  # from a row's sending to its result at home
    results: int
    links: Mapping[str, float] = field(default_factory=dict)  # by site: bytes a second sent
    planned_bytes_per_s: float = 0.0  # before it was moved, with the rates of that time

    @property
    def off(self) -> float:
        """How far the measured bytes lie from the promised ones, as a part of these."""
        return self.measured_bytes_per_s / self.promised_bytes_per_s - 1

    def to_json(self) -> dict[str, Any]:
        return {
            "planner": self.planner,
            "placement": dict(self.placement),
            "planned_bytes_per_s": round(self.planned_bytes_per_s),
            "promised_bytes_per_s": round(self.promised_bytes_per_s),
            "measured_bytes_per_s": round(self.measured_bytes_per_s),
            "off_percent": round(100 * self.off, 1),
            "promised_delay_ms": self.promised_delay_ms,
            "promised_arrival_ms": self.promised_arrival_ms,
            "median_delay_ms": self.median_delay_ms,
            "results": self.results,
            "links_bytes_per_s": {site: round(rate) for site, rate in self.links.items()},
        }


def compare(
    folder: Path,
    planners: Sequence[str] = ("baseline", "optimal_tree"),
    *,
    seconds: float = 15.0,
    heap: str = "600m",
    progress: Progress = lambda _: None,
) -> list[Measured]:
    """Runs the whole thing; every process is gone when it returns."""
    with Namespaces(DISTANCES) as network:
        _start(network, folder, heap)
        with network.inside(HOME), ManagerClient(network.url(MANAGER), token="") as client:
            progress("waiting for three processors")
            _until(lambda: _all_up(client), 300.0, "the processors did not join")
            _until(lambda: _all_measured(client), 60.0, "no distances were measured")
            quiet = _rates(network, 5.0)
            for name, (site, _) in ENTERING.items():
                client.declare(_table(name), processor=site, start=True)
            told = client.submit(QUERY, CQL, deliver_to=HOME, wait_s=120.0)
            progress(f"the query runs: {told['admission'].get('sentence', '')}")
            with _Feeding(network) as feeding, _Subscriber(network) as subscriber:
                progress("rows come; waiting for measured rates")
                _until(lambda: _measured_rates(client), 120.0, "no rates were measured")
                feeding.check()
                _until(_Calm(client, planners[0]), 240.0, "rates did not become steady")
                return [
                    _measure(network, client, subscriber, planner, quiet, seconds, progress)
                    for planner in planners
                ]


def _measure(
    network: Namespaces,
    client: ManagerClient,
    subscriber: "_Subscriber",
    planner: str,
    quiet: Mapping[str, float],
    seconds: float,
    progress: Progress,
) -> Measured:
    planned = client.place(QUERY, planner=planner, wait_s=120.0)
    progress(f"{planner}: {planned['sentence']}")
    _until(lambda: _settled(client, planner), 120.0, f"the moves of {planner} did not end")
    _until(_Calm(client, planner), 240.0, "what waited during the moves did not go through")
    before = client.place(QUERY, planner=planner, dry_run=True)
    seen = len(subscriber.delays_ms)
    busy = _rates(network, seconds)
    told = client.place(QUERY, planner=planner, dry_run=True)
    delays = sorted(subscriber.delays_ms[seen:])
    links = {site: max(0.0, busy[site] - quiet[site]) for site in SITES}
    promised = (before["now"]["bytes_per_s"] + told["now"]["bytes_per_s"]) / 2
    found = Measured(
        planner,
        told["placement"],
        promised,
        sum(links.values()),
        told["now"]["delay_ms"],
        told["now"]["arrival_ms"],
        round(delays[len(delays) // 2], 1) if delays else None,
        len(delays),
        links,
        planned["then"]["bytes_per_s"],
    )
    progress(
        f"{planner}: {found.promised_bytes_per_s:,.0f} bytes/s promised, "
        f"{found.measured_bytes_per_s:,.0f} measured ({found.off:+.1%}); way of "
        f"{found.promised_delay_ms:g} ms promised ({found.promised_arrival_ms:g} as it is pulled), "
        f"results after {found.median_delay_ms} ms"
    )
    return found


# -- processes ------------------------------------------------------------------------------------


def _start(network: Namespaces, folder: Path, heap: str) -> None:
    def launch(host: str, *arguments: str) -> None:
        home = folder / host
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", LAUNCH, *arguments, "--home", str(home)]
        network.start(host, [*command, "--port", str(PORT)], log=home / "output.log")

    launch(MANAGER, "manager", "--beat", "2", "--advertise", network.url(MANAGER))
    for site in SITES:
        launch(
            site, "processor", "--id", site, "--manager", network.url(MANAGER), "--advertise",
            network.url(site), "--spark", "local[1]", "--heap", heap,
        )  # fmt: skip


def _all_up(client: ManagerClient) -> bool:
    with suppress(AwayError, OSError):
        told = client.status()["processors"]
        return all(told.get(site, {}).get("state") == "up" for site in SITES)
    return False


def _all_measured(client: ManagerClient) -> bool:
    told = client.status()["processors"]
    return all(f"distance_ms.{b}" in told[a]["figures"] for a in SITES for b in SITES if a != b)


def _measured_rates(client: ManagerClient) -> bool:
    streams = client.status()["streams"]
    ran = client.query(QUERY)["operators"]
    return all(s["rows_per_s"] > 0 for s in (client.streams()[n] for n in streams)) and all(
        o["figures"].get("rows_in", 0) > 0 for o in ran
    )


def _settled(client: ManagerClient, planner: str) -> bool:
    """Whether everything lies where the planner wants it, and no move is under way."""
    told = client.place(QUERY, planner=planner, dry_run=True)
    at = {o["id"]: o["processor"] for o in client.query(QUERY)["operators"]}
    there = all(at[o] == place for o, place in told["placement"].items())
    under_way = [m for m in client.moves() if m["phase"] not in ("done", "undone", "owned")]
    return there and not under_way


class _Calm:
    """Whether rates are steady and nothing waits to be pulled: three looks say the same."""

    def __init__(self, client: ManagerClient, planner: str) -> None:
        self._client, self._planner = client, planner
        self._seen: list[float] = []
        self._looked_s = 0.0

    def __call__(self) -> bool:
        if time.monotonic() - self._looked_s < LOOK_S:
            return False
        self._looked_s = time.monotonic()
        told = self._client.place(QUERY, planner=self._planner, dry_run=True)
        edges = self._client.placement()["edges"]
        waiting = max((e["figures"].get("behind_rows", 0) for e in edges), default=0)
        self._seen = [*self._seen[-2:], told["now"]["bytes_per_s"]]
        close = max(self._seen) <= 1.05 * min(self._seen)
        return len(self._seen) == 3 and close and waiting <= BEHIND_ROWS_MAX


def _rates(network: Namespaces, seconds: float) -> dict[str, float]:
    """Bytes a second that leave each site."""
    before = {site: network.sent_bytes(site) for site in SITES}
    began = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return {site: (network.sent_bytes(site) - before[site]) / passed for site in SITES}


def _until(look: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise ResourceError(what, detail=f"after {seconds:.0f} s")
        time.sleep(0.5)


# -- rows -----------------------------------------------------------------------------------------


def _table(name: str) -> dict[str, Any]:
    columns = {"sent": "long", "k": "int", "payload": "string"}
    return {
        "name": name, "source": "http", "columns": columns, "time": "timestamp_millis(sent)",
        "lateness": "1 second",
    }  # fmt: skip


class _Feeding:
    """Posts rows of both streams where they enter, at their rates."""

    def __init__(self, network: Namespaces) -> None:
        self._network = network
        self._over = threading.Event()
        self._problems: dict[str, str] = {}  # by stream: why rows were last turned away
        self._threads = [
            threading.Thread(target=self._feed, args=(name, site, rate), daemon=True)
            for name, (site, rate) in ENTERING.items()
        ]

    def __enter__(self) -> "_Feeding":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        for stream, why in sorted(self._problems.items()):
            raise ResourceError(f"rows of {stream} were turned away", detail=why)

    def _feed(self, stream: str, site: str, rate: int) -> None:
        chance, address = random.Random(stream), f"http://127.0.0.1:{PORT}"
        with self._network.inside(site), ManagerClient(address, token="") as client:
            due_s, sequence = time.monotonic(), 1
            while not self._over.wait(max(0.0, due_s - time.monotonic())):
                due_s = max(due_s, time.monotonic()) + POST_S  # what was missed is not made up for
                rows = _rows(chance, int(rate * POST_S))
                body = {"producer": stream, "sequence": sequence, "rows": rows}
                try:
                    client.ask("POST", f"{address}/streams/{stream}/rows", body)
                    sequence += 1
                    self._problems.pop(stream, None)
                except MillstreamError as error:  # sent again, under the same number
                    self._problems[stream] = str(error)
                    self._over.wait(POST_S)


def _rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    now_ms = int(time.time() * 1000)
    return [
        {"sent": now_ms, "k": chance.randrange(KEYS), "payload": chance.randbytes(PAYLOAD).hex()}
        for _ in range(count)
    ]


class _Subscriber:
    """Reads the result at home and notes how old rows are when they arrive."""

    def __init__(self, network: Namespaces) -> None:
        self._network = network
        self._over = threading.Event()
        self.delays_ms: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "_Subscriber":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        network = self._network
        with network.inside(HOME), ManagerClient(network.url(MANAGER), token="") as client:
            reader: ResultReader | None = None
            while not self._over.is_set():
                try:
                    reader = reader or ResultReader(client, QUERY)
                    for batch in reader.pages(2.0):
                        now_ms = time.time() * 1000
                        if batch.table is not None:
                            sent = zip(
                                batch.table.column("a_sent").to_pylist(),
                                batch.table.column("b_sent").to_pylist(),
                                strict=True,
                            )
                            self.delays_ms += [now_ms - max(pair) for pair in sent]
                    reader.acknowledge()
                except (AwayError, StateError, OSError):
                    reader = None
                    self._over.wait(0.5)
