"""Bad input of every kind: no good row is lost, every bad one is told with its reason.

All streams run in one engine, so that Spark's fixed costs are paid once.
"""

import bz2
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_engines import base_rows, rejected, stream

from millstream.core.errors import MillstreamError, ResourceError, StateError, UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.engine.sources import file_ingest
from millstream.spark.ingest import file_parsing
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

NASA = Path(__file__).parents[2] / "examples" / "data" / "web-nasa" / "nasa_19950701.tsv"
NASA_COLUMNS = {
    "host": "string", "logname": "string", "time": "long", "method": "string", "url": "string",
    "response": "int", "bytes": "long",
}  # fmt: skip
MEGABYTE = "x" * (1 << 20)
KEYWORDS = {"select": "long", "from": "string", "group by": "int", "_corrupt_record": "string"}


def write_inputs(folder: Path) -> None:
    """Every kind of bad file."""
    text = {
        "empty.csv": "",
        "header_only.csv": "at,name,n\n",
        "trailing.csv": "at,name,n\n1,a,1,,\n2,b,2\n3,c,3,\n4,d,x,\n5,e\n6,f,6,,q\n7,g,7\n",
        "plain_then_trailing.csv": "1,a,1\n" * 60 + "2,b,2,\n3,c,3,,,\n4,d,4,,y\n",
        "types.csv": "1,a,1\n2,b,1.5\n3,c,99999999999\n,d,4\nfive,e,5\n6,,\n",
        "overflow.csv": "1,a,1\n9223372036854775807,b,2\n-62135596801,c,3\n253402300800,d,4\n"
        "5,e,5\n",
        "quoted.csv": '1,"a,b",1\n2,"two\nlines",2\n3,"say ""hi""",3\n4,"a\u2028b",4\n',
        "unicode.csv": "1,日本語,1\n2,Ωμέγα,2\n3,🌊,3\n4,e\u0301,4\n5,\u202eabc,5\n",
        "backwards.csv": "10,a,1\n5,b,2\n10,c,3\n8,d,4\n9,e,5\n",
        "still.csv": "7,a,1\n7,b,2\n7,c,3\n",
        "huge.csv": f"1,{MEGABYTE},1\n2,{MEGABYTE},2,\n3,{MEGABYTE},x\n4,z,4\n",
        "keywords.csv": "1,where,2,x\n2,join,3,y\n",
        "names[1]%20 *.csv": "1,a,1\n2,b,2\n",
        "lines.txt": "1970-01-01 00:00:01 one\n\nnonsense\n1970-01-01 00:00:02 two\n",
        "crlf.csv": "at,name,n\r\n1,a,1\r\n2,b,2\r\n",
        "bom.csv": "\ufeffat,name,n\n1,a,1\n",
    }
    for name, content in text.items():
        (folder / name).write_text(content, encoding="utf-8", newline="")
    rows = b"".join(b"%d,row %d,%d\n" % (i, i * 7919 % 1000003, i) for i in range(20_000))
    whole = gzip.compress(rows)
    (folder / "whole.csv.gz").write_bytes(whole)
    (folder / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "whole.csv.bz2").write_bytes(bz2.compress(rows[:1000]))
    (folder / "binary.csv").write_bytes(b"1,a,1\n\x00\xff\xfe\x00garbage\n2,\xff\xfe,2\n")
    lines = [
        b'{"at":1,"name":"x","n":1}', b'{"at":"no","name":"y"}', b"not json", b'{"at":4', b"{}",
        b"", b'{"at":7,"name":{"q":1}}', b'{"at":8,"n":9999999999}', b"[1,2]", b'"text"',
        b'{"at":null,"name":"z"}', b'{"n":3,"at":9,"other":[1]}', b'{"at":10,"name":"\xff"}',
    ]  # fmt: skip
    (folder / "rows.json").write_bytes(b"\n".join(lines))
    write_parquet(folder / "parquet")
    write_folder(folder / "folder")
    (folder / "nothing").mkdir()


def write_parquet(folder: Path) -> None:
    """One after the other: other order and types, fractions, a missing column, broken files."""
    folder.mkdir()
    times = pa.array([1, 2], pa.time64("us"))
    swapped = {"n": pa.array([1, 2], pa.int64()), "name": ["a", "b"], "z": times}
    pq.write_table(pa.table(swapped | {"at": pa.array([1, 2], pa.int32())}), folder / "a.parquet")
    lossy = {"n": pa.array([1.5, 2.0, None]), "name": ["c", "d", "e"], "at": ["3", "x", "4"]}
    pq.write_table(pa.table(lossy), folder / "b.parquet")
    pq.write_table(pa.table({"name": ["f", "g"], "at": [5, 6]}), folder / "c.parquet")
    (folder / "d.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-20])
    (folder / "e.parquet").write_bytes(b"")
    (folder / "f.parquet").write_bytes(b"PAR1 this is no parquet PAR1")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([1])], ["at", "at"])
    pq.write_table(twice, folder / "g.parquet")
    unlike = {"at": pa.array([[7]]), "name": ["h"], "n": [1]}
    pq.write_table(pa.table(unlike), folder / "h.parquet")
    upper = {"AT": pa.array([8, 9], pa.uint64()), "Name": ["i", "j"], "N": pa.array([1, 2], "u1")}
    pq.write_table(pa.table(upper), folder / "i.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".part.crc").write_bytes(b"x")


def write_folder(folder: Path) -> None:
    """Files of several sizes, the smallest name last written, a hidden one, a folder inside."""
    folder.mkdir()
    for name, start, count in (("c.csv", 4000, 5), ("b.csv", 10, 3000), ("a.csv", 1, 3)):
        rows = "".join(f"{start + i},{name[0]},{i}\n" for i in range(count))
        (folder / name).write_text(rows)
    (folder / ".b.csv.swp").write_text("not,for,us\n")
    (folder / "_temporary").mkdir()
    (folder / "upload.csv._COPYING_").write_text("not,yet,there\n")


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine that has read all of them to the end."""
    folder = tmp_path_factory.mktemp("bad_input")
    write_inputs(folder)
    engine = Engine(folder / "home", SparkPlane(spark), EngineSettings(batch_rows=700))
    with_header = {"header": True}
    for name in ("empty", "types", "overflow", "unicode", "backwards", "still", "huge", "binary"):
        engine.add_stream(stream(name, path=folder / f"{name}.csv"))
    for name in ("header_only", "trailing", "crlf", "bom"):
        engine.add_stream(stream(name, path=folder / f"{name}.csv", options=with_header))
    others = {
        "plain_then_trailing": {"path": folder / "plain_then_trailing.csv"},
        "quoted": {"path": folder / "quoted.csv"},
        "gz": {"path": folder / "whole.csv.gz"},
        "cut_gz": {"path": folder / "cut.csv.gz"},
        "bz2": {"path": folder / "whole.csv.bz2"},
        "odd_name": {"path": folder / "names[1]%20 *.csv"},
        "json": {"path": folder / "rows.json"},
        "parquet": {"path": folder / "parquet"},
        "folder": {"path": folder / "folder"},
        "nothing": {"path": folder / "nothing", "format": "csv"},
    }
    for name, source in others.items():
        engine.add_stream(stream(name, **source))
    engine.add_stream(
        stream("lines", {"line": "string"}, "to_timestamp(left(line, 19))",
               path=folder / "lines.txt")
    )  # fmt: skip
    engine.add_stream(
        stream("order", KEYWORDS, "timestamp_seconds(`select`)", path=folder / "keywords.csv")
    )
    engine.add_stream(
        stream("nasa", NASA_COLUMNS, "timestamp_seconds(time)", path=NASA,
               options={"sep": "\t", "header": True})
    )  # fmt: skip
    engine.add_query(
        "keywords", "SELECT `from`, `group by` AS `where` FROM `order` WHERE `select` > 1"
    )
    engine.add_query("wide", "SELECT length(name) AS l, n FROM huge")
    engine.add_query("names", "SELECT name FROM unicode")
    engine.add_query("counted", "SELECT count(*) AS c FROM still [RANGE 1 SECOND]")
    for name in engine.appenders:  # keeps all rows for the tests to look at
        with engine.ledger.transaction() as ledger:
            ledger.set_cursor("tests", f"s:{name}", 1, 0)
    Loop(engine).run()
    yield engine
    engine.close()


def ats(engine: Engine, name: str) -> list[int]:
    return [row["c0"] for row in base_rows(engine, name)]


def reasons(engine: Engine, name: str) -> list[str]:
    return [reason for reason, _ in rejected(engine, name)]


@pytest.mark.parametrize("name", ["empty", "header_only", "nothing"])
def test_input_without_rows_ends_at_once(world: Engine, name: str) -> None:
    assert base_rows(world, name) == []
    assert rejected(world, name) == []
    assert world.status()["streams"][name]["ended"]


def test_cells_too_many_do_no_harm_where_they_are_empty(world: Engine) -> None:
    assert ats(world, "trailing") == [1, 2, 3, 7]
    assert rejected(world, "trailing") == [
        ("cannot read 'x' as int (column n)", "4,d,x,"),
        ("2 columns where 3 are declared", "5,e"),
        ("more columns than declared", '{"at": 6, "name": "f", "n": 6}'),
    ]


def test_trailing_separators_may_begin_anywhere(world: Engine) -> None:
    assert ats(world, "plain_then_trailing") == [1] * 60 + [2, 3]
    assert reasons(world, "plain_then_trailing") == ["5 columns where 3 are declared"]


def test_no_row_of_the_nasa_log_is_rejected(world: Engine) -> None:
    assert len(base_rows(world, "nasa")) == 9999
    assert rejected(world, "nasa") == []


def test_values_of_other_types_are_told(world: Engine) -> None:
    assert ats(world, "types") == [1, 6]
    assert rejected(world, "types") == [
        ("cannot read '1.5' as int (column n)", "2,b,1.5"),
        ("cannot read '99999999999' as int (column n)", "3,c,99999999999"),
        ("the time is null", '{"name": "d", "n": 4}'),
        ("cannot read 'five' as bigint (column at)", "five,e,5"),
    ]


def test_a_time_that_cannot_be_computed_rejects_its_row_alone(world: Engine) -> None:
    assert ats(world, "overflow") == [1, 5]
    outside = "the time is not between the years 1 and 9999"
    assert reasons(world, "overflow") == ["the time is null", outside, outside]


def test_quoted_separators_and_line_ends(world: Engine) -> None:
    names = [row["c1"] for row in base_rows(world, "quoted")]
    assert names == ["a,b", "two\nlines", 'say "hi"', "a\u2028b"]
    assert rejected(world, "quoted") == []


def test_unicode_comes_out_as_it_went_in(world: Engine) -> None:
    expected = ["日本語", "Ωμέγα", "🌊", "e\u0301", "\u202eabc"]
    assert [row["c1"] for row in base_rows(world, "unicode")] == expected
    assert world.result("names")["name"].to_pylist() == expected


def test_bytes_that_are_no_text_hurt_their_own_line(world: Engine) -> None:
    assert ats(world, "binary") == [1, 2]
    assert len(rejected(world, "binary")) == 1


def test_time_going_backwards_makes_rows_late(world: Engine) -> None:
    assert [row["c1"] for row in base_rows(world, "backwards")] == ["a", "c"]
    assert world.status()["streams"]["backwards"]["late"] == 3


def test_a_stream_that_never_advances_is_counted_at_its_end(world: Engine) -> None:
    assert world.result("counted")["c"].to_pylist() == [3]


def test_rows_of_a_megabyte(world: Engine) -> None:
    assert ats(world, "huge") == [1, 2, 4]
    assert reasons(world, "huge") == ["cannot read 'x' as int (column n)"]
    assert world.result("wide")["l"].to_pylist() == [1 << 20, 1 << 20, 1]


def test_names_that_are_keywords(world: Engine) -> None:
    assert world.result("keywords").drop_columns(["ts"]).to_pylist() == [
        {"from": "join", "where": 3}
    ]


def test_compressed_files(world: Engine) -> None:
    assert ats(world, "gz") == list(range(20_000))
    assert len(ats(world, "bz2")) + len(rejected(world, "bz2")) > 60


def test_a_file_that_breaks_off_gives_what_stands_before(world: Engine) -> None:
    rows = ats(world, "cut_gz")
    assert rows == list(range(len(rows)))
    assert len(rows) > 5_000
    (told,) = reasons(world, "cut_gz")
    assert told.startswith(f"the file breaks off after row {len(rows)}: ")


def test_a_name_that_looks_like_a_pattern(world: Engine) -> None:
    assert ats(world, "odd_name") == [1, 2]


def test_line_ends_and_byte_order_marks(world: Engine) -> None:
    assert [(r["c1"], r["c2"]) for r in base_rows(world, "crlf")] == [("a", 1), ("b", 2)]
    assert ats(world, "bom") == [1]


def test_malformed_json(world: Engine) -> None:
    good = [(r["c0"], r["c1"], r["c2"]) for r in base_rows(world, "json")]
    assert good == [(1, "x", 1), (7, '{"q":1}', None), (9, None, 3)]
    assert reasons(world, "json") == [
        "cannot read 'no' as bigint (column at)",
        "malformed JSON",
        "malformed JSON",
        "the time is null",
        "cannot read 9999999999 as int (column n)",
        "not a JSON object",
        "not a JSON object",
        "the time is null",
        "malformed JSON, or a value of another type than declared",
    ]


def test_parquet_of_other_order_types_and_columns(world: Engine) -> None:
    rows = [(r["c0"], r["c1"], r["c2"]) for r in base_rows(world, "parquet")]
    assert rows == [
        (1, "a", 1), (2, "b", 2), (4, "e", None), (5, "f", None), (6, "g", None), (8, "i", 1),
        (9, "j", 2),
    ]  # fmt: skip
    told = reasons(world, "parquet")
    assert told[:2] == [
        "cannot read 1.5 as int (column n)",
        "cannot read x as bigint (column at)",
    ]
    assert [t.split(":")[0] for t in told[2:]] == ["the file cannot be read"] * 4
    assert "magic bytes" in told[2]
    assert "more than one column at" in told[4]


def test_files_of_a_folder_come_by_name_and_hidden_ones_not_at_all(world: Engine) -> None:
    expected = [*range(1, 4), *range(10, 3010), *range(4000, 4005)]
    assert ats(world, "folder") == expected


def test_text_lines(world: Engine) -> None:
    assert [r["c0"][-3:] for r in base_rows(world, "lines")] == ["one", "two"]
    assert rejected(world, "lines") == [
        ("the time is null", '{"line": ""}'),
        ("the time is null", '{"line": "nonsense"}'),
    ]


def test_positions_count_every_row_that_was_read(world: Engine) -> None:
    """Ties are broken by position, so rejected and late rows count too."""
    assert [row["_pos"] for row in base_rows(world, "trailing")] == [0, 1, 2, 6]


# -- declarations that cannot work ---------------------------------------------------------------


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(batch_rows=100))
    yield opened
    opened.close()


def test_mistakes_in_a_declaration_are_told_at_once(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,at,name\n1,2,x\n")
    (tmp_path / "_hidden.csv").write_text("1,a,1\n")
    (tmp_path / "odd.dat").write_text("1,a,1\n")
    pq.write_table(pa.table({"at": [1], "nam": ["x"], "n": [1]}), tmp_path / "b.parquet")
    path = tmp_path / "a.csv"
    wrong = [
        (stream("missing", path=tmp_path / "none.csv"), "no such file or folder"),
        (stream("order", path=path, options={"header": True}), "in another order: n, at, name"),
        (stream("hidden", path=tmp_path / "_hidden.csv"), "hidden file"),
        (stream("odd", path=tmp_path / "odd.dat"), "no format"),
        (stream("format", path=path, format="xml"), "unknown format 'xml'"),
        (stream("column", path=tmp_path / "b.parquet"), "no column name; did you mean nam?"),
        (stream("rate", path=path, rate="fast"), "rate 'fast'"),
        (stream("file", path=path, follow=True), "follow needs a folder"),
        (stream("text", path=path, format="text"), "one column"),
        (
            stream("nested", {"a": "array<int>", "at": "timestamp"}, "at", path=path),
            "no column of array<int>",
        ),
        (stream("time", time="at", path=path), "not a timestamp"),
        (stream("unknown", time="timestamp_seconds(att)", path=path), "unknown column att"),
        (stream("clock", time="now()", path=path), "now"),
        (stream("code", time="reflect('java.lang.System', 'load', name)", path=path), "reflect"),
        (
            stream(
                "method",
                time="timestamp_seconds(java_method('java.lang.Runtime', 'exit'))",
                path=path,
            ),
            "java_method",
        ),
    ]
    for definition, message in wrong:
        with pytest.raises(UsageError, match=message.replace("?", r"\?")):
            engine.add_stream(definition)
    assert engine.appenders == {}
    engine.add_stream(stream("missing", path=path))  # the name of a refused stream is free


def test_options_that_spark_does_not_know_are_a_users_mistake(
    engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("1,a,1\n")
    engine.add_stream(stream("s", path=tmp_path / "a.csv", options={"encoding": "nonsense"}))
    with pytest.raises(UsageError, match="cannot be read with these options"):
        Loop(engine).run()


def test_a_file_that_is_gone_or_has_changed(engine: Engine, spark: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("1,a,1\n2,b,2\n")
        engine.add_stream(stream(name, path=tmp_path / f"{name}.csv"))
    engine.ingests["a"].advance(1)
    engine.ingests["b"].advance(1)
    engine.close()
    (tmp_path / "a.csv").write_text("1,a,1\n3,b,2\n")
    (tmp_path / "b.csv").unlink()
    (tmp_path / "b.csv").mkdir()
    again = Engine(tmp_path / "home", SparkPlane(spark))
    with pytest.raises(StateError, match="has changed since"):
        again.add_stream(stream("a", path=tmp_path / "a.csv"))
    with pytest.raises(UsageError, match="cannot be read"):
        again.add_stream(stream("b", path=tmp_path / "b.csv"))
    (tmp_path / "b.csv").rmdir()
    with pytest.raises(MillstreamError, match="no such file or folder"):
        again.add_stream(stream("b", path=tmp_path / "b.csv"))
    again.close()


def test_other_columns_than_before_are_refused(engine: Engine, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a,1\n")
    engine.add_stream(stream("a", path=tmp_path / "a.csv"))
    engine.close()
    again = Engine(tmp_path / "home", SparkPlane(spark))
    with pytest.raises(StateError, match="other columns"):
        again.add_stream(stream("a", {"at": "long"}, path=tmp_path / "a.csv"))
    again.close()


# -- sizes, disks, clocks ------------------------------------------------------------------------


def test_a_large_file_is_staged_and_read_back_in_pieces(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are those of a file that is collected, and few of them are in memory at once."""
    monkeypatch.setattr(file_parsing, "STAGE_BYTES_MIN", 1)
    monkeypatch.setattr(file_parsing, "PIECE_BYTES", 1 << 12)
    lines = [f"{i},{'y' * 200} {i},{i if i % 100 else 'bad'}" for i in range(1, 3001)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    engine.add_stream(stream("s", path=tmp_path / "a.csv"))
    parser = engine.ingests["s"]._parser
    sizes = [piece.num_rows for piece in parser.pieces([tmp_path / "a.csv"], [0])]
    assert sum(sizes) == 3000
    assert max(sizes) < 3000
    while not engine.ingests["s"].ended:
        engine.ingests["s"].advance()
    assert len(rejected(engine, "s")) == 30
    assert not (tmp_path / "home" / "staging" / "s").exists()


def test_a_result_too_large_to_collect_is_staged(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small compressed file may hold more than the driver can take."""
    (tmp_path / "a.json").write_text("".join(f'{{"at":{i}}}\n' for i in range(50)))
    engine.add_stream(stream("s", path=tmp_path / "a.json"))
    parser = engine.ingests["s"]._parser
    monkeypatch.setattr(file_parsing, "read_failure", lambda error: False)
    frame = type(parser.spark.range(1))

    def too_large(self: Any) -> None:
        raise file_parsing.PySparkException("bigger than spark.driver.maxResultSize")

    monkeypatch.setattr(frame, "toArrow", too_large)
    rows = [r for piece in parser.pieces([tmp_path / "a.json"], [0]) for r in piece.to_pylist()]
    assert [r["c0"] for r in rows] == list(range(50))


def test_batches_are_bounded_in_bytes(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ingest, "BATCH_BYTES_MAX", 300_000)
    rows = "".join(f"{i},{'z' * 100_000},{i}\n" for i in range(10))
    (tmp_path / "a.csv").write_text(rows)
    engine.add_stream(stream("s", path=tmp_path / "a.csv"))
    taken = []
    while (appended := engine.ingests["s"].advance()) is not None:
        taken.append(appended.rows)
    assert sum(taken) == 10
    assert max(taken) <= 3


def test_a_full_disk_loses_nothing(
    engine: Engine, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/full answers as a full disk does; the same home then goes on where it stood."""
    (tmp_path / "a.csv").write_text("".join(f"{i},a,{i}\n" for i in range(400)))
    definition = stream("s", path=tmp_path / "a.csv")
    engine.add_stream(definition)
    engine.add_query("q", "SELECT n FROM s")
    engine.ingests["s"].advance()
    (engine.store.folder / "full.parquet").symlink_to("/dev/full")
    with monkeypatch.context() as patched:
        patched.setattr(engine.store, "new_name", lambda: "full.parquet")
        with pytest.raises(ResourceError, match="the disk is full"):
            Loop(engine).run()
    engine.close()
    again = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(batch_rows=100))
    again.add_stream(definition)
    again.add_query("q", "SELECT n FROM s")
    Loop(again).run()
    assert sorted(again.result("q")["n"].to_pylist()) == list(range(400))
    again.close()


def test_rows_too_far_in_the_future_are_rejected(engine: Engine, tmp_path: Path) -> None:
    now = int(time.time())
    rows = [{"at": now}, {"at": 253370764800}, {"at": now + 30}, {"at": now - 5}]
    (tmp_path / "a.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
    engine.add_stream(
        stream("s", path=tmp_path / "a.json", max_ahead_us=60_000_000, lateness_us=60_000_000)
    )
    engine.ingests["s"].advance()
    assert ats(engine, "s") == [now, now + 30, now - 5]
    assert reasons(engine, "s") == ["the time is too far in the future"]


# -- growing folders and replay ------------------------------------------------------------------


def test_a_growing_folder_is_read_in_the_order_in_which_files_were_seen(
    engine: Engine, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ingest, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(file_ingest, "POLL_SECONDS", 0.0)
    folder = tmp_path / "growing"
    folder.mkdir()
    definition = stream("s", path=folder, format="csv", follow=True)
    engine.add_stream(definition)
    ingest = engine.ingests["s"]
    assert ingest.advance() is None
    assert ingest.caught_up
    assert not ingest.ended
    (folder / "b.csv").write_text("1,b,1\n2,b,2\n")
    while ingest.advance() is not None:
        pass
    (folder / "a.csv").write_text("3,a,3\n")  # before b by name, after it by arrival
    while ingest.advance() is not None:
        pass
    engine.close()
    again = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(batch_rows=100))
    again.add_stream(definition)
    (folder / "c.csv").write_text("4,c,4\n")
    while again.ingests["s"].advance() is not None:
        pass
    assert [row["c1"] for row in base_rows(again, "s")] == ["b", "b", "a", "c"]
    again.close()


def test_a_file_that_is_still_written_waits(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ingest, "SETTLE_SECONDS", 3600.0)
    folder = tmp_path / "growing"
    folder.mkdir()
    (folder / "a.csv").write_text("1,a,1\n")
    engine.add_stream(stream("s", path=folder, follow=True))
    assert engine.ingests["s"].advance() is None
    assert base_rows(engine, "s") == []


def test_a_replay_keeps_to_its_rate(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of our own: 100 rows a second."""
    clock = [1000.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return clock[0]

    monkeypatch.setattr(file_ingest, "time", Clock)
    (tmp_path / "a.csv").write_text("".join(f"{i},a,{i}\n" for i in range(250)))
    engine.add_stream(stream("s", path=tmp_path / "a.csv", rate=100))
    ingest = engine.ingests["s"]
    assert not ingest.ready()
    clock[0] += 0.1
    assert not ingest.ready()  # too little for a batch of its own
    seen = []
    for _ in range(6):
        clock[0] += 0.5
        while ingest.ready() and not ingest.ended:
            ingest.advance()
        seen.append(len(base_rows(engine, "s")))
    assert seen == [60, 110, 160, 210, 250, 250]
    assert ingest.ended
