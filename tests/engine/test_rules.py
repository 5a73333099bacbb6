"""Rule sets: each rule's rows are those of the plain query with its constants, while it holds."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millstream
from millstream.core.errors import CqlError, UsageError
from millstream.spark.operators.rules import bounds

pytestmark = pytest.mark.spark

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
LATENESS_S = 4
STREAM = {"at": "timestamp", "kind": "string", "v": "double", "n": "int"}
LIMITS = {"rule": "string", "low": "double", "high": "double", "k": "string", "m": "bigint"}
# what a rule set asks of a row and a rule, and the same in DuckDB's words
ASKED = {
    "above": "v > :low",
    "below": "v <= :high",
    "between": "v >= :low AND v < :high",
    "keyed": "kind = :k AND v > :low",
    "far": "kind <=> :k AND :low < v",
    "whole": "n > :m",
    "late_noon": "extract(MINUTE FROM ts) > :m",
    "raising": "n <> 0 AND v / n > :low AND kind = :k",
    "any": "kind = :k OR v < :low",
}
WINDOWS = (
    "SELECT kind, total FROM (SELECT kind, sum(n) AS total FROM r"
    " [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY kind) WHERE total > :m"
)


def text(asked: str) -> str:
    return f"SELECT kind, v, n, :low AS low FROM r WHERE {asked} FOR EACH limits"


@dataclass(slots=True)
class Script:
    """Rows and rules as they come, and what follows of them."""

    chance: random.Random
    rows: list[dict[str, Any]] = field(default_factory=list)
    rules: list[dict[str, Any]] = field(default_factory=list)  # with since and gone
    now: int = 0  # seconds; rows are at most so much older as they may be late
    started: bool = False

    def more_rows(self, count: int) -> list[dict[str, Any]]:
        made = []
        for _ in range(count):
            self.now += self.chance.randrange(3)
            at = self.now - self.chance.choice((0, 0, 0, 1, LATENESS_S))
            made.append(
                {
                    "at": EPOCH + timedelta(seconds=max(at, 0)),
                    "kind": self.chance.choice(("a", "b", None)),
                    "v": self.chance.choice((None, float("nan"), *range(40))),
                    "n": self.chance.choice((None, *range(-2, 20))),
                }
            )
        made = [{**row, "v": None if row["v"] is None else float(row["v"])} for row in made]
        self.rows += made
        return made

    def since(self) -> datetime:
        seen = [row["at"] for row in self.rows]
        if not self.started or not seen:
            return datetime(1, 1, 1, tzinfo=UTC)
        return max(seen) + timedelta(microseconds=1)

    def rule(self, name: str) -> dict[str, Any]:
        low = self.chance.choice((None, *(x / 2 for x in range(-4, 80))))
        return {
            "rule": name,
            "low": low,
            "high": None if low is None else low + self.chance.choice((0, 0.5, 3, 60)),
            "k": self.chance.choice(("a", "b", "c", None)),
            "m": self.chance.choice((None, *range(60))),
        }

    def change(self, rows: list[dict[str, Any]]) -> None:
        now = self.since()
        for row in rows:
            for old in self.rules:
                if old["rule"] == row["rule"] and old["gone"] is None:
                    old["gone"] = now
            if not row.get("removed"):
                self.rules.append({**row, "since": now, "gone": None})

    def some_changes(self) -> list[dict[str, Any]]:
        names = [f"r{i}" for i in range(140)]
        chosen = self.chance.sample(names, 5)
        return [
            self.rule(name) if self.chance.random() < 0.6 else {"rule": name, "removed": True}
            for name in chosen
        ]


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute("SET TimeZone = 'UTC'")
        yield made


def expected(database: duckdb.DuckDBPyConnection, script: Script, name: str) -> list[str]:
    """The rows of a rule set by DuckDB, from the rows and the rules with their times."""
    rows = (
        pa.Table.from_pylist(script.rows, ROWS)
        .rename_columns(["t", "kind", "v", "n"])
        .append_column("pos", pa.array(range(len(script.rows))))
    )
    rules = pa.Table.from_pylist(
        [{n: r.get(n) for n in (*LIMITS, "since", "gone")} for r in script.rules], RULES
    )
    database.register("given", rows)
    database.register("rules", rules)
    late = f"coalesce(t < max(t) OVER (ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - INTERVAL {LATENESS_S} SECOND, FALSE)"  # noqa: E501
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE r AS SELECT * FROM (SELECT *, {late} AS late FROM given)"
        " WHERE NOT late"
    )
    holds = "t >= since AND (gone IS NULL OR t < gone)"
    if name == "windows":
        sql = (
            "WITH ends AS (SELECT DISTINCT time_bucket(INTERVAL 5 SECOND, t) + INTERVAL (5 * i)"
            " SECOND AS t FROM r, range(1, 3) AS x(i)), sums AS (SELECT e.t, kind, sum(n) AS"
            " total FROM ends AS e JOIN r ON r.t >= e.t - INTERVAL 10 SECOND AND r.t < e.t"
            " GROUP BY e.t, kind)"
            f" SELECT rule, kind, total, t FROM sums, rules WHERE {holds} AND total > m"
        )
    else:
        asked = ASKED[name].replace(" <=> ", " IS NOT DISTINCT FROM ").replace("ts", "t")
        for parameter in LIMITS:
            asked = asked.replace(f":{parameter}", f"rules.{parameter}")
        if name == "raising":
            asked = asked.replace("v / n", "v / nullif(n, 0)")
        sql = f"SELECT rule, kind, v, n, low, t FROM r, rules WHERE {holds} AND ({asked})"
    return sorted(_spelt(row) for row in database.execute(sql).fetchall())


ROWS = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("v", pa.float64()),
     ("n", pa.int32())]
)  # fmt: skip
RULES = pa.schema(
    [("rule", pa.string()), ("low", pa.float64()), ("high", pa.float64()), ("k", pa.string()),
     ("m", pa.int64()), ("since", pa.timestamp("us", "UTC")), ("gone", pa.timestamp("us", "UTC"))]
)  # fmt: skip


def register(session: millstream.Session, found: dict[str, list[str]]) -> None:
    for name, asked in (
        *((n, text(a)) for n, a in ASKED.items()),
        ("windows", f"{WINDOWS} FOR EACH limits"),
    ):
        query = session.query(asked, name, from_beginning=True)
        query.on_batch(lambda table, _, name=name: found.setdefault(name, []).extend(_told(table)))


def _told(table: pa.Table) -> list[str]:
    return [_spelt(row.values()) for row in table.to_pylist()]


def _spelt(row: Iterable[Any]) -> str:
    return repr([v.timestamp() if isinstance(v, datetime) else v for v in row])


def opened(home: Path) -> millstream.Session:
    session = millstream.Session(home, settings={"sharing": "subsuming"})
    lateness = f"{LATENESS_S} seconds"
    session.stream("r", columns=STREAM, time="at", lateness=lateness)
    session.stream("limits", columns=LIMITS, source="rules")
    return session


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [1, 2])
def test_rules_that_come_and_go_agree_with_duckdb(
    seed: int, tmp_path: Path, database: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every shape of condition, at every size of step, over a session that ends in between."""
    monkeypatch.setattr(bounds, "RULES_A_KEY_MIN", 8)
    script, found = Script(random.Random(seed)), {}
    session = opened(tmp_path)
    first = [script.rule(f"r{i}") for i in range(100)]
    session.push("limits", first)
    script.change(first)
    register(session, found)
    script.started = True
    for turn in range(14):
        if turn == 7:
            session.wait(120)
            session.close()
            session = opened(tmp_path)
            register(session, found)
        session.push("r", script.more_rows(script.chance.choice((1, 7, 60))))
        if script.chance.random() < 0.7:
            changes = script.some_changes()
            session.push("limits", changes)
            script.change(changes)
        if script.chance.random() < 0.6:
            session.wait(120)
    session.finish("r")
    assert session.wait(120)
    session.close()
    for name in (*ASKED, "windows"):
        assert sorted(found.get(name, [])) == expected(database, script, name), name
        assert found[name], name


@pytest.mark.usefixtures("spark")
def test_a_rule_is_the_plain_query_with_its_constants(tmp_path: Path) -> None:
    with millstream.Session(tmp_path) as session:
        session.stream("r", columns=STREAM, time="at")
        rules = session.rules(
            "SELECT v FROM r WHERE v > :low AND kind = :k",
            "hot",
            parameters={"low": "double", "k": "string"},
            rows=[{"rule": f"x{i}", "low": float(i), "k": "a"} for i in range(5)],
        )
        plain = session.query("SELECT v FROM r WHERE v > 3.0D AND kind = 'a'", "plain")
        for second in range(30):
            row = {"at": EPOCH + timedelta(seconds=second), "kind": "ab"[second % 2]}
            session.push("r", [{**row, "v": float(second)}])
            if second == 12:
                rules.remove("x3")
        kept = [r for r in rules.to_arrow().to_pylist() if r["rule"] == "x3"]
        everything = plain.to_arrow().to_pylist()
        end = EPOCH + timedelta(seconds=12)
        assert sorted((r["v"], r["ts"]) for r in kept) == sorted(
            (r["v"], r["ts"]) for r in everything if r["ts"] <= end
        )
        assert {r["rule"] for r in rules.rules()} == {"x0", "x1", "x2", "x4"}
        rules.add([{"rule": "x9", "low": 0.0, "k": "b"}])
        (added,) = [r for r in rules.rules() if r["rule"] == "x9"]
        assert added["since"] == EPOCH + timedelta(seconds=29, microseconds=1)


@pytest.mark.usefixtures("spark")
def test_rules_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        with pytest.raises(UsageError, match="has no rule"):
            session.push("limits", [{"low": 1.0}])
        with pytest.raises(CqlError, match="is not a rule table"):
            session.query("SELECT v FROM r WHERE v > :low FOR EACH r")
        with pytest.raises(CqlError, match="unknown parameter :lowest"):
            session.query("SELECT v FROM r WHERE v > :lowest FOR EACH limits")
        with pytest.raises(CqlError, match="an aggregate with parameters"):
            session.query("SELECT count(*) FROM r WHERE v > :low FOR EACH limits")
        with pytest.raises(UsageError, match="needs its parameters"):
            session.rules("SELECT v FROM r WHERE v > :low")
