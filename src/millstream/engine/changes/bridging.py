"""From the table of one query to that of the query which takes its place: the rows that differ."""

import numpy as np
import pyarrow as pa

from millstream.engine.changes.flow import ChangingFlow
from millstream.engine.query import Query
from millstream.store.segments import Written
from millstream.store.sinks.net_changes import NET, net_changes


def bridge(engine: ChangingFlow, old: Query, new: Query) -> Written:
    """Rows that the one table loses and gains to become the other, written and not yet published.

    Both tables are in memory for a moment; neither changes meanwhile.
    """
    columns = [*(f"c{i}" for i in range(len(old.plan.columns))), "_ts"]
    tables = [
        _signed(engine, query.stream, columns, sign) for query, sign in ((old, "-"), (new, "+"))
    ]
    changes = net_changes(pa.concat_tables(tables, promote_options="permissive"))
    counts = changes[NET].to_numpy()
    rows = changes.drop_columns([NET]).take(np.repeat(np.arange(len(counts)), np.abs(counts)))
    signs = pa.array(np.repeat(np.sign(counts), np.abs(counts)), pa.int32())
    return engine.store.write(rows.append_column("_op", signs))


def _signed(engine: ChangingFlow, stream: str, columns: list[str], sign: str) -> pa.Table:
    """A table's rows, all gained or all lost."""
    rows = pa.concat_tables(engine.stored_table(stream), promote_options="permissive")
    return rows.select(columns).append_column("op", pa.array([sign] * rows.num_rows, pa.string()))
