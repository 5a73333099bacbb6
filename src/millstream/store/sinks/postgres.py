"""Results into PostgreSQL: a query's table as upserts and deletes, a stream as inserts, each once.

The delivery's number stands in `millstream_deliveries` and moves in the transaction that writes the
rows. After a kill, or a connection lost at the commit, the number says whether the rows are there.
Rows travel by COPY; of a batch of changes only what it comes to is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from millstream.control.definitions.sink_table import SinkDefinition
from millstream.core.errors import UsageError
from millstream.core.extras import told_where_missing
from millstream.core.secrets import resolved, without_secrets
from millstream.store import faults
from millstream.store.delivery import Result, TargetError
from millstream.store.sinks.net_changes import KIND, NET, NEW, OTHER, by_key, net_changes
from millstream.store.sinks.postgres_types import column_type, copied

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

DELIVERIES = "millstream_deliveries"
CHANGES = "millstream_changes"  # a temporary table
CONNECT_S = 10
LOCK_S = 30  # somebody who holds the table for longer parks the query
CHUNK_BYTES = 1 << 20
MATCHED_NULLS_SINCE = 150_000  # the version from which on a unique index may hold one NULL
TABLE_OF_OURS = f"""\
CREATE TABLE IF NOT EXISTS {DELIVERIES} (
  delivery text PRIMARY KEY, target text NOT NULL, query text NOT NULL, changes boolean NOT NULL,
  following bigint NOT NULL, written timestamptz NOT NULL DEFAULT now())"""


class PostgresSink:
    """One table of one database."""

    def __init__(self, definition: SinkDefinition) -> None:
        with told_where_missing():
            import psycopg  # noqa: PLC0415  (an extra)
        self._psycopg = psycopg
        self._written, self._key = definition.options, definition.key
        self._names = tuple(definition.options["table"].split("."))
        self._connection: psycopg.Connection[Any] | None = None
        self._delivery, self._next = "", 0
        self.dataset = ("postgres", definition.options["table"])  # for whoever draws lineage
        self._columns: tuple[str, ...] = ()

    def recover(self, following: int) -> None:
        """The target itself says what it has taken."""

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
        self._connection = None

    # -- how far it is --------------------------------------------------------------------------

    def following(self, result: Result, delivery: str) -> int:
        if self._connection is None or self._delivery != delivery:
            with self._told(result):
                self._open(result, delivery)
        return self._next

    def _open(self, result: Result, delivery: str) -> None:
        self.close()
        used = self._connect(result)
        with used.transaction():
            used.execute(TABLE_OF_OURS)
            # two that begin at once wait for each other here
            used.execute(f"LOCK TABLE {DELIVERIES} IN SHARE ROW EXCLUSIVE MODE")
            found = used.execute(
                f"SELECT following FROM {DELIVERIES} WHERE delivery = %s", (delivery,)
            ).fetchone()
            if found is None:
                self._begin(used, result, delivery)
            self._columns = self._checked_columns(used, result)
        self._delivery, self._next = delivery, 1 if found is None else int(found[0])

    def _connect(self, result: Result) -> "psycopg.Connection[Any]":
        options = resolved(f"the sink of query {result.query}", self._written)
        more = {"password": options["password"]} if "password" in options else {}
        self._connection = self._psycopg.connect(
            options["dsn"],
            autocommit=True,
            connect_timeout=CONNECT_S,
            application_name="millstream",
            client_encoding="utf8",
            options=f"-c timezone=UTC -c lock_timeout={LOCK_S}s -c client_min_messages=warning",
            **more,
        )
        return self._connection

    def _begin(self, used: "psycopg.Connection[Any]", result: Result, delivery: str) -> None:
        """Notes a new delivery; a table belongs to one query's table, or to streams alone."""
        others = used.execute(
            f"SELECT query FROM {DELIVERIES} WHERE target = %s AND (changes OR %s)",
            (self._target, result.changes),
        ).fetchone()
        if others is not None:
            raise TargetError(
                f"table {self._target} holds the rows of another delivery",
                detail=f"query {others[0]}, of another run or home",
                hint=f"choose another table, or drop it and its line in {DELIVERIES}",
            )
        used.execute(
            f"INSERT INTO {DELIVERIES} (delivery, target, query, changes, following) "
            "VALUES (%s, %s, %s, %s, 1)",
            (delivery, self._target, result.query, result.changes),
        )
        if self._oid(used) is None:
            self._create(used, result)

    # -- the table ------------------------------------------------------------------------------

    @property
    def _target(self) -> str:
        return ".".join(self._names)

    @property
    def _table(self) -> "sql.Identifier":
        return self._psycopg.sql.Identifier(*self._names)

    def _oid(self, used: "psycopg.Connection[Any]") -> int | None:
        name = self._table.as_string(used)
        (oid,) = used.execute("SELECT to_regclass(%s)::oid", (name,)).fetchone() or (None,)
        return None if oid is None else int(oid)

    def _create(self, used: "psycopg.Connection[Any]", result: Result) -> None:
        sql = self._psycopg.sql
        parts: list[psycopg.sql.Composable] = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in _wanted(result)
        ]
        if self._key:
            nulls = used.info.server_version >= MATCHED_NULLS_SINCE
            words = "UNIQUE NULLS NOT DISTINCT ({})" if nulls else "UNIQUE ({})"
            parts.append(sql.SQL(words).format(self._listed(self._key)))
        made = sql.SQL("CREATE TABLE {} ({})").format(self._table, sql.SQL(", ").join(parts))
        used.execute(made)

    def _checked_columns(self, used: "psycopg.Connection[Any]", result: Result) -> tuple[str, ...]:
        """The result's columns, all of which the table has; its key is one there."""
        oid = self._oid(used)
        if oid is None:
            raise TargetError(
                f"table {self._target} is not there",
                detail="rows were delivered into it before",
                hint=f"restore it, or remove its line in {DELIVERIES} and begin in a new folder",
            )
        rows = used.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 "
            "AND NOT attisdropped", (oid,),
        ).fetchall()  # fmt: skip
        there, wanted = {name for (name,) in rows}, [name for name, _ in _wanted(result)]
        lacking = [name for name in wanted if name not in there]
        if lacking:
            raise TargetError(
                f"table {self._target} has no column {lacking[0]}",
                detail=f"query {result.query} gives {', '.join(wanted)}",
                hint=f"ALTER TABLE {self._target} ADD COLUMN {lacking[0]} "
                f"{dict(_wanted(result))[lacking[0]]}",
            )
        if strange := [name for name in self._key if name not in wanted]:
            raise TargetError(
                f"query {result.query} gives no column {strange[0]}, which its sink has as key",
                hint=f"it gives {', '.join(wanted)}",
            )
        if self._key and result.changes and not self._unique(used, oid):
            raise TargetError(
                f"table {self._target} has no unique index over {', '.join(self._key)}",
                hint=f"CREATE UNIQUE INDEX ON {self._target} ({', '.join(self._key)})",
            )
        return tuple(wanted)

    def _unique(self, used: "psycopg.Connection[Any]", oid: int) -> bool:
        rows = used.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON "
            "a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s AND "
            "i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (oid,),
        ).fetchall()
        return any(set(names) == set(self._key) for (names,) in rows)

    # -- rows -----------------------------------------------------------------------------------

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        used = self._connection
        assert used is not None  # `following` was asked before
        assert first >= self._next  # whoever delivers has left out what was taken
        with self._told(result):
            rows = copied(table)
            with used.transaction():
                self._fence(used, last)
                faults.reach("sink.begun")
                if not result.changes:
                    self._copy(used, self._table, rows.select(list(self._columns)))
                elif self._key:
                    self._upsert(used, by_key(net_changes(rows), self._key, result.query))
                else:
                    self._exchange(used, net_changes(rows))
                faults.reach("sink.written")
            faults.reach("sink.committed")
            self._next = last + 1

    def _fence(self, used: "psycopg.Connection[Any]", last: int) -> None:
        """Moves the number; refuses where somebody else has moved it meanwhile."""
        moved = used.execute(
            f"UPDATE {DELIVERIES} SET following = %s, written = now() "
            "WHERE delivery = %s AND following = %s",
            (last + 1, self._delivery, self._next),
        )
        if moved.rowcount != 1:
            raise TargetError(
                f"another process delivers into {self._target}, or its line in {DELIVERIES} is gone"
            )

    def _upsert(self, used: "psycopg.Connection[Any]", rows: pa.Table) -> None:
        sql = self._psycopg.sql
        self._stage(used, rows, sql.SQL("{} text").format(sql.Identifier(KIND)))
        target, changes = self._table, sql.Identifier(CHANGES)
        values = [name for name in self._columns if name not in self._key]
        setting = sql.SQL(", ").join(
            sql.SQL("{} = c.{}").format(sql.Identifier(n), sql.Identifier(n)) for n in values
        )
        kinds = set(rows[KIND].unique().to_pylist())
        for nulls in (False, True) if any(rows[k].null_count for k in self._key) else (False,):
            same = sql.SQL(" AND ").join(
                sql.SQL("t.{} IS NOT DISTINCT FROM c.{}" if nulls else "t.{} = c.{}").format(
                    sql.Identifier(name), sql.Identifier(name)
                )
                for name in self._key
            )
            if nulls:  # no index helps to find these, so they alone are looked for like this
                any_null = sql.SQL(" OR ").join(
                    sql.SQL("c.{} IS NULL").format(sql.Identifier(name)) for name in self._key
                )
                same = sql.SQL("({}) AND ({})").format(any_null, same)
            if values and OTHER in kinds:
                text = "UPDATE {} t SET {} FROM {} c WHERE c._kind = 'other' AND {}"
                used.execute(sql.SQL(text).format(target, setting, changes, same))
            text = "DELETE FROM {} t USING {} c WHERE c._kind = 'gone' AND {}"
            used.execute(sql.SQL(text).format(target, changes, same))
        if NEW in kinds:
            columns = self._listed(self._columns)
            text = "INSERT INTO {} ({}) SELECT {} FROM {} WHERE _kind = 'new'"
            used.execute(sql.SQL(text).format(target, columns, columns, changes))

    def _exchange(self, used: "psycopg.Connection[Any]", rows: pa.Table) -> None:
        """Rows without a key: as many equal ones go as have been taken back."""
        sql = self._psycopg.sql
        self._stage(used, rows, sql.SQL("{} bigint").format(sql.Identifier(NET)))
        columns, changes = self._listed(self._columns), sql.Identifier(CHANGES)
        if pc.any(pc.less(rows[NET], 0)).as_py():
            # as text, in which NULLs are equal, so that rows are found by one hash join
            text = (
                "DELETE FROM {target} WHERE ctid IN (SELECT place FROM (SELECT t.ctid AS place, "
                "row_number() OVER (PARTITION BY c.ctid) AS n, - c._net AS times FROM {target} t "
                "JOIN {changes} c ON ROW({ours})::text = ROW({theirs})::text WHERE c._net < 0) f "
                "WHERE n <= times)"
            )
            ours, theirs = self._listed(self._columns, "t"), self._listed(self._columns, "c")
            used.execute(
                sql.SQL(text).format(target=self._table, changes=changes, ours=ours, theirs=theirs)
            )
        text = (
            "INSERT INTO {} ({}) SELECT {} FROM {} c, generate_series(1, c._net) WHERE c._net > 0"
        )
        selected = self._listed(self._columns, "c")
        used.execute(sql.SQL(text).format(self._table, columns, selected, changes))

    def _stage(
        self, used: "psycopg.Connection[Any]", rows: pa.Table, more: "sql.Composable"
    ) -> None:
        """Changes in a temporary table of the target's own types."""
        sql = self._psycopg.sql
        text = "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
        name = sql.Identifier(CHANGES)
        used.execute(sql.SQL(text).format(name, self._listed(self._columns), self._table))
        used.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(name, more))
        last = [n for n in (KIND, NET) if n in rows.column_names]
        self._copy(used, name, rows.select([*self._columns, *last]))
        used.execute(sql.SQL("ANALYZE {}").format(name))

    def _copy(
        self, used: "psycopg.Connection[Any]", target: "sql.Identifier", rows: pa.Table
    ) -> None:
        sql = self._psycopg.sql
        written = BytesIO()
        pa_csv.write_csv(rows, written, pa_csv.WriteOptions(include_header=False))
        text = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)")
        buffer = written.getbuffer()
        with (
            used.cursor() as cursor,
            cursor.copy(text.format(target, self._listed(rows.column_names))) as copy,
        ):
            for begun in range(0, len(buffer), CHUNK_BYTES):
                copy.write(bytes(buffer[begun : begun + CHUNK_BYTES]))

    def _listed(self, names: Sequence[str], of: str = "") -> "sql.Composed":
        sql = self._psycopg.sql
        front = (of,) if of else ()
        listed: psycopg.sql.Composed = sql.SQL(", ").join(
            sql.Identifier(*front, name) for name in names
        )
        return listed

    # -- trouble --------------------------------------------------------------------------------

    @contextmanager
    def _told(self, result: Result) -> Iterator[None]:
        """Trouble in words; how far the target is must be asked again after it."""
        try:
            yield
        except UsageError as error:
            self.close()
            raise TargetError(error.message, detail=error.detail, hint=error.hint) from None
        except self._psycopg.Error as error:
            self.close()
            raise self._in_words(error, result) from None
        except BaseException:
            self.close()
            raise

    def _in_words(self, error: "psycopg.Error", result: Result) -> TargetError:
        words = (error.diag.message_primary or str(error).strip().split("\n")[-1]).strip()
        if error.diag.message_detail:
            words += f" ({error.diag.message_detail})"
        detail = self._without_secrets(words, result)
        if isinstance(error, self._psycopg.errors.UniqueViolation):
            hint = (
                "name all columns in key that identify a row, and let no other program write there"
            )
            return TargetError(
                f"table {self._target} has a row with a key of query {result.query} already",
                detail=detail, hint=hint,
            )  # fmt: skip
        if isinstance(error, self._psycopg.OperationalError) and error.sqlstate is None:
            hint = "see that the server runs and that dsn and password are right"
            return TargetError("PostgreSQL does not let us in", detail=detail, hint=hint)
        hint = "rows are kept and written again: correct the table, or the query"
        return TargetError(
            f"PostgreSQL refuses rows of query {result.query}", detail=detail, hint=hint
        )

    def _without_secrets(self, text: str, result: Result) -> str:
        with suppress(UsageError):
            used = resolved(result.query, self._written)
            told = without_secrets(text, self._written, used)
            with suppress(self._psycopg.Error):
                parts: Mapping[str, Any] = self._psycopg.conninfo.conninfo_to_dict(used["dsn"])
                secret = {"password": str(parts.get("password") or "")}
                told = without_secrets(told, {}, secret)
            return told
        return text


def _wanted(result: Result) -> list[tuple[str, str]]:
    """Columns of a target with their types."""
    fields = [(f.name, column_type(f.type)) for f in result.columns]
    return [*fields, ("ts", "timestamptz")] if result.timed else fields
