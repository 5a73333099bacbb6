"""`millstream bench rules`: registering, queries that come and go, ten thousand rules.

- *registration*: so many queries in one call, of each kind.
- *sc1* and *sc2*, the scenarios of AStream (Karimov et al., SIGMOD 2019): in the first so many
  queries a second are added until all are active; in the second so many come and so many go every
  few seconds.
- *rules*: ten thousand thresholds as one rule set, some of which change all the time.

Delay is the time from a row's push to its result in a callback; of a window, from its end. Results
are compared with DuckDB's, row for row.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import millstream
from millstream.app.session.query import QueryHandle
from millstream.spark.session import session as spark_session
from millstream_bench.live.comparison import Database
from millstream_bench.live.sides import opened
from millstream_bench.live.workload import (
    STREAMS,
    Delays,
    Producer,
    constant_of,
    cql,
    duckdb_sql,
    known,
    limits,
)
from millstream_bench.throughput.resources import Meter

PARTS = ("registration", "sc1", "sc2", "rules")
COMPARED_MAX = 60  # queries of a scenario whose rows are compared
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is tried."""

    seconds: float
    rate: int  # rows a second in each stream of queries
    counts: tuple[int, ...]  # queries at once
    rules: int
    rule_rate: int  # rows a second before rules


QUICK = Scale(seconds=4.0, rate=200, counts=(6,), rules=500, rule_rate=1_000)
WHOLE = Scale(seconds=20.0, rate=1_000, counts=(1, 30, 100, 300), rules=10_000, rule_rate=20_000)


def run(
    *,
    quick: bool = False,
    seed: int = 1,
    queries: str | None = None,
    parts: str | None = None,
    progress: Progress = print,
) -> dict[str, Any]:
    """All parts, or those that are named."""
    scale = QUICK if quick else WHOLE
    counts = scale.counts if queries is None else tuple(int(n) for n in queries.split(","))
    chosen = PARTS if parts is None else tuple(parts.split(","))
    found: dict[str, Any] = {"rows_a_second": scale.rate, "seconds": scale.seconds}
    spark_session()
    for part in chosen:
        if part == "rules":
            found[part] = rule_set(scale, seed)
            progress(_told(f"{scale.rules:,} rules", found[part]))
            continue
        found[part] = []
        for count in counts:
            made = {"registration": registration, "sc1": sc1, "sc2": sc2}[part](count, scale, seed)
            found[part].append({"queries": count, **made})
            progress(_told(f"{part}, {count:,} queries", made))
    return found


def _told(what: str, figures: dict[str, Any]) -> str:
    texts = [f"registered in {figures['registered_s']:.2f} s"]
    if "delay" in figures:
        delay = figures["delay"]
        texts.append(
            f"delay median {delay['median_s']} s, 95 % {delay['p95_s']} s, 99 % {delay['p99_s']} s"
        )
        texts.append(f"{figures['rows_a_second_sent']:,.0f} rows/s, CPU {figures['cpu_s']:.1f} s")
        texts.append(f"{figures['different_rows']} rows differ of {figures['result_rows']:,}")
    if "kinds" in figures:
        texts += [f"{kind} {seconds:.2f} s" for kind, seconds in figures["kinds"].items()]
    return f"{what}: {'; '.join(texts)}"


# -- registration ---------------------------------------------------------------------------------


def registration(count: int, scale: Scale, seed: int) -> dict[str, Any]:  # noqa: ARG001
    """Queries of each kind in one call, and all kinds together."""
    kinds = {}
    for kind, offset in (("select", 0), ("window", 1), ("join", 2)):
        texts = [cql(3 * i + offset, constant_of(i, count)) for i in range(count)]
        kinds[kind] = _registered(texts)
    mixed = [cql(i, constant_of(i, count)) for i in range(count)]
    return {"registered_s": _registered(mixed), "kinds": kinds}


def _registered(texts: list[str]) -> float:
    with opened() as session:
        began = time.perf_counter()
        session.execute(";\n".join(texts))
        return round(time.perf_counter() - began, 2)


# -- queries that come and go ---------------------------------------------------------------------


@dataclass(slots=True)
class Scenario:
    """Queries of a run, and what came of them."""

    session: millstream.Session
    total: int  # different constants
    delays: Delays = field(default_factory=Delays)
    active: list[int] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    starts: dict[int, int] = field(default_factory=dict)
    results: dict[int, list[pa.Table]] = field(default_factory=dict)
    registrations: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, number: int) -> None:
        clock = time.perf_counter()
        text = cql(number, constant_of(number % self.total, self.total))
        query = self.session.query(text, f"q{number}")
        self.registrations.append(time.perf_counter() - clock)
        start = self.session.system.query(query.name).start
        self.starts[number] = 0 if start is None else start
        self.active.append(number)
        self._follow(query, number)

    def _follow(self, query: QueryHandle, number: int) -> None:
        def take(table: pa.Table, _: int) -> None:
            self.delays.take(known(table))
            with self.lock:
                self.results.setdefault(number, []).append(table)

        query.on_batch(take)

    def drop_oldest(self) -> None:
        number = self.active.pop(0)
        self.session.drop(f"q{number}")
        self.dropped.add(number)

    def differences(self, producer: Producer) -> int:
        database = Database({s: producer.rows(s) for s in STREAMS})
        numbers = sorted(self.starts)
        chosen = numbers[:: max(1, len(numbers) // COMPARED_MAX)]
        return sum(
            database.differences(
                self.results.get(n, []),
                duckdb_sql(n, constant_of(n % self.total, self.total), self.starts[n]),
                whole=n not in self.dropped,
            )
            for n in chosen
        )


def sc1(count: int, scale: Scale, seed: int) -> dict[str, Any]:
    """A tenth of the queries a second, until all are active; then they stay."""
    return _scenario(count, scale, seed, _growing)


def sc2(count: int, scale: Scale, seed: int) -> dict[str, Any]:
    """A tenth of the queries comes and as many go, every second."""
    return _scenario(count, scale, seed, _changing)


def _growing(scenario: Scenario, count: int, seconds: float) -> None:
    at_once = max(1, count // 10)
    for first in range(0, count, at_once):
        due = time.time() + 1.0
        for number in range(first, min(count, first + at_once)):
            scenario.add(number)
        time.sleep(max(0.0, due - time.time()))
    time.sleep(seconds)


def _changing(scenario: Scenario, count: int, seconds: float) -> None:
    for number in range(count):
        scenario.add(number)
    following, until = count, time.time() + seconds
    while time.time() < until:
        due = time.time() + 1.0
        for _ in range(max(1, count // 10)):
            scenario.add(following)
            scenario.drop_oldest()
            following += 1
        time.sleep(max(0.0, due - time.time()))


def _scenario(
    count: int, scale: Scale, seed: int, play: Callable[[Scenario, int, float], None]
) -> dict[str, Any]:
    with opened() as session:
        scenario, meter = Scenario(session, max(count, 1)), Meter()
        producer = Producer(session.push, STREAMS, scale.rate, seed)
        began = time.time()
        with producer:
            play(scenario, count, scale.seconds)
            lasted = time.time() - began
        used = meter.usage().cpu_s
        for stream in STREAMS:
            session.finish(stream)
        session.wait()
        different = scenario.differences(producer)
    if producer.failure is not None:
        raise producer.failure
    results = sum(t.num_rows for tables in scenario.results.values() for t in tables)
    return {
        "registered_s": round(sum(scenario.registrations), 2),
        "registration_median_s": round(median(scenario.registrations), 3),
        "registration_max_s": round(max(scenario.registrations), 3),
        "delay": scenario.delays.figures(began),
        "rows_a_second_sent": producer.rows_sent() / lasted,
        "cpu_s": used,
        "result_rows": results,
        "different_rows": different,
    }


# -- a rule set -----------------------------------------------------------------------------------


def rule_set(scale: Scale, seed: int) -> dict[str, Any]:
    """Thresholds as rows; every second a hundredth of them is replaced, removed or new."""
    random, delays = np.random.default_rng(seed), Delays()
    results: list[pa.Table] = []
    with opened() as session:
        began = time.perf_counter()
        first = _rules(random, range(scale.rules), scale.rules)
        rules = session.rules(
            "SELECT k, v, sent FROM a WHERE v > :low", "hot", parameters={"low": "double"},
            rows=first,
        )  # fmt: skip
        registered_s = time.perf_counter() - began

        def take(table: pa.Table, _: int) -> None:
            delays.take(table["sent"])
            results.append(table)

        rules.on_batch(take)
        history = session.query("SELECT rule, low, removed FROM hot_rules", from_beginning=True)
        producer = Producer(session.push, ("a",), scale.rule_rate, seed)
        changes: list[float] = []
        with producer:
            _change(rules, random, scale, scale.seconds / 2, changes)  # code is compiled
            since, meter, sent = time.time(), Meter(), producer.rows_sent()
            _change(rules, random, scale, scale.seconds, changes)
            lasted, sent = time.time() - since, producer.rows_sent() - sent
        used = meter.usage().cpu_s
        session.finish("a")
        session.wait()
        log = history.to_arrow()
        database = Database({"a": producer.rows("a"), "log": log})
        different = database.differences(results, RULES_SQL, whole=True)
    if producer.failure is not None:
        raise producer.failure
    return {
        "rules": scale.rules,
        "registered_s": round(registered_s, 2),
        "change_ms": round(1e3 * median(changes), 1),
        "delay": delays.figures(since),
        "rows_a_second_sent": sent / lasted,
        "rows_a_second_wanted": scale.rule_rate,
        "cpu_s": used,
        "result_rows": sum(t.num_rows for t in results),
        "different_rows": different,
    }


RULES_SQL = """
WITH rules AS (
  SELECT *, ts AS since, lead(ts) OVER (PARTITION BY rule ORDER BY ts) AS gone FROM log
)
SELECT rule, k, v, sent, t FROM a JOIN rules
ON v > low AND t >= since AND (gone IS NULL OR t < gone) WHERE NOT coalesce(removed, FALSE)
"""


def _rules(random: np.random.Generator, numbers: range, rules: int) -> list[dict[str, Any]]:
    found = limits(random, len(numbers), rules)
    return [{"rule": f"r{n}", "low": low} for n, low in zip(numbers, found, strict=True)]


def _change(
    rules: Any, random: np.random.Generator, scale: Scale, seconds: float, took: list[float]
) -> None:
    """A hundredth of the rules a second: half in another's place, a quarter gone and new each."""
    until, part = time.time() + seconds, max(4, scale.rules // 100)
    while time.time() < until:
        due = time.time() + 1.0
        first = int(random.integers(0, scale.rules - part))
        clock = time.perf_counter()
        rules.add(_rules(random, range(first, first + part // 2), scale.rules))
        rules.remove(*(f"r{n}" for n in range(first + part // 2, first + 3 * part // 4)))
        took.append((time.perf_counter() - clock) / 2)
        time.sleep(max(0.0, due - time.time()))
