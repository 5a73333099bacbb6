"""`millstream run` in this process: results, summary, exit codes, going on after a crash."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millstream.app import cli
from millstream.core.lock import FolderLock

JOB = """\
[streams.requests]
path     = "requests.csv"
options  = { header = true }
columns  = { at = "long", host = "string", status = "int", bytes = "string" }
time     = "timestamp_seconds(at)"
lateness = "10 seconds"

[queries.errors]
cql = "SELECT host, status FROM requests WHERE status >= 500"

[queries.minutes]
cql = "SELECT host, count(*) AS n FROM requests [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY host"

[queries.totals]
cql = "SELECT host, count(*) AS n FROM requests GROUP BY host"

[queries.nothing]
cql = "SELECT host FROM requests WHERE status = 1"

[engine]
batch_rows = 4
"""
ROWS = [
    (0, "a", 200, "1"),
    (10, "b", 500, "2"),
    (30, "a", 200, "3"),
    (65, "a", 503, "4"),
    (40, "b", 200, "5"),  # 25 seconds late
    (60, "b", 200, "x"),  # 5 seconds late: accepted
    (130, "b", 500, "7"),
]
ERRORS = [("a", 503, 65), ("b", 500, 10), ("b", 500, 130)]
MINUTES = [("a", 1, 120), ("a", 2, 60), ("b", 1, 60), ("b", 1, 120), ("b", 1, 180)]
TOTALS = [("a", 3), ("b", 3)]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    lines = ["at,host,status,bytes", *(",".join(map(str, row)) for row in ROWS)]
    lines.insert(3, "zero,a,200,1")
    (tmp_path / "requests.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


@pytest.fixture
def run(spark: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process; the test run's Spark session is used."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.run([str(a) for a in arguments])
        told = capsys.readouterr()
        assert "Traceback" not in told.err + told.out
        return code, told.out, told.err

    return call


def seconds(moment: Any) -> int:
    return int(moment.timestamp())


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(f) for f in sorted(folder.glob("*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


def texts(folder: Path) -> list[str]:
    return [file.read_text() for file in sorted(folder.iterdir())]


def check_results(out: Path) -> None:
    errors = [(r["host"], r["status"], seconds(r["ts"])) for r in parquet_rows(out / "errors")]
    assert sorted(errors) == ERRORS
    minutes = [(r["host"], r["n"], seconds(r["ts"])) for r in parquet_rows(out / "minutes")]
    assert sorted(minutes) == MINUTES
    totals = [(r["host"], r["n"]) for r in parquet_rows(out / "totals")]
    assert sorted(totals) == TOTALS
    summed: dict[tuple[str, int], int] = {}
    for change in parquet_rows(out / "totals.changes"):
        key = (change["host"], change["n"])
        summed[key] = summed.get(key, 0) + (1 if change["op"] == "+" else -1)
    assert sorted(key for key, count in summed.items() if count) == TOTALS
    assert parquet_rows(out / "nothing") == []
    assert pq.read_table(next((out / "nothing").iterdir())).column_names == ["host", "ts"]
    (late,) = parquet_rows(out / "requests.late")
    assert (late["at"], late["host"]) == (40, "b")
    (rejected,) = parquet_rows(out / "requests.rejected")
    assert "zero" in rejected["reason"]


@pytest.mark.spark
def test_a_job_to_its_end_and_once_more(run: Run, job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text, _ = run("run", job, "--out", out, "--json", "--quiet")
    assert code == 0
    summary = json.loads(text)
    assert summary["state"] == "finished"
    assert summary["streams"]["requests"] == {"rows": 6, "late": 1, "rejected": 1}
    rows = {name: query["rows"] for name, query in summary["queries"].items()}
    assert rows == {"errors": 3, "minutes": 5, "totals": 2, "nothing": 0}
    check_results(out)

    code, text, _ = run("run", job, "--out", out, "--json")
    assert code == 0
    assert json.loads(text) == summary | {"again": True}
    code, text, _ = run("run", job, "--out", out)
    assert code == 0
    assert "finished before" in text

    # another meaning, format or input is another run
    before = job.read_text()
    job.write_text("# only a comment\n" + before.replace("batch_rows = 4", "batch_rows = 5"))
    assert run("run", job, "--out", out)[0] == 0
    job.write_text(before.replace(">= 500", ">= 501"))
    code, _, told = run("run", job, "--out", out)
    assert code == 2
    assert "query errors has changed" in told
    job.write_text(before)
    code, _, told = run("run", job, "--out", out, "--format", "csv")
    assert code == 2
    assert "--format" in told
    with (tmp_path / "requests.csv").open("a") as file:
        file.write("200,c,500,1\n")
    code, _, told = run("run", job, "--out", out)
    assert code == 2
    assert "requests.csv has changed" in told
    check_results(out)


@pytest.mark.spark
def test_a_crash_at_every_point_and_the_same_result(
    run: Run, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millstream.store import faults  # noqa: PLC0415

    out = tmp_path / "out"
    crashed: list[str] = []

    def hook(point: str) -> None:
        if point not in crashed:
            crashed.append(point)
            raise RuntimeError(f"crash at {point}")

    faults.set_hook(hook)
    try:
        for _ in range(len(faults.POINTS) + 1):
            code, _, told = run("run", job, "--out", out, "--quiet")
            if code == 0:
                break
            assert code == 70
            assert "crash at" in told
            assert str(out / ".millstream" / "crash.log") in told
    finally:
        faults.set_hook(None)
    assert code == 0
    assert {"ingest.written", "step.committed", "delivery.written"} <= set(crashed)
    check_results(out)
    assert not [p for p in out.rglob("*") if p.is_file() and p.name.startswith(".part")]


@pytest.mark.spark
def test_csv_and_json(run: Run, job: Path, tmp_path: Path) -> None:
    text = JOB.split("[queries.minutes]", maxsplit=1)[0]
    text += '[queries.totals]\ncql = "SELECT host, count(*) AS n FROM requests GROUP BY host"\n'
    job.write_text(text + "[engine]\ncollect_bytes_max = 1\n")  # executors write everything
    assert run("run", job, "--out", tmp_path / "c", "--format", "csv", "--quiet")[0] == 0
    rows = [r for f in texts(tmp_path / "c" / "errors") for r in csv.DictReader(io.StringIO(f))]
    assert sorted((r["host"], int(r["status"])) for r in rows) == [e[:2] for e in ERRORS]
    assert rows[0]["ts"].startswith("1970-01-01 00:0")
    assert run("run", job, "--out", tmp_path / "j", "--format", "json", "--quiet")[0] == 0
    lines = [line for f in texts(tmp_path / "j" / "totals") for line in f.splitlines()]
    assert sorted((r["host"], r["n"]) for r in map(json.loads, lines)) == TOTALS


@pytest.mark.spark
def test_a_failed_query_and_the_others(run: Run, job: Path, tmp_path: Path) -> None:
    text = JOB.split("[queries.minutes]", maxsplit=1)[0]
    job.write_text(text + '[queries.bad]\ncql = "SELECT CAST(bytes AS INT) AS n FROM requests"\n')
    out = tmp_path / "out"
    code, text, _ = run("run", job, "--out", out, "--json", "--quiet")
    assert code == 1
    summary = json.loads(text)
    assert summary["queries"]["bad"]["state"] == "failed"
    assert "'x'" in summary["queries"]["bad"]["reason"]
    (culprit,) = summary["queries"]["bad"]["culprits"]
    assert culprit["values"] == {"at": 60, "host": "b", "status": 200, "bytes": "x"}
    assert (culprit["stream"], culprit["row"]) == ("requests", 6)
    assert summary["queries"]["errors"] == {
        "state": "done", "rows": 3, "path": str(out / "errors"),
    }  # fmt: skip
    code, text, _ = run("run", job, "--out", out)
    assert code == 1
    assert "failed" in text
    assert "bytes='x'" in text


@pytest.mark.spark
def test_a_bad_query_changes_nothing(run: Run, job: Path, tmp_path: Path) -> None:
    job.write_text(JOB.replace("status >= 500", "statsu >= 500").replace("count(*)", "cuont(*)", 1))
    code, _, told = run("run", job, "--out", tmp_path / "out", "--quiet")
    assert code == 2
    assert f"{job}:9:48: query errors: unknown column statsu; did you mean status?" in told
    assert "query minutes" in told
    assert "^^^^^^" in told
    job.write_text(JOB)  # the folder belongs to nobody yet
    assert run("run", job, "--out", tmp_path / "out", "--quiet")[0] == 0


@pytest.mark.spark
def test_a_new_file_in_a_folder_is_changed_input(run: Run, job: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "requests.csv").rename(tmp_path / "in" / "1.csv")
    text = JOB.split("[queries.minutes]", maxsplit=1)[0]
    job.write_text(text.replace('"requests.csv"', '"in"'))
    assert run("run", job, "--out", tmp_path / "out", "--quiet")[0] == 0
    (tmp_path / "in" / "2.csv").write_text("at,host,status,bytes\n")
    code, _, told = run("run", job, "--out", tmp_path / "out")
    assert code == 2
    assert "2.csv was not there when this run began" in told


NASTY = """\
[streams.empty]
path    = "empty.csv"
columns = { at = "timestamp", n = "int" }
time    = "at"

[streams."select"]
path    = "rows.jsonl"
columns = { from = "timestamp", "größe 'x'" = "int" }
time    = "`from`"

[streams.broken]
path    = "broken.parquet"
columns = { at = "timestamp", n = "int" }
time    = "at"

[queries.none]
cql = "SELECT n FROM empty"

[queries.order]
cql = "SELECT `größe 'x'` AS `group` FROM `select` WHERE `größe 'x'` > 0"

[queries.lost]
cql = "SELECT count(*) AS n FROM broken"
"""


@pytest.mark.spark
def test_bad_input_loses_no_good_row(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(NASTY)
    (tmp_path / "empty.csv").write_text("")
    good = {"from": "2024-01-01T00:00:00Z", "größe 'x'": 1}
    lines = [
        json.dumps(good, ensure_ascii=False),
        '{"from": "2024-01-01T00:00:01Z", "größe \'x\'": "many"}',
        '{"from": null, "größe \'x\'": 2}',
        '{"from": "2024-01-01T00:00:02Z", ',
        json.dumps(good | {"more": "é" * 1_000_000}, ensure_ascii=False),
        "",
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1" + bytes(100))
    code, text, _ = run("run", tmp_path / "job.toml", "--out", tmp_path / "out", "--json")
    assert code == 4, "most rows of two streams do not count"
    streams = json.loads(text)["streams"]
    assert streams["empty"] == {"rows": 0, "late": 0, "rejected": 0}
    assert streams["select"] == {"rows": 2, "late": 0, "rejected": 3}
    assert streams["broken"]["rows"] == 0
    assert [r["group"] for r in parquet_rows(tmp_path / "out" / "order")] == [1, 1]
    reasons = [r["reason"] for r in parquet_rows(tmp_path / "out" / "select.rejected")]
    assert any("many" in reason for reason in reasons)
    assert "the time is null" in reasons
    (lost,) = parquet_rows(tmp_path / "out" / "broken.rejected")
    assert "cannot be read" in lost["reason"]


@pytest.mark.spark
@pytest.mark.parametrize("folder", ["errors", "requests.rejected"])
def test_a_full_disk_is_told_and_nothing_is_lost(
    run: Run, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    from millstream.store import delivery  # noqa: PLC0415

    real, failed = delivery.write_file, []

    def full(table: Any, target: Path, kind: str) -> None:
        if target.parent.name == folder and not failed:
            failed.append(target)
            raise OSError(28, "No space left on device")
        real(table, target, kind)

    monkeypatch.setattr(delivery, "write_file", full)
    code, _, told = run("run", job, "--out", tmp_path / "out", "--quiet")
    assert code == 3
    assert "the disk is full" in told
    assert "nothing is lost" in told
    assert run("run", job, "--out", tmp_path / "out", "--quiet")[0] == 0
    check_results(tmp_path / "out")


def test_one_run_a_folder(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import os  # noqa: PLC0415

    with FolderLock(tmp_path / "out" / ".millstream"):
        assert cli.run(["run", str(job), "--out", str(tmp_path / "out")]) == 2
    assert f"in use by another run (pid {os.getpid()})" in capsys.readouterr().err


def test_files_of_others_are_never_touched(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "errors").mkdir(parents=True)
    (tmp_path / "out" / "errors" / "part-9.parquet").write_text("precious")
    assert cli.run(["run", str(job), "--out", str(tmp_path / "out")]) == 2
    assert "was not written by this job" in capsys.readouterr().err
    assert (tmp_path / "out" / "errors" / "part-9.parquet").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "Missing argument"),
        (["run", "none.toml", "--out", "x"], "cannot read none.toml"),
        (["run", "JOB", "--out", "x", "--format", "xml"], "unknown output format 'xml'"),
        (["run", "JOB", "--out", "JOB"], "cannot write to"),
        (["rnu"], "did you mean run?"),
        (["run", "JOB", "--outt", "x"], "No such option"),
        (["explain"], "nothing to explain"),
        (["explain", "JOB", "erors"], "did you mean errors?"),
        (["bench", "singel"], "did you mean single?"),
    ],
)
def test_mistakes_on_the_command_line(
    arguments: list[str], told: str, job: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(job.parent)
    assert cli.run([str(job) if a == "JOB" else a for a in arguments]) == 2
    assert told in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("millstream 0.")
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("run", "explain", "validate", "bench", "demo"))


@pytest.mark.spark
def test_explain_and_validate(run: Run, job: Path) -> None:
    code, text, _ = run("explain", job, "minutes")
    assert code == 0
    assert "over 1 minute" in text
    assert "errors" not in text
    code, text, _ = run("explain", job, "--json")
    assert code == 0
    assert set(json.loads(text)) == {"errors", "minutes", "totals", "nothing"}
    code, text, _ = run("explain", job, "--cql", "SELECT host FROM requests WHERE status > 1")
    assert code == 0
    assert "status" in text
    created = "CREATE STREAM s (a INT, t TIMESTAMP) WITH (time = 't'); SELECT a FROM s"
    code, text, _ = run("explain", "--cql", created)
    assert code == 0
    assert "stream s" in text
    code, text, _ = run("validate", job)
    assert code == 0
    assert "no mistake" in text
    job.write_text(
        JOB.replace("status >= 500", "statsu >= 500").replace("SELECT host, c", "SELECT ")
    )
    code, text, told = run("validate", job)
    assert code == 2
    assert "statsu" in told
    assert "3 mistakes" in told or "2 mistakes" in told
    code, text, _ = run("validate", job, "--json")
    assert code == 2
    first = json.loads(text)["errors"][0]
    assert (first["line"], first["column"]) == (9, 48)
