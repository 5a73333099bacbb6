"""Queries with OVER, made up: each as CQL and as the SQL that gives its rows in DuckDB.

Functions whose value hangs on the order of rows are made up over frames of rows alone, where
DuckDB's order (time, position) decides ties.
"""

import random
from collections.abc import Callable

from oracle.plain_sql import SECOND, Case

AGGREGATES = ("count(*)", "count(v)", "sum(v)", "avg(v)", "min(x)", "max(v)", "sum(x)")
IN_ORDER = ("first_value(v)", "last_value(x)", "lag(v)", "lead(x)", "lag(v, 2, 7)", "lead(v, 3)")
PARTITIONS = ((), ("k",), ("k", "g"))
CONDITIONS = ("", "v > 1", "x IS NOT NULL", "k <> 'b' OR v = 2")
HALVES = (0, 1, 2, 5, 9)  # of a second, and a microsecond more or less beside them


def overs(seed: int, count: int) -> dict[str, Case]:
    """So many queries over the stream `s` (k, g, v, x)."""
    dice = random.Random(seed)
    return {f"q{number}": _query(dice) for number in range(count)}


def _query(dice: random.Random) -> Case:
    calls = [_call(dice) for _ in range(dice.randint(1, 4))]
    listed = [[f"{pair[side]} AS c{i}" for i, pair in enumerate(calls)] for side in (0, 1)]
    condition = dice.choice(CONDITIONS)
    where = f" WHERE {condition}" if condition else ""
    qualify = dice.choice(("", "", " QUALIFY c0 IS NOT NULL", " QUALIFY c0 >= 2 OR v = 1"))
    return Case(
        f"SELECT k, v, {', '.join(listed[0])} FROM s{where}{qualify}",
        f"SELECT k, v, {', '.join(listed[1])}, ts_us AS ts FROM s{where}{qualify}",
    )


def _call(dice: random.Random) -> tuple[str, str]:
    keys = dice.choice(PARTITIONS)
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    make: Callable[[random.Random, str], tuple[str, str]] = dice.choice(
        (_by_time, _by_rows, _in_order, _so_far)
    )
    return make(dice, by)


def _by_time(dice: random.Random, by: str) -> tuple[str, str]:
    first = dice.choice(HALVES) * SECOND // 2 + dice.choice((0, 0, 1))
    last = dice.choice((0, 0, 0, SECOND, -1))
    ends = [f"{first} {{}}PRECEDING"]
    if last == 0:
        ends.append("CURRENT ROW")
    else:
        ends.append(f"{abs(last)} {{}}{'FOLLOWING' if last > 0 else 'PRECEDING'}")
    if last < 0 and first < 1:
        ends = ["1 {}PRECEDING", "1 {}PRECEDING"]
    frame = f"RANGE BETWEEN {' AND '.join(ends)}"
    function = dice.choice(AGGREGATES)
    asked = frame.replace(" {}", "' MICROSECOND ").replace("BETWEEN ", "BETWEEN INTERVAL '")
    asked = asked.replace("AND ", "AND INTERVAL '") if last or "CURRENT" not in asked else asked
    return (
        f"{function} OVER ({by}ORDER BY ts {asked})",
        f"{function} OVER ({by}ORDER BY ts_us {frame.replace(' {}', ' ')})",
    )


def _by_rows(dice: random.Random, by: str) -> tuple[str, str]:
    first, last = dice.choice(((3, 0), (0, 0), (1, 1), (4, -1), (0, 2)))
    end = "CURRENT ROW" if last == 0 else f"{abs(last)} {'FOLLOWING' if last > 0 else 'PRECEDING'}"
    frame = f"ROWS BETWEEN {first} PRECEDING AND {end}"
    return _both(dice.choice((*AGGREGATES, "first_value(v)", "last_value(x)")), by, frame)


def _in_order(dice: random.Random, by: str) -> tuple[str, str]:
    function = dice.choice(IN_ORDER)
    frame = "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW" if "value" in function else ""
    return _both(function, by, frame)


def _so_far(dice: random.Random, by: str) -> tuple[str, str]:
    function = dice.choice((*AGGREGATES, "row_number()", "first_value(v)"))
    frame = "ROWS UNBOUNDED PRECEDING" if "(v)" in function or "(x)" in function else ""
    return _both(function, by, frame) if "()" in function or frame else (
        f"{function} OVER ({by}ORDER BY ts)", f"{function} OVER ({by}ORDER BY ts_us)"
    )  # fmt: skip


def _both(function: str, by: str, frame: str) -> tuple[str, str]:
    return (
        f"{function} OVER ({by}ORDER BY ts {frame})",
        f"{function} OVER ({by}ORDER BY ts_us, pos {frame})",
    )
