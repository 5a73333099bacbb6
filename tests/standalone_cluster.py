"""Sparks on this machine as processes of their own: a master and workers, a Connect server."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

STARTS_S = 300.0


class Cluster:
    """A master and workers, each a process of its own; workers may be killed and others started."""

    def __init__(
        self, folder: Path, port: int, started: ExitStack, cores: int, memory: str
    ) -> None:
        self.url = f"spark://127.0.0.1:{port}"
        self.workers: list[int] = []  # pids, each also the group of its executors
        self._folder, self._started = folder, started
        self._cores, self._memory = cores, memory
        self._numbers = itertools.count()

    def start_worker(self) -> int:
        """The pid of a worker that the master knows."""
        number = next(self._numbers)
        name, host = f"worker{number}", f"127.0.0.{number + 1}"  # of a task one attempt a host
        arguments = ["--host", host, "--cores", str(self._cores), "--memory", self._memory]
        arguments += ["--webui-port", "0", "--work-dir", str(self._folder / f"{name}-work")]
        own = _process(self._folder / name, "worker.Worker", [*arguments, self.url])
        self.workers.append(self._started.enter_context(own).pid)
        _wait_for(self._folder / f"{name}.log", "Successfully registered with master")
        return self.workers[-1]

    def kill_worker(self, pid: int, *, machine: bool) -> None:
        """The process alone, whose executors then end by themselves, or with all it started."""
        self.workers.remove(pid)
        (os.killpg if machine else os.kill)(pid, signal.SIGKILL)

    def executors(self) -> list[int]:
        """Pids of executors under workers that live."""
        return [child for pid in self.workers for child in _children(pid) if _executes(child)]


@contextmanager
def standalone(
    folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g"
) -> Iterator[Cluster]:
    """A master and workers; all processes are gone afterwards."""
    port = free_port()
    with ExitStack() as started:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        started.enter_context(_process(folder / "master", "master.Master", arguments))
        _wait_for(folder / "master.log", "I have been elected leader")
        cluster = Cluster(folder, port, started, cores, memory)
        for _ in range(workers):
            cluster.start_worker()
        yield cluster


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]
    return []


def _executes(pid: int) -> bool:
    with suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


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
