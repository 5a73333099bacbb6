"""An Iceberg table has each row once and is the query's table at each snapshot, through kills."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from target_runs import Home, cut_off_often

from millstream.control.definitions.sink_table import read_sink
from millstream.language.plan.schema import Field
from millstream.store.delivery import Result, TargetError
from millstream.store.sinks.opening import TargetSink, open_sink

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RESULT = Result("q", "r:q", (Field("name", "string"), Field("n", "bigint")), changes=True)
NAME = "shop.counts"


def options(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "wh")}


def sink(folder: Path, *key: str) -> TargetSink:
    table = {"type": "iceberg", "table": NAME, "options": options(folder), "key": list(key)}
    definition, mistakes = read_sink(table, Path())
    assert definition is not None, mistakes
    return open_sink(definition)


def seen(folder: Path) -> "Counter[tuple[Any, ...]]":
    """Rows as the model has them."""
    catalog = load_catalog("default", **options(folder))
    if not catalog.table_exists(NAME):
        return Counter()
    rows = catalog.load_table(NAME).scan().to_arrow().to_pylist()
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
    cut_off_often(home, lambda: sink(tmp_path, *key), lambda: seen(tmp_path), kills)
    home.close()
    table = load_catalog("default", **options(tmp_path)).load_table(NAME)
    assert "commit.retry.num-retries" not in table.properties
    if changes:  # who reads an older snapshot sees the query's table as well
        known = list(home.tables.values())
        for snapshot in table.snapshots():
            rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
            then = Counter((r["name"], r["n"], round((r["ts"] - EPOCH).total_seconds() * 1e6))
                           for r in rows)  # fmt: skip
            assert then in known


def changes(*rows: tuple[str | None, int, str]) -> pa.Table:
    moment = pa.array([EPOCH] * len(rows), pa.timestamp("us", tz="UTC"))
    names, numbers, signs = (list(c) for c in zip(*rows, strict=True))
    columns = [pa.array(names, pa.string()), pa.array(numbers, pa.int64()), moment, signs]
    return pa.table(columns, ["name", "n", "ts", "op"])


def test_two_rows_with_one_key_are_told_and_nothing_is_written(tmp_path: Path) -> None:
    opened = sink(tmp_path, "name")
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
    assert {r[:2] for r in seen(tmp_path)} == {("a", 1), (None, 2)}


def test_of_two_writers_the_second_is_refused(tmp_path: Path) -> None:
    first, second = sink(tmp_path, "name"), sink(tmp_path, "name")
    first.following(RESULT, "d")
    first.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    assert second.following(RESULT, "d") == 2  # a process that was thought dead
    first.deliver(RESULT, 2, 2, changes(("b", 1, "+")))
    with pytest.raises(TargetError, match="does not take rows of query q"):
        second.deliver(RESULT, 2, 2, changes(("b", 1, "+")))
    assert second.following(RESULT, "d") == 3
    assert {r[:2] for r in seen(tmp_path)} == {("a", 1), ("b", 1)}
    with pytest.raises(TargetError, match=r"another delivery.*query q, of another run"):
        sink(tmp_path, "name").following(RESULT, "other")


def test_tables_and_catalogs_that_do_not_fit_are_told(tmp_path: Path) -> None:
    catalog = load_catalog("default", **options(tmp_path))
    catalog.create_namespace("shop")
    catalog.create_table(NAME, pa.schema([("name", pa.string())]))
    narrow = sink(tmp_path, "name")
    narrow.following(RESULT, "d")
    with pytest.raises(TargetError, match=r"no column n:.*add a column n of type int64"):
        narrow.deliver(RESULT, 1, 1, changes(("a", 1, "+")))
    catalog.load_table(NAME).append(pa.table({"name": ["x"]}))
    with pytest.raises(TargetError, match="it has rows"):
        sink(tmp_path, "name").following(RESULT, "d")
    with pytest.raises(TargetError, match="does not take rows"):
        sink(tmp_path / "nowhere").following(RESULT, "d")


def test_mistakes_of_its_table(tmp_path: Path) -> None:
    def mistake(**table: Any) -> str:
        found, mistakes = read_sink({"type": "iceberg", **table}, tmp_path)
        assert found is None
        return mistakes[0].message

    assert mistake(table=NAME) == "the sink has no options"
    assert mistake(table=NAME, options={}) == "the options name no catalog"
    assert (
        mistake(table=NAME, options={"uri": "postgresql://a:b@h/d"})
        == "a secret is written in plain text"
    )
    relative = {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "wh"}
    found, _ = read_sink({"type": "iceberg", "table": NAME, "options": relative}, tmp_path)
    assert found is not None
    assert found.options["uri"] == f"sqlite:///{tmp_path}/c.db"
