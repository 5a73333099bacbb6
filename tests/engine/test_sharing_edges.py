"""The edges of sharing: members that fail, very many members, large results, tidying up."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_runner import EngineRunner, arrived, declare, rows_of, settle
from sharing_traps import JOINS, OTHERS, READINGS, SELECTIONS, SLIDING

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.maintenance import Maintenance
from millstream.engine.settings import EngineSettings
from millstream.language.plan.windows import BEGINNING
from millstream.spark.plane import SparkPlane
from millstream.store.consumers import subscriber
from oracle.cases.case import stream
from oracle.compare import difference
from oracle.evaluate import Oracle
from oracle.harness import Example, cut, files_of, judge
from oracle.model import (
    SECOND,
    Expr,
    Item,
    Query,
    Range,
    Select,
    Source,
    Stream,
    agg,
    columns_of,
    expr,
)

pytestmark = pytest.mark.spark

# -- members that fail ---------------------------------------------------------------------------

# The second of three batches has a text that is no number where v is 4, a zero where v is 9.
TEXTS: Stream = stream(
    "s",
    {"k": "int", "b": "int", "tag": "string", "v": "bigint"},
    [
        (1, 1, 1, "7", 5),
        (2, 2, 2, "1", 10),
        (3, 1, 4, "4", 20),
        (4, 2, 2, "x", 4),
        (5, 1, 0, "9", 9),
        (6, 2, 1, "2", 30),
        (7, 1, 2, "5", 6),
        (8, 2, 5, "3", 12),
        (22, 1, 1, "8", 2),
    ],
    lateness=1,
)
WINDOW = Range(10 * SECOND, 5 * SECOND)


def asked(columns: str, where: str, sql: str | None = None) -> Select:
    items = tuple(Item(expr(c.strip()), f"c{i}") for i, c in enumerate(columns.split(",")))
    return Select(items, (Source("s"),), where=Expr(where, sql or where))


def summed(call: str, where: str | None = None) -> Select:
    return Select(
        (Item(expr("k"), "c0"), Item(agg(call), "c1")),
        (Source("s", None, WINDOW),),
        where=None if where is None else expr(where),
        keys=(expr("k"),),
    )


def paired(where: str, sql: str | None = None) -> Select:
    sources = (Source("s", "a", Range(3 * SECOND)), Source("s", "c", Range(2 * SECOND)))
    items = (Item(expr("a.v"), "c0"), Item(expr("c.v"), "c1"))
    return Select(
        items, sources, where=Expr(f"a.k = c.k AND {where}", f"a.k = c.k AND {sql or where}")
    )


GOOD: dict[str, Query] = {
    "all": asked("v, tag", "v > 0"),
    "some": asked("v", "v > 5"),
    "guarded": asked("v / b", "b <> 0"),
    "guard first": asked("v", "b <> 0 AND v / b > 4"),
    "cast last": asked("v", "v > 5 AND CAST(tag AS INT) > 3", "v > 5 AND TRY_CAST(tag AS INT) > 3"),
    "cast behind an equality": asked(
        "v, k", "tag <> 'x' AND CAST(tag AS INT) > 3", "TRY_CAST(tag AS INT) > 3"
    ),
    "either": asked("v, b", "b = 0 OR v / b > 4 OR v / b < -5"),
    "neither": asked("v, b", "NOT (b <> 0 AND v / b > 4 AND v / b < 7)"),
    "guarded column": asked("b <> 0 AND v / b > 4 AND v / b < 7", "v > 0"),
    "counts": summed("count(*)"),
    "sums": summed("sum(v)", "v > 5"),
    "ratios": summed("avg(v / b) FILTER (WHERE b <> 0)"),
    "pairs": paired("a.v > 3"),
    "more pairs": paired("a.v > c.v"),
    "cast pairs": paired("c.tag <> 'x' AND CAST(c.tag AS INT) > 2", "TRY_CAST(c.tag AS INT) > 2"),
}
BAD: dict[str, tuple[Query, str]] = {
    "cast first": (asked("v", "CAST(tag AS INT) > 3 AND v > 5"), "'x'"),
    "cast of more rows": (asked("v", "v > 3 AND CAST(tag AS INT) > 3"), "'x'"),
    "cast in a column": (asked("CAST(tag AS INT)", "v < 10"), "'x'"),
    "by zero": (asked("10 / b", "v > 3"), "zero"),
    "too large": (asked("v * 900000000000000000", "v > 20"), "overflow"),
    "sum of ratios": (summed("sum(10 / b)", "v > 3"), "zero"),
    "cast of pairs": (paired("CAST(a.tag AS INT) > 2"), "'x'"),
}


def through_loop(engine: Engine, streams: Sequence[Stream], size: int) -> None:
    """Rows in batches, each computed by the engine's own loop before the next comes."""
    batches = cut(streams, size)
    tables = {s.name: files_of(s, batches[s.name]) for s in streams}
    loop = Loop(engine)
    loop.start()
    try:
        for number in range(max(len(t) for t in tables.values())):
            for name, parts in tables.items():
                if number < len(parts):
                    engine.appenders[name].append(arrived(parts[number]), {})
            loop.wake()
            assert loop.settled.wait(240)
            assert loop.failure is None, loop.failure
        for appender in engine.appenders.values():
            appender.finish()
        loop.wake()
        assert loop.finished.wait(240)
    finally:
        loop.stop()
    assert loop.failure is None, loop.failure


def test_who_fails_alone_fails_and_nobody_else(spark: Any, tmp_path: Path) -> None:
    cql = Example((TEXTS,), {}, (*GOOD.values(), *(q for q, _ in BAD.values()))).texts()
    texts = dict(zip((*GOOD, *BAD), cql.values(), strict=True))
    kept: dict[str, dict[str, Any]] = {}
    for sharing in ("subsuming", "none"):
        engine = Engine(tmp_path / sharing, SparkPlane(spark), EngineSettings(sharing=sharing))
        declare(engine, (TEXTS,))
        order = sorted(texts, key=lambda name: texts[name][::-1])  # good ones among bad ones
        for name in order:
            engine.add_query(name, texts[name])
        through_loop(engine, (TEXTS,), 3)
        states = {name: q.state for name, q in engine.queries.items()}
        assert states == {n: "failed" if n in BAD else "running" for n in order}
        for name, (_, reason) in BAD.items():
            assert reason in engine.queries[name].reason
            assert engine.queries[name].culprits, name
        kept[sharing] = {n: engine.result(n).num_rows for n in BAD}
        if sharing == "subsuming":
            agree_with_duckdb(engine, GOOD, (TEXTS,))
        engine.close()
    assert kept["subsuming"] == kept["none"]  # results from before the failure stay


def agree_with_duckdb(
    engine: Engine, queries: Mapping[str, Query], streams: Sequence[Stream]
) -> None:
    with Oracle({s.name: s for s in streams}) as oracle:
        for name, query in queries.items():
            expected = oracle.answer(query).rows
            found = difference(expected, rows_of(engine, name), [*columns_of(query), "ts"])
            assert not found, f"{name}: {found}"


def agrees(example: Example, runner: EngineRunner) -> None:
    problems = judge(example, runner.run(example.streams, example.texts(), example.batches))
    assert not problems, "\n\n".join(problems)


# -- very many members ---------------------------------------------------------------------------


def test_more_members_than_a_word_has_bits(runner: EngineRunner) -> None:
    """Members in the second and third word are as good as those in the first."""
    selections = [asked("v, tag", f"v {o} {n}") for n in range(33) for o in (">", "=", "<>", "<")]
    aggregates = [summed("count(*)", f"v > {n}") for n in range(-33, 33)]
    joins = [paired(f"a.v > {n}") for n in range(-33, 33)]
    queries = (*selections, *aggregates, *joins)
    assert len(selections) > 124
    agrees(Example((TEXTS,), cut((TEXTS,), 5), queries), runner)


# -- large results, tiny steps -------------------------------------------------------------------

MIXED = (*SELECTIONS[::5], *SLIDING[::3], *JOINS[::4])


def test_results_that_executors_write(spark: Any, tmp_path: Path) -> None:
    """No result is collected, and every step takes as little as it can."""
    settings = EngineSettings(collect_bytes_max=0, step_rows_max=1)
    streams = (READINGS, OTHERS)
    agrees(Example(streams, cut(streams, 8), MIXED), EngineRunner(spark, tmp_path, settings))


@pytest.mark.soak
@pytest.mark.parametrize("size", [2, 4])
def test_results_that_executors_write_for_long(spark: Any, tmp_path: Path, size: int) -> None:
    settings = EngineSettings(collect_bytes_max=0, step_rows_max=1)
    streams, queries = (READINGS, OTHERS), (*SELECTIONS, *SLIDING, *JOINS)
    agrees(Example(streams, cut(streams, size), queries), EngineRunner(spark, tmp_path, settings))


def test_every_way_of_sharing_gives_the_same(spark: Any, tmp_path: Path) -> None:
    streams = (READINGS, OTHERS)
    for sharing, queries in (("none", MIXED[::2]), ("exact", MIXED[1::2])):
        example = Example(streams, cut(streams, 8), queries)
        agrees(example, EngineRunner(spark, tmp_path / sharing, EngineSettings(sharing=sharing)))


# -- tidying up ----------------------------------------------------------------------------------

STEADY = {
    "low": "SELECT v FROM s WHERE v > 3",
    "high": "SELECT v, k FROM s WHERE v > 50",
    "count": "SELECT k, count(*) AS n FROM s [RANGE 1 MINUTE SLIDE 5 SECONDS] GROUP BY k",
    "sum": "SELECT k, sum(v) AS n FROM s [RANGE 1 MINUTE SLIDE 5 SECONDS] WHERE v > 9 GROUP BY k",
    "max": "SELECT k, max(v) AS n FROM s [RANGE 30 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "pairs": "SELECT a.v AS x, c.v AS y FROM s [RANGE 2 SECONDS] a JOIN s [RANGE 3 SECONDS] c"
    " ON a.k = c.k",
    "more pairs": "SELECT a.v AS x FROM s [RANGE 9 SECONDS] a JOIN s [RANGE 2 SECONDS] c"
    " ON a.k = c.k WHERE a.v > c.v",
}
SECONDS: Stream = stream(
    "s",
    {"k": "int", "v": "bigint"},
    [(i / 2, i % 3, i * 37 % 101) for i in range(60)],
    lateness=2,
)


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark))
    declare(opened, (SECONDS,))
    yield opened
    opened.close()


def batches() -> list[pa.Table]:
    return [arrived(part) for part in files_of(SECONDS, cut((SECONDS,), 5)["s"])]


def acknowledge(engine: Engine) -> None:
    """Stands for consumers that have taken all results."""
    with engine.ledger.transaction() as ledger:
        for name, query in engine.queries.items():
            head = ledger.stream(query.stream)
            assert head is not None
            ledger.set_cursor(subscriber(name), query.stream, head["next"], BEGINNING)


def test_shared_segments_are_merged_and_let_go(engine: Engine) -> None:
    """Compaction takes each stream's own part of shared files; at the end nothing is left."""
    for name, text in STEADY.items():
        engine.add_query(name, text)
    found: dict[str, list[Any]] = {name: [] for name in STEADY}
    merged = shared = 0
    for table in batches():
        engine.appenders["s"].append(table, {})
        settle(engine)
        segments = [s for o in engine.operators for s in engine.ledger.segments(o)]
        merged += sum(1 for s in segments if s.last > s.first and s.rows)
        shared += sum(1 for s in segments if s.tag is not None)
        take(engine, found)
    engine.appenders["s"].finish()
    settle(engine)
    take(engine, found)
    assert merged
    assert shared
    with Oracle({"s": SECONDS}) as oracle:
        for name, query in readings_of_steady().items():
            expected = oracle.answer(query).rows
            assert not difference(expected, found[name], [*columns_of(query), "ts"]), name
    engine.maintenance.retain([row["id"] for row in engine.ledger.streams()])
    results = {q.stream for q in engine.queries.values()}
    assert not any(s.rows for stream in results for s in engine.ledger.segments(stream))
    assert set(engine.store.files()) == engine.ledger.named_files()
    before = layouts(engine)
    engine.drop_query(next(iter(STEADY)))
    used = {s.tag for r in engine.ledger.streams() for s in tags(engine, r["id"])}
    assert layouts(engine) <= used, "what no file needs any more is forgotten"
    for number in before - used:
        engine.streams.layouts.places(number)  # a step under way may still ask
    again = Engine(engine.home, engine.plane)
    assert layouts(again) <= {s.tag for r in again.ledger.streams() for s in tags(again, r["id"])}
    again.close()


def take(engine: Engine, found: dict[str, list[Any]]) -> None:
    """A consumer of every query takes what there is and acknowledges it."""
    for name in found:
        found[name] += rows_of(engine, name)
    acknowledge(engine)
    engine.maintenance.retain({q.stream for q in engine.queries.values()})


def tags(engine: Engine, stream: str) -> list[Any]:
    return [s for s in engine.ledger.segments(stream) if s.tag is not None]


def layouts(engine: Engine) -> set[int]:
    return {row["id"] for row in engine.ledger.rows("SELECT id FROM layouts")}


def readings_of_steady() -> dict[str, Query]:
    """The same queries as the oracle reads them."""

    def windows(call: str, length: int, where: str | None = None) -> Select:
        return Select(
            (Item(expr("k"), "k"), Item(agg(call), "n")),
            (Source("s", None, Range(length * SECOND, 5 * SECOND)),),
            where=None if where is None else expr(where),
            keys=(expr("k"),),
        )

    def pairs(names: str, lengths: tuple[int, int], where: str) -> Select:
        items = [Item(expr("a.v"), "x"), Item(expr("c.v"), "y")][: len(names)]
        a, c = (Source("s", n, Range(w * SECOND)) for n, w in zip("ac", lengths, strict=True))
        return Select(tuple(items), (a, c), where=expr(where))

    return {
        "low": Select((Item(expr("v"), "v"),), (Source("s"),), where=expr("v > 3")),
        "high": Select(
            (Item(expr("v"), "v"), Item(expr("k"), "k")), (Source("s"),), where=expr("v > 50")
        ),
        "count": windows("count(*)", 60),
        "sum": windows("sum(v)", 60, "v > 9"),
        "max": windows("max(v)", 30),
        "pairs": pairs("xy", (2, 3), "a.k = c.k"),
        "more pairs": pairs("x", (9, 2), "a.k = c.k AND a.v > c.v"),
    }


def test_dropping_who_brought_an_operator_changes_nothing_for_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of each kind goes in the middle; files of others' rows stay, its own go."""
    # each step's files stay as they are, so that longer windows need files which others do not
    monkeypatch.setattr(Maintenance, "compact", lambda self, stream: 0)
    for name, text in STEADY.items():
        engine.add_query(name, text)
    for number, table in enumerate(batches()):
        engine.appenders["s"].append(table, {})
        settle(engine)
        if number == 8:
            for name in ("low", "count", "pairs"):
                engine.drop_query(name)
    engine.appenders["s"].finish()
    settle(engine)
    queries = {n: q for n, q in readings_of_steady().items() if n in engine.queries}
    assert len(queries) == 4
    agree_with_duckdb(engine, queries, (SECONDS,))
    for name in list(engine.queries):
        engine.drop_query(name)
    engine.maintenance.retain([row["id"] for row in engine.ledger.streams()])
    assert set(engine.store.files()) == engine.ledger.named_files()
    assert engine.ledger.rows("SELECT stream FROM segments WHERE tag IS NOT NULL") == []
