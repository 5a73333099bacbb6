"""Tables of the past as streams: rows before an instant, in order, each once through kills."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from broker_home import CrashError, Home, awaited

from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.core.errors import UsageError
from millstream.engine.declarations import Declarations
from millstream.engine.ports import SourceSetting
from millstream.engine.sources.entrances import definition_of
from millstream.engine.sources.tables.history_source import HistorySource
from millstream.engine.sources.tables.table_source import TableSource
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.histories import past_name
from millstream.language.share.dataflow import base_stream
from millstream.store import faults
from millstream.store.arrivals import time_order
from millstream.store.arrivals.arrow_rows import ArrowRows
from versioned_tables import DeltaTables, IcebergTables, Row, rows_of

COLUMNS = {"id": "long", "n": "long", "at": "timestamp", "word": "string"}
SECOND = 1_000_000
UNTIL = 60 * SECOND


class ParquetTables:
    """A folder of files, some of them in folders."""

    kind = "parquet"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "parquet"
        self.path.mkdir()

    @property
    def source(self) -> dict[str, Any]:
        return {"path": str(self.path)}

    def append(self, rows: list[Row]) -> None:
        count = len(list(self.path.rglob("*.parquet")))
        folder = self.path / f"day={count % 2}"
        folder.mkdir(exist_ok=True)
        pq.write_table(rows_of(rows), folder / f"{count}.parquet")
        (folder / f"_{count}.parquet").write_text("a draft of somebody's")


Tables = ParquetTables | DeltaTables | IcebergTables
KINDS = (ParquetTables, DeltaTables, IcebergTables)
every_kind = pytest.mark.parametrize("tables", KINDS, indirect=True, ids=lambda k: k.kind)


@pytest.fixture
def tables(tmp_path: Path, request: pytest.FixtureRequest) -> Tables:
    made: Tables = request.param(tmp_path)
    return made


def declared(tables: Tables, **more: Any) -> Any:
    history = {"format": tables.kind, **{k: v for k, v in tables.source.items() if k != "source"}}
    table = {"source": "push", "columns": COLUMNS, "time": "at", "history": history | more}
    reader = StreamReader("s", table, Path())
    definition = reader.definition()
    assert definition is not None, reader.mistakes
    return definition


class PastHome(Home):
    """The past of a stream, read with the parser of pushed rows."""

    def __init__(self, folder: Path, tables: Tables, **more: Any) -> None:
        definition = Catalog((declared(tables, **more),)).stream(past_name("s", UNTIL))
        super().__init__(folder, TableSource, definition.source, definition.columns)
        self.streams.close()
        self.definition, self.stream = definition, base_stream(definition.name)
        self.open()

    def source(self) -> Any:
        parser = ArrowRows(self.definition, "UTC", lambda rows, origin: pytest.fail(str(rows)))
        setting = SourceSetting(self.folder, 7, lambda _: None, lambda: False, self.notices.append)
        flow: Any = SimpleNamespace(operators={}, paused_operators=frozenset())
        return HistorySource(self.definition, self.appender, parser.table, setting, flow)

    def kept(self) -> list[tuple[Any, ...]]:
        """Numbers and times, as they came."""
        found: list[tuple[Any, ...]] = []
        for segment in self.streams.ledger.segments(self.stream):
            if segment.rows:
                table = self.streams.files.read(segment).sort_by("_pos")
                found += zip(table["c0"].to_pylist(), table["_ts"].to_pylist(), strict=True)
        return found

    def read(self) -> Any:
        source = self.source()
        source.start()
        awaited(source, lambda: source.ended)
        source.stop()
        return source


def made_up(count: int, chance: random.Random) -> list[Row]:
    return [(n, n % 7, chance.randrange(90) * SECOND, "ü") for n in range(count)]


@every_kind
def test_kills_neither_repeat_nor_lose_a_row(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_order, "RUN_ROWS", 40)  # several sorted runs
    chance = random.Random(3)
    rows = made_up(200, chance)
    for begun in range(0, 200, 50):
        tables.append(rows[begun : begun + 50])
    home = PastHome(tmp_path / "home", tables)
    for turn in range(20):
        point, left = ("ingest.written", "ingest.committed")[turn % 2], [turn % 3]

        def hook(reached: str, point: str = point, left: list[int] = left) -> None:
            left[0] -= reached == point
            if left[0] < 0:
                raise CrashError(reached)

        faults.set_hook(hook)
        try:
            home.read()
        finally:
            faults.set_hook(None)
        home.streams.close()
        home.open()
    if tables.kind != "parquet":
        tables.append([(999, 1, 5 * SECOND, "came later")])
    source = home.read()
    assert source.failure is None, getattr(source.failure, "detail", source.failure)
    assert source.ended
    kept = home.kept()
    assert sorted(kept) == sorted((r[0], r[2]) for r in rows if r[2] < UNTIL)
    assert [t for _, t in kept] == sorted(t for _, t in kept)
    position = home.streams.ledger.ingest_position(home.stream)
    assert (position["rows"], position["taken"]) == (200, len(kept))
    assert not home.streams.ledger.counters().get(f"late:{home.definition.name}")
    home.streams.close()


@every_kind
def test_trouble_is_told(tmp_path: Path, tables: Tables) -> None:
    away = PastHome(tmp_path / "away", tables)
    told = away.read().failure
    assert f"{tables.kind} table".lower() in f"{told} {told.detail}".lower()
    away.streams.close()
    tables.append([(1, 1, SECOND, "a")])
    home = PastHome(tmp_path / "home", tables)
    wider = table_of(declared(tables)) | {"columns": {**COLUMNS, "colour": "string"}}
    catalog = Catalog((definition_of(wider, ingest=True),))
    home.definition = catalog.stream(past_name("s", UNTIL))
    told = home.read().failure
    assert "has no column colour" in str(told)
    home.streams.close()


def test_files_that_change_meanwhile_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = ParquetTables(tmp_path)
    tables.append(made_up(50, random.Random(1)))
    home = PastHome(tmp_path / "home", tables)

    def hook(reached: str) -> None:
        if reached == "ingest.committed":
            raise CrashError(reached)

    faults.set_hook(hook)
    try:
        home.read()
    finally:
        faults.set_hook(None)
    tables.append([(1, 1, SECOND, "a")])
    assert "have changed since their reading began" in str(home.read().failure)
    home.streams.close()


@every_kind
def test_declarations_go_anywhere(tables: Tables) -> None:
    definition = declared(tables)
    again = definition_of(table_of(definition), ingest=True)
    assert again.source == definition.source


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ("past.parquet", "history is a table"),
        ({"path": "p", "format": "csv"}, "unknown format 'csv' of a history"),
        ({"pth": "p"}, "unknown key pth; did you mean path?"),
        ({}, "the history has no path"),
        ({"path": "p", "version": 3}, "a history in Parquet has no version"),
        ({"format": "iceberg", "table": "a.b"}, "the options name no catalog"),
        ({"format": "delta", "path": "p", "options": {"secret": "x"}}, "in plain text"),
    ],
)
def test_mistakes_of_a_declaration(history: Any, told: str) -> None:
    table = {"source": "push", "columns": COLUMNS, "time": "at", "history": history}
    reader = StreamReader("s", table, Path())
    assert reader.definition() is None
    assert told in reader.mistakes[0].message


def test_streams_of_changes_and_of_clusters_have_none(tmp_path: Path) -> None:
    table = {"source": "push", "columns": COLUMNS, "time": "at", "history": {"path": "p"}}
    reader = StreamReader("s", {**table, "key": "id"}, Path())
    assert reader.definition() is None
    assert "whose rows are changes, has no history" in reader.mistakes[0].message
    definition = StreamReader("s", table, Path()).definition()
    assert definition is not None
    with pytest.raises(UsageError, match="a history, which a cluster does not have"):
        Declarations.declare(SimpleNamespace(), definition, ingest=True)  # type: ignore[arg-type]
