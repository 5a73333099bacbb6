"""Sparks on this machine as processes of their own: a master and workers, a Connect server."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

STARTS_S = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """`workers` are pids; whoever kills one takes its executors along."""

    url: str
    workers: tuple[int, ...]


@contextmanager
def standalone(folder: Path, *, workers: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """A master and workers with one core each; all processes are gone afterwards."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as started:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        started.enter_context(_process(folder / "master", "master.Master", arguments))
        _wait_for(folder / "master.log", "I have been elected leader")
        found = []
        for number in range(workers):
            arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", memory]
            arguments += ["--webui-port", "0", "--work-dir", str(folder / f"work{number}"), url]
            own = _process(folder / f"worker{number}", "worker.Worker", arguments)
            found.append(started.enter_context(own).pid)
        for number in range(workers):
            _wait_for(folder / f"worker{number}.log", "Successfully registered with master")
        yield Cluster(url, tuple(found))


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The address of a server of Spark Connect with two cores."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }  # fmt: skip
    arguments = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    arguments += ["--master", "local[2]"]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    with _process(folder / "server", "SparkSubmit", [*arguments, "spark-internal"], "1g"):
        _wait_until_it_listens(port, folder / "server.log")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _process(
    name: Path, kind: str, arguments: list[str], memory: str = "256m"
) -> Iterator["subprocess.Popen[bytes]"]:
    name.parent.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    level = {"SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with Path(f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
            env={**os.environ, **level, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                 "SPARK_DAEMON_MEMORY": memory, "PYSPARK_PYTHON": sys.executable},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a group of its own: executors go too
        process.wait()


def _wait_for(log: Path, words: str) -> None:
    until = time.monotonic() + STARTS_S
    while words not in log.read_text(errors="replace"):
        assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def _wait_until_it_listens(port: int, log: Path) -> None:
    until = time.monotonic() + STARTS_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
