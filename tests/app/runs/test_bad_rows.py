"""Rows that do not count are told: the cause and the line to change; what we write we read back."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from millstream.app import cli
from millstream.app.config import load_job
from millstream.app.runs.bad_rows import refuse_bad_rows, warnings_of
from millstream.app.runs.summary import exit_code
from millstream.core.errors import BadRowsError

WRONG = """
[streams.orders]
path    = "orders.csv"
columns = {{ at = "timestamp", city = "string", n = "long" }}
time    = "at"
{more}
[queries.q]
cql = "SELECT city FROM orders"
"""


def warned(folder: Path, content: str, figures: dict[str, int], more: str = "") -> dict[str, Any]:
    (folder / "orders.csv").write_text(content)
    (folder / "job.toml").write_text(WRONG.format(more=more))
    (told,) = warnings_of(load_job(folder / "job.toml"), {"orders": figures}, folder / "out")
    return told


ALL_REJECTED = {"rows": 0, "late": 0, "rejected": 2}


@pytest.mark.parametrize(
    ("content", "change"),
    [
        ("at;city;n\n2025-12-31 14:00:00;Ulm;1\n2025-12-31 14:01:00;Bonn;2\n", 'separator = ";"'),
        ("2025-12-31 14:00:00\tUlm\t1\n2025-12-31 14:01:00\tBonn\t2\n", 'separator = "\\t"'),
        (
            "31.12.2025 14:00,Ulm,1\n31.12.2025 14:01,Bonn,2\n",
            "time = \"to_timestamp(at, 'dd.MM.yyyy HH:mm')\"",
        ),
        ("at,city,n\n31.12.2025 14:00,Ulm,1\n31.12.2025 14:01,Bonn,2\n", 'columns.at = "string"'),
        ("at,city,n\n1735654000123,Ulm,1\n1735654001123,Bonn,2\n", "timestamp_millis(at)"),
        ("at,city\n2025-12-31 14:00:00,Ulm\n2025-12-31 14:01:00,Bonn\n", "columns = { at"),
    ],
)
def test_the_line_to_change_is_told(tmp_path: Path, content: str, change: str) -> None:
    told = warned(tmp_path, content, ALL_REJECTED)
    assert told["severe"]
    assert told["what"] == "2 of 2 rows of orders were rejected"
    assert change in told["change"]
    assert f"{tmp_path / 'job.toml'}:2: [streams.orders]" in told["change"]


def test_rows_out_of_order_are_told_with_the_lateness_that_helps(tmp_path: Path) -> None:
    rows = "".join(f"2025-12-31 14:0{9 - i}:00,Ulm,{i}\n" for i in range(10))
    told = warned(tmp_path, rows, {"rows": 1, "late": 9, "rejected": 0})
    assert told["what"] == "9 of 10 rows of orders came late"
    assert 'lateness = "9 minutes"' in told["change"]


def test_a_stream_without_rows_is_told_and_no_failure(tmp_path: Path) -> None:
    told = warned(tmp_path, "", {"rows": 0, "late": 0, "rejected": 0})
    assert (told["what"], told["severe"]) == ("stream orders had no rows", False)
    assert told["cause"] == "orders.csv is empty"
    assert exit_code({"state": "finished", "warnings": [told]}) == 0
    assert exit_code({"state": "finished", "warnings": [told | {"severe": True}]}) == 4


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_a_file_that_breaks_off_is_told_though_it_is_one_row(tmp_path: Path, format_: str) -> None:
    (tmp_path / "job.toml").write_text(WRONG.format(more=""))
    (tmp_path / "orders.csv").write_text("2025-12-31 14:00:00,Ulm,1\n")
    rejected = tmp_path / "orders.rejected"
    rejected.mkdir()
    reasons = ["cannot read 'x' as int (column n)", "the file breaks off after row 7: end of input"]
    table = pa.table(
        {"reason": reasons, "record": ["x", None], "file": ["a.gz"] * 2, "row": [3, 7]}
    )
    part = rejected / f"part-0000000001.{format_}"
    if format_ == "parquet":
        pq.write_table(table, part)
    elif format_ == "csv":
        pa.csv.write_csv(table, part)
    else:
        part.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    figures = {"orders": {"rows": 900, "late": 0, "rejected": 2}}
    (told,) = warnings_of(load_job(tmp_path / "job.toml"), figures, tmp_path)
    assert told["what"] == "file a.gz of orders is damaged or not whole"
    assert told["cause"] == reasons[1]
    assert exit_code({"state": "finished", "warnings": [told]}) == 4


def test_a_few_bad_rows_are_no_warning(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("2025-12-31 14:00:00,Ulm,1\n")
    (tmp_path / "job.toml").write_text(WRONG.format(more=""))
    job = load_job(tmp_path / "job.toml")
    assert warnings_of(job, {"orders": {"rows": 9, "late": 1, "rejected": 1}}, tmp_path) == []


def test_a_strict_run_stops_at_the_first(tmp_path: Path) -> None:
    good = {"streams": {"s": {"rows": 5, "late": 0, "rejected": 0}}}
    refuse_bad_rows(good, tmp_path)
    with pytest.raises(BadRowsError, match="a row of stream s was late"):
        refuse_bad_rows({"streams": {"s": {"rows": 5, "late": 1, "rejected": 0}}}, tmp_path)


JOB = """
[streams.notes]
path    = "notes.json"
columns = { at = "long", note = "string", n = "long" }
time    = "timestamp_seconds(at)"

[streams.wrong]
path    = "wrong.csv"
columns = { at = "timestamp", city = "string" }
time    = "at"

[queries.copied]
cql = "SELECT at, note, n FROM notes"

[queries.cities]
cql = "SELECT city FROM wrong"
"""
NOTES = ['say "hi"', "two\nlines", "", None, "a,b;c\td", " spaces ", "back\\slash", 'end\\"', "ü"]


@pytest.mark.spark
def test_what_a_run_writes_as_csv_another_reads_back(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"at": 1735654000 + i, "note": note, "n": i} for i, note in enumerate(NOTES)]
    (tmp_path / "notes.json").write_text(json.dumps(rows))  # an array
    (tmp_path / "wrong.csv").write_text("2025-12-31 14:00:00;Ulm\n2025-12-31 14:01:00;Bonn\n")
    (tmp_path / "job.toml").write_text(JOB)
    out = tmp_path / "out"
    command = ["run", str(tmp_path / "job.toml"), "--out", str(out), "--format", "csv", "-q"]
    assert cli.run(command) == 4
    told = capsys.readouterr().out
    assert "WARNING: 2 of 2 rows of wrong were rejected; most often: 1 column where 2" in told
    assert 'separator = ";"' in told
    again = tmp_path / "again.toml"
    assert cli.run(["init", str(out / "copied"), "--out", str(again)]) == 0
    text = again.read_text().replace(
        "[queries.", '[queries.all]\ncql = "SELECT * FROM copied"\n[queries.', 1
    )
    again.write_text(text)
    more = ["--format", "json", "--strict", "-q"]
    assert cli.run(["run", str(again), "--out", str(tmp_path / "two"), *more]) == 0
    found = [
        json.loads(line)
        for file in sorted((tmp_path / "two" / "all").glob("*.json"))
        for line in file.read_text().splitlines()
    ]
    assert [row["note"] for row in found] == NOTES
    capsys.readouterr()
    strict = ["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "three"), "--strict", "-q"]
    assert cli.run(strict) == 4
    assert "a row of stream wrong was rejected, and the run is strict" in capsys.readouterr().err
