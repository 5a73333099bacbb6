"""`millstream bench manager`: traffic, memory and CPU of a manager with five processors.

No Spark: the manager is its real process, the processors are virtual ones behind real HTTP that
report as real ones do. The seed's figures (D-CAPE, 4.8 to 4.10): CPU near nothing, about 400 B/s in
and at most 1 kB/s out, less than 20 MB. Bytes are those of HTTP, headers included, both ways.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from millstream.client.manager_client import ManagerClient
from millstream.control.protocol.replies import Compiled
from millstream.core.errors import AwayError
from millstream.edge.http.reserved_port import KeptPort
from millstream.edge.peers.local_cluster import LAUNCH
from millstream.sim.managed.managed_cluster import table, tree
from millstream_bench.cluster.plan_processor import HttpProcessor, World

LIMITS = {"bytes_per_s": 1000.0, "resident_mb": 150.0, "kb_a_query": 20.0}
STREAMS = ("a", "b", "c", "d")
PROCESSORS = 5


def plans(count: int) -> dict[str, Compiled]:
    """Texts as long as real ones: a filter, an aggregate of two operators, a join of three."""
    found = {}
    for n in range(count):
        a, b = STREAMS[n % 4], STREAMS[(n + 1) % 4]
        text = (
            f"SELECT {a}.k, avg({a}.x) AS mean, count(*) AS n FROM {a} [RANGE {n + 1} SECONDS], "
            f"{b} [RANGE 10 SECONDS] WHERE {a}.k = {b}.k AND {a}.x > {n} GROUP BY {a}.k"
        )
        rows: list[tuple[str, ...]] = [
            (f"o:{n:032x}", f"s:{a}"),
            (f"o:{n + 10_000:032x}", f"o:{n:032x}", f"s:{b}"),
            (f"o:{n + 20_000:032x}", f"o:{n + 10_000:032x}"),
        ]
        found[text] = tree(f"aggregate of {a} with {b} number {n}", *rows)
    return found


class Manager:
    """A manager's process."""

    def __init__(self, home: Path) -> None:
        self._kept = KeptPort()
        self.port = self._kept.number
        self.process = subprocess.Popen(
            [
                sys.executable, "-c", LAUNCH, "manager", "--home", str(home), "--port",
                str(self.port), "--placer", "pattern", "--quiet",
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.client = ManagerClient(f"http://127.0.0.1:{self.port}")
        while True:
            with suppress(AwayError):
                self.client.status()
                break
            time.sleep(0.1)

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def traffic(self) -> dict[str, int]:
        return dict(self.client.status()["traffic"])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._kept.close()
        self.client.close()


def quiet_traffic(manager: Manager, seconds: float) -> dict[str, float]:
    """Bytes and CPU a second while nothing changes; the question itself is not counted."""
    before, cpu = manager.traffic(), manager.cpu_s()
    time.sleep(seconds)
    cpu = manager.cpu_s() - cpu
    after = manager.traffic()
    return {
        "in_bytes_per_s": (after["in_bytes"] - before["in_bytes"]) / seconds,
        "out_bytes_per_s": (after["out_bytes"] - before["out_bytes"]) / seconds,
        "messages_per_s": (after["messages"] - before["messages"]) / seconds,
        "cpu_share": cpu / seconds,
    }


def run(quick: bool = False, progress: Callable[[str], None] = print) -> dict[str, Any]:
    sizes = (5, 10) if quick else (100, 200)
    seconds = 5.0 if quick else 60.0
    texts = plans(sizes[-1])
    world = World(texts)
    processors = [HttpProcessor(f"p{n + 1}", world) for n in range(PROCESSORS)]
    figures: dict[str, Any] = {"processors": PROCESSORS, "seconds": seconds, "limits": LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        manager = Manager(Path(folder) / "manager")
        try:
            for processor in processors:
                manager.client.ask("POST", f"{manager.client.url}/processors", processor.join())
            for name in STREAMS:
                manager.client.declare(table(name))
            figures["resident_mb_empty"] = round(manager.resident_mb(), 1)
            submitted = 0
            for size in sizes:
                begun, cpu = time.monotonic(), manager.cpu_s()
                for text in list(texts)[submitted:size]:
                    manager.client.submit(f"query {submitted}", text, wait_s=0.0)
                    submitted += 1
                while {q["state"] for q in manager.client.queries()} != {"running"}:
                    time.sleep(0.2)
                figures[f"deploy_{size}"] = {
                    "seconds": round(time.monotonic() - begun, 2),
                    "cpu_s": round(manager.cpu_s() - cpu, 2),
                }
                time.sleep(6.0)  # every processor has reported
                figures[f"resident_mb_{size}"] = round(manager.resident_mb(), 1)
                found = quiet_traffic(manager, seconds)
                figures[f"quiet_{size}"] = {k: round(v, 4) for k, v in found.items()}
                total = found["in_bytes_per_s"] + found["out_bytes_per_s"]
                progress(
                    f"{size} queries: {figures[f'resident_mb_{size}']:.0f} MB resident, "
                    f"{found['in_bytes_per_s']:.0f} B/s in, {found['out_bytes_per_s']:.0f} B/s out"
                    f" ({total:.0f} in all), {found['cpu_share']:.2%} of a core"
                )
            more = figures[f"resident_mb_{sizes[1]}"] - figures[f"resident_mb_{sizes[0]}"]
            figures["kb_a_query"] = round(more * 1000 / (sizes[1] - sizes[0]), 2)
            progress(f"{figures['kb_a_query']:.1f} kB more a query")
        finally:
            manager.close()
            world.close()
    return figures
