"""What digests cost: of writing a segment, and of reading one for the first time in a process.

Writing is a small part of what a row costs on its way: the share of it that digests have is far
more than their share of a system's throughput, which `ns_a_row` tells for each segment on the way.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.store.integrity.digests import digest_of, digest_of_file
from millstream.store.segments import Segment, SegmentStore

ROWS = 200_000
REPEATS = 7


def run(rows: int = ROWS, repeats: int = REPEATS) -> dict[str, Any]:
    """Milliseconds of each part, the best of several; shares of digests in per cent."""
    chance = np.random.default_rng(7)
    table = pa.table(
        {
            "_ts": np.sort(chance.integers(0, 1 << 40, rows)),
            "_pos": np.arange(rows),
            "c0": chance.integers(0, 1000, rows),
            "c1": chance.random(rows),
            "c2": [f"name-{n}" for n in chance.integers(0, 5000, rows)],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        store = SegmentStore(Path(folder))
        written = store.write(table)
        assert written.file is not None
        path = store.path(written.file)
        data = Path(path).read_bytes()
        segment = Segment.of("s", 1, written, 0, 0.0)
        figures = {
            "write_ms": _best(lambda: store.write(table), repeats),
            "digest_of_written_ms": _best(lambda: digest_of(data), repeats),
            "read_ms": _best(lambda: pq.read_table(path), repeats),
            "first_check_ms": _best(lambda: digest_of_file(path), repeats),
            "later_check_ms": _best(lambda: store.check([segment]), repeats),
        }
    of_write = figures["digest_of_written_ms"] / figures["write_ms"]
    of_read = figures["first_check_ms"] / (figures["first_check_ms"] + figures["read_ms"])
    return figures | {
        "rows": rows,
        "bytes": len(data),
        "ns_a_row": 1e6 * figures["digest_of_written_ms"] / rows,
        "share_of_write_percent": 100 * of_write,
        "share_of_first_read_percent": 100 * of_read,
    }


def _best(work: Callable[[], Any], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        clock = time.perf_counter()
        work()
        found.append(time.perf_counter() - clock)
    return 1000 * min(found)
