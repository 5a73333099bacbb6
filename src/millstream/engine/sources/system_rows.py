"""Rows about one flow, as the `sys.` streams have them.

The same for an engine that stands alone (`system_source.py`) and for one processor of many, which a
manager asks. Operators that only serve queries over the system itself are left out, so that
watching does not feed on itself. Looks; keeps nothing.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from millstream.core.errors import UsageError
from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import RowParser
from millstream.engine.steps.reports import StepReport
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.system_streams import PREFIX, SOURCE, columns_of
from millstream.language.plan.nodes import sources_of
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW, Rows

Row = dict[str, Any]
_TYPES = {"timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string(), "int": pa.int32(),
          "bigint": pa.int64(), "double": pa.float64()}  # fmt: skip


def watches(flow: Dataflow, operator: str) -> bool:
    """Whether an operator only serves queries over the system itself."""
    users = list(flow.queries_of(operator))
    return bool(users) and all(
        all(s.stream.startswith(PREFIX) for s in sources_of(q.plan.root)) for q in users
    )


def operator_rows(flow: Dataflow, processor: str) -> Iterator[Row]:
    """Every operator as it stands now."""
    statistics = flow.ledger.operator_statistics()
    for operator in list(flow.operators.values()):
        if watches(flow, operator.id):
            continue
        waiting = [s for found in flow.pending(operator).values() for s in found]
        figures = statistics.get(operator.id)
        known = {k: figures[k] if figures else 0 for k in ("rows_in", "rows_out", "steps")}
        yield {
            "operator": operator.id, "kind": operator.kind, "processor": processor,
            "queries": sum(1 for _ in flow.queries_of(operator.id)),
            "seconds": float(figures["seconds"]) if figures else 0.0,
            "queue_rows": sum(s.rows for s in waiting),
            "queue_bytes": sum(s.size for s in waiting),
            **known,
        }  # fmt: skip


def query_rows(flow: Dataflow, processor: str) -> Iterator[Row]:
    """Every query whose results are made here: how well it is served, lately."""
    for name, served in flow.path_times.ratios().items():
        query = flow.queries.get(name)
        if query is None or watches(flow, query.stream):
            continue
        yield {
            "query": name, "processor": processor, "delay": served.delay_s,
            "evaluation": served.evaluation_s, "ratio": served.ratio,
            "ratio_processing": served.processing, "ratio_communication": served.communication,
        }  # fmt: skip


def step_row(flow: Dataflow, report: StepReport, processor: str) -> Row | None:
    """A step that is done; none for one of a watching operator."""
    operator = flow.operators.get(report.operator)
    if operator is None or watches(flow, report.operator):
        return None
    return {
        "operator": report.operator, "kind": operator.kind, "processor": processor,
        "rows_in": report.rows_in, "rows_out": report.rows_out, "bytes_in": report.bytes_in,
        "bytes_out": report.bytes_out, "seconds": report.seconds,
        "commit_seconds": report.commit_seconds,
        "waited": max(0.0, time.time() - report.arrived), "tail_segments": report.tail_segments,
    }  # fmt: skip


def table_of(rows: Sequence[Row], definition: StreamDefinition) -> pa.Table:
    """Rows as an appender takes them; `at` in microseconds."""
    arrays, names = [], []
    for index, field in enumerate(definition.columns):
        values = [row.get(field.name) for row in rows]
        arrays.append(pa.array(values, _TYPES[field.type]))
        names.append(f"c{index}")
    count = len(rows)
    arrays += [
        pa.array([row["at"] for row in rows], pa.int64()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
        pa.array([SOURCE] * count, pa.string()),
        pa.array(range(count), pa.int64()),
    ]
    return pa.table(arrays, [*names, "_ts", REASON, RECORD, FILE, ROW])


def about_the_system(definition: StreamDefinition) -> bool:
    """Whether a declared stream is one of those about the system itself."""
    return columns_of(definition.name) == definition.columns


def posted_rows(definition: StreamDefinition) -> RowParser:
    """Reads what a manager posts to a `sys.` stream: rows in the stream's own types.

    They come from the manager alone, once a second, and numbered like anybody's, so that a batch
    that is sent again is taken once. Nothing has to be parsed.
    """

    def parsed(rows: Rows, producer: str) -> pa.Table:
        try:
            given = rows.to_pylist() if isinstance(rows, pa.Table) else rows
            return table_of([dict(row) for row in given], definition)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise UsageError(
                f"{producer} sent rows that are none of {definition.name}", detail=f"{error}"[:300]
            ) from None

    return parsed
