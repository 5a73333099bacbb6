"""The demo and the README's example: they run, end by themselves, and their numbers are right."""

import csv
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from millstream.app import cli, demo
from millstream.app.config import load_job
from millstream.core.errors import UsageError

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"


def test_the_job_is_found_and_read_without_spark() -> None:
    path = demo.job_path()
    job = load_job(path)
    assert len(job.queries) == 30
    assert all(Path(s.source["path"]).is_file() for s in job.streams)
    assert "30 continuous queries over 6 streams" in demo.introduction(path)
    assert "millstream explain" in demo.what_next(path, Path("out/demo"))


def test_every_data_set_keeps_its_licence() -> None:
    for folder in DATA.iterdir():
        if folder.is_dir():
            names = [p.name for p in folder.iterdir()]
            assert any(n.startswith("LICENSE") or n.endswith(".html") for n in names), folder


def test_only_a_finished_demo_is_replaced(tmp_path: Path) -> None:
    job = load_job(demo.job_path())
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UsageError, match="something else"):
        demo.demo_folder(tmp_path, job)
    assert (tmp_path / "precious").exists()
    out = tmp_path / "old"
    with demo.demo_folder(out, job) as folder:
        folder.record(job, demo.FORMAT)
    with demo.demo_folder(out, job) as folder:
        assert folder.recorded()  # unfinished: it goes on
        folder.finish({"queries": {}})
    with demo.demo_folder(out, job) as folder:
        assert not folder.recorded()
        folder.record(job, "csv")
    with demo.demo_folder(out, job) as folder:
        assert not folder.recorded()  # another job's


def test_the_readme_shows_the_example_as_it_is() -> None:
    readme = (ROOT / "README.md").read_text()
    assert (ROOT / "examples" / "doors" / "doors.csv").read_text() in readme
    assert (ROOT / "examples" / "doors" / "doors.toml").read_text() in readme


def rows(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    found = [row for file in folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    return sorted(tuple(row[name] for name in names) for row in found)


def sql(text: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as db:
        return sorted(tuple(row) for row in db.execute(text).fetchall())


@pytest.mark.spark
def test_the_demo_ends_by_itself_with_the_right_rows(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert cli.run(["demo", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    for query in load_job(demo.job_path()).queries:
        assert pq.read_table(out / query.name).num_rows > 0, query.name
        assert f"\n{query.name} " in shown  # a row of it was shown
    assert shown.index("Next step") < shown.index("What else to try")
    summary = json.loads((out / ".millstream" / "summary.json").read_text())
    sharing = summary["sharing"]
    assert sharing["jobs"] < sharing["jobs_alone"]
    assert (
        0
        < sharing["saved_s"]
        == pytest.approx(sharing["seconds_alone"] - sharing["seconds"], abs=0.02)
    )
    assert f"({sharing['saved_part'] * 100:.0f} %) saved" in shown

    requests = f"read_csv('{DATA}/web-nasa/nasa_19950701.tsv', header=true, null_padding=true)"
    assert rows(out / "errors", "host", "url", "response") == sql(
        f"SELECT host, url, response FROM {requests} WHERE response >= 400"
    )
    assert rows(out / "totals", "response", "requests") == sql(
        f"SELECT response, count(*) FROM {requests} GROUP BY 1"
    )
    assert rows(out / "patient_hosts", "ts", "host", "requests") == sql(
        f"WITH asked AS (SELECT host, time FROM {requests}),"
        " ends AS (SELECT DISTINCT (time // 60 + k) * 60 AS t FROM asked, range(1, 16) r(k))"
        " SELECT to_timestamp(t) AT TIME ZONE 'UTC' AT TIME ZONE 'UTC', host, count(*)"
        " FROM ends JOIN asked ON time >= t - 900 AND time < t GROUP BY t, host"
        " HAVING count(*) >= 35"
    )
    speed, occupancy = (
        f"read_csv('{DATA}/traffic-minnesota/{name}_6005.csv')" for name in ("speed", "occupancy")
    )
    assert rows(out / "jams", "mph", "occupancy") == sql(
        f"SELECT s.value, o.value FROM {speed} s JOIN {occupancy} o"
        " ON greatest(s.timestamp, o.timestamp)"
        " <= least(s.timestamp, o.timestamp) + INTERVAL 5 MINUTES"
        " WHERE s.value < 45 AND o.value > 15"
    )
    trades, quotes = (
        f"read_csv('{DATA}/ticks-ibm/{name}.csv', header=false)" for name in ("trades", "quotes")
    )
    assert rows(out / "better_than_asked", "exchange", "size", "paid", "asked") == sql(
        "SELECT t.column3, t.column2, t.column1 / 10000, q.column3 / 10000"
        f" FROM {trades} t JOIN {quotes} q ON t.column3 = q.column5"
        " AND t.column0 BETWEEN q.column0 AND q.column0 + 500"
        " WHERE q.column3 > 0 AND t.column1 < q.column3 AND t.column2 >= 100"
    )


@pytest.mark.spark
def test_the_readmes_example_gives_what_it_says(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ROOT / "examples" / "doors" / "doors.toml"
    out = tmp_path / "doors"
    assert cli.run(["run", str(job), "--out", str(out), "--format", "csv", "--quiet"]) == 0
    capsys.readouterr()
    readme = (ROOT / "README.md").read_text()
    busy = [line for f in (out / "busy").iterdir() for line in f.read_text().splitlines()]
    assert len(set(busy)) == 4
    assert all(line in readme for line in busy)
    (rejected,) = (file.read_text() for file in (out / "doors.rejected").iterdir())
    assert rejected in readme
    two = [
        row
        for file in (out / "two_doors").iterdir()
        for row in csv.reader(file.read_text().splitlines())
    ]
    assert ["ann", "north", "south", "2024-05-01 08:01:10.000000"] in two
