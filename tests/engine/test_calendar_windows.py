"""Cumulating windows, and those of local days and months, agree with DuckDB.

Bounds of days and months come from Python's zones by a definition of their own: a day begins at the
first instant at which the zone's clock shows its midnight or a later time.
"""

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from engine_runner import (
    EngineRunner,
    ForcedCompaction,
    arrived,
    declare,
    rows_of,
    settle,
)
from processors_together import ClusterRunner
from test_moves import Disturbance

from millstream.engine.engine import Engine
from millstream.spark.plane import SparkPlane
from oracle.harness import files_of
from oracle.model import Column, Row, Stream
from oracle.plain_sql import SECOND, Case, problems, windows

pytestmark = pytest.mark.spark

HOUR = 3_600 * SECOND
COLUMNS = (Column("k", "string"), Column("v", "int"))
# clocks go forward, back, forward at midnight, and back over it
DAYS = {
    "Europe/Berlin": (date(2024, 3, 31), date(2024, 10, 27)),
    "America/Sao_Paulo": (date(2017, 10, 15), date(2018, 2, 18)),
    "America/St_Johns": (date(2010, 3, 14), date(2010, 11, 7)),
}


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def begins(day: date, zone: str, offset_h: int) -> int:
    """The first instant at which the clock shows a day's midnight, so many hours later."""
    wanted = datetime(day.year, day.month, day.day) + timedelta(hours=offset_h)
    at = (wanted - timedelta(hours=16)).replace(tzinfo=UTC)
    while at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) < wanted:
        at += timedelta(minutes=1)
    return micros(at)


def bounds(name: str, zone: str, unit: str, offset_h: int = 0) -> str:
    """A table of the bounds near all rows."""
    first = date(1970, 1, 1)
    days = sorted({d + timedelta(days=n) for d in sum(DAYS.values(), ()) for n in range(-12, 12)})
    made: dict[int, date] = {}
    for day in days:
        number = (day - first).days
        if unit == "month":
            number = (day.year - 1970) * 12 + day.month - 1
        made[number] = day.replace(day=1) if unit == "month" else day
    for number in list(made):
        if unit == "month" and number + 1 not in made:
            made[number + 1] = (made[number] + timedelta(days=32)).replace(day=1)
    rows = ", ".join(f"({n}, {begins(d, zone, offset_h)})" for n, d in made.items())
    return f"CREATE TABLE {name} AS SELECT * FROM (VALUES {rows}) AS t (n, instant)"


def local(columns: str, table: str, length: int, slide: int) -> str:
    return (
        f"SELECT {columns}, e.instant AS ts FROM s, {table} AS b, {table} AS e WHERE e.n = b.n + "
        f"{length} AND e.n % {slide} = 0 AND ts_us >= b.instant AND ts_us < e.instant "
        "GROUP BY k, b.instant, e.instant"
    )


COUNTED = "k, count(*) AS n, sum(v) AS total"
VIEWS = (
    bounds("paulo", "America/Sao_Paulo", "day"),
    bounds("johns", "America/St_Johns", "day"),
    bounds("morning", "Europe/Berlin", "day", 6),
    bounds("months", "UTC", "month"),
)
STEP, SIZE, MOVED = 2 * HOUR, 12 * HOUR, HOUR


def cumulated(offset: int, columns: str) -> str:
    begin = f"((ts_us - {offset}) // {SIZE} * {SIZE} + {offset})"
    first = f"((ts_us - {offset}) // {STEP} * {STEP} + {offset + STEP})"
    ends = f"unnest(generate_series({first}, {begin} + {SIZE}, {STEP}))"
    return (
        f"SELECT {columns}, e AS ts FROM (SELECT k, v, {begin} AS a, {ends} AS e FROM s) "
        "GROUP BY k, a, e"
    )


def grouped(columns: str, window: str) -> str:
    return f"SELECT {columns} FROM s [{window}] GROUP BY k"


CASES = {
    "paulo": Case(
        grouped(
            f"{COUNTED}, window_start AS a, window_end AS b",
            "RANGE 1 DAY SLIDE 1 DAY IN 'America/Sao_Paulo'",
        ),
        local(f"{COUNTED}, b.instant AS a, e.instant AS b", "paulo", 1, 1),
    ),
    "johns": Case(
        grouped(COUNTED, "RANGE 2 DAYS SLIDE 1 DAY IN 'America/St_Johns'"),
        local(COUNTED, "johns", 2, 1),
    ),
    "morning": Case(
        grouped(
            f"{COUNTED}, window_start AS a",
            "RANGE 4 DAYS SLIDE 2 DAYS OFFSET 6 HOURS IN 'Europe/Berlin'",
        ),
        local(f"{COUNTED}, b.instant AS a", "morning", 4, 2),
    ),
    "months": Case(
        grouped(
            f"{COUNTED}, window_start AS a", "RANGE 1 MONTH SLIDE 1 MONTH"
        ),
        local(f"{COUNTED}, b.instant AS a", "months", 1, 1),
    ),
    "cumulated": Case(
        grouped(
            f"{COUNTED}, window_start AS a, window_end AS b", "CUMULATE 12 HOURS SLIDE 2 HOURS"
        ),
        cumulated(0, f"{COUNTED}, a, e AS b"),
    ),
    "flink": Case(
        f"SELECT {COUNTED}, window_start AS a FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), "
        "INTERVAL '2' HOUR, INTERVAL '12' HOUR, INTERVAL '1' HOUR)) "
        "GROUP BY k, window_start, window_end",
        cumulated(MOVED, f"{COUNTED}, a"),
    ),
    "top": Case(
        "SELECT k, n FROM (SELECT k, count(*) AS n, window_start, window_end FROM s [CUMULATE 12 "
        "HOURS SLIDE 2 HOURS] GROUP BY k) QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, "
        "window_end ORDER BY n DESC, k) <= 1",
        f"SELECT k, n, ts FROM ({cumulated(0, 'k, count(*) AS n')}) QUALIFY row_number() OVER "
        "(PARTITION BY ts ORDER BY n DESC, k) <= 1",
    ),
    "sliding": Case(  # of the same panes
        grouped(COUNTED, "RANGE 12 HOURS SLIDE 2 HOURS"),
        f"SELECT {COUNTED}, e AS ts FROM {windows(12 * 3_600, 2 * 3_600)} GROUP BY k, e",
    ),
    "instants": Case(
        grouped(f"{COUNTED}, window_start AS a, window_end AS b", "NOW"),
        f"SELECT {COUNTED}, ts_us AS a, ts_us + 1 AS b, ts_us AS ts FROM s GROUP BY k, ts_us",
    ),
}  # fmt: skip


def stream(seed: int) -> Stream:
    """Rows around all days on which clocks change, on the bounds and beside them."""
    dice = random.Random(seed)
    times = []
    for zone, days in DAYS.items():
        for day in days:
            for near in (-1, 0, 1, 2):
                bound = begins(day + timedelta(days=near), zone, 0)
                times += [bound + dice.choice((-1, 0, 1, -HOUR, HOUR)) for _ in range(2)]
                times.append(bound + dice.randrange(24 * HOUR))
    times.sort(key=lambda at: at + dice.randrange(2 * HOUR))
    rows = tuple(Row(at, (dice.choice("ab"), dice.randrange(9))) for at in times)
    return Stream("s", COLUMNS, rows, 2 * HOUR)


def test_calendars_and_cumulating_windows_agree_with_duckdb(spark: Any, tmp_path: Path) -> None:
    made = stream(4)
    runner = EngineRunner(spark, tmp_path, between_steps=ForcedCompaction(share=0.2))
    count = len(made.rows)
    results = runner.run([made], {n: c.cql for n, c in CASES.items()}, {"s": [count // 2] * 2})
    assert not problems([made], CASES, results, *VIEWS)


def test_queries_that_start_later_have_whole_windows_alone(spark: Any, tmp_path: Path) -> None:
    made = stream(6)
    engine = Engine(tmp_path / "home", SparkPlane(spark))
    declare(engine, [made])
    half = len(made.rows) // 2
    first, second = files_of(made, [half, len(made.rows) - half])
    engine.appenders["s"].append(arrived(first), {})
    texts = {
        "near": "SELECT k, v, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS p, sum(v) OVER (ORDER BY "
        "ts) AS t FROM s",
        "cumulated": CASES["cumulated"].cql,
        "johns": CASES["johns"].cql,
    }
    for name, cql in texts.items():
        engine.add_query(name, cql)
    start = max(r.ts for r in made.rows[:half]) - made.lateness
    engine.appenders["s"].append(arrived(second), {})
    engine.appenders["s"].finish()
    settle(engine)
    results = {name: rows_of(engine, name) for name in texts}
    engine.close()
    sql = {
        "near": "SELECT k, v, LAG(v) OVER (PARTITION BY k ORDER BY ts_us, pos) AS p, sum(v) OVER "
        f"(ORDER BY ts_us) AS t, ts_us AS ts FROM s WHERE ts_us >= {start}",
        "cumulated": f"SELECT * FROM ({CASES['cumulated'].sql}) WHERE a >= {start}",
        "johns": CASES["johns"].sql.replace(" AND e.n", f" AND b.instant >= {start} AND e.n", 1),
    }
    cases = {name: Case(texts[name], sql[name]) for name in texts}
    assert not problems([made], cases, results, *VIEWS)


def test_moved_calendars_give_the_same(spark: Any, tmp_path: Path) -> None:
    made = stream(5)
    cases = {name: CASES[name] for name in ("johns", "flink")}
    disturbance = Disturbance(3)
    runner = ClusterRunner(spark, tmp_path, 2, seed=4, disturb=disturbance)
    count = len(made.rows)
    results = runner.run([made], {n: c.cql for n, c in cases.items()}, {"s": [count // 4] * 4})
    assert disturbance.done >= 8
    assert not problems([made], cases, results, *VIEWS)
