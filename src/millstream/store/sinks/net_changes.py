"""What a batch of changes comes to: rows that a table gains and loses, each once.

A result's table is told by `+` and `-`; within a batch most of them take each other back. By a key,
what is left of a row is one of three things: it is new, it is another now, or it is gone.
"""

import json

import pyarrow as pa
import pyarrow.compute as pc

from millstream.store.delivery import TargetError

NET = "_net"  # how often a row is added; negative: taken away
KIND = "_kind"
PLACE = "_place"
NEW, OTHER, GONE = "new", "other", "gone"


def net_changes(changes: pa.Table) -> pa.Table:
    """Rows with `op` summed up, without those that come to nothing; `_net` says how often.

    >>> changes = pa.table({"k": [1, 1, 2], "op": ["+", "-", "+"]})
    >>> net_changes(changes).to_pylist()
    [{'k': 2, '_net': 1}]
    """
    signs = pc.if_else(pc.equal(changes["op"], "+"), 1, -1)
    columns = [n for n in changes.column_names if n != "op"]
    rows = changes.select(columns)
    compared = pa.table([comparable(rows[n]) for n in columns], columns)
    signed = compared.append_column(NET, pc.cast(signs, pa.int64()))
    placed = signed.append_column(PLACE, pa.array(range(rows.num_rows), pa.int64()))
    summed = placed.group_by(columns, use_threads=False).aggregate([(NET, "sum"), (PLACE, "max")])
    left = summed.filter(pc.not_equal(summed[f"{NET}_sum"], 0))
    return rows.take(left[f"{PLACE}_max"]).append_column(NET, left[f"{NET}_sum"])


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Values that can be grouped: nested ones as text."""
    if not pa.types.is_nested(column.type):
        return column
    texts = [
        None if v is None else json.dumps(v, default=str, sort_keys=True)
        for v in column.to_pylist()
    ]
    return pa.array(texts, pa.string())


def by_key(net: pa.Table, key: tuple[str, ...], query: str) -> pa.Table:
    """One row a key, as it is now, or as it was where it is gone; `_kind` says which.

    >>> net = pa.table({"k": [1, 1, 2], "v": [5, 6, 7], "_net": [-1, 1, 1]})
    >>> by_key(net, ("k",), "q").to_pylist()
    [{'k': 1, 'v': 6, '_kind': 'other'}, {'k': 2, 'v': 7, '_kind': 'new'}]
    """
    ordered = net.sort_by([(NET, "descending")])  # what is there now comes first
    places = pa.table([comparable(ordered[n]) for n in key], list(key)).append_column(
        PLACE, pa.array(range(ordered.num_rows), pa.int64())
    )
    places = places.append_column("_plus", pc.max_element_wise(ordered[NET], 0))
    places = places.append_column("_minus", pc.min_element_wise(ordered[NET], 0))
    grouped = places.group_by([*key], use_threads=False).aggregate(
        [(PLACE, "min"), ("_plus", "sum"), ("_minus", "sum")]
    )
    twice = grouped.filter(pc.greater(grouped["_plus_sum"], 1))
    if twice.num_rows:
        raise ambiguous(query, key, twice.select([*key]).slice(0, 1).to_pylist()[0])
    added, taken = pc.greater(grouped["_plus_sum"], 0), pc.less(grouped["_minus_sum"], 0)
    kinds = pc.if_else(pc.and_(added, taken), OTHER, pc.if_else(added, NEW, GONE))
    rows = ordered.take(grouped[f"{PLACE}_min"]).drop_columns([NET])
    return rows.append_column(KIND, kinds)


def states(changes: pa.Table, key: tuple[str, ...], query: str) -> pa.Table:
    """What each key that a batch touches comes to, also where its changes take each other back: one
    that is published again with others must not leave what was there between.

    >>> changes = pa.table({"k": [1, 1, 2, 2], "v": [5, 5, 6, 6], "op": ["+", "-", "-", "+"]})
    >>> states(changes, ("k",), "q").to_pylist()
    [{'k': 1, 'v': 5, '_kind': 'gone'}, {'k': 2, 'v': 6, '_kind': 'new'}]
    """
    columns = [n for n in changes.column_names if n != "op"]
    compared = pa.table([comparable(changes[n]) for n in columns], columns)
    placed = compared.append_column(PLACE, pa.array(range(changes.num_rows), pa.int64()))
    last = placed.group_by(columns, use_threads=False).aggregate([(PLACE, "max")])
    chosen = changes.take(last[f"{PLACE}_max"])  # each row once, as it was told last
    signs = pc.if_else(pc.equal(chosen["op"], "+"), 1, -1)
    return by_key(chosen.drop_columns(["op"]).append_column(NET, signs), key, query).sort_by(
        [(n, "ascending") for n in key]
    )


def ambiguous(query: str, key: tuple[str, ...], values: object) -> TargetError:
    return TargetError(
        f"the table of query {query} has two rows with one key",
        detail=f"{', '.join(key)} = {values}",
        hint="name all columns in key that identify a row, or leave key out",
    )
