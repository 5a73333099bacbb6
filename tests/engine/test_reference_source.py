"""A file or a table elsewhere as a table here: versions are changes, each from its own instant."""

import json
import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker_home import CrashError

from millstream.control.definitions.source_rules import SourceRules
from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.core.errors import UsageError
from millstream.engine.ports import SourceSetting
from millstream.engine.scheduling.idleness import follow_others
from millstream.engine.sources.tables.reference_source import ReferenceSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import Source, Union
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW, TIME_MIN, Appender
from millstream.store.streams import Streams
from plain_plane import arrived
from postgres_server import Server

COLUMNS = {"sku": "string", "price": "bigint"}
TYPES = (pa.string(), pa.int64(), pa.string(), pa.timestamp("us", tz="UTC"))
ROWS = StreamDefinition("rows", (Field("c0", "bigint"),), "c0", 5)


def parse(rows: list[dict[str, Any]], origin: str) -> pa.Table:
    """As the data plane does: a text where a number is declared makes a row malformed."""
    count, names = len(rows), ("sku", "price", "op", "since")
    wrong = ["no number" if isinstance(r["price"], str) else None for r in rows]
    for row, bad in zip(rows, wrong, strict=True):
        row["price"] = None if bad else row["price"]
    columns = [pa.array([r[n] for r in rows], t) for n, t in zip(names, TYPES, strict=True)]
    more = {
        "_ts": pa.array([0] * count, pa.int64()), REASON: pa.array(wrong, pa.string()),
        RECORD: pa.nulls(count, pa.string()), FILE: pa.array([origin] * count, pa.string()),
        ROW: pa.array(range(count), pa.int64()),
    }  # fmt: skip
    return pa.table({f"c{i}": c for i, c in enumerate(columns)} | more)


class Home:
    """A reference table beside a stream that a query reads with it."""

    def __init__(self, folder: Path, **source: Any) -> None:
        table = {"source": "reference", "key": "sku", "columns": COLUMNS, **source}
        definition = StreamReader("prices", table, Path()).definition()
        assert definition is not None
        self.folder, self.definition = folder, definition
        self.notices: list[str] = []
        self.open()

    def open(self) -> None:
        self.streams = Streams(self.folder)
        ledger, files = self.streams.ledger, self.streams.files
        self.rows = Appender(ROWS, "", ledger, files)
        self.appender = Appender(self.definition, "", ledger, files)
        with ledger.transaction():
            self.rows.install()
            self.appender.install()
        both = Union((Source("rows", ROWS.columns, 0), Source("prices", ROWS.columns, 0)))
        query = SimpleNamespace(plan=SimpleNamespace(root=both))
        self.flow: Any = SimpleNamespace(
            lock=threading.RLock(), queries={"q": query},
            appenders={"rows": self.rows, "prices": self.appender},
        )  # fmt: skip
        setting = SourceSetting(self.folder, 7, lambda _: None, lambda: False, self.notices.append)
        self.source = ReferenceSource(self.definition, self.appender, parse, self.flow, setting)

    def again(self) -> None:
        self.streams.close()
        self.open()

    def changes(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for segment in self.streams.ledger.segments("s:prices"):
            if segment.rows:
                table = self.streams.files.read(segment).sort_by("_pos")
                columns = (table[n].to_pylist() for n in ("c2", "c0", "c1", "_ts"))
                found += zip(*columns, strict=True)
        return found

    def present(self) -> dict[str, Any]:
        table = self.source.present()
        if table is None:
            return {}
        return dict(zip(table["c0"].to_pylist(), table["c1"].to_pylist(), strict=True))


def write(path: Path, rows: dict[str, Any]) -> None:
    draft = path.with_suffix(".draft")
    if path.suffix == ".csv":
        lines = [f"{k},{'' if v is None else v},x\n" for k, v in rows.items()]
        draft.write_text("sku,price,unused\n" + "".join(lines))
    elif path.suffix == ".json":
        draft.write_text(
            "".join(json.dumps({"sku": k, "price": v}) + "\n" for k, v in rows.items())
        )
    else:
        table = {"sku": pa.array(rows.keys(), pa.string()), "price": pa.array(rows.values())}
        pq.write_table(pa.table(table), draft)
    draft.rename(path)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_versions_become_changes_from_after_what_has_come(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"prices.{kind}"
    write(path, {"007": 1, "b": 2, "c": None})
    home = Home(tmp_path / "home", path=str(path))
    home.source.look()
    first = [("c", "007", 1, TIME_MIN), ("c", "b", 2, TIME_MIN), ("c", "c", None, TIME_MIN)]
    assert home.changes() == first
    home.rows.append(arrived([(100, 1), (96, 2)], "x"), {})
    home.source.look()
    assert home.changes() == first, "the same version"
    write(path, {"b": 3, "c": None, "d": 4})
    home.source.look()
    assert home.changes()[3:] == [("d", "007", 1, 101), ("u", "b", 3, 101), ("c", "d", 4, 101)]
    home.again()
    home.source.look()
    assert len(home.changes()) == 6, "a restart changes nothing"
    assert home.present() == {"b": 3, "c": None, "d": 4}
    home.appender.follow(200)  # the watermark of streams that are far ahead
    write(path, {})
    home.source.look()
    assert {change[3] for change in home.changes()[6:]} == {200}
    assert home.streams.ledger.counters().get("late:prices", 0) == 0
    assert home.present() == {}
    home.streams.close()


def test_an_empty_first_version_is_one(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    write(path, {})
    home = Home(tmp_path / "home", path=str(path))
    home.source.look()
    home.rows.append(arrived([(100, 1)], "x"), {})
    write(path, {"a": 1})
    home.source.look()
    assert home.changes() == [("c", "a", 1, 101)]
    home.streams.close()


def test_twenty_kills_lose_and_double_no_version(tmp_path: Path) -> None:
    chance, path = random.Random(3), tmp_path / "prices.csv"
    write(path, {})
    home, model = Home(tmp_path / "home", path=str(path)), dict[str, Any]()
    for turn in range(24):
        for name in chance.sample("abcdefgh", 3):
            model[name] = chance.randrange(100)
        for name in chance.sample(sorted(model), 1):
            del model[name]
        write(path, model)
        point = ("ingest.written", "ingest.committed")[turn % 2]

        def hook(reached: str, point: str = point) -> None:
            if reached == point:
                raise CrashError(reached)

        before = home.present()
        faults.set_hook(hook)
        try:
            with pytest.raises(CrashError):
                home.source.look()
        finally:
            faults.set_hook(None)
        home.again()
        assert home.present() == (model if turn % 2 else before), turn
        home.rows.append(arrived([(turn * 10, 1)], "x"), {})
    home.source.look()
    assert home.present() == model
    home.streams.close()


def test_a_version_that_is_wrong_changes_nothing_and_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("sku,price\na,1\n")
    home = Home(tmp_path / "home", path=str(path))
    home.source.look()
    for text, told in (
        ("sku,price\na,much\n", "does not fit its columns: no number"),
        ("sku,price\na,1\na,2\n", "two rows with one key: sku = a"),
        ("sku,cost\na,1\n", "it has no column price, but sku, cost"),
        ("sku,price\na,1,2,3\n", "cannot read"),
    ):
        path.write_text(text)
        home.source._look_again()
        home.source._look_again()
        assert len(home.notices) == 1, home.notices
        assert home.notices[0].startswith("table prices stays as it is: ")
        assert told in home.notices.pop()
    path.unlink()
    home.source._look_again()
    assert "No such file" in home.notices.pop()
    assert home.present() == {"a": 1}
    path.write_text("sku,price\na,2\n")
    home.source._look_again()
    assert home.present() == {"a": 2}
    home.streams.close()


def test_it_ends_with_the_streams_that_it_is_read_with(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    write(path, {"a": 1})
    home = Home(tmp_path / "home", path=str(path))
    home.source.start()
    assert home.present() == {"a": 1}, "before the first row of others"
    assert not home.source.ended
    home.rows.finish()
    for _ in range(200):
        if home.source.ended:
            break
        threading.Event().wait(0.05)
    home.source.stop()
    assert home.source.ended
    assert home.source.failure is None
    home.streams.close()


def test_nobody_reads_on_without_a_first_version(tmp_path: Path) -> None:
    """It is not an empty table: rows of others wait, and its watermark with them."""
    path = tmp_path / "prices.csv"
    write(path, {"a": "much"})
    home = Home(tmp_path / "home", path=str(path))
    home.flow.ledger, home.flow.ingests = home.streams.ledger, {}
    home.flow.sources = {"prices": home.source}
    home.rows.append(arrived([(100, 1)], "x"), {})
    home.source.start()
    assert "does not fit its columns" in str(home.source.failure)
    assert follow_others(home.flow) == []
    home.again()
    home.flow.ledger, home.flow.ingests = home.streams.ledger, {}
    home.flow.sources = {"prices": home.source}
    write(path, {"a": 1})
    home.source.start()
    home.source.stop()
    assert home.source.failure is None
    assert home.changes() == [("c", "a", 1, TIME_MIN)]
    assert follow_others(home.flow) == ["prices"], "with what it is read with, at once"
    home.streams.close()


def test_a_table_of_postgres(postgres: Server, tmp_path: Path) -> None:
    postgres.rows("CREATE TABLE prices (sku text, price bigint, more int)")
    postgres.rows("INSERT INTO prices VALUES ('a', 1), ('b', NULL)")
    home = Home(tmp_path / "home", table="prices", options={"dsn": postgres.dsn})
    home.source.look()
    assert home.present() == {"a": 1, "b": None}
    postgres.rows("DELETE FROM prices WHERE sku = 'a'; INSERT INTO prices VALUES ('c', 3)")
    home.source.look()
    assert home.changes()[2:] == [("d", "a", 1, TIME_MIN), ("c", "c", 3, TIME_MIN)]
    postgres.rows("DROP TABLE prices")
    home.source._look_again()
    assert "stays as it is: stream prices: there is no table prices" in home.notices.pop()
    assert home.present() == {"b": None, "c": 3}
    home.streams.close()


def test_a_declaration(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sku,price\n")
    table = {"source": "reference", "path": "p.csv", "key": "sku", "columns": COLUMNS}
    definition = StreamReader("prices", table, tmp_path).definition()
    assert definition is not None
    assert [f.name for f in definition.columns] == ["sku", "price", "op", "since"]
    assert (definition.time, definition.idle_us) == ("since", 1)
    stored = {k: v for k, v in table_of(definition).items() if k != "name"}
    assert StreamReader("prices", stored, Path()).definition() == definition
    with pytest.raises(UsageError, match="is in no folder that clients may read"):
        SourceRules().check(table_of(definition))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"key": None}, "a reference table has no key"),
        ({"path": None}, "a reference table is one file, or one table"),
        ({"time": "at"}, "a reference table has no time"),
        ({"lateness": "5 s"}, "a reference table has no lateness"),
        ({"path": "."}, "such a table is one file of rows"),
        ({"columns": {"sku": "string", "op": "int"}},
         "column op is one that the system adds to reference tables"),
    ],
)  # fmt: skip
def test_mistakes_of_a_declaration(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sku,price\n")
    table = {"source": "reference", "path": "p.csv", "key": "sku", "columns": COLUMNS} | change
    reader = StreamReader("p", {k: v for k, v in table.items() if v is not None}, tmp_path)
    assert reader.definition() is None
    assert told in [m.message for m in reader.mistakes]
