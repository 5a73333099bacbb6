"""`millstream run` with an endpoint: rows posted, goals changed, killed and resumed, traced."""

import json
import re
import signal
import subprocess
import sys
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
from millstream.app.runs.live_run import LIVE, WISHES

JOB = """\
[streams.readings]
source   = "http"
columns  = { at = "long", sensor = "string", value = "int" }
time     = "timestamp_seconds(at)"

[streams.limits]
path     = "limits.csv"
columns  = { at = "long", top = "int" }
time     = "timestamp_seconds(at)"

[queries.high]
cql = "SELECT sensor, value FROM readings WHERE value >= 50"

[queries.number]
cql = "SELECT CAST(sensor AS INT) AS s FROM readings"

[queries.over]
cql = "SELECT sensor FROM readings [NOW] JOIN limits [RANGE 1 DAY] ON value > top"

[qos]
goals = "delay <= 1 min, queue_rows minimise 0.3"
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "limits.csv").write_text("0,95\n")
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


@pytest.fixture
def run(spark: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: Any) -> tuple[int, str, str]:
        code = cli.run([str(a) for a in arguments])
        text, errors = capsys.readouterr()
        assert "Traceback" not in text + errors
        return code, text, errors

    return call


def batch(number: int) -> dict[str, Any]:
    rows = [
        {"at": 100 * number + i, "sensor": f"s{i % 3}", "value": (number * 10 + i) % 100}
        for i in range(10)
    ]
    return {"producer": "p", "sequence": number, "rows": rows}


def expected(*numbers: int) -> "Counter[tuple[Any, ...]]":
    rows = [row for n in numbers for row in batch(n)["rows"]]
    return Counter((r["sensor"], r["value"]) for r in rows if r["value"] >= 50)


def found(folder: Path, *names: str) -> "Counter[tuple[Any, ...]]":
    rows = [row for f in folder.glob("*.parquet") for row in pq.read_table(f).to_pylist()]
    return Counter(tuple(row[n] for n in names) for row in rows)


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def meanwhile(out: Path, act: Callable[[str], None]) -> Iterator[None]:
    """Acts on a run's endpoint from another thread, once the run tells where it is."""
    failures: list[BaseException] = []

    def work() -> None:
        url = ""
        try:
            live = out / ".millstream" / LIVE
            wait_until(lambda: live.exists() and json.loads(live.read_text())["url"])
            url = json.loads(live.read_text())["url"]
            act(url)
        except BaseException as error:
            failures.append(error)
            if url:
                httpx.post(f"{url}/streams/readings/end")

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    if failures:
        raise failures[0]


@pytest.mark.spark
def test_posted_rows_goals_and_the_trace(run: Run, job: Path, tmp_path: Path) -> None:
    out, trace = tmp_path / "out", tmp_path / "trace.jsonl"
    seen: dict[str, Any] = {}

    def act(url: str) -> None:
        post = f"{url}/streams/readings/rows"
        assert httpx.post(post, json=batch(1), timeout=60).json()["rows"] == 10
        odd = {"producer": "p", "sequence": 2, "rows": [{"at": "x"}, {"at": 210, "value": 99}]}
        told = httpx.post(post, json=odd, timeout=60).json()
        assert (told["rows"], told["rejected"]) == (1, 1)
        assert httpx.post(f"{url}/streams/limits/rows", json=batch(1)).status_code == 404
        wait_until(lambda: httpx.get(f"{url}/status").json()["queries"]["high"]["rows"] >= 1)
        put = httpx.put(f"{url}/qos", json={"goals": "fresh", "query": "high", "weight": 3})
        assert [g["query"] for g in put.json()["goals"]] == [None, None, "high"]
        assert httpx.put(f"{url}/qos", json={"goals": "fresh", "query": "hihg"}).status_code == 400
        assert (
            httpx.put(
                f"{url}/qos", content=b"[", headers={"Content-Type": "application/json"}
            ).status_code
            == 400
        )
        job.write_text(JOB.replace("1 min", "1 ms"))  # the job file is looked at as well
        wait_until(lambda: httpx.get(f"{url}/qos").json()["goals"][0]["limit"] == 0.001)
        seen["qos"] = httpx.get(f"{url}/qos").json()
        httpx.post(f"{url}/streams/readings/end", timeout=60)

    with meanwhile(out, act):
        code, text, errors = run("run", job, "--out", out, "--http", "0", "--trace", trace)
    assert code == 1, errors  # a query has failed, as it would without an endpoint
    assert "query number is failed" in errors
    assert re.search(r"rows of readings: POST http://127.0.0.1:\d+/streams/readings/rows", errors)
    assert "goals of quality taken over from job.toml" in errors
    assert len(seen["qos"]["goals"]) == 2  # the edited file has the last word
    assert found(out / "high", "sensor", "value") == Counter({(None, 99): 1})
    assert found(out / "over", "sensor") == Counter({(None,): 1})
    assert "goal: delay at most 0.001 s" in text
    assert "not met" in text
    assert not (out / ".millstream" / LIVE).exists()
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    assert {e["event"] for e in events} == {"choice", "review", "step"}
    choices = [e for e in events if e["event"] == "choice"]
    assert [c["number"] for c in choices] == list(range(1, len(choices) + 1))
    assert all(c["reason"] and c["algorithm"] and c["queries"] for c in choices)
    stepped = {e["operator"] for e in events if e["event"] == "step"}
    assert stepped <= {name for c in choices for name in c["operators"]}
    code, text, _ = run("qos", out)
    assert code == 2


@pytest.mark.spark
def test_addresses_and_files_that_cannot_be(run: Run, job: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (("--http", "somewhere"), "not an address"),
        (("--http", "0.0.0.0:0"), "only with a token"),
        (("--trace", tmp_path / "none" / "t"), "cannot write the trace"),
    ):
        code, _, errors = run("run", job, "--out", tmp_path / "out", "--quiet", *arguments)
        assert code == 2
        assert message in errors
    assert run("qos", tmp_path / "nothing")[0] == 2
    assert run("qos", "http://127.0.0.1:9", "fresh")[0] == 2
    code, _, errors = run("qos", tmp_path / "out", "dellay <= 2s")
    assert code == 2
    assert "did you mean" in errors


@pytest.mark.spark
@pytest.mark.process
def test_killed_with_rows_and_goals_it_goes_on(run: Run, job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from millstream.app.cli import main; main()", "run", str(job)]
    command += ["--out", str(out), "--master", "local[1]", "--json", "--http", "0"]

    def start() -> tuple["subprocess.Popen[str]", str]:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        for line in process.stderr:
            assert "error" not in line, line
            if match := re.search(r"listening on (\S+)", line):
                return process, match[1]
        raise AssertionError("it never listened")

    process, url = start()
    try:
        for number in (1, 2):
            httpx.post(f"{url}/streams/readings/rows", json=batch(number), timeout=60)
        code, text, _ = run("qos", out, "delay <= 90s, output_rate 0.25", "--json")
        assert code == 0
        assert json.loads(text)["goals"][0]["limit"] == 90.0
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert "the goals take effect when it is" in run("qos", out, "small", "--query", "high")[1]
        assert list((out / ".millstream" / WISHES).glob("*.wish"))
        process, url = start()
        answer = httpx.get(f"{url}/streams/readings/producers/p", timeout=60).json()
        assert answer["expected"] == 3
        again = httpx.post(f"{url}/streams/readings/rows", json=batch(2), timeout=60).json()
        assert again["repeated"] is True
        for number in (3, 4, 5, 6):
            httpx.post(f"{url}/streams/readings/rows", json=batch(number), timeout=60)

        def goals() -> list[tuple[Any, ...]]:
            told = httpx.get(f"{url}/qos", timeout=60).json()["goals"]
            return [(g["query"], g["statistic"], g["limit"]) for g in told]

        wait_until(lambda: len(goals()) == 3)
        assert goals() == [
            (None, "delay", 90.0), (None, "output_rate", None), ("high", "queue_rows", None),
        ]  # fmt: skip
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        assert process.returncode == 143
        process, url = start()
        httpx.post(f"{url}/streams/readings/end", timeout=60)
        text, errors = process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1, errors
    assert json.loads(text)["queries"]["number"]["culprits"][0]["row"] == 0
    assert json.loads(text)["streams"]["readings"]["rows"] == 60
    assert found(out / "high", "sensor", "value") == expected(1, 2, 3, 4, 5, 6)
