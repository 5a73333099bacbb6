"""A window left join and a top-3 of each window: plain Structured Streaming, our inner join.

The left join may cost no more than plain Structured Streaming's own, the top-3 (which plain
Structured Streaming cannot do) at most twice our inner join over the same rows. What counts is
CPU seconds of this process and its Java, so that others on the machine do not decide; wall time is
told beside them. Rows are compared with a batch job of Spark over the whole input.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.spark.session import session
from millstream_bench.throughput.resources import Meter
from millstream_bench.throughput.single import FILES_A_TRIGGER, ours_seconds, plain_seconds
from millstream_bench.throughput.workload import DDL, write_stream

Progress = Callable[[str], None]
KEYS = 20_000  # about half of the rows meet nobody within five seconds
CONSTANT = 20.0
TOP_TARGET = 2.0  # times the inner join
SIDES = (("plain", "left"), ("ours", "left"), ("ours", "join"), ("ours", "top"))
NEAR = "l.k = r.k AND r.at BETWEEN l.at - INTERVAL 5 SECONDS AND l.at + INTERVAL 5 SECONDS"
LEFT = f"SELECT l.at, r.at AS bt, l.k, l.v, r.v AS bv FROM a AS l LEFT JOIN b AS r ON {NEAR}"
TOP = """SELECT k, n, ts FROM (
  SELECT *, row_number() OVER (PARTITION BY ts ORDER BY n DESC, k) AS place FROM (
    SELECT k, count(*) AS n, window(at, '10 seconds').end AS ts FROM a GROUP BY ALL))
WHERE place <= 3"""


def run(
    quick: bool = False, seed: int = 1, repeats: int = 3, progress: Progress = print
) -> dict[str, Any]:
    """All figures, ready for JSON; of several repeats the least cost counts."""
    rows, files = (40_000, 8) if quick else (400_000, 40)
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    spark = session(log=folder / "spark.log")
    try:
        real, warm = (folder / "a", folder / "b"), (folder / "warm-a", folder / "warm-b")
        for number, path in enumerate(real):
            write_stream(path, rows, files, seed + number, KEYS)
        for number, path in enumerate(warm):
            write_stream(path, rows // 10, 4, seed + 2 + number, KEYS)
        progress(f"{rows:,} rows a stream in {files} files, {repeats} times")
        batch = FILES_A_TRIGGER * rows // files
        costs: dict[str, list[tuple[float, float]]] = {}
        equal: dict[str, bool] = {}
        for repeat in range(-1, repeats):
            for side, kind in SIDES:
                a, b = warm if repeat < 0 else real
                cost = _cost(spark, side, kind, a, b, batch, folder / "out")
                if repeat < 0:
                    continue
                name = f"{side} {kind}"
                costs.setdefault(name, []).append(cost)
                if name not in equal:
                    equal[name] = _agrees(spark, side, kind, a, b, folder / "out")
        return verdict(rows, costs, equal, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cost(
    spark: Any, side: str, kind: str, a: Path, b: Path, batch: int, out: Path
) -> tuple[float, float]:
    """CPU seconds and seconds until all input is processed and its results lie in files."""
    meter, clock = Meter(), time.perf_counter()
    if side == "plain":
        plain_seconds(spark, kind, a, b, FILES_A_TRIGGER, out, CONSTANT)
    else:
        ours_seconds(spark, kind, a, b, batch, out, [], CONSTANT)
    return meter.usage().cpu_s, time.perf_counter() - clock


def _agrees(spark: Any, side: str, kind: str, a: Path, b: Path, out: Path) -> bool:
    """Whether a side's files hold what a batch job gives.

    Plain Structured Streaming never tells the last rows without a partner: its watermark does not
    reach the end of the input.
    """
    for name, folder in (("a", a), ("b", b)):
        frame = spark.read.schema(DDL).parquet(str(folder))
        (frame.where(f"v > {CONSTANT}D") if name == "a" else frame).createOrReplaceTempView(name)
    wanted = spark.sql(TOP if kind == "top" else LEFT)
    if kind == "join":
        wanted = wanted.where("bt IS NOT NULL")
    told = spark.read.parquet(str(out / side))
    if side == "plain":
        last = wanted.selectExpr("max(at) - INTERVAL 20 SECONDS").first()[0]
        wanted, told = (
            frame.where(f"bt IS NOT NULL OR at < TIMESTAMP '{last}'") for frame in (wanted, told)
        )
    told = told.select(*wanted.columns)
    return not wanted.exceptAll(told).head(1) and not told.exceptAll(wanted).head(1)


def verdict(
    rows: int,
    costs: dict[str, list[tuple[float, float]]],
    equal: dict[str, bool],
    progress: Progress,
) -> dict[str, Any]:
    least = {
        name: (min(c for c, _ in made), min(s for _, s in made)) for name, made in costs.items()
    }
    for name, (cpu, seconds) in least.items():
        said = "right rows" if equal[name] else "WRONG ROWS"
        progress(f"{name:<11} {cpu:7.1f} CPU s, {seconds:6.1f} s, {said}")
    left = least["plain left"][0] / least["ours left"][0]
    top = least["ours top"][0] / least["ours join"][0]
    inner = least["ours left"][0] / least["ours join"][0]
    right = all(equal.values())
    progress(
        f"left join: plain takes {left:.1f} times our CPU (target 1), "
        f"ours {inner:.1f} times our inner join"
    )
    progress(f"top-3 per window: {top:.1f} times our inner join (target at most {TOP_TARGET:.0f})")
    met = right and left >= 1 and top <= TOP_TARGET
    progress("met" if met else "missed")
    return {
        "rows": rows,
        "costs": {n: {"cpu_s": c, "seconds": s} for n, (c, s) in least.items()},
        "left_ratio": left,
        "left_of_inner": inner,
        "top_of_inner": top,
        "equal": right,
        "met": met,
    }
