"""A relation's table from its changes: rows that were added and not taken back."""

from typing import Any

import pyarrow as pa


def summed(changes: pa.Table) -> pa.Table:
    """Changes with `op` + and - summed up; the result has no `op`.

    >>> changes = pa.table({"k": [1, 1, 2], "op": ["+", "-", "+"]})
    >>> summed(changes).to_pylist()
    [{'k': 2}]
    """
    rows = changes.drop_columns(["op"])
    counts: dict[str, int] = {}
    place: dict[str, int] = {}
    signs = changes["op"].to_pylist()
    for number, row in enumerate(rows.to_pylist()):
        key: Any = repr(row)
        counts[key] = counts.get(key, 0) + (1 if signs[number] == "+" else -1)
        place[key] = number
    kept = [place[key] for key, times in counts.items() for _ in range(max(0, times))]
    return rows.take(pa.array(kept, pa.int64()))
