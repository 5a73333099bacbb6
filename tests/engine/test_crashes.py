"""Crashes at every point between file, commit, compaction and removal: one answer all the same.

A hook raises at a chosen point; the engine is dropped as it is and a new one opened on the same
home. A run is (seed): a failure repeats itself.
"""

import itertools
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_engines import bag, file_rows, rejected, stream

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.delivery import FileSink

pytestmark = pytest.mark.spark

CRASHES = 50
SEED = 20090
SETTINGS = EngineSettings(batch_rows=60, step_rows_max=200)
SECOND = 1_000_000
QUERIES = {
    "filter": "SELECT name, n FROM a WHERE n % 3 = 0",
    "sliding": "SELECT name, count(*) AS c, sum(n) AS s FROM a [RANGE 20 SECONDS SLIDE 10 SECONDS]"
    " GROUP BY name",
    "join": "SELECT x.n AS n, y.n AS m FROM a [RANGE 5 SECONDS] x JOIN b [RANGE 5 SECONDS] y"
    " ON x.name = y.name",
    "rows": "SELECT name, max(n) AS m FROM a [PARTITION BY name ROWS 3] GROUP BY name",
    "total": "SELECT name, count(*) AS c, avg(n) AS v FROM b GROUP BY name",
    "distinct": "SELECT DISTINCT name, n % 5 AS r FROM b",
    "over": "SELECT name, LEAD(n) OVER (PARTITION BY name ORDER BY ts) AS m, sum(n) OVER (PARTITION"
    " BY name ORDER BY ts) AS t FROM a WHERE n % 4 = 0",
    "match": "SELECT * FROM a MATCH_RECOGNIZE (PARTITION BY name ORDER BY ts MEASURES"
    " count(*) AS c, LAST(UP.n) AS top, MATCH_NUMBER() AS number PATTERN (UP{2,} DOWN)"
    " WITHIN INTERVAL '30' SECONDS DEFINE UP AS n > PREV(n), DOWN AS n < FIRST(UP.n)) AS m",
    "dstream": "DSTREAM(SELECT n FROM a [RANGE 7 SECONDS] WHERE n % 10 = 0)",
}
AUDIT = """
CREATE TABLE IF NOT EXISTS audit (stream TEXT, first INTEGER, last INTEGER);
CREATE TRIGGER IF NOT EXISTS audited AFTER INSERT ON segments
BEGIN INSERT INTO audit VALUES (NEW.stream, NEW.first, NEW.last); END;
"""


class Crash(BaseException):
    """What a test does to the process."""


class CrashPlan:
    """Raises when a point is reached, or after so many points; from then on at every one."""

    def __init__(self, wanted: str, points_most: int) -> None:
        self.wanted, self.left, self.at = wanted, points_most, ""

    def __call__(self, point: str) -> None:
        self.left -= 1
        if not self.at and (point == self.wanted or self.left <= 0):
            self.at = point
        if self.at:
            raise Crash(point)


def write_input(folder: Path) -> None:
    """Two streams in a few files each: out of order, with late and malformed rows."""
    chance = random.Random(7)
    for name, count in (("a", 480), ("b", 400)):
        (folder / name).mkdir()
        rows = []
        for i in range(count):
            at = i // 3 + chance.choice((0, 0, 0, 1, 2, -1, -2, -9))
            number = "bad" if chance.random() < 0.02 else str(chance.randrange(100))
            rows.append(f"{max(at, 0)},{chance.choice('uvwxyz')},{number}\n")
        for part in range(3):
            third = rows[part * count // 3 : (part + 1) * count // 3]
            (folder / name / f"{part}.csv").write_text("".join(third))


def opened(plane: SparkPlane, folder: Path, home: Path) -> Engine:
    """An engine with all declarations, as `run` would make it."""
    engine = Engine(home, plane, SETTINGS)
    with sqlite3.connect(home / "ledger.db") as db:
        db.executescript(AUDIT)
    for name in ("a", "b"):
        engine.add_stream(stream(name, path=folder / name, lateness_us=3 * SECOND))
        late, bad = (FileSink(home / f"{name}.{kind}", "parquet") for kind in ("late", "rejected"))
        engine.deliver_rejects(name, late, bad)
    for name, cql in QUERIES.items():
        engine.add_query(name, cql)
        changes = engine.queries[name].plan.relation
        consumer = Consumer("changes", name) if changes else None
        engine.deliver(name, FileSink(home / "out" / name, "parquet"), consumer=consumer)
    return engine


def answers(engine: Engine, home: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """What a run gives: rows of files; of the relation also its table."""
    found = {name: bag(file_rows(home / "out" / name)) for name in QUERIES if name != "total"}
    found["total"] = bag(engine.table("total").drop_columns(["ts"]).to_pylist())
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in file_rows(home / "out" / "total"):
        sums[row["name"], row["c"], row["v"]] += 1 if row["op"] == "+" else -1
    found["changes"] = +sums
    for name in ("a", "b"):
        found[f"{name}.late"] = bag(file_rows(home / f"{name}.late"))
        found[f"{name}.rejected"] = bag(file_rows(home / f"{name}.rejected"))
    return found


def check_ledger(engine: Engine, home: Path) -> None:
    """Only files that the ledger names; each sequence number given once, none passed over."""
    assert set(engine.store.files()) == engine.ledger.named_files()
    assert [p for p in engine.store.folder.iterdir() if p.suffix != ".parquet"] == []
    with sqlite3.connect(home / "ledger.db") as db:
        published = db.execute(
            "SELECT stream, first FROM audit WHERE first = last ORDER BY stream, first"
        ).fetchall()
    for row in engine.ledger.streams():
        numbers = [first for name, first in published if name == row["id"]]
        assert numbers == list(range(1, row["next"])), row["id"]
        held = engine.ledger.segments(row["id"])
        assert all(s.last < t.first for s, t in itertools.pairwise(held)), row["id"]


@pytest.fixture(scope="module")
def undisturbed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """The input, a data plane to share, and the answers of a run without crashes."""
    folder = tmp_path_factory.mktemp("crashes")
    write_input(folder)
    home = folder / "undisturbed"
    # one for all engines: types of expressions do not change, and asking again is slow
    plane = SparkPlane(spark)
    engine = opened(plane, folder, home)
    Loop(engine).run()
    found = answers(engine, home)
    check_ledger(engine, home)
    engine.close()
    assert all(found.values()), "every query has rows to lose"
    return folder, plane, found


def test_the_undisturbed_run_loses_nothing(undisturbed: tuple[Path, Any, Any]) -> None:
    _, _, expected = undisturbed
    assert expected["changes"] == expected["total"]
    assert sum(expected["a.rejected"].values()) > 5
    assert sum(expected["a.late"].values()) > 5


def test_what_was_delivered_before_a_crash_goes_at_the_next_start(
    undisturbed: tuple[Path, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had ended between every delivery and the removal that follows it."""
    folder, plane, expected = undisturbed
    home = folder / "kept"
    engine = opened(plane, folder, home)
    monkeypatch.setattr(engine.maintenance, "retain", lambda _: None)
    Loop(engine).run()
    assert rejected(engine, "a")
    engine.close()
    again = opened(plane, folder, home)
    Loop(again).run()
    assert rejected(again, "a") == []
    assert answers(again, home) == expected
    again.close()


def test_many_crashes_one_answer(undisturbed: tuple[Path, Any, Any]) -> None:
    folder, plane, expected = undisturbed
    chance = random.Random(SEED)
    crashed: Counter[str] = Counter()
    rounds = 0
    while sum(crashed.values()) < CRASHES or set(crashed) != set(faults.POINTS):
        rounds += 1
        assert rounds < 20, f"points that no run reaches: {set(faults.POINTS) - set(crashed)}"
        home = folder / f"round-{rounds}"
        engine = run_with_crashes(plane, folder, home, chance, crashed)
        engine.close()
        final = opened(plane, folder, home)
        check_ledger(final, home)
        found = answers(final, home)
        for name, rows in expected.items():
            assert found[name] == rows, f"{name} after {dict(crashed)} (seed {SEED})"
        assert rejected(final, "a") == [], "delivered rows are not retained"
        final.close()


def run_with_crashes(
    plane: SparkPlane, folder: Path, home: Path, chance: random.Random, crashed: Counter[str]
) -> Engine:
    """Runs to the end through as many crashes as it meets on the way."""
    while True:
        rarest = sorted(faults.POINTS, key=lambda p: (crashed[p], p))[:3]
        plan = CrashPlan(chance.choice(rarest), chance.randrange(6, 24))
        try:
            engine = opened(plane, folder, home)
            faults.set_hook(plan)
            Loop(engine).run()
        except Crash:
            crashed[plan.at] += 1
        else:
            return engine
        finally:
            faults.set_hook(None)
