"""One table of PostgreSQL: all its rows at one moment, and what its transactions do from then on.

A slot keeps the server's log for us; it is looked into (`peek`) and only moved (`advance`) once
whoever reads has noted where it stands. A slot is made together with a snapshot of the same
moment, which the replication protocol gives and plain SQL does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError
from millstream.core.extras import told_where_missing

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

CONNECT_S = 10
PAGE_ROWS = 10_000
# Values are written alike in a snapshot and in the log, whatever the server's settings are.
WRITTEN = "-c timezone=UTC -c datestyle=ISO,YMD -c bytea_output=hex -c extra_float_digits=1"


class TableLog:
    """A connection to where the table is."""

    def __init__(self, stream: str, options: Mapping[str, Any], table: str) -> None:
        with told_where_missing():
            import psycopg  # noqa: PLC0415  (an extra)
        self._psycopg, self._options = psycopg, options
        self._stream, self.table = stream, table
        self._names = tuple(table.split("."))
        self._used: psycopg.Connection[Any] = self._connect()
        self._making: psycopg.Connection[Any] | None = None  # holds the snapshot of a new slot

    def close(self) -> None:
        self._release()
        with suppress(Exception):
            self._used.close()

    def _release(self) -> None:
        if self._making is not None:
            with suppress(Exception):
                self._making.close()
        self._making = None

    def _connect(self, *, replication: bool = False) -> "psycopg.Connection[Any]":
        more: dict[str, Any] = {k: self._options[k] for k in ("password",) if k in self._options}
        if replication:
            more["replication"] = "database"
        try:
            return self._psycopg.connect(
                str(self._options["dsn"]), autocommit=True, connect_timeout=CONNECT_S,
                application_name="millstream", client_encoding="utf8", options=WRITTEN, **more,
            )  # fmt: skip
        except self._psycopg.OperationalError as error:
            raise MillstreamError(
                f"stream {self._stream}: PostgreSQL does not let us in", detail=_words(error),
                hint="see that the server runs and that dsn and password are right: it is tried "
                "again",
            ) from None  # fmt: skip

    # -- what must be so ------------------------------------------------------------------------

    def check(self, columns: Sequence[str], key: Sequence[str], *, followed: bool) -> list[str]:
        """Refuses what cannot be read, in words; gives the table's columns."""
        with self._told():
            found = self._one("SELECT to_regclass(%s)::oid", self._table.as_string(self._used))
            if found[0] is None:
                raise self._wrong(
                    f"there is no table {self.table}", hint='name it as "schema.table", or make it'
                )
            oid = int(found[0])
            names = self._column(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0 "
                "AND NOT attisdropped ORDER BY attnum", oid,
            )  # fmt: skip
            self.check_columns(columns, names)
            (allowed,) = self._one("SELECT has_table_privilege(%s::oid, 'SELECT')", oid)
            if not allowed:
                hint = f"GRANT SELECT ON {self.table} TO {self._used.info.user}"
                raise self._wrong(f"table {self.table} may not be read", hint=hint)
            if followed:
                self._check_log(oid, key)
        return names

    def check_columns(self, wanted: Sequence[str], there: Sequence[str]) -> None:
        if lacking := [name for name in wanted if name not in there]:
            raise self._wrong(
                f"table {self.table} has no column {lacking[0]}",
                detail=f"it has {', '.join(there)}",
                hint="declare the columns as they are, in a new run, or bring it back",
            )

    def _check_log(self, oid: int, key: Sequence[str]) -> None:
        (level,) = self._one("SELECT current_setting('wal_level')")
        if level != "logical":
            raise self._wrong(
                "the server keeps no log that can be followed",
                detail=f"wal_level is {level}",
                hint="ALTER SYSTEM SET wal_level = logical and restart it, "
                'or trigger = "available_now" to read the table once',
            )
        (may,) = self._one(
            "SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user"
        )
        if not may:
            raise self._wrong(
                f"role {self._used.info.user} may not follow the log",
                hint=f"ALTER ROLE {self._used.info.user} REPLICATION, "
                'or trigger = "available_now" to read the table once',
            )
        (identity,) = self._one("SELECT relreplident::text FROM pg_class WHERE oid = %s", oid)
        told = self._identity(oid, identity)
        if (identity != "f" and not set(key) <= told) or identity == "n":
            raise self._wrong(
                f"the log does not identify deleted rows of table {self.table} by {', '.join(key)}",
                detail=f"it identifies them by {', '.join(sorted(told)) or 'nothing'}",
                hint=f"declare these as key, or ALTER TABLE {self.table} REPLICA IDENTITY FULL",
            )

    def _identity(self, oid: int, identity: str) -> set[str]:
        """The columns that deletes and updates have of the row before."""
        which = {"d": "i.indisprimary", "i": "i.indisreplident"}.get(identity, "false")
        return set(
            self._column(
                "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = "
                f"i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s AND {which}", oid,
            )
        )  # fmt: skip

    # -- rows -----------------------------------------------------------------------------------

    def snapshot(self, columns: Sequence[str], name: str = "") -> Iterator[list[dict[str, Any]]]:
        """All rows of one moment, that of a slot or the present, in pages of texts.

        By COPY, which writes values as the log does; a cast to text does not.
        """
        sql = self._psycopg.sql
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        with self._told(), self._used.transaction():
            self._used.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if name:
                self._used.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
            asked = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(listed, self._table)
            with self._used.cursor() as cursor, cursor.copy(asked) as copy:
                rows = (dict(zip(columns, row, strict=True)) for row in copy.rows())
                while page := list(islice(rows, PAGE_ROWS)):
                    yield page
        self._release()

    def now_us(self) -> int:
        with self._told():
            (now,) = self._one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
            return int(now)

    # -- the log --------------------------------------------------------------------------------

    def make_slot(self, name: str, publication: str) -> tuple[int, str]:
        """A slot: where it begins, and the snapshot of that moment. One that was left goes."""
        sql = self._psycopg.sql
        with self._told():
            if self.slot_at(name) is not None:
                self._used.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            if publication == name:
                made = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}")
                there = self._used.execute(
                    "SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)
                ).fetchone()
                if there is None:
                    self._used.execute(made.format(sql.Identifier(name), self._table))
            self._making = self._connect(replication=True)
            asked = f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput EXPORT_SNAPSHOT'
            answer = self._making.pgconn.exec_(asked.encode())
            if answer.ntuples != 1:
                words = answer.error_message.decode().strip().removeprefix("ERROR:").strip()
                hint = "see max_replication_slots and max_wal_senders of the server"
                raise self._wrong("the server makes no slot", detail=words, hint=hint)
            begins, snapshot = (answer.get_value(0, n) or b"" for n in (1, 2))
        return lsn_of(begins.decode()), snapshot.decode()

    def slot_at(self, name: str) -> int | None:
        """Up to where the slot has been moved; None where there is none."""
        with self._told():
            found = self._used.execute(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
                (name,),
            ).fetchone()
        return None if found is None else lsn_of(found[0] or "0/0")

    def end(self) -> int:
        """The end of the log now: whatever is committed lies before it."""
        with self._told():
            (text,) = self._one("SELECT pg_current_wal_flush_lsn()::text")
            return lsn_of(text)

    def peek(self, name: str, publication: str, changes_max: int) -> Iterator[bytes]:
        """Messages behind the slot, transactions whole; they stay there."""
        asked = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, "
            "'proto_version', '1', 'publication_names', %s)"
        )
        quoted = '"' + publication.replace('"', '""') + '"'
        with (
            self._told(),
            self._used.transaction(),
            self._used.cursor(name="millstream_log") as cursor,
        ):
            cursor.execute(asked, (name, changes_max, quoted))
            while rows := cursor.fetchmany(PAGE_ROWS):
                yield from (bytes(data) for (data,) in rows)

    def advance(self, name: str, lsn: int) -> None:
        """Lets the server forget what lies before."""
        with self._told():
            self._used.execute(
                "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (name, lsn_text(lsn))
            )

    # -- inside ---------------------------------------------------------------------------------

    @property
    def _table(self) -> "sql.Identifier":
        return self._psycopg.sql.Identifier(*self._names)

    def _one(self, asked: str, *values: object) -> tuple[Any, ...]:
        row = self._used.execute(asked, values).fetchone()
        assert row is not None
        return tuple(row)

    def _column(self, asked: str, *values: object) -> list[Any]:
        rows = self._used.execute(asked, values).fetchall()
        return [row[0] for row in rows]

    def _wrong(self, message: str, *, detail: str = "", hint: str = "") -> MillstreamError:
        return MillstreamError(f"stream {self._stream}: {message}", detail=detail, hint=hint)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.errors.InsufficientPrivilege as error:
            raise self._wrong(
                f"role {self._used.info.user} may not do what it takes to follow {self.table}",
                detail=_words(error),
                hint="let the table's owner CREATE PUBLICATION p FOR TABLE ..., and name it: "
                'options = { publication = "p" }',
            ) from None
        except self._psycopg.Error as error:
            raise self._wrong(
                f"table {self.table} cannot be read", detail=_words(error),
                hint="see to the server: it is tried again, and nothing is lost",
            ) from None  # fmt: skip


def lsn_of(text: str) -> int:
    """
    >>> lsn_of("16/B374D848") == 0x16B374D848, lsn_text(0x16B374D848)
    (True, '16/B374D848')
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _words(error: "psycopg.Error") -> str:
    return (error.diag.message_primary or str(error).strip().split("\n")[-1]).strip()
