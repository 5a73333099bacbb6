"""What control requests cost a processor at work: its CPU seconds with and without fifty a second.

D-CAPE (section 4.3.2, figure 4.3) found no loss of throughput up to fifty connection requests a
second, and that a move needs six to ten. Both sides run in turns on one real processor that joins
two streams; the share is what its own process takes more over the CPU seconds of it and of Spark's
Java process together, median of runs. Java never sees a request, and what it takes differs from one
ten seconds to the next by more than what is to be measured: that difference is told beside it.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.control.protocol.commands import Command, Declare, Progress, Report, StartStream
from millstream.edge.processor.client import ProcessorClient
from millstream_bench.cluster.daemon import Daemon
from millstream_bench.cluster.moves import SECONDS, Flow, deploy, figures

RATE = 50  # requests a second
RUNS = 5
RUN_SECONDS = 10.0
WINDOW_ROWS = 20_000
FLOW_ROWS = 2_000
FLOW_SECONDS = 0.5
SHARE_MAX = 0.05
Say = Callable[[str], None]


def run(quick: bool = False, progress: Say = print) -> dict[str, Any]:
    """CPU seconds and rows of a processor with and without control requests."""
    seconds = 3.0 if quick else RUN_SECONDS
    with tempfile.TemporaryDirectory(prefix="millstream-control-") as folder:
        daemon = Daemon("p0", Path(folder))
        try:
            daemon.wait()
            found = _measured(daemon, Path(folder), seconds, 2 if quick else RUNS, progress)
        finally:
            daemon.stop()
    share = statistics.median((b.own_s - a.own_s) / b.cpu_s for a, b in found)
    with_java = statistics.median((b.cpu_s - a.cpu_s) / b.cpu_s for a, b in found)
    result = {
        "requests_s": RATE,
        "cpu_share": round(share, 4),
        "cpu_share_with_java": round(with_java, 4),
        "own_s_without": [round(a.own_s, 3) for a, _ in found],
        "own_s_with": [round(b.own_s, 3) for _, b in found],
        "cpu_s_without": [round(a.cpu_s, 3) for a, _ in found],
        "cpu_s_with": [round(b.cpu_s, 3) for _, b in found],
        "rows_s_without": round(statistics.median(a.rows_s for a, _ in found), 1),
        "rows_s_with": round(statistics.median(b.rows_s for _, b in found), 1),
        "met": share <= SHARE_MAX,
    }
    progress(
        f"{RATE} control requests a second take {share:.1%} of the CPU (at most {SHARE_MAX:.0%};"
        f" {with_java:+.1%} with what Java happened to take);"
        f" {result['rows_s_with']:,.0f} rows/s with them, {result['rows_s_without']:,.0f} without"
    )
    return result


@dataclass(frozen=True, slots=True)
class Stretch:
    own_s: float  # CPU seconds of the processor's own process
    cpu_s: float  # and with those of Spark's Java process
    rows_s: float


def _measured(
    daemon: Daemon, folder: Path, seconds: float, runs: int, say: Say
) -> list[tuple[Stretch, Stretch]]:
    client = daemon.client
    flow = Flow(folder / "flow", WINDOW_ROWS)
    for name in ("a", "b"):
        table = {
            "name": name, "path": str(flow.folder / name), "format": "parquet", "follow": True,
            "columns": {"at": "long", "k": "long", "v": "long"}, "time": "timestamp_micros(at)",
        }  # fmt: skip
        client.do(Declare(table, ingest=True))
    window = f"[RANGE {SECONDS} SECONDS]"
    cql = f"SELECT x.k AS k, x.v + y.v AS v FROM a {window} x JOIN b {window} y ON x.k = y.k"
    host = deploy("q", cql, client, ["s:a", "s:b"])
    client.do(StartStream("a"), StartStream("b"))
    flow.write(WINDOW_ROWS)
    (operator,) = host.operators
    _stretch(daemon, flow, operator, 3 * seconds, 0)  # until code is compiled and caches are full
    found = []
    for number in range(runs):
        without = _stretch(daemon, flow, operator, seconds, 0)
        asked = _stretch(daemon, flow, operator, seconds, RATE)
        found.append((without, asked))
        say(
            f"run {number + 1}: CPU {without.own_s:.2f} s of its own and {without.cpu_s:.2f} s in"
            f" all without, {asked.own_s:.2f} and {asked.cpu_s:.2f} s with requests"
        )
    return found


def _stretch(daemon: Daemon, flow: Flow, operator: str, seconds: float, rate: int) -> Stretch:
    """Lets rows flow for a while; gives the CPU seconds and rows a second of it."""
    client = daemon.client
    before, rows = _cpu(client), figures(client, operator).get("rows_out", 0.0)
    own = daemon.cpu_s()
    clock = time.monotonic()
    done = threading.Event()
    asking = threading.Thread(target=_ask, args=(client, rate, done), daemon=True)
    asking.start()
    while time.monotonic() - clock < seconds:
        flow.write(FLOW_ROWS)
        time.sleep(FLOW_SECONDS)
    done.set()
    asking.join()
    span = time.monotonic() - clock
    after = figures(client, operator).get("rows_out", 0.0)
    return Stretch(daemon.cpu_s() - own, _cpu(client) - before, (after - rows) / span)


def _cpu(client: ProcessorClient) -> float:
    return float(client.do(Report())[0].processor["cpu_s"])


def _ask(client: ProcessorClient, rate: int, done: threading.Event) -> None:
    """Sends requests evenly: mostly how a move is going, now and then a report."""
    count, version, clock = 0, 0, time.monotonic()
    while rate and not done.is_set():
        question: Command = Report(version) if count % 10 == 0 else Progress("m")
        (answer,) = client.do(question)
        version = getattr(answer, "version", version)
        count += 1
        done.wait(max(0.0, clock + count / rate - time.monotonic()))
