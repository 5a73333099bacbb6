"""What managers remember together, in PostgreSQL: one leads and writes, the others wait.

Each time that a manager takes the lease a term begins, and every save checks its own term in the
transaction that writes. So a manager that was replaced while it paused or was cut off writes
nothing more, and decides nothing more. Monotonic clocks decide when a lease is over: a waiting
manager watches the leader's beat, a number, stand still. No time of day is compared, neither here
nor at the server. A leader started again on its home is known by its name and does not wait.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from millstream.control.manager.state import ManagerState, Settings
from millstream.core.errors import AwayError, RefusedError, StateError, UsageError
from millstream.core.extras import told_where_missing
from millstream.edge.manager.memory.records import Words, begun, between, read

if TYPE_CHECKING:
    import psycopg

VERSION = "1"
LEASE_S = 3.0  # a beat that stands still for so long is nobody's
PATIENCE_MS = 2500  # of one statement, and of words that nobody acknowledges
LOCK = 0x6D696C6C  # one of those who make the tables at once
SCHEMA = """
CREATE TABLE IF NOT EXISTS millstream_manager_words (key text PRIMARY KEY, value text NOT NULL);
CREATE TABLE IF NOT EXISTS millstream_manager_records (
  kind text, key text, value text NOT NULL, PRIMARY KEY (kind, key));
CREATE TABLE IF NOT EXISTS millstream_manager_lease (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), holder text NOT NULL, url text NOT NULL,
  term bigint NOT NULL, beat bigint NOT NULL);
INSERT INTO millstream_manager_lease VALUES (true, '', '', 0, 0) ON CONFLICT DO NOTHING;
"""
OUTDONE = "another manager has taken over"


class PostgresStore:
    """One database, or one schema of it, is one cluster's memory. `holder` names this home."""

    def __init__(
        self, dsn: str, holder: str, url: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        with told_where_missing():
            import psycopg  # noqa: PLC0415  (an extra)
        self._psycopg, self._dsn, self._clock = psycopg, dsn, clock
        self._holder, self.url, self.term = holder, url, 0
        self._seen: tuple[tuple[Any, ...], float] | None = None  # the lease, and since when
        self._one, self._other = threading.Lock(), threading.Lock()
        self._writing: psycopg.Connection[Any] | None = None
        self._beating: psycopg.Connection[Any] | None = None
        try:
            psycopg.conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise UsageError(
                "--store is not an address of PostgreSQL", detail=str(error).strip(),
                hint="postgresql://USER@HOST/DATABASE; the password in PGPASSWORD or ~/.pgpass",
            ) from None  # fmt: skip

    # -- who leads ------------------------------------------------------------------------------

    def take(self) -> str:
        """Takes the lease where nobody has it; gives who has, or nothing: then this one leads."""
        with self._one, self._asked("_beating") as used:
            found = _lease(used)
            holder, url, term, beat = found
            if self._seen is None or self._seen[0] != found:
                self._seen = (found, self._clock())
            quiet_s = self._clock() - self._seen[1]
            if holder not in ("", self._holder) and quiet_s < LEASE_S:
                return f"the manager at {url} leads"
            moved = used.execute(
                "UPDATE millstream_manager_lease SET holder = %s, url = %s, term = term + 1, "
                "beat = 0 WHERE term = %s AND beat = %s AND holder = %s",
                (self._holder, self.url, term, beat, holder),
            )
            if moved.rowcount != 1:
                return "another manager was quicker"
            self.term, self._seen = int(term) + 1, None
            return ""

    def renew(self) -> bool:
        """One more beat; False where another has taken the lease."""
        with self._one, self._asked("_beating") as used:
            moved = used.execute(
                "UPDATE millstream_manager_lease SET beat = beat + 1 "
                "WHERE holder = %s AND term = %s",
                (self._holder, self.term),
            )
            return moved.rowcount == 1

    def release(self) -> None:
        """Nobody has to wait for this one, where it led."""
        with suppress(AwayError), self._one, self._asked("_beating") as used:
            used.execute(
                "UPDATE millstream_manager_lease SET holder = '' WHERE holder = %s AND term = %s",
                (self._holder, self.term),
            )

    # -- memory ---------------------------------------------------------------------------------

    def load(self, settings: Settings) -> ManagerState:
        """The durable half as it was, under an epoch that was never used."""
        with self._other, self._asked("_writing") as used:
            self._demand_term(used)
            _write_words(used, begun(_words(used)))
            rows = used.execute("SELECT kind, key, value FROM millstream_manager_records")
            hint = "restore it from a backup, or drop its tables: managers learn from processors"
            return read(_words(used), rows.fetchall(), settings, place="the store", hint=hint)

    def save(self, before: ManagerState, after: ManagerState) -> None:
        """Writes what has changed between two states; refused where another leads."""
        changes = between(before, after)
        if changes is None:
            return
        with self._other, self._asked("_writing") as used:
            self._demand_term(used)
            gone = [(kind, key) for kind, key, record in changes.records if record is None]
            kept = [one for one in changes.records if one[2] is not None]
            with used.cursor() as cursor:
                if gone:
                    cursor.executemany(
                        "DELETE FROM millstream_manager_records WHERE kind = %s AND key = %s", gone
                    )
                if kept:
                    cursor.executemany(
                        "INSERT INTO millstream_manager_records VALUES (%s, %s, %s) "
                        "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value",
                        kept,
                    )
            _write_words(used, changes.words)

    def _demand_term(self, used: "psycopg.Connection[Any]") -> None:
        """Nobody begins another term before this transaction is over."""
        held = used.execute(
            "SELECT 1 FROM millstream_manager_lease WHERE holder = %s AND term = %s FOR SHARE",
            (self._holder, self.term),
        )
        if held.fetchone() is None:
            raise RefusedError("superseded", OUTDONE)

    def close(self) -> None:
        if self.term:
            self.release()
        for which in ("_beating", "_writing"):
            self._drop(which)

    # -- connections ----------------------------------------------------------------------------

    @contextmanager
    def _asked(self, which: str) -> Iterator["psycopg.Connection[Any]"]:
        """One transaction. A connection that failed is not used again: whether what was written on
        it last is there is not known."""
        try:
            used = getattr(self, which)
            if used is None:
                used = self._connect()
                setattr(self, which, used)
            with used.transaction():
                yield used
        except self._psycopg.Error as error:
            self._drop(which)
            words = (error.diag.message_primary or str(error).strip().split("\n")[-1]).strip()
            away = isinstance(error, self._psycopg.OperationalError) and error.sqlstate is None
            raise AwayError(
                f"the manager's store {'does not answer' if away else 'refuses'}", detail=words,
                hint="see that PostgreSQL runs and that --store and its password are right",
            ) from error  # fmt: skip

    def _connect(self) -> "psycopg.Connection[Any]":
        used = self._psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=3, tcp_user_timeout=PATIENCE_MS,
            keepalives_idle=2, keepalives_interval=1, keepalives_count=2,
            application_name="millstream manager",
        )  # fmt: skip
        try:
            _prepare(used)
        except BaseException:
            used.close()
            raise
        return used

    def _drop(self, which: str) -> None:
        used = getattr(self, which)
        if used is not None:
            with suppress(Exception):
                used.close()
        setattr(self, which, None)


def holder_of(home: Path) -> str:
    """The name of a home, made up once: two homes are never the same holder."""
    file = home / "holder"
    with suppress(OSError):
        if known := file.read_text().strip():
            return known
    name = uuid4().hex
    file.write_text(name)
    return name


def _prepare(used: "psycopg.Connection[Any]") -> None:
    """Bounds how long anything may take; makes the tables where there are none."""
    used.execute(f"SET statement_timeout = {PATIENCE_MS}")
    used.execute(f"SET lock_timeout = {PATIENCE_MS}")
    with used.transaction():
        used.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        used.execute(SCHEMA)
        known = _words(used).get("version")
        if known is None:
            _write_words(used, {"version": VERSION})
        elif known != VERSION:
            raise StateError(
                f"the store has format {known}, this version reads {VERSION}",
                hint="use the version of Millstream that wrote it, or another database",
            )


def _lease(used: "psycopg.Connection[Any]") -> tuple[str, str, int, int]:
    found = used.execute("SELECT holder, url, term, beat FROM millstream_manager_lease").fetchone()
    assert found is not None  # made with its table
    holder, url, term, beat = found
    return str(holder), str(url), int(term), int(beat)


def _words(used: "psycopg.Connection[Any]") -> dict[str, str]:
    rows = used.execute("SELECT key, value FROM millstream_manager_words").fetchall()
    return {str(key): str(value) for key, value in rows}


def _write_words(used: "psycopg.Connection[Any]", words: Words) -> None:
    for key, value in words.items():
        used.execute(
            "INSERT INTO millstream_manager_words VALUES (%s, %s) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value),
        )
