"""`millstream bench rules`: registering, queries that come and go, ten thousand rules.

- *registration*: so many queries in one call, of each kind.
- *sc1* and *sc2*, the scenarios of AStream (Karimov et al., SIGMOD 2019): in the first so many
  queries a second are added until all are active; in the second so many come and so many go every
  few seconds.
- *ajoin1* and *ajoin2*: the same with the joins of AJoin (Karimov et al., VLDB 2019) alone: of two
  to four streams, windows of one to three seconds, each query with a selection of its own.
- *rules*: ten thousand thresholds as one rule set, some of which change all the time.

Delay is the time from a row's push to its result in a callback; of a window, from its end. Results
are compared with DuckDB's, row for row.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.spark.session import session as spark_session
from millstream_bench.live.comparison import Database
from millstream_bench.live.sides import opened
from millstream_bench.live.workload import Delays, Producer, constant_of, cql, limits
from millstream_bench.rules.ajoin import JOINS
from millstream_bench.rules.scenarios import Scale, changing, growing
from millstream_bench.throughput.resources import Meter

PARTS = ("registration", "sc1", "sc2", "ajoin1", "ajoin2", "rules")
Progress = Callable[[str], None]


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
        if part not in PARTS:
            hint = f"one of {', '.join(PARTS)}"
            raise UsageError(f"unknown part {part}{did_you_mean(part, PARTS)}", hint=hint)
        if part == "rules":
            found[part] = rule_set(scale, seed)
            progress(_told(f"{scale.rules:,} rules", found[part]))
            continue
        found[part] = []
        for count in counts:
            made = _PART[part](count, scale, seed)
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


_PART: dict[str, Callable[[int, Scale, int], dict[str, Any]]] = {
    "registration": registration,
    "sc1": growing,
    "sc2": changing,
    "ajoin1": lambda count, scale, seed: growing(count, scale, seed, JOINS),
    "ajoin2": lambda count, scale, seed: changing(count, scale, seed, JOINS),
}
