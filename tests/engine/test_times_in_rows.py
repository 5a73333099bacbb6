"""Timestamps in rows that come as text: a time of day alone makes a row malformed."""

from collections.abc import Iterator
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest
from small_engines import base_rows, rejected, stream

from millstream.core.errors import UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.language.plan.windows import BEGINNING
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark
COLUMNS = {"at": "timestamp", "n": "int"}
NESTED = {
    "at": "timestamp",
    "seen": "array<struct<`t o`:timestamp,n:int>>",
    "by": "map<string,timestamp>",
}
SECOND = 1_000_000
NEW_YEAR = 1_767_225_600 * SECOND  # 2026-01-01
REASON = "cannot read '12:30' as timestamp (column at)"


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("times")
    texts = {
        "plain.csv": "2026-01-01,1\n12:30,2\n2026-01-01T01:00:00+01:00,3\nT1:02:03,4\n,5\n"
        '"2026-01-01 00:00:00",6\nnow,7\n2026-01-01,x\n',
        "semi.csv": 'at;n\n12:30;1\n"2026-01-01";2\n',
        "pattern.csv": "12:30,1\n13:00,2\n2026-01-01,3\n",
        "zone.csv": "2026-01-01 01:00:00,1\n2026-01-01 01:00,2\n2026-01-01T00:00:00Z,3\n"
        "2026-01-02,4\n12:30,5\n",
        "seconds.csv": "1767225600,1\n1767225601,2\n",
        "text.csv": "12:30,1\n2026-01-01,2\n",
        "plain.json": '{"at":"2026-01-01","n":1}\n{"at":"12:30","n":2}\n{"at":1767225600,"n":3}\n'
        '{"at":"2026","n":4}\n{"at":2026,"n":5}\n{"at":1.5,"n":6}\n{"at":"T1:02","n":7}\n'
        '{"at":true}\n{"at":"2026-01-01","n":"x"}\n{"at":null,"n":8}\n{"at"\n',
        "nested.json": '{"at":1,"seen":[{"t o":"2026-01-01","n":1},{"t o":null}],"by":{"a":5}}\n'
        '{"at":2,"seen":[{"t o":"12:30"}]}\n{"at":3,"by":{"a":"12:30"}}\n{"at":4}\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    engine = Engine(folder / "home", SparkPlane(spark), EngineSettings(batch_rows=100))

    def add(name: str, file: str, columns: Any, at: str = "at", **options: Any) -> None:
        late = {"lateness_us": 10**17}
        engine.add_stream(stream(name, columns, at, path=folder / file, options=options, **late))

    add("csv", "plain.csv", COLUMNS)
    add("semi", "semi.csv", COLUMNS, sep=";", header=True)
    add("pattern", "pattern.csv", COLUMNS, timestampFormat="HH:mm")
    add("zone", "zone.csv", COLUMNS, timeZone="Europe/Berlin")
    add("text", "text.csv", {"at": "string", "n": "int"})
    add("computed", "text.csv", {"at": "string", "n": "int"}, "to_timestamp(at)")
    seconds = {"At": "long", "n": "int"}
    add("seconds", "seconds.csv", seconds, "timestamp_seconds(AT + 0)")
    add("json", "plain.json", COLUMNS)
    add("nested", "nested.json", NESTED)
    for name in engine.appenders:  # keeps all rows for the tests to look at
        with engine.ledger.transaction() as ledger:
            ledger.set_cursor("tests", f"s:{name}", 1, BEGINNING)
    Loop(engine).run()
    yield engine
    engine.close()


def times(engine: Engine, name: str) -> list[tuple[int, int]]:
    """Number and time of each row that was taken, the time in seconds since 2026."""
    return [(row["c1"], (row["_ts"] - NEW_YEAR) // SECOND) for row in base_rows(engine, name)]


def test_a_time_names_its_column_in_any_case(world: Engine) -> None:
    assert times(world, "seconds") == [(1, 0), (2, 1)]


def test_csv(world: Engine) -> None:
    assert times(world, "csv") == [(1, 0), (3, 0), (6, 0)]
    assert rejected(world, "csv") == [
        (REASON, "12:30,2"),
        ("cannot read 'T1:02:03' as timestamp (column at)", "T1:02:03,4"),
        ("the time is null", '{"n": 5}'),
        ("cannot read 'now' as timestamp (column at)", "now,7"),
        ("cannot read 'x' as int (column n)", "2026-01-01,x"),
    ]


def test_csv_with_options(world: Engine) -> None:
    assert times(world, "semi") == [(2, 0)]
    assert rejected(world, "semi") == [(REASON, "12:30;1")]
    assert [row["_ts"] for row in base_rows(world, "pattern")] == [
        45_000 * SECOND,
        46_800 * SECOND,
    ]
    assert len(rejected(world, "pattern")) == 1
    assert times(world, "zone") == [(1, 0), (2, 0), (3, 0), (4, 82_800)]
    assert rejected(world, "zone") == [(REASON, "12:30,5")]


def test_texts_that_are_the_time(world: Engine) -> None:
    assert times(world, "text") == times(world, "computed") == [(2, 0)]
    assert len(rejected(world, "text")) == len(rejected(world, "computed")) == 1


def test_json_tells_a_year_from_seconds(world: Engine) -> None:
    assert times(world, "json") == [(1, 0), (3, 0), (4, 0), (5, 2026 - NEW_YEAR // SECOND)]
    reasons = [reason for reason, _ in rejected(world, "json")]
    assert REASON in reasons
    assert len(reasons) == 7
    assert ('{"at":"12:30","n":2}') in [record for _, record in rejected(world, "json")]


def test_timestamps_inside_other_values(world: Engine) -> None:
    first, last = base_rows(world, "nested")
    new_year = datetime(2026, 1, 1, tzinfo=UTC)
    assert first["c1"] == [{"t o": new_year, "n": 1}, {"t o": None, "n": None}]
    assert dict(first["c2"]) == {"a": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}
    assert (last["c1"], last["c2"]) == (None, None)
    assert len(rejected(world, "nested")) == 2


def test_pushed_rows(spark: Any, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(batch_rows=100))
    engine.add_stream(stream("p", COLUMNS, "at", source="push"))
    with engine.ledger.transaction() as ledger:
        ledger.set_cursor("tests", "s:p", 1, BEGINNING)
    rows = [
        {"at": "2026-01-01", "n": 1},
        {"at": "12:30", "n": 2},
        {"at": time(12, 30), "n": 3},
        {"at": datetime(2026, 1, 1, tzinfo=UTC), "n": 4},
        {"at": 1_767_225_600, "n": 5},
    ]
    source: Any = engine.sources["p"]
    answer = source.push("me", 1, rows)
    assert (answer.rows, answer.rejected) == (3, 2)
    assert times(engine, "p") == [(1, 0), (4, 0), (5, 0)]
    assert rejected(engine, "p")[0] == (REASON, '{"at": "12:30", "n": 2}')
    engine.close()


def test_the_option_that_adds_the_day_is_refused(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("2026-01-01,1\n")
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(batch_rows=100))
    options = {"timestampFormat": "yyyy", "enabledatetimeparsingfallback": True}
    with pytest.raises(UsageError, match="enableDateTimeParsingFallback is not supported"):
        engine.add_stream(stream("s", COLUMNS, "at", path=tmp_path / "a.csv", options=options))
    engine.close()
