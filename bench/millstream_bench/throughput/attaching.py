"""`millstream bench attach`: from `attach` in a Spark that runs to the first row of a query.

A process of its own stands for a notebook: it has started a Spark with settings of a user's, and
has run a job there. Then it attaches, declares a file, registers two queries and takes a row of
each. It does so several times: the first attachment also loads our modules and what Java needs.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Progress = Callable[[str], None]
TARGET_S = 10.0
ROWS = 10_000
AGAIN = 3  # attachments of a process after its first
USERS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
QUERIES = {
    "large": "SELECT at, n FROM f WHERE n >= 10",
    "counts": "SELECT n % 3 AS k, count(*) AS c FROM f [RANGE 1 MINUTE SLIDE 1 MINUTE]"
    " GROUP BY n % 3",
}


def run(quick: bool = False, progress: Progress = print) -> dict[str, Any]:
    """All figures, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        lines = (f"{1_710_000_000 + n // 10},{n}\n" for n in range(ROWS))
        (Path(folder) / "f.csv").write_text("".join(lines))
        told = [_process(Path(folder)) for _ in range(1 if quick else 5)]
    return verdict(told, progress)


def verdict(told: Sequence[Sequence[float]], progress: Progress = print) -> dict[str, Any]:
    """Of the seconds of each attachment, process by process.

    >>> verdict([[4.0, 1.0, 2.0], [6.0, 3.0]])["met"]
    first attachment of a process: first row after 5.00 s in the median, 6.00 s at most
    later ones: 2.00 s, 3.00 s
    met: at most 10 s
    True
    """
    first, later = [times[0] for times in told], [t for times in told for t in times[1:]]
    figures = {
        "target_s": TARGET_S,
        "first": {"median_s": statistics.median(first), "most_s": max(first)},
        "later": {"median_s": statistics.median(later), "most_s": max(later)},
        "met": max(first + later) <= TARGET_S,
    }
    shown: Any = figures
    progress(
        f"first attachment of a process: first row after {shown['first']['median_s']:.2f} s in the"
        f" median, {shown['first']['most_s']:.2f} s at most"
    )
    progress(f"later ones: {shown['later']['median_s']:.2f} s, {shown['later']['most_s']:.2f} s")
    progress(f"{'met' if figures['met'] else 'missed'}: at most {TARGET_S:g} s")
    return figures


def _process(folder: Path) -> list[float]:
    program = f"from {__name__} import user; user({str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    )
    return [float(seconds) for seconds in json.loads(done.stdout.splitlines()[-1])]


def user(folder: str) -> None:
    """What the user's process does; prints the seconds of each attachment."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[*]")
    for key, value in USERS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.csv(f"{folder}/f.csv").groupBy("_c0").count().collect()  # it is warm
    print(json.dumps([_attach(spark, Path(folder)) for _ in range(1 + AGAIN)]))
    spark.stop()


def _attach(spark: Any, folder: Path) -> float:
    """Seconds until the first row of all queries."""
    begun = time.perf_counter()
    import millstream  # noqa: PLC0415  (part of what is measured)

    with millstream.attach(spark) as session:
        session.stream(
            "f",
            path=folder / "f.csv",
            columns={"at": "long", "n": "int"},
            time="timestamp_seconds(at)",
        )
        queries = {name: session.query(cql, name) for name, cql in QUERIES.items()}
        rows = {name: next(iter(query)) for name, query in queries.items()}
        seconds = time.perf_counter() - begun
    assert rows["large"]["n"] == 10, rows
    assert rows["counts"]["c"] == 200, rows
    return seconds
