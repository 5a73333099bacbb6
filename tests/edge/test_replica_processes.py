"""A machine is lost while rows come: processes over HTTP, kill -9 and its home deleted."""

import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from plain_members import table
from replicated_processors import Processes, processes
from typer.testing import CliRunner

from millstream.app.cli import app as command_line
from millstream.client.http import HttpClient
from millstream.client.results import ResultReader
from millstream.core.errors import MillstreamError
from millstream.store.integrity.scrub import scrub

BATCHES, ROWS = 60, 4
QUERIES = {"both": "a+1 b+2", "total": "sum a+1"}


class Producer(threading.Thread):
    """Posts numbered batches, each again until it is answered."""

    def __init__(self, cluster: Processes, stream: str, batches: int = BATCHES) -> None:
        super().__init__(daemon=True)
        self._cluster, self._stream, self.batches = cluster, stream, batches
        self.answered = 0
        self.start()

    def run(self) -> None:
        with HttpClient(answer_s=10.0) as client:
            while self.answered < self.batches:
                number = self.answered + 1
                first = self.answered * ROWS
                rows = [{"ts": 1_000_000 * n, "c0": n} for n in range(first, first + ROWS)]
                body = {"producer": "test", "sequence": number, "rows": rows}
                with suppress(MillstreamError):
                    url = self._cluster.client.entrance(self._stream)["url"]
                    client.post(f"{url}/streams/{self._stream}/rows", body)
                    self.answered = number
                time.sleep(0.02)


def result(cluster: Processes, query: str) -> list[int]:
    found: list[int] = []
    reader = ResultReader(cluster.client, query)
    deadline = time.monotonic() + 90
    while not reader.ended:
        assert time.monotonic() < deadline, cluster.logs()
        with suppress(MillstreamError):
            for page in reader.pages(1.0):
                if page.table is not None:
                    found += page.table["c0"].to_pylist()
    return sorted(found)


def expected(query: str) -> list[int]:
    duckdb.sql(f"CREATE OR REPLACE TABLE r AS SELECT range AS n FROM range({BATCHES * ROWS})")
    text = {
        "both": "SELECT n + 1 FROM r UNION ALL SELECT n + 2 FROM r",
        "total": "SELECT sum(n + 1) OVER (ORDER BY n)::BIGINT FROM r",
    }[query]
    return sorted(row[0] for row in duckdb.sql(text).fetchall())


@pytest.mark.process
@pytest.mark.parametrize("lost", ["p1", pytest.param("p3", marks=pytest.mark.soak)])
def test_a_machine_is_lost_with_its_home(tmp_path: Path, lost: str) -> None:
    with processes(tmp_path, 3, "--replicas", "2", "--lost-after", "3") as cluster:
        client = cluster.client
        client.declare(table("a"), processor="p1")
        client.declare(table("b"), processor="p3")
        for name, text in QUERIES.items():
            assert client.submit(name, text, from_beginning=True)["state"] == "running"
        client.start_streams()
        producers = [Producer(cluster, stream) for stream in "ab"]
        cluster.until(lambda: all(p.answered >= BATCHES // 4 for p in producers))
        cluster.kill(lost)
        shutil.rmtree(tmp_path / lost)
        for producer in producers:
            cluster.until(lambda p=producer: p.answered == BATCHES)  # type: ignore[misc]
        for stream in "ab":
            cluster.until(lambda s=stream: ended(cluster, s))  # type: ignore[misc]
        for name in QUERIES:
            assert result(cluster, name) == expected(name), cluster.logs()
        told = client.status()["processors"][lost]
        assert told["state"] == "up"
        assert told["properties"]["adopted_by"] != lost


@pytest.mark.process
def test_the_manager_burns_in_the_same_moment(tmp_path: Path) -> None:
    """Its next life has an empty home: it hears of the lost processor from the follower alone."""
    with processes(tmp_path, 3, "--replicas", "2", "--lost-after", "3") as cluster:
        client = cluster.client
        client.declare(table("a"), processor="p1")
        client.declare(table("b"), processor="p3")
        for name, text in QUERIES.items():
            assert client.submit(name, text, from_beginning=True)["state"] == "running"
        client.start_streams()
        producers = [Producer(cluster, stream) for stream in "ab"]
        cluster.until(lambda: all(p.answered >= BATCHES // 4 for p in producers))
        for name in ("manager", "p1"):
            cluster.kill(name)
            shutil.rmtree(tmp_path / name)
        cluster.start_manager("manager", "--port", cluster.urls[0].rpartition(":")[2])
        for producer in producers:
            cluster.until(lambda p=producer: p.answered == BATCHES)  # type: ignore[misc]
        for stream in "ab":
            cluster.until(lambda s=stream: ended(cluster, s))  # type: ignore[misc]
        for name in QUERIES:
            assert result(cluster, name) == expected(name), cluster.logs()
        told = client.status()
        assert told["processors"]["p1"]["properties"]["adopted_by"] in ("p2", "p3")
        assert not told["lost"]


@pytest.mark.process
def test_a_damaged_file_comes_back_from_a_follower(tmp_path: Path) -> None:
    """A bit of a home changes while its process is away: nobody misses a row, and it is told."""
    with processes(tmp_path, 2, "--replicas", "2") as cluster:
        client = cluster.client
        client.declare(table("a"), processor="p1")
        text = "a+1 a+2"
        assert client.submit("q", text, from_beginning=True)["state"] == "running"
        client.start_streams()
        producer = Producer(cluster, "a")
        cluster.until(lambda: producer.answered == BATCHES)
        folders = [tmp_path / name for name in ("p1", "p2")]
        home = max(folders, key=lambda f: len(segments(f)))  # where the result is
        (copy,) = tmp_path.glob(f"*/replicas/{home.name}/segments")
        cluster.until(lambda: all((copy / f.name).exists() for f in segments(home)))
        cluster.kill(home.name)
        files = segments(home)
        for file in files:
            flip(file)
        assert 0 < len(scrub(home).findings) <= len(files)  # some are about to go
        cluster.start(home.name)
        cluster.until(lambda: ended(cluster, "a"))
        assert result(cluster, "q") == sorted(n + k for n in range(BATCHES * ROWS) for k in (1, 2))
        other = "p2" if home.name == "p1" else "p1"
        assert f"fetched anew from {other}" in (cluster.folder / f"{home.name}.log").read_text()
        report = scrub(home)
        assert {one.source for one in report.mended} == {other}
        assert {one.file for one in report.mended} <= {file.name for file in files}
        told = CliRunner().invoke(command_line, ["check", str(home)]).output
        assert f"was damaged and was fetched anew from {other}" in told


def segments(home: Path) -> list[Path]:
    return [*(home / "segments").glob("*.parquet")]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def ended(cluster: Processes, stream: str) -> bool:
    url = cluster.client.entrance(stream)["url"]
    cluster.client.ask("POST", f"{url}/streams/{stream}/end", {})
    return True
