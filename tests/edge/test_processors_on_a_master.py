"""Three processors, each an application of its own on one standalone master: one cluster."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from test_manager_app import Process, all_up, wait
from test_tiers_on_spark import PAIRS, ROWS, SUMS, read

from standalone_cluster import standalone

pytestmark = [pytest.mark.spark, pytest.mark.process]

LAUNCH = "import sys; from millstream.app.cli import main; sys.exit(main())"
LOW = "SELECT n FROM s WHERE n < 50"
OPTIONS = (
    "--shared-storage", "--heap", "512m",
    "--spark-conf", "spark.cores.max=1", "--spark-conf", "spark.executor.memory=512m",
)  # fmt: skip


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Process]:
    with ExitStack() as opened:
        master = opened.enter_context(standalone(tmp_path / "spark", cores=2))
        found = Process(tmp_path / "manager", "--pattern", "round_robin")
        opened.callback(found.close)
        for name in ("p1", "p2", "p3"):
            log = opened.enter_context((tmp_path / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, "processor", "--home", str(tmp_path / name),
                 "--id", name, "--manager", found.client.url, "--spark", master.url, *OPTIONS],
                stdout=log, stderr=log, cwd=tmp_path,
            )  # fmt: skip
            opened.callback(ended, process)
        wait(lambda: len(found.client.status()["processors"]) == 3 and all_up(found), 300)
        yield found


def ended(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(120)
    finally:
        process.kill()
        process.wait()


def test_three_processors_share_a_master(manager: Process, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("".join(f"{at},{k},{n}\n" for at, k, n in ROWS))
    manager.client.declare(
        {
            "name": "s", "path": str(tmp_path / "s.csv"), "time": "timestamp_seconds(at)",
            "columns": {"at": "long", "k": "string", "n": "int"},
        }
    )  # fmt: skip
    for name, cql in (("sums", SUMS), ("pairs", PAIRS), ("low", LOW)):
        told = manager.client.submit(name, cql, from_beginning=True, wait_s=240)
        assert told["state"] == "running", told
    places = {o["processor"] for o in manager.client.placement()["operators"]}
    assert places == {"p1", "p2", "p3"}, "each has some of the work"
    manager.client.start_streams()
    sums: dict[tuple[str, int], list[int]] = {}
    for at, k, n in ROWS:
        sums.setdefault((k, at // 10), []).append(n)
    assert read(manager.client, "sums") == sorted((k, len(v), sum(v)) for (k, _), v in sums.items())
    assert read(manager.client, "pairs") == sorted(
        (x[2], y[2])
        for x in ROWS
        for y in ROWS[x[2] + 1 : x[2] + 12]
        if x[1] == y[1] and y[0] - x[0] <= 1 and x[2] % 2 == 0
    )
    assert read(manager.client, "low") == [(n,) for n in range(50)]
    told = (tmp_path / "spark" / "master.log").read_text()
    assert told.count("Registered app millstream") == 3
