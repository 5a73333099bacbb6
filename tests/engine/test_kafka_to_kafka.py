"""From a topic to a topic: every message once, though the process is killed again and again."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from broker_home import rows

from kafka_broker import Broker, committed
from millstream.store import faults
from transactional_broker import running_transactional_broker

pytestmark = pytest.mark.process
confluent_kafka = pytest.importorskip("confluent_kafka")
POINTS = (
    "ingest.written", "ingest.committed", "step.written", "step.committed", *faults.SINK_POINTS,
    "delivery.written", "delivery.committed",
)  # fmt: skip
KILLS = 20


def test_twenty_kills_of_the_process_lose_and_double_no_message(tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("kafka_to_kafka.py"))
    with running_transactional_broker() as broker:
        broker.make("in")
        broker.make("out")
        sender = Broker(confluent_kafka, broker.address)

        def life(point: str, left: int) -> "subprocess.Popen[bytes]":
            arguments = [str(tmp_path / "home"), broker.address, point, str(left)]
            here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # it imports from tests
            return subprocess.Popen([sys.executable, program, *arguments], env=here)

        def taken() -> "Counter[int]":
            return Counter(value["c0"] for _, value in committed(broker.address, "out", 2))

        for turn in range(KILLS):
            sender.send("in", rows(*range(turn * 10, turn * 10 + 10)))
            killed = life(POINTS[turn % len(POINTS)], turn % 2)
            try:
                assert killed.wait(20) == 9
            except subprocess.TimeoutExpired:  # what came in one batch passes a point once only
                killed.kill()
                killed.wait()
            assert set(taken().values()) <= {1}, (turn, POINTS[turn % len(POINTS)])
        last = life("never", 0)
        deadline = time.monotonic() + 60
        while taken().total() < KILLS * 10 and time.monotonic() < deadline:
            assert last.poll() is None
            time.sleep(0.2)
        time.sleep(1)  # for what would come too often
        last.kill()
        last.wait()
        assert taken() == Counter(range(1, KILLS * 10 + 1))
