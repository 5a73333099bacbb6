"""Many queries: plain Structured Streaming, one job each, and Millstream, one dataflow.

Both on the same files in one run, each in a process of its own and after a warm-up; results are
compared row for row. What is told first is the ratio to plain queries at their best setting (all
files in one batch) and to Flink's statement set; then those to one `foreachBatch` job written by
hand and to plain queries of two files a batch, our own growth with the number of queries, and a mix
without any overlap.
"""

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.core.errors import ResourceError, UsageError
from millstream_bench.throughput.flink import flink_python, run_flink, write_csv
from millstream_bench.throughput.mix import mix, write_readings

Progress = Callable[[str], None]
# how many times as long as ours each is to take, by the number of queries
TARGETS: dict[str, dict[int, float]] = {
    "plain_best": {30: 15.0, 100: 25.0},
    "flink": {12: 2.5, 30: 6.0},
    "by_hand": {30: 3.0},
    "plain": {3: 2.5, 12: 6.0, 30: 12.0, 100: 25.0},
}
WORDS = {
    "plain_best": "plain at its best setting",
    "flink": "Flink",
    "by_hand": "one job by hand over a cached input",
    "plain": "plain with two files a batch",
}
WHOLE_PLAIN_MAX = 30  # with more queries the plain side gets a part of the input, scaled
PART = 4
APART = 6  # queries of the mix without overlap
TOLERANCE = 1e-9


def run(
    queries: str = "3,12,30,100",
    quick: bool = False,
    seed: int = 1,
    peer: str | None = None,
    progress: Progress = print,
) -> dict[str, Any]:
    """All figures, ready for JSON."""
    if peer not in (None, "flink"):
        raise UsageError(f"unknown peer {peer!r}", hint="flink")
    python = flink_python() if peer else None
    counts = _counts("2,3" if quick and queries == "3,12,30,100" else queries)
    rows, files = (20_000, 4) if quick else (200_000, 20)
    folder = Path(tempfile.mkdtemp(prefix="millstream-sharing-"))
    try:
        _write(folder, rows, files, seed)
        progress(
            f"two streams of {rows:,} rows in {files} files; a third filters, a third sliding "
            "averages (10 s by 5 s), a third joins (5 s), each with another constant"
        )
        figures: dict[str, Any] = {"rows": rows, "queries": {}}
        growth = [] if quick else [10]
        ours = _side(folder, "ours", sorted({*counts, *growth}), progress)
        hand = [c for c in counts if c <= WHOLE_PLAIN_MAX]
        others: dict[str, dict[int, dict[str, Any]]] = {
            "plain_best": _scaled(folder, "plain_best", counts, progress),
            "flink": {},
            "by_hand": _side(folder, "by_hand", hand, progress),
            "plain": _scaled(folder, "plain", counts, progress),
        }
        if python is not None:
            write_csv(folder / "data", folder / "csv")
            told = {
                c: run_flink(python, folder / "csv", folder / f"flink-{c}", c, progress)
                for c in hand
            }
            others["flink"] = {c: t for c, t in told.items() if t["seconds"] is not None}
            figures["flink"] = told
        for count in counts:
            compared = _compare(folder, count)
            mine = {side: found[count] for side, found in others.items() if count in found}
            figures["queries"][count] = _told(count, ours[count], mine, compared, progress)
        if {10, 100} <= set(ours):
            ratio = ours[100]["seconds"] / ours[10]["seconds"]
            figures["growth"] = {"10": ours[10], "100": ours[100], "ratio": ratio}
            progress(
                f"our own growth: {ours[10]['seconds']:.1f} s with 10 queries, "
                f"{ours[100]['seconds']:.1f} s with 100, ratio {ratio:.1f} (at most 6, aim 4)"
            )
        figures["apart"] = _apart(folder, progress)
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _counts(text: str) -> list[int]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise UsageError(f"not numbers of queries: {text!r}", hint="for example --queries 3,12,30")
    return counts


def _write(folder: Path, rows: int, files: int, seed: int) -> None:
    for name, offset in (("a", 0), ("b", 1)):
        write_readings(folder / "data" / name, rows, files, seed + offset)
        write_readings(folder / "warm" / name, rows // 5, 4, seed + 2 + offset)
        part = folder / "part" / name
        part.mkdir(parents=True)
        for file in sorted((folder / "data" / name).iterdir())[: files // PART]:
            (part / file.name).hardlink_to(file)
    for number in range(APART):
        for name, offset in (("a", 0), ("b", 1)):
            target = folder / "apart" / f"{name}{number}"
            write_readings(target, rows // 2, files // 2, seed + 10 + 2 * number + offset)


def _side(
    folder: Path,
    side: str,
    counts: Sequence[int],
    progress: Progress,
    *,
    data: str = "data",
    overlap: bool = True,
) -> dict[int, dict[str, float]]:
    """Seconds, CPU seconds and peak memory of one side for each number of queries."""
    if not counts:
        return {}
    out = folder / f"{side}-{data}"
    out.mkdir()
    task = {
        "side": side,
        "queries": list(counts),
        "data": str(folder / data),
        "warm": str(folder / "warm"),
        "warm_ups": 2,
        "warm_queries": 6,
        "out": str(out),
        "overlap": overlap,
    }
    progress(f"{side.replace('_', ' ')}: warming up")
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream_bench.throughput.sharing_side"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(task))
    process.stdin.close()
    found = {}
    for line in process.stdout:
        if line.startswith("{"):
            told = json.loads(line)
            found[told.pop("queries")] = told
            progress(f"{side.replace('_', ' ')}: {told['seconds']:.1f} s")
    if process.wait() != 0:
        raise ResourceError(
            f"the side {side} of the benchmark ended with {process.returncode}",
            hint="its words stand above",
        )
    return found


def _scaled(
    folder: Path, side: str, counts: Sequence[int], progress: Progress
) -> dict[int, dict[str, Any]]:
    """A plain side; with many queries over a part of the input, as if it took the same for each."""
    found: dict[int, dict[str, Any]] = {}
    found |= _side(folder, side, [c for c in counts if c <= WHOLE_PLAIN_MAX], progress)
    scaled = [c for c in counts if c > WHOLE_PLAIN_MAX]
    for count, told in _side(folder, side, scaled, progress, data="part").items():
        found[count] = told | {
            "seconds": told["seconds"] * PART,
            "cpu_s": told["cpu_s"] * PART,
            "scaled_from": 1 / PART,
        }
    return found


def _told(
    count: int,
    ours: dict[str, float],
    others: dict[str, dict[str, Any]],
    compared: dict[str, int],
    progress: Progress,
) -> dict[str, Any]:
    """Each of the others beside ours, in the order in which they matter."""
    progress(
        f"{count:>4} queries: ours {ours['seconds']:.1f} s, CPU {ours['cpu_s']:.0f} s, peak memory "
        f"{ours['peak_mb']:.0f} MB"
    )
    ratios: dict[str, float] = {}
    for side, other in others.items():
        ratios[side] = other["seconds"] / ours["seconds"]
        target = TARGETS[side].get(count)
        wanted = f" (target {target:g})" if target else ""
        scaled = f" (scaled from 1/{PART} of the input)" if "scaled_from" in other else ""
        cpu = f", CPU {other['cpu_s']:.0f} s" if "cpu_s" in other else ""
        progress(
            f"      {WORDS[side]} {other['seconds']:.1f} s{scaled}{cpu}: {ratios[side]:.1f} times "
            f"as long{wanted}"
        )
    progress(f"      {compared['rows']:,} rows of {compared['queries']} results are equal")
    targets = {side: TARGETS[side].get(count) for side in others}
    return {"ours": ours, **others, "ratios": ratios, "targets": targets, "compared": compared}


def _apart(folder: Path, progress: Progress) -> dict[str, Any]:
    """Queries that have nothing in common, each over streams of its own."""
    plain = _side(folder, "plain", [APART], progress, data="apart", overlap=False)[APART]
    ours = _side(folder, "ours", [APART], progress, data="apart", overlap=False)[APART]
    share = ours["seconds"] / plain["seconds"]
    progress(
        f"{APART} queries without any overlap: plain {plain['seconds']:.1f} s, ours "
        f"{ours['seconds']:.1f} s: ours costs {share:.2f} of plain (at most 1.0)"
    )
    return {"plain": plain, "ours": ours, "share": share}


# -- are the results equal? ------------------------------------------------------------------------


def _compare(folder: Path, count: int) -> dict[str, int]:
    """Compares the results of both sides; raises where a row differs.

    Plain queries never emit the windows that their last watermark has not passed, and with many
    queries they had a part of the input: ours are cut to what plain can know.
    """
    whole = count <= WHOLE_PLAIN_MAX
    theirs = folder / ("plain-data" if whole else "plain-part") / str(count)
    mine = folder / "ours-data" / str(count)
    last = {} if whole else {"at": _last(folder / "part" / "a"), "bt": _last(folder / "part" / "b")}
    total = 0
    for ask in mix(count):
        a = _read(theirs / ask.name)
        b = _read(mine / ask.name)
        if a is None or b is None:
            raise ResourceError(f"{ask.name} of {count} queries has no result on one side")
        if ask.kind == "average":
            b = b.filter(pc.less_equal(b["ts"], pc.max(a["ts"])))
        else:
            for column in set(last) & set(b.column_names):
                b = b.filter(pc.less_equal(b[column], last[column]))
        names = a.column_names
        if not _equal(_sorted(a), _sorted(b.select(names))):
            raise ResourceError(
                f"{ask.name} of {count} queries ({ask.kind} above {ask.constant}) differs",
                detail=f"plain has {a.num_rows:,} rows, ours {b.num_rows:,}",
            )
        total += a.num_rows
    return {"queries": count, "rows": total}


def _last(folder: Path) -> Any:
    """The last instant of a stream's files."""
    return pc.max(_plain_types(pq.read_table(max(folder.iterdir())))["at"])


def _read(folder: Path) -> pa.Table | None:
    parts = sorted(folder.glob("*.parquet"))
    if not parts:
        return None
    tables = [_plain_types(pq.read_table(p)) for p in parts]
    return pa.concat_tables(tables)


def _plain_types(table: pa.Table) -> pa.Table:
    """Times as numbers: the two sides write them in other units and zones."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            micros = pc.cast(table[i], pa.timestamp("us", tz=field.type.tz))
            table = table.set_column(i, field.name, pc.cast(micros, pa.int64()))
    return table


def _sorted(table: pa.Table) -> pa.Table:
    exact = [n for n in table.column_names if n != "mean"]
    return table.sort_by([(n, "ascending") for n in exact])


def _equal(a: pa.Table, b: pa.Table) -> bool:
    if a.num_rows != b.num_rows:
        return False
    for name in a.column_names:
        if name == "mean":
            if not all(
                math.isclose(x, y, rel_tol=TOLERANCE)
                for x, y in zip(a[name].to_pylist(), b[name].to_pylist(), strict=True)
            ):
                return False
        elif not a[name].combine_chunks().equals(b[name].cast(a[name].type).combine_chunks()):
            return False
    return True
