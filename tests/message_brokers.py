"""Brokers for tests, each a process with a port of its own: Mosquitto and NATS JetStream."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.core.extras import mqtt_library

PATIENCE_S = 30.0


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        reason = f"no {name} here: scripts/brokers.sh installs it"
        if os.environ.get("MILLSTREAM_BROKERS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return str(found)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A broker that can be killed and started again on the same folder and port."""

    def __init__(self, command: Sequence[str], port: int) -> None:
        self._command, self.port = command, port
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, f"{self._command[0]} does not answer"
                time.sleep(0.05)

    def stop(self, how: int = signal.SIGTERM) -> None:
        self._process.send_signal(how)
        self._process.wait(PATIENCE_S)


@contextmanager
def mosquitto(folder: Path) -> Iterator[Process]:
    program, port = _program("mosquitto"), _free_port()
    settings = folder / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
        f"persistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\n"
        "max_queued_messages 0\nuser root\n"
    )
    broker = Process([program, "-c", str(settings)], port)
    yield broker
    broker.stop()


@contextmanager
def nats_server(folder: Path) -> Iterator[Process]:
    program, port = _program("nats-server"), _free_port()
    words = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    broker = Process(words, port)
    yield broker
    broker.stop()


def publish_mqtt(
    port: int, topic: str, values: Sequence[str], quality: int = 1, *, retain: bool = False
) -> None:
    """Returns when the broker has all of them."""
    pytest.importorskip("paho.mqtt.client")
    paho = mqtt_library()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for sent in [client.publish(topic, value, quality, retain) for value in values]:
        sent.wait_for_publish(PATIENCE_S)
    client.loop_stop()
    client.disconnect()


def publish_nats(port: int, subject: str, values: Sequence[str], **stream: Any) -> None:
    """Into a stream of JetStream that is made where it does not exist."""
    nats: Any = pytest.importorskip("nats")

    async def send() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        server = client.jetstream()
        if stream:
            await server.add_stream(**stream)
        for value in values:
            await server.publish(subject, value.encode())
        await client.close()

    asyncio.run(send())
