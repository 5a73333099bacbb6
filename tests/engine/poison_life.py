"""Good queries and one poison after another beside them, in one home: a life of a process.

As a program it is started again by whoever watches it when Java has died, and goes on where it was:
rows are pushed under numbers, queries declared again. Every poison has so long to be refused,
failed or parked by name; what came of it is a line of JSON in `outcomes`.
"""

import errno
import gzip
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from millstream.app.session.session import Session
from millstream.core.errors import MillstreamError, UsageError
from millstream.engine import delivering
from millstream.language.share.dataflow import base_stream, rejected_stream
from millstream.spark import deadlines

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BASE = 1_700_000_000_000_000  # microseconds, a multiple of ten seconds
STEP_US = 10_000
BATCH = 40  # rows
COLUMNS = {"k": "int", "v": "int", "at": "timestamp"}
SETTINGS = {
    "step_seconds_max": 10.0, "pairs_max": 200_000, "batch_rows": 2_000, "pace_s": 0.2,
    "restart": "never",
}  # fmt: skip
SPARK = {"spark.driver.memory": "900m"}
LONGEST_S = 60.0
AGAIN = 3  # exit code: Java has ended, or the good ones have still to be seen to their end


def rows_of(batch: int) -> list[dict[str, Any]]:
    return [
        {"k": i % 7, "v": i * 37 % 101, "at": EPOCH + timedelta(microseconds=BASE + i * STEP_US)}
        for i in range(batch * BATCH, (batch + 1) * BATCH)
    ]


def good_text(number: int) -> str:
    limit = number * 2 % 90
    if number % 3 == 0:
        return f"SELECT k, v FROM ev WHERE v > {limit}"
    if number % 3 == 1:
        return (
            "SELECT k, count(*) AS n, sum(v) AS total FROM ev [RANGE 10 SECONDS SLIDE 10 SECONDS] "
            f"WHERE v > {limit} GROUP BY k"
        )
    return (
        "SELECT a.k, a.v, b.v AS w FROM ev [RANGE 2 SECONDS] a, ev [RANGE 2 SECONDS] b "
        f"WHERE a.k = b.k AND a.v < b.v AND a.v > {limit}"
    )


def good_oracle(number: int) -> str:
    """The same for DuckDB, over a table `ev` of k, v and us."""
    limit = number * 2 % 90
    if number % 3 == 0:
        return f"SELECT k, v FROM ev WHERE v > {limit}"
    if number % 3 == 1:
        return (
            f"SELECT k, count(*) AS n, sum(v)::BIGINT AS total FROM ev WHERE v > {limit} "
            "GROUP BY k, us // 10000000"
        )
    return (
        "SELECT a.k, a.v, b.v AS w FROM ev a, ev b WHERE a.k = b.k AND a.v < b.v "
        f"AND a.v > {limit} AND abs(a.us - b.us) <= 2000000"
    )


@dataclass(slots=True)
class Outcome:
    """What became of a poison."""

    poison: str
    state: str
    reason: str
    seconds: float
    lives: int
    stalled_s: float  # the longest time without a row of a good query


@dataclass(slots=True)
class Life:
    """One process over the home."""

    folder: Path
    session: Session
    good: int
    said: list[str] = field(default_factory=list)
    batch: int = 0
    _grown: float = field(default_factory=time.monotonic)
    _rows: int = 0
    stalled_s: float = 0.0

    def open(self) -> None:
        self.session.stream("ev", columns=COLUMNS, time="at")
        for number in range(self.good):
            handle = self.session.query(
                good_text(number), name=f"good{number}", from_beginning=True
            )
            handle.write(str(self.folder / "out" / f"good{number}"))
        self.session.here("x").engine.on_notice.append(self.said.append)
        known = self.folder / "batches"
        self.batch = int(known.read_text()) if known.exists() else 0
        self.session.start()

    def feed(self) -> None:
        """One batch more; said twice it counts once."""
        (self.folder / "batches").write_text(str(self.batch + 1))
        rows = rows_of(self.batch)
        self.session.push("ev", rows, producer="feeder", number=self.batch + 1)
        self.batch += 1
        failure = self.session.here("x").loop.failure  # what stops a source alone is no matter
        if failure is not None:
            raise failure

    def look(self) -> None:
        """How long has no good query given a row?"""
        engine = self.session.here("x").engine
        heads = (engine.ledger.stream(q.stream) for q in list(engine.queries.values())
                 if q.name.startswith("good"))  # fmt: skip
        rows = sum(int(head["rows"]) for head in heads if head is not None)
        now = time.monotonic()
        if rows > self._rows:
            self._rows, self._grown = rows, now
        self.stalled_s = max(self.stalled_s, now - self._grown)

    def state_of(self, name: str) -> tuple[str, str]:
        known = self.session.here("x").engine.queries.get(name)
        return ("", "") if known is None else (known.state, known.reason)


# -- poisons --------------------------------------------------------------------------------------

Poison = Callable[[Life, str], Any]


def query(cql: str) -> Poison:
    return lambda life, name: life.session.query(cql, name=name)


def callback(function: Callable[[Any, int], Any]) -> Poison:
    def poison(life: Life, name: str) -> None:
        life.session.query("SELECT k, v FROM ev WHERE v > 50", name=name).on_batch(function)

    return poison


def full(table: Any, batch: int) -> None:
    del table, batch
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def away(life: Life, name: str) -> None:
    handle = life.session.query("SELECT k, v FROM ev WHERE v > 51", name=name)
    handle.write(format="postgres", dsn="host=127.0.0.1 port=9 connect_timeout=2", table="t")


def function(made: Callable[[int], int]) -> Poison:
    def poison(life: Life, name: str) -> None:
        life.session.register_function(name, made, "int")
        life.session.query(f"SELECT {name}(v) AS n FROM ev", name=name)

    return poison


def endless(v: int) -> int:
    while True:
        v = v * 3 % 7


def greedy(v: int) -> int:
    import resource  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))  # the machine has other users
    return len(bytearray((v + 8) << 30))


def leaving(v: int) -> int:
    os._exit(v)


def half_gz(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    whole = gzip.compress(os.urandom(20_000).hex().encode() + b"\n" * 5_000)
    path.write_bytes(whole[: len(whole) // 2])


def broken_gz(life: Life, name: str) -> None:
    """In a source of Spark's own."""
    half_gz(life.folder / "gz" / "broken.csv.gz")
    life.session.stream(
        "broken", columns=COLUMNS, time="at", source="spark", format="csv",
        options={"path": str(life.folder / "gz")},
    )  # fmt: skip
    life.session.query("SELECT k FROM broken", name=name)


def half_file(life: Life, name: str) -> None:
    """Rows before the break count, and the break is a rejected row that says why."""
    path = life.folder / "half" / "half.csv.gz"
    half_gz(path)
    life.session.stream("half", columns=COLUMNS, time="at", path=str(path), format="csv")
    life.session.query("SELECT k FROM half", name=name)
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        head = life.session.here("x").engine.ledger.stream(rejected_stream("half"))
        if head is not None and int(head["rows"]):
            raise UsageError("told as a rejected row", hint="half.rejected")
        life.feed()
        time.sleep(0.5)


def changed_file(life: Life, name: str) -> None:
    """The second file is another one when its turn comes."""
    folder = life.folder / "changing"
    if not folder.exists():
        folder.mkdir()
        (folder / "1.csv").write_text("1,2,2024-01-01 00:00:00\n" * 500)
        (folder / "2.csv").write_text("1,2,2024-01-01 00:00:00\n" * 800_000)
    life.session.stream(
        "changing", columns=COLUMNS, time="at", path=str(folder), format="csv", rate=100
    )
    life.session.query("SELECT k FROM changing", name=name)

    def change() -> None:
        ledger = life.session.here("x").engine.ledger
        while len(ledger.source_files(base_stream("changing"))) < 2:
            time.sleep(0.1)
        (folder / "2.csv").write_text("9,9,2024-01-01 00:00:00\n" * 800_000)

    threading.Thread(target=change, daemon=True).start()


def huge_row(life: Life, name: str) -> None:
    life.session.stream("huge", columns={"t": "string", "at": "timestamp"}, time="at")
    life.session.query("SELECT length(t) AS n FROM huge", name=name)
    if not (life.folder / "huge").exists():
        (life.folder / "huge").touch()
        life.session.push("huge", [{"t": "x" * 100_000_000, "at": EPOCH}])


def frozen_java(life: Life, name: str) -> None:
    del name
    if not (life.folder / "frozen").exists():
        (life.folder / "frozen").touch()
        machine = life.session.here("x").engine.plane.machine
        process = None if machine is None else machine.process()
        if process is not None:
            os.kill(process.pid, signal.SIGSTOP)


DEEP = 3_000
POISONS: dict[str, Poison] = {
    "cross": query("SELECT a.v FROM ev [UNBOUNDED] a, ev [UNBOUNDED] b"),
    "crossed": query(
        "SELECT a.v, b.v AS w FROM ev [UNBOUNDED] a CROSS JOIN ev [UNBOUNDED] b WHERE a.v <> b.v"
    ),
    "wide": query("SELECT a.v FROM ev [RANGE 1 HOUR] a JOIN ev [RANGE 1 HOUR] b ON a.v < b.v"),
    "nesting": query(f"SELECT {'(' * DEEP}v{')' * DEEP} AS n FROM ev"),
    "chain": query(f"SELECT v{' + 1' * DEEP} AS n FROM ev"),
    "division": query("SELECT 100 DIV (v - v) AS n FROM ev"),
    "cast": query("SELECT CAST(concat('x', CAST(k AS STRING)) AS INT) AS n FROM ev"),
    "overflow": query("SELECT CAST(v + 127 AS TINYINT) AS n FROM ev"),
    "folded": query("SELECT v, length(repeat('x', 2000000000)) AS n FROM ev"),
    "gz": broken_gz,
    "half": half_file,
    "changed": changed_file,
    "hanging": callback(lambda table, batch: time.sleep(1e6)),
    "full": callback(full),
    "away": away,
    "row": huge_row,
    "explode": query("SELECT explode(sequence(1, 50000000)) AS n FROM ev"),
    "leaving": function(leaving),
    "greedy": function(greedy),
    "endless": function(endless),
    "regex": query(  # what Java's own memory of tried places does not help
        "SELECT concat(repeat('a', 60), CAST(v AS STRING)) RLIKE '(.*a){20}b' AS q FROM ev"
    ),
    "sequence": query("SELECT size(sequence(1, 400000000 + v)) AS n FROM ev"),
    "repeat": query("SELECT length(repeat(CAST(v + 100 AS STRING), 600000000)) AS n FROM ev"),
    "frozen": frozen_java,
}
HARMLESS = ("nesting", "chain", "row", "frozen")  # that may as well work


# -- a life ---------------------------------------------------------------------------------------


def live(life: Life, names: list[str]) -> Iterator[Outcome]:
    """Goes through the poisons that have no outcome yet."""
    done = {o["poison"] for o in outcomes(life.folder)}
    life.open()
    while life.batch < 5:
        life.feed()
    for name in (n for n in names if n not in done):
        yield _one(life, name)
        time.sleep(2.0)  # tasks that it has left behind may cost Java its life: not the next one's
        life.feed()


def _one(life: Life, poison: str) -> Outcome:
    name, began = f"bad_{poison}", life.folder / f"began-{poison}"
    if not began.exists():
        began.write_text(f"{time.time()} 0")
    since, lives = (float(part) for part in began.read_text().split())
    began.write_text(f"{since} {lives + 1:.0f}")
    life.stalled_s, life._grown = 0.0, time.monotonic()
    state, reason = "", ""
    try:
        POISONS[poison](life, name)
        quiet = time.monotonic() + 8
        while not state and time.time() - since < 2 * LONGEST_S:
            life.feed()
            time.sleep(0.5)
            life.look()
            now, why = life.state_of(name)
            if now in ("failed", "parked"):
                state, reason = now, why
            elif poison in HARMLESS and time.monotonic() > quiet:
                state = "fine"
    except UsageError as error:
        state, reason = "refused", f"{error.message}: {error.hint}"
    seconds = time.time() - since
    with suppress(MillstreamError):
        life.session.drop(name)
    return Outcome(poison, state, reason, round(seconds, 1), int(lives) + 1, life.stalled_s)


def outcomes(folder: Path) -> list[dict[str, Any]]:
    path = folder / "outcomes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def note(folder: Path, outcome: Outcome) -> None:
    with (folder / "outcomes").open("a") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


def finish(life: Life) -> None:
    life.session.system.finish("ev")
    life.session.system.wait(LONGEST_S)
    engine = life.session.here("x").engine
    bad = {q.name: q.reason for q in engine.queries.values()
           if q.name.startswith("good") and q.state != "running"}  # fmt: skip
    assert not bad, bad


def main(folder: Path, good: int, names: list[str]) -> None:
    deadlines.GRACE_S = 5.0
    delivering.PATIENCE_S = 5.0
    session = Session(folder / "home", "local[2]", settings=SETTINGS, spark=SPARK)
    life = Life(folder, session, good)
    try:
        more = False
        for outcome in live(life, names):
            note(folder, outcome)
            more = True
        if not more:  # a life without any poison, nor the streams that they came by
            finish(life)
    except Exception as error:
        time.sleep(2.0)  # Java may be on its way out
        machine = session.here("x").engine.plane.machine
        process = None if machine is None else machine.process()
        ended = process is not None and process.poll() is not None
        told = "" if ended else str(error)[:300]  # an error of Spark asks Java for its words
        print(f"{type(error).__name__}: {told}", file=sys.stderr, flush=True)
        os._exit(AGAIN if ended else 1)
    session.close()
    if more:
        os._exit(AGAIN)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","))
