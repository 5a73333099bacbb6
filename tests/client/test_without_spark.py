"""A cluster is used from a machine that has no Spark: a session and a run, over real HTTP."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.control.snapshot.model import Alarm, Overview, Snapshot
from millstream.core.codec import to_json
from millstream.language.plan.windows import FOREVER
from millstream.store.integrity.digests import digest_of

FORBID = """
import sys
class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Forbidden())
"""
SESSION = """
import millstream
from millstream import Session
from millstream.client import cluster_system, manager_client, results
with Session(manager=sys.argv[1]) as session:
    session.stream("s", columns={"at": "long", "n": "int"}, time="timestamp_seconds(at)")
    query = session.query("SELECT n FROM s", name="q")
    print(query, query.columns, [row.n for row in query], query.to_arrow(wait=False)["n"].type)
    print([(alarm.kind, alarm.subject) for alarm in session.alarms()])
    query.drop()
    query = session.query("SELECT n FROM s", name="q")
    print(next(iter(query)).n, [row.n for row in query])
    session.query("SELECT n FROM s", name="q").on_batch(lambda rows, last: print(len(rows), last))
    session.query("SELECT n FROM s", name="q").write(sys.argv[2], "json").drop()
    try:
        session.choices()
    except millstream.MillstreamError as error:
        print(error.message)
try:
    Session()
except ImportError as error:
    print(error)
"""
RUN = """
from millstream.app.cli import run
print(run(["run", sys.argv[2], "--out", sys.argv[3], "--manager", sys.argv[1], "--format", "csv"]))
"""
JOB = """
[streams.s]
path = "s.csv"
columns = { at = "long", n = "int" }
time = "timestamp_seconds(at)"
[queries.q]
cql = "SELECT n FROM s"
"""
QUERY: dict[str, Any] = {
    "name": "q", "cql": "SELECT n FROM s", "state": "running", "reason": "", "start": None,
    "relation": False, "columns": [["n", "int"]], "result": "o:1", "sources": ["s"],
    "operators": [], "admission": {}, "rows": 3.0,
}  # fmt: skip
SEGMENTS = [
    {"first": 1, "last": 1, "rows": 3, "watermark": 0},
    {"first": 2, "last": 2, "rows": 0, "watermark": FOREVER},
]
AWAY = Alarm("error", "processor p2 is silent", "processor", "p2", "away")
SEEN = to_json(Snapshot(1.0, Overview("cluster", alarms=(AWAY,))))


class Cluster(BaseHTTPRequestHandler):
    """A manager and a processor at one address, with one query that has three rows."""

    def do_GET(self) -> None:
        url = f"http://{self.headers['Host']}"
        path, asked = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        stream = {"processor": "p1", "url": url, "below": False, "started": True}
        stream |= {"figures": {"rows": 3.0, "ended": 1}}
        if path.endswith("/segments"):
            left = [s for s in SEGMENTS if s["first"] >= int(asked["after"][0])]
            self._answer({"segments": left if "o%3A1" in path else [], "moved": None, "epoch": 1})
        elif "/segments/" in path:
            self._answer(_stored())
        elif path.endswith("/rows"):
            self._answer({"read": 1})
        elif path.startswith("/queries/"):
            self._answer({**QUERY, "url": url})
        else:
            known = {"/queries": [QUERY], "/streams": {"s": stream}, "/api/snapshot": SEEN}
            self._answer(known.get(path, {"streams": {"s": stream}, "processors": {}}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        path = urlsplit(self.path).path
        self._answer(QUERY if path == "/queries" else {"next": 1})

    def do_DELETE(self) -> None:
        self._answer({"gone": True})

    def _answer(self, content: Any) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads it."""


def _stored() -> bytes:
    """Rows as a processor keeps them."""
    out = io.BytesIO()
    times, values = pa.array([0, 1, 2], pa.int64()), pa.array([7, 8, 9], pa.int32())
    pq.write_table(pa.table({"_ts": times, "c0": values}), out)
    return out.getvalue() + digest_of(out.getbuffer()).encode()


@pytest.fixture
def cluster() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def without_spark(program: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FORBID + program, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_session_reads_results(cluster: str, tmp_path: Path) -> None:
    rows, alarms, broken_off, batch, choices, local = without_spark(
        SESSION, cluster, str(tmp_path / "q")
    )
    assert rows == "<query q: running> (('n', 'int'),) [7, 8, 9] int32"
    assert alarms == "[('away', 'p2')]"
    assert broken_off == "7 [8, 9]"
    assert batch == "3 1"
    (file,) = (tmp_path / "q").iterdir()
    assert [json.loads(line)["n"] for line in file.read_text().splitlines()] == [7, 8, 9]
    assert choices == "the trace of the scheduler needs an engine in this process"
    assert local == "pyspark is not installed"


def test_a_run_writes_files(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("1,7\n2,8\n3,9\n")
    (tmp_path / "job.toml").write_text(JOB)
    said = without_spark(RUN, cluster, str(tmp_path / "job.toml"), str(tmp_path / "out"))
    assert said[-1] == "0"
    (file,) = (tmp_path / "out" / "q").iterdir()
    assert [line.split(",")[0] for line in file.read_text().splitlines()] == ['"n"', "7", "8", "9"]


def test_nothing_of_a_client_brings_spark() -> None:
    """Where it is installed, it is imported when an engine is started and not before."""
    program = (
        "import sys, millstream\nfrom millstream import Session\nfrom millstream.app import cli\n"
    )
    program += "print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "False"
