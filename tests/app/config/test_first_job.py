"""`millstream init`: what is found in files, and that what is written runs as it is."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from found_files import FILES, FoundFile, write
from millstream.app.cli import run
from millstream.app.config import load_job
from millstream.app.config.first_job import inputs_of
from millstream.control.definitions.stream_table import StreamReader
from millstream.core.errors import UsageError


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_found_in_a_file(file: FoundFile, tmp_path: Path) -> None:
    (one,) = inputs_of([write(tmp_path, file)])
    assert {f.name: f.type for f in one.found.columns} == dict(file.columns)
    assert one.found.time == file.time
    assert dict(one.found.options) == dict(file.options)
    assert (one.found.rows, one.found.lateness_us) == (file.rows, file.lateness_us)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_path_alone_declares_the_same_stream(file: FoundFile, tmp_path: Path) -> None:
    table = {"path": str(write(tmp_path, file))}
    if file.name.endswith(".dat"):
        table["format"] = "csv"
    reader = StreamReader("s", table, tmp_path)
    definition = reader.definition()
    assert definition is not None, reader.mistakes
    assert definition.time == file.time
    assert [f.name for f in definition.columns] == list(file.columns)
    assert dict(definition.source.get("options", {})) == dict(file.options)


def initialised(files: Sequence[Path], target: Path, *more: str) -> str:
    assert run(["init", *map(str, files), "--out", str(target), *more]) == 0
    return target.read_text()


@pytest.mark.spark
def test_all_files_run_in_one_job_without_an_edit(tmp_path: Path, spark: Any, capsys: Any) -> None:
    job = tmp_path / "all.toml"
    paths = [write(tmp_path, file) for file in FILES]
    initialised(paths, job)
    first = "\n".join(
        f'[queries.first_{one.name}]\ncql = "SELECT ts AS first FROM {one.name}"'
        for one, file in zip(inputs_of(paths), FILES, strict=True)
        if file.first
    )
    more = '\n[queries.notes_read]\ncql = "SELECT note, n FROM notes"\n'
    more += '\n[queries.british_read]\ncql = "SELECT text FROM british"\n'
    more += '\n[queries.cities]\ncql = "SELECT Ort, Betrag FROM bestellungen"\n'
    job.write_text(job.read_text() + first + more)
    out = tmp_path / "out"
    capsys.readouterr()
    assert run(["run", str(job), "--out", str(out), "--format", "json", "--json", "-q"]) == 0
    summary = json.loads(capsys.readouterr().out)
    for file, one in zip(FILES, inputs_of(paths), strict=True):
        expected = {"rows": file.rows, "late": 0, "rejected": 0}
        assert summary["streams"][one.name] == expected, file.name
        if file.first:
            times = [str(row["first"]) for row in rows_of(out / f"first_{one.name}")]
            assert min(times).startswith(file.first), file.name
    assert [row["note"] for row in rows_of(out / "notes_read")] == [
        'she said "no"\nand left', "", "a, b",
    ]  # fmt: skip
    assert [row["n"] for row in rows_of(out / "notes_read")] == [1, 2, None]
    assert rows_of(out / "british_read")[0]["text"] == 'say "hi" now'
    assert [row["Ort"] for row in rows_of(out / "cities")] == ["Köln", "München", "Köln"]
    assert str(rows_of(out / "cities")[0]["Betrag"]) == "1234.50"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(t) for p in sorted(folder.glob("*.json")) for t in p.read_text().splitlines()
    ]


def test_files_of_a_kind_become_one_stream(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    for day in (1, 2, 3):
        (folder / f"{day}.csv").write_text(f"at,n\n2025-12-0{day} 10:00:00,1\n")
    text = initialised(sorted(folder.iterdir()), tmp_path / "job.toml")
    assert text.count("[streams.") == 1
    (stream,) = load_job(tmp_path / "job.toml").streams
    assert (stream.name, stream.source["path"]) == ("days", str(folder / "*.csv"))
    for given in (folder, folder / "*.csv"):
        assert [i.name for i in inputs_of([given])] == ["days"]
    assert [i.name for i in inputs_of([folder / "1.csv", folder / "2.csv"])] == ["s_1", "s_2"]


def test_a_zone_is_written_where_times_name_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("at,n\n2025-12-31 14:00:00,1\n")
    initialised([path], tmp_path / "a.toml", "--zone", "Europe/Berlin")
    (stream,) = load_job(tmp_path / "a.toml").streams
    assert stream.source["options"]["timeZone"] == "Europe/Berlin"
    path.write_text("at,n\n31.12.2025 14:00,1\n")
    initialised([path], tmp_path / "a.toml", "--zone", "Europe/Berlin", "--force")
    (stream,) = load_job(tmp_path / "a.toml").streams
    wanted = "to_utc_timestamp(to_timestamp(at, 'dd.MM.yyyy HH:mm'), 'Europe/Berlin')"
    assert stream.time == wanted


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("empty.csv", "", "empty.csv is empty"),
        ("header.csv", "at,n\n", "has a header and no rows"),
        ("timeless.csv", "city,n\nUlm,1\nBonn,2\n", "is a time"),
        ("nested.json", '{"items": [{"a": 1}]}', "jq -c '.items[]'"),
        ("clock.csv", "time,n\n8:00 AM,1\n8:05 AM,2\n", "'yyyy-MM-dd h:mm a')\""),
        ("table.txt", "time  n\n1  2\n3  4\n", "put commas there: sed"),
        ("prose.txt", "hello\nworld\n", "is plain text"),
        ("french.csv", "Date heure,n\n28/03/2025 22h00,1\n", '--time "to_timestamp(Date_heure'),
        ("page.csv", "\ufeff<!DOCTYPE html><html><body>404, sorry</body></html>\n", "a web page"),
        ("sheet.csv", "PK\x03\x04 and so on\n", "a zip archive or a spreadsheet"),
        ("base.txt", "SQLite format 3\0\n", "an SQLite database"),
        ("excel.csv", "sep=;\nat;n\n2025-12-31 14:00:00;1\n", "a word to spreadsheets, no row"),
    ],
)
def test_what_cannot_be_a_stream_is_told_with_the_edit(
    name: str, content: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError) as error:
        inputs_of([path])
    assert told in f"{error.value} {error.value.hint}"
    assert error.value.hint


@pytest.mark.parametrize(
    ("line", "time"),
    [
        (
            'h - - [01/Jan/2024:10:00:0{} +0000] "GET /?a[0]=1" 200 1',
            "to_timestamp(substring_index(substring_index(value, ']', 1), '[', -1), "
            "'dd/MMM/yyyy:HH:mm:ss Z')",
        ),
        (
            "2024-03-30 12:00:0{},123 INFO worker took 3 ms",
            "to_timestamp(substr(value, 1, 23), 'yyyy-MM-dd HH:mm:ss,SSSSSS')",
        ),
        (
            "Mar  3 12:00:0{} host sshd[1]: hello",
            "to_timestamp(concat('2024 ', regexp_replace(substr(value, 1, 15), ' +', ' ')), "
            "'yyyy MMM d HH:mm:ss')",
        ),
        ("2024-03-30T12:00:0{}.123456Z started", "to_timestamp(substr(value, 1, 27))"),
        (
            "level=info time=2024-03-30T12:00:0{}Z msg=started",
            "to_timestamp(regexp_extract(value, '[0-9]{4}[-/.][0-9]{2}[-/.][0-9]{2}[T ][0-9]{2}"
            ":[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2}| [+-][0-9]{4})?', 0))",
        ),
        ("2024-03-30 12:00:0{} +0100 started", "to_timestamp(substr(value, 1, 25))"),
        (
            "2024/03/30 12:00:0{} no disk, sorry",
            "to_timestamp(substr(value, 1, 19), 'yyyy/MM/dd HH:mm:ss')",
        ),
    ],
)
def test_lines_of_a_log_are_text_with_a_time(line: str, time: str, tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("".join(line.format(n) + "\n" for n in range(9)) + "  the rest of one\n")
    os.utime(path, (1_720_000_000, 1_720_000_000))  # its year stands for lines that tell none
    (one,) = inputs_of([path])
    assert (one.format, one.found.time, one.found.span_us) == ("text", time, 8_000_000)
    assert "lines without a time of their own are rejected" in one.found.notes


def test_blanks_before_a_time_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id, created, price,\n" + "".join(
        f"{n}, 2024/03/30 12:00:0{n}, $1.50,\n" for n in range(9)))  # fmt: skip
    (one,) = inputs_of([path])
    assert one.found.options["ignoreLeadingWhiteSpace"]
    assert one.found.time == "to_timestamp(created, 'yyyy/MM/dd HH:mm:ss')"


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("171180000{}000", "timestamp_millis(CAST(at AS BIGINT))"),
        ("171180000{}.25", "timestamp_seconds(CAST(at AS DOUBLE))"),
    ],
)
def test_numbers_since_1970_may_be_texts(value: str, time: str, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text("".join(f'{{"at": "{value.format(n)}", "n": {n}}}\n' for n in range(9)))
    (one,) = inputs_of([path])
    assert one.found.time == time


def test_a_job_file_is_not_replaced_unasked(tmp_path: Path, capsys: Any) -> None:
    path, job = tmp_path / "a.csv", tmp_path / "a.toml"
    path.write_text("at,n\n2025-12-31 14:00:00,1\n")
    job.write_text("mine")
    assert run(["init", str(path), "--out", str(job)]) == 2
    assert job.read_text() == "mine"
    assert "--force" in capsys.readouterr().err


def test_a_time_that_is_given_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("name,age\nann,5\nbob,6\n")
    text = initialised([path], tmp_path / "a.toml", "--time", "TIMESTAMP '2026-01-01'")
    assert """time    = "TIMESTAMP '2026-01-01'\"""" in text


def test_a_header_in_the_middle_does_not_make_texts_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("at,n\n2025-12-31 14:00:00,1\nat,n\n2025-12-31 14:01:00,2\n")
    (one,) = inputs_of([path])
    assert [f.type for f in one.found.columns] == ["timestamp", "bigint"]


def test_lines_that_are_no_rows_are_told_and_take_no_types(tmp_path: Path) -> None:
    rows = "".join(f"31.12.2025 14:0{n};{n},5;{n}%\n" for n in range(9))
    for above, note in (
        ("Report of station 7;;\nmade today;;\n", "the first 3 lines are not rows"),
        ("Report of station 7\nmade today\n\n", "the first 3 lines are not rows"),
        ("", ""),
    ):
        (path := tmp_path / "a.csv").write_text(f"{above}at;v;load\n{rows}")
        (one,) = inputs_of([path])
        types = {f.name: f.type for f in one.found.columns}
        assert types == {"at": "string", "v": "decimal(18,1)", "load": "string"}
        assert note in " ".join(one.found.notes)
        assert "CAST(replace(load, '%', '') AS DOUBLE)" in " ".join(one.found.notes)
    path.write_text(f"at;v;load\n-;m/s;%\n{rows}")
    (one,) = inputs_of([path])
    assert [f.type for f in one.found.columns] == ["string", "decimal(18,1)", "string"]
    assert "the line below the names" in one.found.notes[0]


def test_of_a_folder_the_files_of_one_kind_are_taken(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "a.csv").write_text("at,n\n2025-12-31 14:00:00,1\n")
    (folder / "b.json").write_text('{"at": "2025-12-31 14:00:00"}\n')
    (folder / "z.csv").write_text("at,n\n2025-12-31 14:00:00,1\n")
    (one,) = inputs_of([folder])
    assert (one.name, one.path) == ("mixed", folder / "*.csv")
    assert "b.json of the folder is left out" in one.found.notes[0]


def test_a_folder_of_folders_is_told(tmp_path: Path) -> None:
    (tmp_path / "part" / "year=2025").mkdir(parents=True)
    (tmp_path / "part" / "year=2025" / "a.csv").write_text("at,n\n2025-12-31 14:00:00,1\n")
    with pytest.raises(UsageError) as error:
        inputs_of([tmp_path / "part"])
    assert "year=2025" in error.value.hint


def test_parquet_without_rows_and_of_types_that_we_do_not_know(tmp_path: Path) -> None:
    at = pa.array([], pa.timestamp("us", "UTC"))
    clock = pa.array([], pa.time64("us"))
    pq.write_table(pa.table({"at": at, "clock": clock}), tmp_path / "a.parquet")
    (one,) = inputs_of([tmp_path / "a.parquet"])
    assert ([f.name for f in one.found.columns], one.found.time) == (["at"], "at")
    assert "clock is left out" in one.found.notes[0]
