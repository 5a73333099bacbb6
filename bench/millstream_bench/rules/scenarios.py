"""Queries that come and go over live rows: so many a second, from so many different ones.

What comes of each is compared with DuckDB's, from its start on; of one that was dropped, only that
it gave no row too many.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from threading import Lock
from typing import Any

import pyarrow as pa

import millstream
from millstream.app.session.query import QueryHandle
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
)
from millstream_bench.throughput.resources import Meter

COMPARED_MAX = 60  # queries of a scenario whose rows are compared


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is tried."""

    seconds: float
    rate: int  # rows a second in each stream of queries
    counts: tuple[int, ...]  # queries at once
    rules: int
    rule_rate: int  # rows a second before rules


@dataclass(frozen=True, slots=True)
class Mix:
    """Which queries come: their texts by number and constant, ours and DuckDB's from a start."""

    cql: Callable[[int, float], str]
    sql: Callable[[int, float, int], str]
    streams: tuple[str, ...]


LIVE = Mix(cql, duckdb_sql, STREAMS)


@dataclass(slots=True)
class Scenario:
    """Queries of a run, and what came of them."""

    session: millstream.Session
    mix: Mix
    total: int  # different constants
    delays: Delays = field(default_factory=Delays)
    active: list[int] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    starts: dict[int, int] = field(default_factory=dict)
    results: dict[int, list[pa.Table]] = field(default_factory=dict)
    registrations: list[float] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def add(self, number: int) -> None:
        clock = time.perf_counter()
        text = self.mix.cql(number, constant_of(number % self.total, self.total))
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
        database = Database({s: producer.rows(s) for s in self.mix.streams})
        numbers = sorted(self.starts)
        chosen = numbers[:: max(1, len(numbers) // COMPARED_MAX)]
        return sum(
            database.differences(
                self.results.get(n, []),
                self.mix.sql(n, constant_of(n % self.total, self.total), self.starts[n]),
                whole=n not in self.dropped,
            )
            for n in chosen
        )


def growing(count: int, scale: Scale, seed: int, mix: Mix = LIVE) -> dict[str, Any]:
    """A tenth of the queries a second, until all are active; then they stay."""
    return _scenario(count, scale, seed, mix, _growing)


def changing(count: int, scale: Scale, seed: int, mix: Mix = LIVE) -> dict[str, Any]:
    """A tenth of the queries comes and as many go, every second."""
    return _scenario(count, scale, seed, mix, _changing)


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
    count: int,
    scale: Scale,
    seed: int,
    mix: Mix,
    play: Callable[[Scenario, int, float], None],
) -> dict[str, Any]:
    with opened(mix.streams) as session:
        scenario, meter = Scenario(session, mix, max(count, 1)), Meter()
        producer = Producer(session.push, mix.streams, scale.rate, seed)
        began = time.time()
        with producer:
            play(scenario, count, scale.seconds)
            lasted = time.time() - began
        used = meter.usage().cpu_s
        for stream in mix.streams:
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
