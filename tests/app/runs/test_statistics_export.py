"""Statistics as a spreadsheet and as parquet."""

import doctest
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq
import pytest

from millstream.app import cli
from millstream.app.runs import statistics_export
from millstream.app.runs.statistics_export import (
    check_export_folder,
    export_statistics,
    keep_statistics,
    kept_statistics,
    statistics_of,
)
from millstream.core.errors import UsageError

STATUS = {
    "streams": {"s": {"rows": 3, "watermark": None}, "t": {"rows": 0, "watermark": "end"}},
    "operators": {
        "o:1": {"label": "=SUM(1)", "queries": ["q", "r"], "seconds": 0.5},
        "o:2": {"label": "bell \x07", "queries": [], "seconds": 2},
    },
    "queries": {},
}


def sheet(path: Path, name: str) -> list[tuple[Any, ...]]:
    return list(openpyxl.load_workbook(path, read_only=False)[name].iter_rows(values_only=True))


def test_doctests() -> None:
    assert doctest.testmod(statistics_export).failed == 0


def test_a_sheet_and_a_parquet_file_for_each_table(tmp_path: Path) -> None:
    tables = statistics_of(STATUS, {"state": "finished", "steps": 7, "streams": {}})
    files = export_statistics(tables, tmp_path / "new" / "folder")
    assert [file.name for file in files] == [
        "statistics.xlsx",
        "summary.parquet",
        "streams.parquet",
        "operators.parquet",
    ]
    assert sheet(files[0], "summary") == [("state", "steps"), ("finished", 7)]
    assert sheet(files[0], "streams") == [
        ("stream", "rows", "watermark"),
        ("s", 3, None),
        ("t", 0, "end"),
    ]
    assert pq.read_table(files[2]).to_pylist()[0] == {"stream": "s", "rows": 3, "watermark": None}


def test_text_is_text_and_never_a_formula(tmp_path: Path) -> None:
    file = export_statistics(statistics_of(STATUS), tmp_path)[0]
    book = openpyxl.load_workbook(file)
    cells = [cell for row in book["operators"].iter_rows(min_row=2) for cell in row]
    assert all(cell.data_type != "f" for cell in cells)
    values = [cell.value for cell in cells]
    assert "=SUM(1)" in values
    assert "bell ?" in values
    assert "q, r" in values


def test_columns_of_several_kinds_become_text(tmp_path: Path) -> None:
    file = export_statistics({"mixed": [{"a": 1}, {"a": "x", "b": 2.5}]}, tmp_path)[1]
    assert pq.read_table(file).to_pylist() == [{"a": "1", "b": None}, {"a": "x", "b": 2.5}]


def test_nothing_measured_is_a_file_all_the_same(tmp_path: Path) -> None:
    assert export_statistics({}, tmp_path)[0].exists()


def test_statistics_are_kept_with_the_run(tmp_path: Path) -> None:
    tables = statistics_of(STATUS)
    keep_statistics(tables, tmp_path)
    assert kept_statistics(tmp_path) == tables
    with pytest.raises(UsageError, match="no statistics"):
        kept_statistics(tmp_path / "elsewhere")


def test_a_folder_that_cannot_be_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot export"):
        check_export_folder(tmp_path / "file" / "below")


JOB = """\
[streams.s]
path = "s.csv"
columns = { at = "long", v = "int" }
time = "timestamp_seconds(at)"

[queries.big]
cql = "SELECT v FROM s WHERE v > 1"
"""


@pytest.mark.spark
def test_a_run_exports_when_it_ends_and_again_later(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.csv").write_text("1,1\n2,2\n3,3\n")
    (tmp_path / "job.toml").write_text(JOB)
    command = ["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    for folder in ("first", "second"):  # the second time the run has been finished before
        assert cli.run([*command, "--export", str(tmp_path / folder)]) == 0
        found = sheet(tmp_path / folder / "statistics.xlsx", "queries")
        row = dict(zip(*found, strict=True))
        assert (row["query"], row["rows"]) == ("big", 2)
        streams = pq.read_table(tmp_path / folder / "streams.parquet").to_pylist()
        assert streams[0]["rows"] == 3
