"""Aggregates registered in Python: by panes, by sessions, without windows, over tables, alone and
with others, whatever the batches."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import Session
from millstream.app.session.user_aggregates import UserAggregate
from millstream.core.errors import CqlError, UsageError

SECOND = 1_000_000


def geometric(session: Session, version: str = "1", *, by: int = 1) -> None:
    """The product of values modulo a prime, with how many there were."""
    session.register_aggregate(
        "product", zero=[1, 0],
        accumulate=lambda s, v: [s[0] * v * by % 10_007, s[1] + 1],
        merge=lambda a, b: [a[0] * b[0] % 10_007, a[1] + b[1]],
        finish=lambda s: s[0] * 100 + s[1], returns="bigint", version=version,
    )  # fmt: skip


def product(values: list[int]) -> int:
    made = 1
    for value in values:
        made = made * value % 10_007
    return made * 100 + len(values)


@pytest.fixture
def session(spark: Any, tmp_path: Path) -> Iterator[Session]:
    with Session(tmp_path / "home", spark=spark) as made:
        yield made


@pytest.mark.spark
def test_user_aggregates(session: Session) -> None:
    geometric(session)
    session.register_aggregate(
        "weighted", zero={"sum": 0.0, "weight": 0.0},
        accumulate=lambda s, x, w: {"sum": s["sum"] + x * w, "weight": s["weight"] + w},
        merge=lambda a, b: {k: a[k] + b[k] for k in a},
        finish=lambda s: s["sum"] / s["weight"] if s["weight"] else None, returns="double",
    )  # fmt: skip
    session.execute(
        "CREATE STREAM s (k string, v int, w double, at timestamp) "
        "WITH (time = 'at', lateness = '3 seconds')"
    )
    texts = {
        "hopping": "SELECT k, product(v) AS p, count(*) AS n FROM s "
                   "[RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
        "more": "SELECT k, product(v) AS p, sum(v) AS total FROM s "
                "[RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k",
        "both": "SELECT weighted(v, w) AS mean, product(v) FILTER (WHERE v > 2) AS p FROM s "
                "[RANGE 4 SECONDS SLIDE 4 SECONDS]",
        "sessions": "SELECT k, product(v) + 1 AS p FROM s [SESSION 2 SECONDS] GROUP BY k",
        "so_far": "SELECT k, product(v) AS p FROM s GROUP BY k HAVING product(v) > 0",
        "of_table": "SELECT product(v) AS p FROM (SELECT k, last(v) AS v FROM s GROUP BY k) t",
        "matched": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES "
                   "product(B.v) AS p PATTERN (A B+) WITHIN INTERVAL '4' SECOND "
                   "DEFINE A AS v = 1, B AS v > 1) AS m",
    }  # fmt: skip
    queries = {name: session.query(text, name) for name, text in texts.items()}
    dice = random.Random(5)
    rows: list[dict[str, Any]] = [
        {
            "k": dice.choice("ab"),
            "v": dice.choice((1, 2, 3, 5, None)),
            "w": dice.choice((0.5, 2.0, None)),
            "at": 100 + i // 2 - dice.choice((0, 1, 2)),
        }
        for i in range(60)
    ]
    for at in range(0, 60, 11):
        session.push("s", [{**r, "at": f"1970-01-01 00:{r['at'] // 60:02}:{r['at'] % 60:02}"}
                           for r in rows[at : at + 11]])  # fmt: skip
        session.wait()
    session.finish("s")
    session.wait()

    def of(name: str, *columns: str) -> list[tuple[Any, ...]]:
        query = queries[name]
        table = query.table() if query.relation else query.to_arrow()
        return sorted((tuple(r[c] for c in columns) for r in table.to_pylist()), key=repr)

    def windows(length: int, slide: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        for end in range(0, 400, slide):
            inside = [r for r in rows if end - length <= r["at"] < end]
            if inside:
                yield end, inside

    def by_key(some: list[dict[str, Any]]) -> Iterator[tuple[str, list[int]]]:
        for key in "ab":
            mine = [r for r in some if r["k"] == key]
            if mine:
                yield key, [r["v"] for r in mine if r["v"] is not None]

    wanted = [(k, product(v)) for _, some in windows(4, 2) for k, v in by_key(some)]
    assert of("hopping", "k", "p") == sorted(wanted, key=repr)
    wanted = [(k, product(v)) for _, some in windows(6, 2) for k, v in by_key(some)]
    assert of("more", "k", "p") == sorted(wanted, key=repr)
    pairs = []
    for _, some in windows(4, 4):
        known = [(r["v"], r["w"]) for r in some if None not in (r["v"], r["w"])]
        weight = sum(w for _, w in known)
        mean = sum(v * w for v, w in known) / weight if weight else None
        pairs.append((mean, product([r["v"] for r in some if (r["v"] or 0) > 2])))
    found = of("both", "mean", "p")
    assert [p for _, p in sorted(found, key=repr)] == [p for _, p in sorted(pairs, key=repr)]
    assert [m for m, _ in found] == pytest.approx([m for m, _ in sorted(pairs, key=repr)])
    assert of("so_far", "k", "p") == [(k, product(v)) for k, v in by_key(rows)]
    assert len(of("sessions", "k", "p")) >= 2
    assert sum(p % 100 - 1 for _, p in of("sessions", "k", "p")) == sum(
        r["v"] is not None for r in rows
    )
    ordered = sorted(rows, key=lambda r: r["at"])
    lasts = [[r["v"] for r in ordered if r["k"] == k][-1] for k in "ab"]
    assert of("of_table", "p") == [(product([v for v in lasts if v is not None]),)]
    assert of("matched", "k", "p")
    with pytest.raises(UsageError, match="product is in use by query"):
        geometric(session, "2")


@pytest.mark.spark
def test_versions_share_nothing_and_mistakes_are_told(session: Session) -> None:
    session.execute("CREATE STREAM s (k string, v int, at timestamp) WITH (time = 'at')")
    geometric(session)
    text = "SELECT product(v) AS p FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS]"
    first = session.explain(text)
    assert "product" in first
    geometric(session, "2", by=2)
    assert session.explain(text) != first
    for wrong, message in {
        "SELECT product(DISTINCT v) AS p FROM s": "does not take DISTINCT",
        "SELECT product(*) AS p FROM s": r"does not take \*",
        "SELECT v FROM s WHERE product(v) > 1": "aggregate",
        "SELECT k, product(v) AS p FROM s GROUP BY ROLLUP (k)": "with several groupings",
    }.items():
        with pytest.raises(CqlError, match=message):
            session.explain(wrong)


def test_parts_of_an_aggregate() -> None:
    spread = UserAggregate(
        [], lambda s, v: sorted({*s, v}), lambda a, b: sorted({*a, *b}), len
    ).checked("spread")
    states = [spread.over_rows()(values) for values in ([3, 1], [], [1, 7])]
    assert json.loads(states[1]) == []
    assert spread.at_the_end()(spread.over_states()([*states, None])) == 3
    assert spread.at_the_end()(None) == 0
    with pytest.raises(UsageError, match="cannot be kept as JSON"):
        UserAggregate({1, 2}, max, max).checked("odd")
    with pytest.raises(UsageError, match="merge is not a function"):
        UserAggregate(0, max, "max").checked("odd")  # type: ignore[arg-type]
