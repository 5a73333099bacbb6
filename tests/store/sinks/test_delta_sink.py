"""A Delta table has each row once and is the query's table at every version, whoever is killed."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from target_runs import Home, cut_off_often

from millstream.control.definitions.sink_table import SinkDefinition
from millstream.language.plan.schema import Field
from millstream.store.delivery import Result, TargetError
from millstream.store.sinks.delta import DeltaSink

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RESULT = Result("q", "r:q", (Field("name", "string"), Field("n", "bigint")), changes=True)


def sink(path: Path, *key: str) -> DeltaSink:
    return DeltaSink(SinkDefinition("delta", {"path": str(path)}, key))


def seen(path: Path) -> "Counter[tuple[Any, ...]]":
    """Rows as the model has them."""
    if not DeltaTable.is_deltatable(str(path)):
        return Counter()
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return Counter(
        (r["name"], r["n"], round((r["ts"] - EPOCH).total_seconds() * 1e6)) for r in rows
    )


@pytest.mark.parametrize(
    ("changes", "key", "kills"), [(True, ("name",), 50), (True, (), 15), (False, (), 20)]
)
def test_kills_lose_double_and_mix_nothing(
    tmp_path: Path, changes: bool, key: tuple[str, ...], kills: int
) -> None:
    home = Home(tmp_path / "home", changes=changes)
    path = tmp_path / "table"
    cut_off_often(home, lambda: sink(path, *key), lambda: seen(path), kills)
    home.close()


def changes(*rows: tuple[str | None, int, str]) -> pa.Table:
    moment = pa.array([EPOCH] * len(rows), pa.timestamp("us", tz="UTC"))
    names, numbers, signs = (list(c) for c in zip(*rows, strict=True))
    columns = [pa.array(names, pa.string()), pa.array(numbers, pa.int64()), moment, signs]
    return pa.table(columns, ["name", "n", "ts", "op"])


def test_two_rows_with_one_key_are_told_and_nothing_is_written(tmp_path: Path) -> None:
    opened = sink(tmp_path / "t", "name")
    opened.following(RESULT, "d")
    opened.deliver(RESULT, 1, 1, changes(("a", 1, "+"), (None, 2, "+")))
    for rows in (
        changes(("b", 1, "+"), ("b", 2, "+")),
        changes(("a", 2, "+")),
        changes((None, 3, "+")),
    ):
        with pytest.raises(TargetError, match=r"two rows with one key.*hint: name all columns"):
            opened.deliver(RESULT, 2, 2, rows)
        assert opened.following(RESULT, "d") == 2
    assert {r[:2] for r in seen(tmp_path / "t")} == {("a", 1), (None, 2)}


def test_of_two_writers_the_second_is_refused(tmp_path: Path) -> None:
    first, second = sink(tmp_path / "t", "name"), sink(tmp_path / "t", "name")
    first.following(RESULT, "d")
    first.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    assert second.following(RESULT, "d") == 2  # a process that was thought dead
    first.deliver(RESULT, 2, 2, changes(("a", 1, "-"), ("a", 2, "+")))
    with pytest.raises(TargetError, match="does not take rows of query q"):
        second.deliver(RESULT, 2, 2, changes(("a", 1, "-"), ("a", 2, "+")))
    assert second.following(RESULT, "d") == 3
    assert {r[:2] for r in seen(tmp_path / "t")} == {("a", 2)}
    with pytest.raises(TargetError, match=r"another delivery.*query q, of another run"):
        sink(tmp_path / "t", "name").following(RESULT, "other")


def test_tables_that_do_not_fit_are_told(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "full", pa.table({"name": ["x"]}))
    with pytest.raises(TargetError, match="it has rows"):
        sink(tmp_path / "full").following(RESULT, "d")
    DeltaTable.create(tmp_path / "narrow", pa.schema([("name", pa.string())]))
    narrow = sink(tmp_path / "narrow", "name")
    narrow.following(RESULT, "d")
    with pytest.raises(TargetError, match=r"no column n:.*add a column n of type int64"):
        narrow.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    odd = sink(tmp_path / "odd", "host")
    odd.following(RESULT, "d")
    with pytest.raises(TargetError, match="no column host"):
        odd.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    (tmp_path / "file").write_text("in the way")
    blocked = sink(tmp_path / "file" / "t")
    with pytest.raises(TargetError, match="does not take rows"):  # noqa: PT012
        blocked.following(RESULT, "d")
        blocked.deliver(RESULT, 1, 1, changes(("a", 1, "+")))


def test_nested_values_are_merged(tmp_path: Path) -> None:
    result = Result("q", "r:q", (Field("k", "int"), Field("many", "array<int>")), changes=True)
    times = pa.array([EPOCH] * 2, pa.timestamp("us", tz="UTC"))
    rows = pa.table([[1, 2], [[1, 2], None], times, ["+", "+"]], ["k", "many", "ts", "op"])
    opened = sink(tmp_path / "t", "k")
    opened.following(result, "d")
    opened.deliver(result, 1, 1, rows)
    opened.deliver(result, 2, 2, rows.slice(0, 1).set_column(3, "op", pa.array(["-"])))
    (left,) = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert (left["k"], left["many"]) == (2, None)
