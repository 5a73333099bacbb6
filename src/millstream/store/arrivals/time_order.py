"""Rows of a set in order of time, however many: sorted runs on disk, put together range by range.

A version of a table is a set: which of its rows comes first is ours to say, and in order of time
none of them is late for another.
"""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RUN_ROWS = 500_000  # in memory at a time
SAMPLED = 64  # times of a run that say where ranges end
TIME = "_ts"
NOWHERE = np.iinfo(np.int64).min  # a row without a time comes first; it is rejected


def in_order_of_time(pieces: Iterable[pa.Table], folder: Path) -> Iterator[pa.Table]:
    """The rows of all pieces by `_ts`; equal times in the order in which they came."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".order-") as place:
        runs: list[pa.Table] = []
        for run in _runs(pieces):
            if len(runs) == 1:
                runs[0] = _on_disk(runs[0], Path(place) / "0")
            runs.append(_on_disk(run, Path(place) / str(len(runs))) if runs else run)
        if len(runs) <= 1:  # as most are
            yield from runs
            return
        times = [_times(run) for run in runs]
        for begin, end in pairwise(_bounds(times)):
            parts = [_between(*one, begin, end) for one in zip(runs, times, strict=True)]
            yield _ordered(pa.concat_tables(parts))


def _runs(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if sum(p.num_rows for p in held) >= RUN_ROWS:
            yield _ordered(pa.concat_tables(held))
            held = []
    if held:
        yield _ordered(pa.concat_tables(held))


def _ordered(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.argsort(_times(table), kind="stable"), pa.int64()))


def _times(table: pa.Table) -> "np.ndarray[Any, Any]":
    filled = pc.fill_null(table[TIME], NOWHERE)
    return np.asarray(filled.cast(pa.int64()))


def _on_disk(run: pa.Table, path: Path) -> pa.Table:
    """The same rows, of which only those that are read are in memory."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, run.schema) as writer:
        writer.write_table(run)
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _bounds(times: "list[np.ndarray[Any, Any]]") -> list[int | None]:
    """Where ranges end that hold about as many rows as a run; the first and last are open."""
    samples = np.sort(np.concatenate([t[:: max(1, len(t) // SAMPLED)] for t in times]))
    inner = sorted({int(t) for t in samples[SAMPLED::SAMPLED]})
    return [None, *inner, None]


def _between(
    run: pa.Table, times: "np.ndarray[Any, Any]", begin: int | None, end: int | None
) -> pa.Table:
    first = 0 if begin is None else int(np.searchsorted(times, begin))
    last = len(times) if end is None else int(np.searchsorted(times, end))
    return run.slice(first, last - first)
