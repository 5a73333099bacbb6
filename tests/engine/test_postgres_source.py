"""A table as a stream: all rows and every change once through kills; trouble is told."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from broker_home import CrashError, Home, awaited

from millstream.control.definitions.source_rules import SourceRules
from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.core.errors import UsageError
from millstream.engine.sources.tables import postgres_source
from millstream.engine.sources.tables.postgres_source import PostgresSource
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW
from millstream.store.arrivals.postgres.messages import Change, Messages
from millstream.store.arrivals.postgres.table_log import TableLog
from millstream.store.arrivals.postgres.values import value_of
from postgres_server import Server, running_server

COLUMNS = (
    Field("id", "bigint"), Field("n", "bigint"), Field("op", "string"),
    Field("committed", "bigint"), Field("lsn", "string"), Field("word", "string"),
)  # fmt: skip
TYPES = (pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.string(), pa.string())


class TableHome(Home):
    """Keeps changes as they come; the time is that of the commit."""

    @staticmethod
    def _parse(rows: list[dict[str, Any]], origin: str) -> Any:
        count = len(rows)
        columns = {
            f"c{i}": pa.array([row.get(field.name) for row in rows], type_)
            for i, (field, type_) in enumerate(zip(COLUMNS, TYPES, strict=True))
        }
        return pa.table(
            columns
            | {
                "_ts": columns["c3"], REASON: pa.nulls(count, pa.string()),
                RECORD: pa.nulls(count, pa.string()), FILE: pa.array([origin] * count, pa.string()),
                ROW: pa.array(range(count), pa.int64()),
            }
        )  # fmt: skip

    def changes(self, *columns: int) -> list[tuple[Any, ...]]:
        """What was kept, in order: what it does, key and value, or other columns."""
        found: list[tuple[Any, ...]] = []
        for segment in self.streams.ledger.segments("s:a"):
            if segment.rows:
                table = self.streams.files.read(segment).sort_by("_pos")
                found += zip(
                    *(table[f"c{i}"].to_pylist() for i in columns or (2, 0, 1)), strict=True
                )
        return found


@pytest.fixture
def table(postgres: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("[", "_").replace("]", "")[:40]
    postgres.rows(f"CREATE TABLE {name} (id bigint PRIMARY KEY, n bigint, word text)")
    yield name
    postgres.rows("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    postgres.rows(f"DROP TABLE IF EXISTS {name}")


def home_of(folder: Path, server: Server, table: str, **more: Any) -> TableHome:
    options = {"dsn": server.dsn, **more.pop("options", {})}
    source = {"source": "postgres", "table": table, "options": options, "key": ["id"]}
    home = TableHome(folder, PostgresSource, source | {"op": "op"} | more, COLUMNS)
    home.definition = home.definition.__class__(
        "a", COLUMNS, "committed", source=home.definition.source
    )
    return home


def made_up(chance: random.Random, present: dict[int, int]) -> tuple[list[str], list[Any]]:
    """The statements of a transaction, and the changes that they are; `present` goes with it."""
    texts: list[str] = []
    told: list[Any] = []
    for _ in range(chance.randrange(1, 6)):
        key, n = chance.randrange(8), chance.randrange(100)
        if key not in present:
            texts.append(f"INSERT INTO {{t}} VALUES ({key}, {n})")
            told.append(("c", key, n))
            present[key] = n
        elif chance.random() < 0.4:
            texts.append(f"DELETE FROM {{t}} WHERE id = {key}")
            told.append(("d", key, None))
            del present[key]
        elif (other := chance.randrange(8)) not in present:
            texts.append(f"UPDATE {{t}} SET id = {other} WHERE id = {key}")
            told += [("d", key, None), ("u", other, present[key])]
            present[other] = present.pop(key)
        else:
            texts.append(f"UPDATE {{t}} SET n = {n} WHERE id = {key}")
            told.append(("u", key, n))
            present[key] = n
    return texts, told


def test_kills_lose_and_double_no_change(postgres: Server, table: str, tmp_path: Path) -> None:
    """At the snapshot, between a note and the slot's move, again and again."""
    chance = random.Random(5)
    present = {n: n for n in range(5)}
    postgres.rows(f"INSERT INTO {table} SELECT n, n FROM generate_series(0, 4) n")
    told: list[Any] = [("r", n, n) for n in present]
    home = home_of(tmp_path / "home", postgres, table)
    for turn in range(24):
        if turn > 3:  # the first kills are those of the snapshot
            for _ in range(chance.randrange(1, 4)):
                texts, more = made_up(chance, present)
                told += more
                postgres.rows(";".join(["BEGIN", *texts, "COMMIT"]).format(t=table))
                postgres.rows("CREATE TABLE IF NOT EXISTS elsewhere (x int); DROP TABLE elsewhere")
        point = ("ingest.written", "ingest.committed")[turn % 2 if turn != 3 else 0]
        left = [turn % 3 == 2 and turn > 3]

        def hook(reached: str, point: str = point, left: list[Any] = left) -> None:
            left[0] -= reached == point
            if left[0] < 0:
                raise CrashError(reached)

        source = home.source()
        faults.set_hook(hook)
        try:
            source.start()
            awaited(source, lambda told=told: len(home.changes()) >= len(told))
        finally:
            faults.set_hook(None)
            source.stop()
        assert home.changes() == told[: len(home.changes())], (turn, point)
        home.streams.close()
        home.open()
    source = home.run_until(lambda: len(home.changes()) >= len(told))
    assert source.failure is None, str(source.failure)
    assert home.changes() == told
    assert Counter(postgres.rows(f"SELECT id, n FROM {table}")) == Counter(present.items())
    assert len(postgres.rows("SELECT 1 FROM pg_replication_slots")) == 1, (
        "one that was left is gone"
    )
    home.streams.close()


def test_what_is_written_while_the_stream_begins_comes_once(
    postgres: Server, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed after the slot was made and before the rows are read: it is in the log alone."""
    postgres.rows(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    made = TableLog.make_slot

    def make(self: TableLog, name: str, publication: str) -> tuple[int, str]:
        found = made(self, name, publication)
        postgres.rows(f"INSERT INTO {table} VALUES (3, 3); DELETE FROM {table} WHERE id = 1")
        return found

    monkeypatch.setattr(TableLog, "make_slot", make)
    home = home_of(tmp_path / "home", postgres, table)
    home.run_until(lambda: len(home.changes()) >= 4)
    assert home.changes() == [("r", 1, 1), ("r", 2, 2), ("c", 3, 3), ("d", 1, None)]
    home.streams.close()


def test_the_table_once_and_then_the_end(postgres: Server, table: str, tmp_path: Path) -> None:
    postgres.rows(f"INSERT INTO {table} VALUES (1, 10), (2, NULL)")
    home = home_of(tmp_path / "home", postgres, table, trigger="available_now")
    source = home.run_until(lambda: home.position().get("ended"))
    assert source.ended, str(source.failure)
    assert sorted(home.changes()) == [("r", 1, 10), ("r", 2, None)]
    assert postgres.rows("SELECT 1 FROM pg_replication_slots") == []
    home.streams.close()


def test_the_log_is_let_go_though_nothing_in_it_is_ours(
    postgres: Server, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_source, "NOTE_S", 0.1)
    home = home_of(tmp_path / "home", postgres, table)
    source = home.source()
    source.start()
    awaited(source, lambda: "lsn" in home.position())
    postgres.rows("CREATE TABLE foreign_rows AS SELECT * FROM generate_series(1, 1000)")
    (wanted,) = postgres.rows("SELECT pg_current_wal_flush_lsn()")[0]
    moved = f"SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{wanted}'"
    awaited(source, lambda: postgres.rows(moved))
    assert postgres.rows(moved)
    postgres.rows(f"INSERT INTO {table} VALUES (1, 1)")
    awaited(source, home.changes)
    source.stop()
    assert home.changes() == [("c", 1, 1)]
    postgres.rows("DROP TABLE foreign_rows")
    home.streams.close()


def test_no_change_is_late(postgres: Server, table: str, tmp_path: Path) -> None:
    """Other streams may be ahead of the server's clock, and have moved the watermark on."""
    home = home_of(tmp_path / "home", postgres, table)
    home.run_until(lambda: "lsn" in home.position())
    ahead = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1e6)
    assert home.appender.follow(ahead)
    postgres.rows(f"INSERT INTO {table} VALUES (1, 1)")
    source = home.run_until(home.changes)
    assert source.failure is None, str(source.failure)
    assert home.changes(3) == [(ahead,)]
    assert home.streams.ledger.counters().get("late:a", 0) == 0
    home.streams.close()


def failure(home: Home) -> str:
    source = home.source()
    source.start()
    awaited(source, lambda: False)
    source.stop()
    return str(source.failure)


def test_trouble_is_told(postgres: Server, table: str, tmp_path: Path) -> None:
    def told(name: str = table, **more: Any) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        home = home_of(folder, postgres, name, **more)
        words = failure(home)
        home.streams.close()
        return words

    assert "stream a: there is no table nowhere" in told("nowhere")
    wrong = told(options={"dsn": f"host={postgres.folder} user=nobody_here dbname=postgres"})
    assert "PostgreSQL does not let us in" in wrong
    assert "hint: see that the server runs" in wrong
    postgres.rows(f"ALTER TABLE {table} RENAME n TO m")
    assert f"table {table} has no column n" in told()
    postgres.rows(f"ALTER TABLE {table} RENAME m TO n")
    postgres.rows(f"CREATE ROLE guest LOGIN; GRANT SELECT ON {table} TO guest")
    guest = {"options": {"dsn": f"host={postgres.folder} user=guest dbname=postgres"}}
    assert "role guest may not follow the log" in told(**guest)
    postgres.rows("ALTER ROLE guest REPLICATION")
    assert "let the table's owner CREATE PUBLICATION" in told(**guest)
    postgres.rows(f"REVOKE SELECT ON {table} FROM guest")
    assert f"hint: GRANT SELECT ON {table} TO guest" in told(**guest)
    postgres.rows("DROP ROLE guest")
    postgres.rows(f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey")
    assert f"the log does not identify deleted rows of table {table} by id" in told()


def test_secrets_are_not_told(
    postgres: Server, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", f"host={postgres.folder} user=hunter2 dbname=postgres")
    monkeypatch.setenv("SECRET", "hunter2")
    options = {"dsn": "env:PLACE", "password": "env:SECRET"}
    home = home_of(tmp_path / "home", postgres, table, options=options)
    words = failure(home)
    assert "does not let us in" in words
    assert "hunter2" not in words
    home.streams.close()


def test_a_column_that_is_named_as_a_part_of_changes(
    postgres: Server, table: str, tmp_path: Path
) -> None:
    postgres.rows(f"ALTER TABLE {table} ADD COLUMN op text")
    postgres.rows(f"INSERT INTO {table} VALUES (1, 1, '', 'd')")
    home = home_of(tmp_path / "home", postgres, table)
    home.run_until(home.changes)
    assert home.changes() == [("r", 1, 1)]
    assert any("op is what a change says" in notice for notice in home.notices)
    places = home.changes(4)
    assert places == [(home.position()["lsn"],)]
    home.streams.close()


def test_changes_of_the_table_itself(postgres: Server, table: str, tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", postgres, table)
    home.run_until(lambda: "lsn" in home.position())
    postgres.rows(f"ALTER TABLE {table} ADD COLUMN more int")
    source = home.source()
    source.start()
    postgres.rows(f"INSERT INTO {table} VALUES (0, 0)")
    awaited(source, home.changes)
    postgres.rows(f"ALTER TABLE {table} ADD COLUMN even_more int")
    postgres.rows(f"INSERT INTO {table} VALUES (1, 1, 'w', 1, 1)")
    awaited(source, lambda: len(home.changes()) > 1)
    source.stop()
    assert home.changes() == [("c", 0, 0), ("c", 1, 1)]
    assert any("has gained a column even_more" in notice for notice in home.notices)
    postgres.rows(f"TRUNCATE {table}")
    assert f"table {table} was truncated" in failure(home)
    home.streams.close()


def test_a_slot_that_is_gone_or_moved_is_told(postgres: Server, table: str, tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", postgres, table)
    home.run_until(lambda: "lsn" in home.position())
    postgres.rows(f"INSERT INTO {table} VALUES (1, 1)")
    slot = home.position()["slot"]
    postgres.rows(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_flush_lsn())")
    assert f"slot {slot} was moved by another client" in failure(home)
    postgres.rows(f"SELECT pg_drop_replication_slot('{slot}')")
    assert f"slot {slot} is gone" in failure(home)
    assert home.changes() == []
    home.streams.close()


def test_large_values_that_did_not_change(postgres: Server, table: str, tmp_path: Path) -> None:
    """Without the whole row in the log an update lacks them: told, not taken for NULL."""
    postgres.rows(f"ALTER TABLE {table} ALTER word SET STORAGE EXTERNAL")
    postgres.rows(f"INSERT INTO {table} VALUES (1, 1, repeat('x', 10000))")
    home = home_of(tmp_path / "full", postgres, table)
    postgres.rows(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    home.run_until(lambda: len(home.changes()) >= 1)
    postgres.rows(f"UPDATE {table} SET n = 2")
    home.run_until(lambda: len(home.changes()) >= 2)
    assert [len(word) for (word,) in home.changes(5)] == [10000, 10000]
    assert [n for _, _, n in home.changes()] == [1, 2]
    postgres.rows(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
    postgres.rows(f"UPDATE {table} SET n = 3")
    assert "leaves out the large value of word" in failure(home)
    assert "REPLICA IDENTITY FULL" in failure(home)
    home.streams.close()


def test_a_server_without_such_a_log(tmp_path: Path) -> None:
    with running_server(wal_level="replica") as server:
        server.rows("CREATE TABLE t (id bigint PRIMARY KEY, n bigint, word text)")
        home = home_of(tmp_path / "home", server, "t")
        words = failure(home)
        assert "the server keeps no log that can be followed" in words
        assert "hint: ALTER SYSTEM SET wal_level = logical" in words
        home.streams.close()


KINDS = {
    "flag": "boolean", "whole": "bigint", "half": "double", "exact": "decimal(4,2)",
    "word": "string", "wide": "string", "place": "string", "blob": "binary", "day": "date",
    "at": "timestamp",
}  # fmt: skip


def test_values_are_written_alike_in_the_snapshot_and_in_the_log(postgres: Server) -> None:
    postgres.rows(
        "CREATE TABLE typed (id int PRIMARY KEY, flag boolean, whole bigint, half float8, "
        "exact numeric(4,2), word text, wide char(3), place inet, blob bytea, day date, "
        "at timestamptz)"
    )
    row = (
        "true, -3, 0.1, 1.10, E'a\\t\\n\\\\', 'x', '10.0.0.1', '\\x00ff', '0001-01-01', "
        "'2020-01-02 03:04:05.000678+01'"
    )
    postgres.rows(f"INSERT INTO typed VALUES (1, {row})")
    log = TableLog("a", {"dsn": postgres.dsn}, "typed")
    log.check([*KINDS], ["id"], followed=True)
    _, name = log.make_slot("typed_slot", "typed_slot")
    ((before,),) = log.snapshot([*KINDS], name)
    postgres.rows(f"INSERT INTO typed VALUES (2, {row}); INSERT INTO typed VALUES (3)")
    reader = Messages("typed", ("id",))
    events = [e for m in log.peek("typed_slot", "typed_slot", 10) for e in reader.events(m)]
    after, empty = (e.values for e in events if isinstance(e, Change))
    assert {n: after[n] for n in KINDS} == before
    values = {n: value_of(k, before[n]) for n, k in KINDS.items()}
    assert values | {"at": datetime.fromisoformat(values["at"])} == {
        "flag": True, "whole": -3, "half": 0.1, "exact": Decimal("1.10"), "word": "a\t\n\\",
        "wide": "x  ", "place": "10.0.0.1", "blob": b"\x00\xff", "day": "0001-01-01",
        "at": datetime(2020, 1, 2, 2, 4, 5, 678, tzinfo=UTC),
    }  # fmt: skip
    assert {value_of(k, empty[n]) for n, k in KINDS.items()} == {None}
    assert value_of("int", "five") == "five", "told as malformed"
    log.close()
    postgres.rows("SELECT pg_drop_replication_slot('typed_slot')")
    postgres.rows("DROP PUBLICATION typed_slot; DROP TABLE typed")


TABLE = {
    "source": "postgres", "table": "people", "options": {"dsn": "dbname=x"},
    "columns": {"id": "int", "name": "string"}, "key": "id",
}  # fmt: skip


def test_a_declaration_has_what_changes_need() -> None:
    definition = StreamReader("a", TABLE, Path()).definition()
    assert definition is not None
    assert [f.name for f in definition.columns] == ["id", "name", "op", "committed"]
    assert (definition.time, definition.source["op"], definition.source["key"]) == (
        "committed", "op", ["id"],
    )  # fmt: skip
    again = StreamReader(
        "a", {k: v for k, v in table_of(definition).items() if k != "name"}, Path()
    )
    assert again.definition() == definition


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"table": None}, "the stream has no table"),
        ({"options": {}}, "the stream has no dsn"),
        ({"options": {"dsn": "x", "host": "y"}}, "unknown option host"),
        (
            {"options": {"dsn": "postgresql://me:hunter2@h/d"}},
            "a password is written in plain text",
        ),
        ({"options": {"dsn": "x", "password": "hunter2"}}, "a password is written in plain text"),
        ({"format": "json"}, "a stream of source postgres has no format"),
        ({"key": "nobody"}, "key names no column nobody"),
    ],
)
def test_mistakes_of_a_declaration(change: dict[str, Any], told: str) -> None:
    table = {k: v for k, v in (TABLE | change).items() if v is not None}
    reader = StreamReader("a", table, Path())
    assert reader.definition() is None
    assert [m.message for m in reader.mistakes] == [told]


def test_clients_name_databases_where_they_are_allowed_to() -> None:
    definition = StreamReader("a", TABLE, Path()).definition()
    assert definition is not None
    table = table_of(definition)
    with pytest.raises(UsageError, match="format postgres is not open to clients"):
        SourceRules().check(table)
    SourceRules(formats=("postgres",), options=("dsn",)).check(table)
