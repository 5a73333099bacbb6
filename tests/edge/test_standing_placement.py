"""Coordinators that stay, between real processes without a manager: queries follow the network."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from plain_members import Members, members, table

from millstream.edge.peers.local_cluster import LAUNCH

FAR_MS, NEAR_MS = 100.0, 10.0


def network(cluster: Members, file: Path, middle: str) -> None:
    """Everybody is far from everybody, but one processor in the middle is near to all."""
    names = sorted(cluster.ports)
    ms = {
        f"{one} {other}": NEAR_MS if middle in (one, other) else FAR_MS
        for one in names for other in names if one < other
    }  # fmt: skip
    known = {str(port): name for name, port in cluster.ports.items()}
    part = file.with_suffix(".new")
    part.write_text(json.dumps({"names": known, "ms": ms}))
    part.replace(file)  # nobody reads half of it


def places(cluster: Members, at: str) -> dict[str, str]:
    found = cluster.clients[at].query("q")["operators"]
    return {o["id"]: o["processor"] for o in found}


class Feed:
    """Rows of both streams, a few at a time, while the network changes."""

    def __init__(self, cluster: Members) -> None:
        self.cluster, self.number = cluster, 0

    def push(self) -> None:
        self.number += 1
        first = 20 * self.number
        for stream in "ab":
            rows = [(1_000_000 * n, n) for n in range(first, first + 20)]
            self.cluster.push("p0", stream, rows, self.number)

    def expected(self) -> list[int]:
        sent = range(20, 20 * (self.number + 1))
        return sorted(n + more for n in sent for more in (1, 2))


def tree(cluster: Members, at: str) -> Mapping[str, object]:
    (found,) = cluster.clients[at].coordinators()
    return found


def test_a_query_follows_the_network_and_a_coordinator_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "network.json"
    file.write_text('{"names": {}, "ms": {}}')
    with members(tmp_path, 6, every_s=1.5, finding="hash", network=str(file)) as cluster:
        network(cluster, file, "p2")
        for n, stream in enumerate("ab"):
            cluster.clients["p0"].declare(table(stream), processor=f"p{n}")
        cluster.clients["p3"].submit(
            "q", "a+1 b+2", from_beginning=True, wait_s=60, deliver_to="p4"
        )
        cluster.clients["p0"].start_streams(["a", "b"])
        feed = Feed(cluster)

        def joined_at(place: str) -> bool:
            feed.push()
            return place in places(cluster, "p0").values()

        cluster.until(lambda: joined_at("p2"), 120)
        cluster.until(lambda: len(tree(cluster, "p1")["coordinators"]) == 3, 60)  # type: ignore[arg-type]
        # the network changes: another processor is in the middle now
        network(cluster, file, "p3")
        cluster.until(lambda: joined_at("p3"), 180)
        # a processor that only coordinates dies: its zones fall to others
        before = int(str(tree(cluster, "p1")["epoch"]))
        cluster.kill("p5")
        cluster.until(lambda: int(str(tree(cluster, "p1")["epoch"])) > before + 1, 90)
        zones = tree(cluster, "p1")["coordinators"]
        assert isinstance(zones, dict)
        assert len(zones) == 3
        assert "p5" not in zones.values()
        told = subprocess.run(
            [sys.executable, "-c", LAUNCH, "coordinators", "--to", cluster.url("p1")],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        assert "q " in told.stdout
        assert "proxy p4" in told.stdout
        for stream in "ab":
            cluster.end("p0", stream)
        assert cluster.rows("p1", "q") == feed.expected()
