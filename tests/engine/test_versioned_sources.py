"""Delta and Iceberg tables as streams: each version once through kills; trouble is told."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from broker_home import CrashError, Home, awaited

from millstream.control.definitions.source_rules import SourceRules
from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.core.errors import UsageError
from millstream.engine.sources.entrances import definition_of
from millstream.engine.sources.tables import versioned_source
from millstream.engine.sources.tables.reference_rows import origin_of
from millstream.engine.sources.tables.versioned_source import DeltaSource, IcebergSource
from millstream.store import faults
from millstream.store.arrivals import time_order
from millstream.store.arrivals.arrow_rows import ArrowRows
from versioned_tables import KINDS, SCHEMA, DeltaTables, IcebergTables, rows_of

COLUMNS = {"id": "long", "n": "long", "at": "timestamp", "word": "string"}
SOURCES = {"delta": DeltaSource, "iceberg": IcebergSource}
Tables = DeltaTables | IcebergTables
every_kind = pytest.mark.parametrize("tables", KINDS, indirect=True, ids=lambda k: k.kind)
pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match:UserWarning")


@pytest.fixture
def tables(tmp_path: Path, request: pytest.FixtureRequest) -> Tables:
    made: Tables = request.param(tmp_path)
    return made


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned_source, "POLL_S", 0.02)


class TableHome(Home):
    """A stream that reads a table, with the parser of pushed rows."""

    def __init__(self, folder: Path, tables: Tables, **more: Any) -> None:
        table = {"columns": COLUMNS, "time": "at", **tables.source, **more}
        reader = StreamReader("a", table, Path())
        definition = reader.definition()
        assert definition is not None, reader.mistakes
        super().__init__(folder, SOURCES[tables.kind], definition.source, definition.columns)
        self.streams.close()
        self.definition = definition
        self.open()

    def _parse(self, rows: Any, origin: str) -> Any:  # type: ignore[override]
        def never(rows: Any, origin: str) -> Any:
            raise AssertionError(rows)

        return ArrowRows(self.definition, "UTC", never).table(rows, origin)

    def kept(self, *columns: str) -> list[tuple[Any, ...]]:
        """Rows as they came."""
        names = [f.name for f in self.definition.columns]
        found: list[tuple[Any, ...]] = []
        for segment in self.streams.ledger.segments("s:a"):
            if segment.rows:
                table = self.streams.files.read(segment).sort_by("_pos")
                places = [f"c{names.index(c)}" for c in columns]
                found += zip(*(table[place].to_pylist() for place in places), strict=True)
        return found

    def read_until(self, count: int, *columns: str) -> list[tuple[Any, ...]]:
        """What there is after some rows have come, or the source has failed."""
        source = self.run_until(lambda: len(self.kept("id")) >= count)
        if source.failure is not None:
            raise source.failure
        return self.kept(*columns)

    def failure(self) -> str:
        """What a source that cannot go on says, in one line."""
        error = self.run_until(lambda: False).failure
        assert error is not None
        return f"{error}: {getattr(error, 'detail', '')} hint: {getattr(error, 'hint', '')}"


def table_after(changes: list[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """What changes leave: (op, id, ...) in order."""
    found: dict[int, tuple[Any, ...]] = {}
    for op, *row in changes:
        if op == "d":
            assert found.pop(row[0], None) is not None, row
        else:
            assert (row[0] in found) == (op == "u"), (op, row)
            found[row[0]] = tuple(row)
    return found


@every_kind
def test_changes_of_a_table_come_once_through_kills(tmp_path: Path, tables: Tables) -> None:
    chance = random.Random(5)
    tables.append([(i, i, 0, "first") for i in range(5)])
    home = TableHome(tmp_path / "home", tables, key="id", time="committed")
    for turn in range(20):
        there = sorted(row["id"] for row in tables.rows())
        if turn % 4 == 3:
            tables.compact()
        elif chance.random() < 0.5:
            tables.append([(max(there) + 1, turn, 0, None), (max(there) + 2, turn, 1, "ü")])
        elif chance.random() < 0.6:
            tables.update((chance.choice(there), turn, 2, "again"))
        else:
            tables.delete(f"id = {there[0]}")
        point = ("ingest.written", "ingest.committed")[turn % 2]

        def hook(reached: str, point: str = point) -> None:
            if reached == point:
                raise CrashError(reached)

        source = home.source()
        faults.set_hook(hook)
        try:
            source.start()
            awaited(source, lambda: home.position().get("version") == tables.number())
        finally:
            faults.set_hook(None)
            source.stop()
        home.streams.close()
        home.open()
    last = home.run_until(lambda: home.position().get("version") == tables.number())
    assert last.failure is None, getattr(last.failure, "detail", "")
    wanted = {row["id"]: (row["id"], row["n"], row["word"]) for row in tables.rows()}
    changes = home.kept("op", "id", "n", "word")
    first = [("c" if op == "r" else op, *row) for op, *row in changes]
    assert table_after(first) == wanted
    assert not home.streams.ledger.counters().get("late:a")
    times = [t for (t,) in home.kept("committed")]
    assert times == sorted(times)


@every_kind
def test_rows_of_a_version_are_never_late_for_each_other(tmp_path: Path, tables: Tables) -> None:
    times = list(range(400))
    random.Random(3).shuffle(times)
    for begin in range(0, 400, 100):  # four files, and a later version
        tables.append([(t, 0, t * 1_000_000) for t in times[begin : begin + 100]])
    home = TableHome(tmp_path / "home", tables)
    assert home.read_until(400, "id") == [(t,) for t in range(400)]
    tables.append([(401, 0, 401_000_000), (400, 0, 400_000_000)])
    assert home.read_until(402, "id")[400:] == [(400,), (401,)]
    assert not home.streams.ledger.counters().get("late:a")


def test_sets_that_are_larger_than_memory_are_put_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_order, "RUN_ROWS", 300)
    chance = random.Random(1)
    times = [chance.choice((None, *range(2_000))) for _ in range(5_000)]
    whole = pa.table({"_ts": pa.array(times, pa.int64()), "n": range(5_000)})
    pieces = (whole.slice(begin, 70) for begin in range(0, 5_000, 70))
    made = list(time_order.in_order_of_time(pieces, tmp_path))
    assert len(made) > 5
    assert max(piece.num_rows for piece in made) < 1_000
    wanted = sorted(enumerate(times), key=lambda r: (r[1] is not None, r[1] or 0, r[0]))
    assert pa.concat_tables(made)["n"].to_pylist() == [n for n, _ in wanted]
    assert list(tmp_path.iterdir()) == []
    assert list(time_order.in_order_of_time(iter(()), tmp_path)) == []


@every_kind
def test_a_stream_without_a_key_takes_what_is_added_only(tmp_path: Path, tables: Tables) -> None:
    tables.append([(1, 1, 1), (1, 1, 1)])  # two equal rows are two
    home = TableHome(tmp_path / "home", tables)
    assert home.read_until(2, "id", "n") == [(1, 1)] * 2
    if tables.kind == "delta":
        tables.compact()
    tables.append([(2, 2, 2)])
    assert home.read_until(3, "id", "op") == [(1, "r"), (1, "r"), (2, "c")]
    tables.append([(3, 3, 3)])
    tables.delete("id = 1")
    told = home.failure()
    assert "changes rows or takes rows away" in told
    assert 'key = ["id"]' in told
    assert [i for (i,) in home.kept("id")] == [1, 1, 2, 3]


@every_kind
def test_columns_that_come_are_told_and_those_that_are_missing_stop(
    tmp_path: Path, tables: Tables
) -> None:
    tables.append([(1, 1, 1)])
    home = TableHome(tmp_path / "home", tables)
    source = home.source()
    source.start()
    awaited(source, lambda: len(home.kept("id")) == 1)
    tables.append([(2, 2, 2, "x", 9)], SCHEMA.append(pa.field("more", pa.int64())))
    awaited(source, lambda: len(home.kept("id")) == 2)
    source.stop()
    assert [n for n in home.notices if "gained a column more" in n]
    other = TableHome(tmp_path / "other", tables, columns={**COLUMNS, "colour": "string"})
    assert "has no column colour" in other.failure()
    fresh = TableHome(tmp_path / "fresh", tables, columns={**COLUMNS, "more": "long"})
    assert sorted(fresh.read_until(2, "id", "more")) == [(1, None), (2, 9)]


@every_kind
def test_a_version_by_its_number_and_one_reading(tmp_path: Path, tables: Tables) -> None:
    tables.append([(1, 1, 1)])
    first = tables.number()
    tables.append([(2, 2, 2)])
    then = TableHome(tmp_path / "then", tables, version=first, trigger="available_now")
    assert then.run_until(lambda: then.source().ended).ended
    assert then.kept("id") == [(1,)]
    now = TableHome(tmp_path / "now", tables, trigger="available_now")
    assert now.run_until(lambda: now.source().ended).ended
    assert sorted(now.kept("id")) == [(1,), (2,)]
    since = TableHome(tmp_path / "since", tables, version=first)
    assert since.read_until(2, "id", "op") == [(1, "r"), (2, "c")]
    gone = TableHome(tmp_path / "gone", tables, version=77)
    assert "77" in gone.failure()


@every_kind
def test_what_is_away_or_gone_is_told(tmp_path: Path, tables: Tables) -> None:
    home = TableHome(tmp_path / "home", tables)
    told = home.failure()
    assert f"{tables.kind.capitalize()} table" in told
    assert "hint: see" in told or "hint: write it" in told
    tables.append([(1, 1, 1)])
    assert home.read_until(1, "id") == [(1,)]  # it is tried again, and is there
    tables.append([(2, 2, 2)])
    tables.delete("id = 1")
    tables.append([(3, 3, 3)])
    tables.forget()
    told = home.failure()
    assert "lacks a file" in told or "changes rows" in told or "no longer" in told
    tables.drop()
    tables.append([(1, 1, 1)])
    assert "another table than before" in home.failure()


def test_two_rows_with_one_key_are_told(tmp_path: Path) -> None:
    tables = DeltaTables(tmp_path)
    tables.append([(1, 1, 1), (2, 1, 1)])
    home = TableHome(tmp_path / "home", tables, key="id", time="committed")
    home.read_until(2, "id")
    tables.table.update({"id": "1", "n": "id + 4"})
    assert "two rows with one key" in home.failure()


@every_kind
def test_a_reference_table_is_what_the_newest_version_holds(tmp_path: Path, tables: Tables) -> None:
    tables.append([(1, 1, 1)])
    columns = {"id": "long", "n": "long"}
    source = {**tables.source, "source": "reference", "format": tables.kind, "key": "id"}
    definition = StreamReader("r", {"columns": columns, **source}, Path()).definition()
    assert definition is not None
    origin = origin_of(definition)
    assert origin.changed()
    assert origin.rows() == [{"id": 1, "n": 1}]
    assert not origin.changed()
    tables.update((1, 5, 5))
    assert origin.changed()
    assert origin.rows() == [{"id": 1, "n": 5}]
    tables.drop()
    with pytest.raises(Exception, match="table"):
        origin.changed()
    if tables.kind == "delta":  # a folder tells what it is by itself
        tables.append([(7, 7, 7)])
        del source["format"]
        found = StreamReader("r", {"columns": columns, **source}, Path()).definition()
        assert found is not None
        assert found.source["format"] == "delta"


@every_kind
def test_declarations_go_anywhere_and_mistakes_are_told(tmp_path: Path, tables: Tables) -> None:
    table = {"columns": COLUMNS, **tables.source, "key": "id", "version": 3}
    definition = StreamReader("a", table, Path()).definition()
    assert definition is not None
    assert (definition.time, definition.source["op"]) == ("committed", "op")
    again = definition_of(table_of(definition), ingest=True)
    assert again == definition
    elsewhere = definition_of(table_of(definition), ingest=False)  # where rows do not enter
    assert elsewhere.columns == definition.columns
    assert elsewhere.source["source"] == "push"
    rules = SourceRules((tmp_path,))
    with pytest.raises(UsageError, match=f"format {tables.kind} is not open"):
        rules.check(table_of(definition))
    place = "path" if tables.kind == "delta" else "table"

    def mistake(**more: Any) -> str:
        told = {k: v for k, v in {**table, **more}.items() if v is not None}
        reader = StreamReader("a", told, Path())
        assert reader.definition() is None
        return reader.mistakes[0].message

    assert mistake(**{place: None}) == f"the stream has no {place}"
    assert mistake(version="x") == "version is a number"
    assert mistake(format="csv") == f"a stream of source {tables.kind} has no format"
    assert mistake(options={"type": "sql", "uri": "postgresql://me:word@db/x"}).startswith(
        "a secret"
    )
    assert mistake(options={"type": "sql", "aws_secret_access_key": "x"}).startswith("a secret")


def test_iceberg_names_a_catalog(tmp_path: Path) -> None:
    tables = IcebergTables(tmp_path)
    reader = StreamReader("a", {"columns": COLUMNS, **tables.source, "options": {}}, Path())
    assert reader.definition() is None
    assert reader.mistakes[0].message == "the options name no catalog"
    wrong = {**tables.options, "uri": "sqlite:////nowhere/at/all.db"}
    home = TableHome(tmp_path / "home", tables, options=wrong)
    assert "Iceberg table shop.people cannot be read" in home.failure()


def test_equal_rows_of_files_are_counted(tmp_path: Path) -> None:
    tables = DeltaTables(tmp_path)
    tables.append([(1, 1, 1), (1, 1, 1), (2, 2, 2)])
    home = TableHome(tmp_path / "home", tables)
    home.read_until(3, "id")
    tables.compact()
    tables.table.merge(rows_of([(3, 3, 3)]), "t.id = 2 AND s.id = 3 AND t.n = 99", "s", "t") \
        .when_not_matched_insert_all().execute()  # fmt: skip
    assert Counter(home.read_until(4, "id")) == {(1,): 2, (2,): 1, (3,): 1}
