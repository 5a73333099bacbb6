"""`millstream bench large`: tens of millions of rows with the default settings.

For each part and each number of rows: rows a second, memory of Python's and Java's processes, the
heap after collections, the disk, segments that compaction leaves, by quarters of the time, so that
growth shows. Results are compared with DuckDB's.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.core.errors import ResourceError, UsageError
from millstream.core.suggestions import did_you_mean
from millstream_bench.large import side
from millstream_bench.large.oracle import Oracle
from millstream_bench.large.workload import PARTS, Part, asked, write

PEAK_MB_MOST = 3_072  # asked for
GROWTH_MOST = 1.2  # of the heap's last half over its first, beyond which it is not flat
FLAT_MB = 64  # less than this more is no growth
Progress = Callable[[str], None]


def run(
    *,
    quick: bool = False,
    seed: int = 1,
    rows: str | None = None,
    queries: str = "30",
    parts: str = "mix,skew,day",
    progress: Progress = print,
) -> dict[str, Any]:
    """All parts that are named, for each number of rows of a stream."""
    counts = _numbers("rows", rows or ("100000" if quick else "2000000,20000000"))
    (asks,) = _numbers("queries", queries)[:1]
    chosen = parts.split(",")
    for name in chosen:
        if name not in PARTS:
            hint = f"one of {', '.join(PARTS)}"
            raise UsageError(f"unknown part {name}{did_you_mean(name, PARTS)}", hint=hint)
    found: dict[str, Any] = {"queries": asks}
    for name in chosen:
        found[name] = []
        for count in counts:
            made = _part(PARTS[name], int(count * PARTS[name].share), asks, seed, progress)
            found[name].append(made)
            progress(_told(made))
        first, last = found[name][0], found[name][-1]
        if len(counts) > 1:
            ratio = last["rows_a_second"] / first["rows_a_second"]
            progress(
                f"{name}: {last['rows']:,} rows at {ratio:.2f} times the pace of {first['rows']:,}"
            )
    return found


def _numbers(option: str, text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"--{option} takes numbers: 2000000,20000000", detail=f"not {text}")
    return found


def _part(part: Part, rows: int, queries: int, seed: int, progress: Progress) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="millstream-large-"))
    try:
        data, out = folder / "in", folder / "out"
        out.mkdir()
        write(data, part, rows, seed)
        input_mb = side.size_mb(data)
        progress(f"{part.name}: {len(part.streams)} x {rows:,} rows, {input_mb:,.0f} MB of files")
        told = _ours(part, rows, queries, data, out)
        home = out / "home"
        told["home_left_mb"] = round(side.size_mb(home))
        shutil.rmtree(home, ignore_errors=True)
        asks = asked(part.name, queries)
        told["results_mb"] = round(sum(side.size_mb(out / a.name) for a in asks))
        oracle = Oracle(data, part, rows, folder / "scratch")
        try:
            compared = oracle.differences(asks, out)
        finally:
            oracle.close()
        return {
            "part": part.name,
            "rows": rows,
            "input_mb": round(input_mb),
            **told,
            "result_rows": sum(n for n, _ in compared.values()),
            "different_rows": sum(n for _, n in compared.values()),
            "queries_that_differ": sorted(name for name, (_, n) in compared.items() if n),
            "peak_met": told["peak_mb"] <= PEAK_MB_MOST,
            "heap_flat": flat(told["heap_mb"]),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ours(part: Part, rows: int, queries: int, data: Path, out: Path) -> dict[str, Any]:
    task = {
        "part": part.name, "rows": rows, "queries": queries, "data": str(data), "out": str(out)
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", side.__name__],
        input=json.dumps(task),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise ResourceError(
            f"the run over {rows:,} rows ended with {done.returncode}",
            hint="its words stand above",
        )
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def flat(heap_mb: list[int]) -> bool:
    """Whether what stays in the heap does not grow: by the halves of the time.

    >>> flat([300, 420, 410, 425]), flat([200, 300, 400, 500]), flat([40, 50, 70, 90])
    (True, False, True)
    """
    first, last = max(heap_mb[:2]), max(heap_mb[2:])
    return last <= max(GROWTH_MOST * first, first + FLAT_MB)


def _told(made: dict[str, Any]) -> str:
    def quarters(name: str) -> str:
        return " / ".join(f"{n:,}" for n in made[name])

    differ = ", ".join(made["queries_that_differ"])
    return (
        f"{made['part']}: {made['rows']:,} rows a stream in {made['seconds']} s: "
        f"{made['rows_a_second']:,} rows/s, CPU {made['cpu_s']} s, {made['steps']} steps; peak "
        f"{made['peak_mb']:,} MB ({'met' if made['peak_met'] else 'missed'}: at most "
        f"{PEAK_MB_MOST:,}); by quarters: Python {quarters('python_mb')} MB, Java "
        f"{quarters('java_mb')} MB, heap after collections {quarters('heap_mb')} MB "
        f"({'flat' if made['heap_flat'] else 'grows'}), home {quarters('home_mb')} MB, segments "
        f"{quarters('segments')}; results {made['results_mb']:,} MB; {made['different_rows']} of "
        f"{made['result_rows']:,} rows differ{' in ' + differ if differ else ''}"
    )
