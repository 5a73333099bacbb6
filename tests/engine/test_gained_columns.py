"""A source that gains a column goes on, and says so once."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker_home import awaited, rows
from test_kafka_source import home_of
from test_loop_without_spark import opened

from kafka_broker import Broker
from millstream.engine.sources.gained_columns import GainedColumns
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field

DEFINITION = StreamDefinition("a", (Field("n", "int"),), "n")
TOLD = (
    "stream a has gained a column {}, which is not declared: rows continue without it; "
    "hint: declare it in columns, in a new run"
)


@pytest.fixture
def told() -> list[str]:
    return []


def test_what_was_left_out_at_first_is_no_news(told: list[str]) -> None:
    gained = GainedColumns(DEFINITION, told.append)
    gained.look_at_rows([{"N": 1, "left_out": 2}])
    gained.look_at_rows([{"n": 1}, {"n": 2, "left_out": 2}])
    gained.look_at_rows([])
    assert told == []
    gained.look_at_rows([{"n": 1}, {"n": 1, "Later": 5}])
    gained.look_at_rows(pa.table({"n": [1], "later": [1], "last": [2]}))
    assert told == [TOLD.format("Later"), TOLD.format("last")]


@pytest.mark.parametrize("kind", ["json", "parquet", "csv"])
def test_files(told: list[str], tmp_path: Path, kind: str) -> None:
    gained = GainedColumns(DEFINITION, told.append)
    for number, row in enumerate(({"n": 1}, {"n": 1, "m": 2}, {"n": 3, "m": 4})):
        path = tmp_path / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist([row]), path)
        else:
            path.write_text(json.dumps(row) + "\n")
        gained.look_at_file(path, kind)
    gained.look_at_file(tmp_path / "gone", kind)
    (tmp_path / "broken").write_bytes(b"\xff[")
    gained.look_at_file(tmp_path / "broken", kind)
    assert told == ([] if kind == "csv" else [TOLD.format("m")])


def test_pushed_rows_are_told_by_the_engine(told: list[str], tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", source="push")
    engine.on_notice.append(told.append)
    door = engine.sources["a"]
    door.push("p", None, [{"ts": 1, "c0": 1}])  # type: ignore[attr-defined]
    answer = door.push("p", None, [{"ts": 2, "c0": 2, "more": 3}])  # type: ignore[attr-defined]
    assert (answer.rows, answer.rejected) == (1, 0)
    assert told == [TOLD.format("more")]
    engine.close()


def test_messages_of_a_topic(kafka: Broker, tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", kafka, "gains")
    told = home.notices
    source = home.source()
    kafka.send("gains", rows(1))
    source.start()
    awaited(source, lambda: home.values().total() >= 1)
    kafka.send("gains", [row | {"new": 5} for row in rows(2)])
    awaited(source, lambda: told)
    source.stop()
    assert home.values().total() == 2
    assert told == [TOLD.format("new")]
    home.streams.close()
