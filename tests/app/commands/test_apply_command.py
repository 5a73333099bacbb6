"""A job that is edited while it runs, by its file and by whoever looks on; stopped, gone on."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from millstream.app import cli
from millstream.app.config import load_job
from millstream.app.runs.folder import RunFolder
from millstream.app.runs.job_run import Interrupted, RunSettings, run_job
from millstream.app.runs.live_run import LiveRun
from millstream.client.keyring import user_token
from millstream.edge.http.serving import Address
from millstream.edge.run.api import run_endpoint
from millstream.edge.run.dashboard import RunDashboard

pytestmark = pytest.mark.spark
STREAM = """\
[streams.r]
source  = "http"
columns = { at = "long", n = "int" }
time    = "timestamp_seconds(at)"
"""
FIRST = f"""{STREAM}
[queries.high]
cql = "SELECT n FROM r WHERE n >= 5"
[queries.low]
cql = "SELECT n FROM r WHERE n < 2"
[queries.rests]
cql = "SELECT n FROM r WHERE n < 100"
"""
SECOND = f"""{STREAM}
[queries.high]
cql = "SELECT n FROM r WHERE n >= 8"
[queries.rests]
cql = "SELECT n FROM r WHERE n < 100"
paused = true
[queries.counted]
cql = "SELECT n % 2 AS odd, count(*) AS rows FROM r GROUP BY n % 2"
"""


class Running:
    """A run of the job in another thread, with its endpoint and its dashboard."""

    def __init__(self, job: Path, out: Path) -> None:
        self._job, self._out, self._enough = job, out, threading.Event()
        self.url = ""
        self.live: LiveRun | None = None
        self.summary: dict[str, Any] = {}
        self.trouble: BaseException | None = None
        self.dashboard = RunDashboard("job", Address(port=0), lambda _: None)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Running":
        self.dashboard.__enter__()
        self._thread.start()
        wait_until(lambda: self.url or self.trouble)
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join()
        self.dashboard.__exit__(None, None, None)

    def join(self) -> None:
        self._thread.join(120)
        if self.trouble is not None and not isinstance(self.trouble, Interrupted):
            raise self.trouble

    def _run(self) -> None:
        @contextmanager
        def door(live: LiveRun) -> Iterator[None]:
            self.live = live
            with run_endpoint(live) as server:
                self.url = server.url
                yield

        def poll() -> None:
            if self._enough.is_set():
                raise Interrupted(2)

        settings = RunSettings(door=door, watch=self.dashboard.watch)
        try:
            with RunFolder(self._out) as folder:
                job = load_job(self._job)
                folder.claim(job, "parquet")
                self.summary = run_job(job, folder, settings, poll=poll)
        except BaseException as error:
            self.trouble = error

    def post(self, number: int) -> None:
        rows = [{"at": 100 * number + n, "n": n} for n in range(10)]
        body = {"producer": "p", "sequence": number, "rows": rows}
        assert httpx.post(f"{self.url}/streams/r/rows", json=body).status_code == 200

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {user_token()}", "x-millstream": "1"}
        return httpx.request(
            method, f"{self.dashboard.url.rstrip('/')}{path}", json=body, headers=headers
        )


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def found(folder: Path) -> "Counter[int]":
    rows = [row for f in folder.glob("*.parquet") for row in pq.read_table(f).to_pylist()]
    return Counter(row["n"] for row in rows)


def test_a_running_job_is_edited(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, out = tmp_path / "job.toml", tmp_path / "out"
    job.write_text(FIRST)
    apply = ["apply", str(job), "--run", str(out)]
    with Running(job, out) as run:
        run.post(1)
        counts = {"high": 5, "low": 2, "rests": 10}
        wait_until(lambda: all(found(out / n).total() == rows for n, rows in counts.items()))
        job.write_text(SECOND.replace("n % 2 AS odd", "nn % 2 AS odd"))
        assert cli.run(apply) == 2
        assert "job.toml:" in capsys.readouterr().err, "the mistake stands at its place"
        job.write_text(SECOND)
        assert cli.run([*apply, "--dry-run", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["changes"]["dropped"] == ["low"]
        assert (told["done"], told["dry_run"]) == (False, True)
        assert cli.run(apply) == 0
        assert capsys.readouterr().out.rstrip().endswith("done")
        assert found(out / "high.old-1").total() == 5
        made = run.ask("POST", "/api/queries", {"name": "mine", "cql": "SELECT n FROM r"})
        assert made.status_code == 200, made.text
        others_look_on(run)
        assert_readers_are_told(job, apply, capsys)
        assert run.ask("DELETE", "/api/queries/high").status_code == 400
        assert run.ask("DELETE", "/api/queries/brief").status_code == 200
        shown = {q["name"]: q for q in run.ask("GET", "/api/snapshot").json()["queries"]}
        assert {n: q["droppable"] for n, q in shown.items()} == {
            "high": False, "rests": False, "counted": False, "mine": True, "shell_1": True,
        }  # fmt: skip
        assert shown["rests"]["state"] == "parked"
        run.post(2)
        wait_until(lambda: found(out / "mine").total() >= 10)
        assert found(out / "rests").total() == 10, "it rests"
    assert not list(out.glob("shell_*")), "what a shell looks at is not written"
    with Running(job, out) as run:
        run.post(3)
        httpx.post(f"{run.url}/streams/r/end")
        run.join()
        assert run.summary["queries"]["rests"]["state"] == "paused"
    assert found(out / "rests").total() == 10
    job.write_text(SECOND.replace("paused = true\n", ""))
    assert cli.run(apply) == 0
    assert "> query rests continues" in capsys.readouterr().out
    with Running(job, out) as run:
        run.join()
    assert {n: q["state"] for n, q in run.summary["queries"].items()} == dict.fromkeys(
        ("high", "rests", "counted", "mine"), "done"
    )
    assert found(out / "rests") == Counter(dict.fromkeys(range(10), 3)), "nothing was lost"
    later = found(out / "mine")
    assert all(later[n] >= 2 for n in range(10)), "kept after the restart, with its output"
    high = found(out / "high")
    assert set(high) == {8, 9}
    assert all(n >= 2 for n in high.values())


def others_look_on(run: Running) -> None:
    """A query over another one, and two of shells; one of these ends."""
    texts = {
        "brief": "SELECT n FROM high",
        "shell_1": "SELECT n FROM r",
        "shell_2": "SELECT n FROM r",
    }
    for name, cql in texts.items():
        made = run.ask("POST", "/api/queries", {"name": name, "cql": cql})
        assert made.status_code == 200, made.text
    assert run.ask("DELETE", "/api/queries/shell_2").status_code == 200


def assert_readers_are_told(
    job: Path, apply: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(SECOND.replace("n >= 8", "n >= 7"))
    assert cli.run(apply) == 0
    assert "query brief reads high as it was" in capsys.readouterr().out
    job.write_text(SECOND)
    assert cli.run(apply) == 0


def test_a_finished_run_is_edited(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, out = tmp_path / "job.toml", tmp_path / "out"
    rows = "".join(f"{n},{n}\n" for n in range(10))
    (tmp_path / "r.csv").write_text(f"{rows}x,1\n")
    stream = STREAM.replace('source  = "http"', 'path    = "r.csv"')
    job.write_text(FIRST.replace(STREAM, stream))
    apply = ["apply", str(job), "--run", str(out)]

    def run() -> dict[str, Any]:
        with RunFolder(out) as folder:
            wanted = load_job(job)
            folder.claim(wanted, "parquet")
            return run_job(wanted, folder, RunSettings())

    run()
    (before,) = (out / "high").glob("*.parquet")
    written = before.stat().st_mtime_ns
    more = '[queries.odd]\ncql = "SELECT n FROM high WHERE n % 2 = 1"\n'
    job.write_text(FIRST.replace(STREAM, stream).replace("n < 2", "n < 3") + more)
    assert cli.run(apply) == 0
    assert "results that have not changed stay" in capsys.readouterr().out
    summary = run()
    assert {n: (q["state"], q["rows"]) for n, q in summary["queries"].items()} == {
        "high": ("done", 5), "low": ("done", 3), "rests": ("done", 10), "odd": ("done", 3),
    }  # fmt: skip
    assert before.stat().st_mtime_ns == written, "it was not computed again"
    assert found(out / "low") == Counter([0, 1, 2])
    assert found(out / "low.old-1") == Counter([0, 1])
    assert found(out / "odd") == Counter([5, 7, 9])
    assert summary["streams"]["r"]["rejected"] == 1
    job.write_text(job.read_text().replace(more, ""))
    assert cli.run(apply) == 0
    assert capsys.readouterr().out.rstrip().endswith("done")
    assert sorted(RunFolder(out).summary()["queries"]) == ["high", "low", "rests"]
    (tmp_path / "r.csv").write_text("1,1\n")
    job.write_text(job.read_text() + more)
    assert cli.run(apply) == 2
    assert "r.csv" in capsys.readouterr().err


def pause(run: Running, action: str, query: str) -> httpx.Response:
    return run.ask("POST", "/api/pauses", {"action": action, "name": query})


def states(run: Running) -> dict[str, str]:
    return {q["name"]: q["state"] for q in run.ask("GET", "/api/snapshot").json()["queries"]}


def test_a_query_is_paused_by_who_looks_on(spark: Any, tmp_path: Path) -> None:
    job, out = tmp_path / "job.toml", tmp_path / "out"
    job.write_text(FIRST)
    with Running(job, out) as run:
        run.post(1)
        wait_until(lambda: found(out / "high").total() == 5)
        assert pause(run, "pause", "high").json() == {"done": "query high is paused"}
        assert pause(run, "pause", "hihg").status_code == 400
        assert pause(run, "drain", "p").status_code == 400
        run.post(2)
        wait_until(lambda: found(out / "low").total() == 4)
        assert found(out / "high").total() == 5, "it rests"
        assert (states(run)["high"], states(run)["low"]) == ("parked", "running")
    with Running(job, out) as run:
        wait_until(lambda: states(run).get("high") == "parked")  # the folder remembers it
        assert pause(run, "resume", "high").json() == {"done": "query high continues"}
        httpx.post(f"{run.url}/streams/r/end")
        run.join()
    assert found(out / "high") == Counter(dict.fromkeys(range(5, 10), 2)), "nothing was lost"


def test_a_changed_query_goes_on_with_its_results(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, out = tmp_path / "job.toml", tmp_path / "out"
    job.write_text(FIRST)
    apply = ["apply", str(job), "--run", str(out), "--keep-results"]
    with Running(job, out) as run:
        run.post(1)
        wait_until(lambda: found(out / "high").total() == 5 and found(out / "low").total() == 2)
        texts = {
            "high": "SELECT n FROM r WHERE n >= 8",
            "low": "SELECT n, count(*) AS c FROM r GROUP BY n",
        }
        edited = FIRST.replace("SELECT n FROM r WHERE n >= 5", texts["high"])
        job.write_text(edited.replace("SELECT n FROM r WHERE n < 2", texts["low"]))
        assert cli.run([*apply, "--dry-run"]) == 0
        told = capsys.readouterr().out
        assert "query high would be replaced: 0 operators stay, 1 are computed again" in told
        assert "query low would be registered anew: query low gives a stream of rows" in told
        assert cli.run(apply) == 0
        assert "note: query low is registered anew" in capsys.readouterr().out
        wait_until(lambda: run.live is not None and not run.live.engine.replacements.waits)
        run.post(2)
        wait_until(lambda: found(out / "high").total() == 7)
        edit = "CREATE OR REPLACE QUERY mine AS SELECT n FROM r WHERE n = {}"
        for number in (3, 4):
            body = {"name": "mine", "cql": edit.format(number)}
            assert run.ask("POST", "/api/queries", body).status_code == 200
        wait_until(lambda: not run.live.engine.replacements.waits)  # type: ignore[union-attr]
        run.post(3)
        wait_until(lambda: found(out / "mine")[4])
    assert found(out / "high") == Counter({5: 1, 6: 1, 7: 1, 8: 3, 9: 3})
    with Running(job, out) as again:  # what was registered by somebody holds as it is now
        assert again.live is not None
        assert "n = 4" in again.live.engine.queries["mine"].cql
