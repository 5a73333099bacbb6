"""Admission on a real processor: by measured costs, until it is full, and what is taken keeps up.

That twice as many queries do not keep up is a matter of speed: `millstream bench admission`.
"""

import doctest
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millstream.client.manager_client import ManagerClient
from millstream.control.admission.estimates import CYCLE_S
from millstream.control.admission.planning_state import HEADROOM
from millstream.core.errors import AwayError
from millstream.decide.schedule import costs
from millstream.edge.http.reserved_port import keep_port
from millstream.edge.peers.local_cluster import LAUNCH
from millstream.edge.processor import capacity
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane
from millstream_bench.cluster import admission, generic_operators
from millstream_bench.cluster.admission import begin, behind, fill, queries, slope, write_streams

CPU = 0.1  # a tenth of a slot: a few queries fill it
RATE = 200  # rows a second
PATIENCE_S = 120.0


@pytest.fixture
def client(spark: Any, tmp_path: Path) -> Iterator[ManagerClient]:
    """A manager as a process, and a processor here that offers little."""
    port = keep_port(None)
    arguments = ("manager", "--home", str(tmp_path / "manager"), "--port", str(port.number))
    manager = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *arguments, "--placer", "sqpr", "--beat", "0.5", "-q"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    found = ManagerClient(f"http://127.0.0.1:{port.number}")
    settings = ProcessorSettings(manager=found.url, properties={"cpu": CPU})
    processor = ProcessorServer(
        "p1", tmp_path / "p1", SparkPlane(spark), settings, EngineSettings(slots=1)
    )
    try:
        processor.start()
        until(lambda: answers(found))
        yield found
    finally:
        processor.stop()
        manager.terminate()
        manager.wait(30)
        found.close()
        port.close()


def until(look: Any) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.2)
    return found


def answers(client: ManagerClient) -> bool:
    try:
        told = client.status()["processors"]
    except AwayError:
        return False
    return bool(told.get("p1", {}).get("state") == "up")


@pytest.mark.spark
@pytest.mark.process
def test_an_admitted_set_is_full_by_measured_costs_and_keeps_up(
    client: ManagerClient, tmp_path: Path
) -> None:
    write_streams(tmp_path, RATE, 200_000, seed=1)
    began = begin(client, tmp_path, RATE)
    admitted, refusal = fill(client, queries(1)[:60], lambda _: None, measured_s_max=PATIENCE_S)
    names = [str(one["name"]) for one in admitted]
    assert names
    assert "does not fit: cpu of host p1" in refusal
    assert client.status()["processors"]["p1"]["properties"]["cpu"] == CPU
    assert all(one["admission"]["cpu"] <= CPU * HEADROOM for one in admitted)
    for one in admitted[:-1]:  # what ran before the last was taken counts as measured
        assert {o["id"] for o in one["operators"]} <= set(admitted[-1]["admission"]["measured"])

    def lines_told() -> bool:  # fixed and marginal costs, as the processor has measured them
        told = [o["figures"] for name in names for o in client.query(name)["operators"]]
        return all(f.get("fixed_s", 0.0) + f.get("row_s", 0.0) > 0 for f in told)

    until(lines_told)

    def all_near() -> bool:
        _, results, source = behind(client, names, began)
        return max(source, *results.values()) < 3 * CYCLE_S

    until(all_near)
    assert {q["state"] for q in client.queries()} == {"running"}


def test_the_pace_is_that_of_the_slowest() -> None:
    assert slope([0, 1, 2], [3, 3, 3]) == pytest.approx(0.0)
    assert slope([0, 1, 2], [3, 3.5, 4]) == pytest.approx(0.5)


@pytest.mark.parametrize("module", [admission, generic_operators, capacity, costs])
def test_examples_in_the_text(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed
