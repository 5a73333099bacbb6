"""What a query would give over rows that are at hand, before it is registered.

A second engine in a scratch folder, on the same Spark session, gets the last retained rows of the
streams that the query reads and runs its operators to their end: the same steps as ever, so that a
preview cannot mean something else than the query. Nothing of the running engine changes.
"""

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.control.snapshot.model import Results
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import sources_of
from millstream.language.plan.windows import FOREVER

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.engine.engine import Engine

ROWS_MAX = 20_000  # of each stream
STEPS_MAX = 100
NAME = "preview"


def preview_rows(engine: "Engine", cql: str, rows_max: int) -> Results:
    """The last rows of the query's result; mistakes in the text are raised."""
    from millstream.engine.engine import Engine as Scratch  # noqa: PLC0415
    from millstream.language.cql.views import without_history  # noqa: PLC0415

    cql = without_history(engine.whole_text(cql))
    plan = engine.plan(cql)
    streams = sorted({source.stream for source in sources_of(plan.root)})
    with tempfile.TemporaryDirectory(prefix="millstream-preview-") as folder:
        scratch = Scratch(Path(folder), engine.plane, replace(engine.settings, slots=1))
        try:
            scratch.catalog = replace(scratch.catalog, functions=engine.catalog.functions)
            rows = sum(_copy(engine, scratch, name) for name in streams)
            scratch.add_query(NAME, cql, from_beginning=True)
            _run(scratch)
            table = scratch.result(NAME)
        finally:
            scratch.close()
    kept = table.slice(max(0, table.num_rows - rows_max))
    return Results(
        tuple(kept.column_names),
        tuple(tuple(row.values()) for row in kept.to_pylist()),
        table.num_rows,
        table.num_rows - kept.num_rows,
        f"over {rows:,} rows of {', '.join(streams)}, as if they were all that comes",
    )


def _copy(engine: "Engine", scratch: "Engine", name: str) -> int:
    """Gives a stream to the scratch engine with its last rows; tells how many."""
    from millstream.language.share.dataflow import base_stream  # noqa: PLC0415

    definition = engine.catalog.stream(name)
    tables = _retained(engine, base_stream(name))
    rows = sum(int(t.num_rows) for t in tables)
    if rows:
        scratch.add_stream(replace(definition, source={"source": "push"}))
        with scratch.ledger.transaction() as ledger:
            written = [scratch.store.write(t) for t in tables]
            ledger.publish(base_stream(name), written, FOREVER)
        return rows
    return _read_file(scratch, definition)


def _retained(engine: "Engine", stream: str) -> list["pa.Table"]:
    """The last retained segments, newest rows included, oldest first."""
    tables: list[Any] = []
    room = ROWS_MAX
    with engine.streams.removals.reading():
        for segment in reversed(engine.ledger.segments(stream)):
            if not segment.rows or room <= 0:
                continue
            table = engine.store.read(segment)
            table = table.slice(max(0, table.num_rows - room))
            room -= table.num_rows
            tables.append(table)
    return tables[::-1]


def _read_file(scratch: "Engine", definition: StreamDefinition) -> int:
    """Nothing of a stream is retained: of one that is read from files, its first rows."""
    from millstream.engine.sources.file_ingest import FileIngest  # noqa: PLC0415

    live = "path" not in definition.source or definition.source.get("source", "file") != "file"
    if live:
        scratch.add_stream(replace(definition, source={"source": "push"}))
    else:
        source = {k: v for k, v in definition.source.items() if k not in ("rate", "follow")}
        scratch.add_stream(replace(definition, source=source))
    ingest = scratch.ingests.get(definition.name)
    rows = 0
    if isinstance(ingest, FileIngest):
        appended = ingest.advance(ROWS_MAX)
        rows = appended.rows if appended is not None else 0
    scratch.appenders[definition.name].finish()
    return rows


def _run(scratch: "Engine") -> None:
    """Steps until nothing is left to do; a data error is the user's to read."""
    from millstream.core.errors import UsageError  # noqa: PLC0415
    from millstream.engine.steps.trains import alone  # noqa: PLC0415

    for _ in range(STEPS_MAX):
        worked = False
        for operator in list(scratch.operators.values()):
            try:
                report = scratch.runner.run(alone(operator), scratch.settings.step_rows_max)
            except Exception as error:
                reason = scratch.evaluator.data_error(error)
                if reason is None:
                    raise
                raise UsageError(f"the query fails on its data: {reason}") from None
            worked = worked or report is not None
        with suppress(Exception):
            scratch.streams.remove(())
        if not worked:
            return
