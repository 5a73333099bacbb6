"""PostgreSQL has each row once and is the query's table at every commit, whoever is killed when."""

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from target_runs import Home, cut_off_often

from millstream.control.definitions.sink_table import SinkDefinition
from millstream.language.plan.schema import Field
from millstream.store.delivery import Result, SinkError, TargetError
from millstream.store.sinks.postgres import PostgresSink
from postgres_server import Server

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sink(server: Server, table: str, *key: str, **options: str) -> PostgresSink:
    return PostgresSink(
        SinkDefinition("postgres", {"dsn": server.dsn, "table": table} | options, key)
    )


def seen(server: Server, table: str) -> "Counter[tuple[Any, ...]]":
    """Rows as the model has them."""
    if not server.rows(f"SELECT 1 FROM pg_tables WHERE tablename = '{table}'"):
        return Counter()
    rows = server.rows(f"SELECT name, n, ts FROM {table}")
    return Counter((n, v, round((t - EPOCH).total_seconds() * 1e6)) for n, v, t in rows)


@pytest.mark.parametrize(
    ("table", "changes", "key", "kills"),
    [("keyed", True, ("name",), 50), ("bag", True, (), 20), ("appended", False, (), 20)],
)
def test_kills_lose_double_and_mix_nothing(
    postgres: Server, tmp_path: Path, table: str, changes: bool, key: tuple[str, ...], kills: int
) -> None:
    home = Home(tmp_path / "home", changes=changes, unique=bool(key))
    cut_off_often(home, lambda: sink(postgres, table, *key), lambda: seen(postgres, table), kills)
    home.close()


def test_a_server_that_went_away_at_the_commit_is_asked_what_it_has(
    postgres: Server, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home", changes=True)
    home.grow(3)
    delivery = home.delivery(sink(postgres, "away", "name"))
    assert delivery.advance()
    home.grow(3)
    postgres.stop()
    try:
        with pytest.raises(SinkError, match=r"server closed|does not let us in|terminating"):
            delivery.advance()
        with pytest.raises(SinkError, match=r"PostgreSQL does not let us in.*hint"):
            delivery.advance()
    finally:
        postgres.start()
    assert delivery.advance()
    assert delivery.problem == ""
    delivery.close()
    assert seen(postgres, "away") == home.tables[max(home.tables)]
    home.close()


def test_every_type_arrives(postgres: Server) -> None:
    names = {
        "flag": "boolean", "tiny": "tinyint", "whole": "bigint", "half": "float",
        "real": "double", "exact": "decimal(10,2)", "word": "string", "blob": "binary",
        "day": "date", "at": "timestamp", "wall": "timestamp_ntz", "many": "array<int>",
        "part": "struct<a:int,b:string>",
    }  # fmt: skip
    moment = datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    values: dict[str, Any] = {
        "flag": True, "tiny": -3, "whole": 2**62, "half": 0.5, "real": 0.1,
        "exact": Decimal("1.10"),
        "word": 'a,"b"\n\\N', "blob": b"\x00\xff", "day": date(1, 1, 1), "at": moment,
        "wall": moment.replace(tzinfo=None), "many": [1, None], "part": {"a": 1, "b": "ü"},
    }  # fmt: skip
    types = [
        pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2),
        pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us"),
        pa.list_(pa.int32()), pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ]  # fmt: skip
    columns = [pa.array([values[n], None], t) for n, t in zip(names, types, strict=True)]
    times = pa.array([moment, moment], pa.timestamp("us", tz="UTC"))
    rows = pa.table([*columns, times, ["+", "+"]], [*names, "ts", "op"])
    result = Result("q", "r:q", tuple(Field(n, t) for n, t in names.items()), changes=True)
    opened = sink(postgres, "types")
    assert opened.following(result, "d") == 1
    opened.deliver(result, 1, 1, rows)
    listed = ", ".join(names)
    found = postgres.rows(f"SELECT {listed} FROM types ORDER BY tiny NULLS LAST")
    assert found == [tuple(values.values()), (None,) * len(names)]
    gone = rows.slice(0, 1).set_column(len(names) + 1, "op", pa.array(["-"]))
    opened.deliver(result, 2, 2, gone)
    assert postgres.rows(f"SELECT {listed} FROM types") == [(None,) * len(names)]
    opened.close()


def changes(*rows: tuple[str, int, str]) -> pa.Table:
    moment = pa.array([EPOCH] * len(rows), pa.timestamp("us", tz="UTC"))
    names, numbers, signs = (list(c) for c in zip(*rows, strict=True))
    return pa.table(
        [names, pa.array(numbers, pa.int64()), moment, signs], ["name", "n", "ts", "op"]
    )


RESULT = Result("q", "r:q", (Field("name", "string"), Field("n", "bigint")), changes=True)


def test_two_rows_with_one_key_are_told_and_nothing_is_written(postgres: Server) -> None:
    opened = sink(postgres, "twice", "name")
    opened.following(RESULT, "d2")
    opened.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    for rows in (changes(("b", 1, "+"), ("b", 2, "+")), changes(("c", 1, "+"), ("a", 2, "+"))):
        with pytest.raises(TargetError, match=r"key.*hint: name all columns in key"):
            opened.deliver(RESULT, 2, 2, rows)
        assert opened.following(RESULT, "d2") == 2
    assert postgres.rows("SELECT name, n FROM twice") == [("a", 1)]
    opened.close()


def test_a_table_has_one_writer(postgres: Server) -> None:
    first, second = sink(postgres, "owned", "name"), sink(postgres, "owned", "name")
    first.following(RESULT, "d3")
    with pytest.raises(TargetError, match=r"another delivery.*of another run"):
        second.following(RESULT, "d4")
    second.following(RESULT, "d3")  # a process that was thought dead
    first.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    with pytest.raises(TargetError, match="another process delivers"):
        second.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    assert postgres.rows("SELECT name, n FROM owned") == [("a", 1)]
    first.close()
    second.close()


def test_tables_that_do_not_fit_are_told(postgres: Server) -> None:
    postgres.rows("CREATE TABLE narrow (name text, ts timestamptz)")
    with pytest.raises(TargetError, match=r"no column n.*ADD COLUMN n bigint"):
        sink(postgres, "narrow", "name").following(RESULT, "d5")
    postgres.rows("CREATE TABLE loose (name text, n bigint, ts timestamptz)")
    with pytest.raises(TargetError, match="CREATE UNIQUE INDEX ON loose"):
        sink(postgres, "loose", "name").following(RESULT, "d6")
    with pytest.raises(TargetError, match="no column host, which its sink has as key"):
        sink(postgres, "loose", "host").following(RESULT, "d6")
    postgres.rows("CREATE TABLE small (name varchar(1), n bigint, ts timestamptz)")
    opened = sink(postgres, "small")
    opened.following(RESULT, "d7")
    with pytest.raises(TargetError, match="PostgreSQL refuses rows of query q: value too long"):
        opened.deliver(RESULT, 1, 1, changes(("ab", 1, "+")))
    postgres.rows("ALTER TABLE small ALTER name TYPE text")
    assert opened.following(RESULT, "d7") == 1
    opened.deliver(RESULT, 1, 1, changes(("ab", 1, "+")))
    postgres.rows("DROP TABLE small")
    opened.close()
    with pytest.raises(TargetError, match="small is not there"):
        opened.following(RESULT, "d7")


def test_secrets_come_from_elsewhere_and_are_not_told(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_PLACE", f"host={postgres.folder}/none password=hunter2 user=hunter2")
    opened = sink(postgres, "t", dsn="env:WRONG_PLACE")
    with pytest.raises(TargetError, match="does not let us in") as error:
        opened.following(RESULT, "d8")
    assert "hunter2" not in str(error.value)
    with pytest.raises(TargetError, match=r"the sink of query q: the secret.*not in the env"):
        sink(postgres, "t", password="env:NOT_THERE").following(RESULT, "d8")
