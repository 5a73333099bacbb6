"""OVER a table: each row with what its frames hold in the table as it is.

One change can be in the frames of every row of its partition. A step computes the partitions that
it touches anew, and what differs from the operator's own output is its answer.
"""

from collections.abc import Sequence
from dataclasses import replace

from millstream.language.plan.nodes import Over
from millstream.language.plan.sql_text import sql
from millstream.spark.frames import Frame, order_struct, order_text
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.over.frame_texts import valued
from millstream.spark.operators.tables.changes import (
    Touched,
    difference,
    new_of,
    own_table,
    rows_of,
    so_far,
)


class TableOverLogic:
    def evaluate(self, step: Step) -> Answer:
        core = step.operator.core
        assert isinstance(core, Over)
        if not any(i.fresh for i in step.inputs.values()):
            return Answer((), step.after, dict(step.progress))
        version = int(step.progress.get("version", 0)) + 1
        keys = [sql(key) for key in core.partition]
        touched = Touched(step, [(new_of(step, core.input), keys)])
        rows = rows_of(touched.of(so_far(step, core.input), keys))
        own = own_table(step)
        old = None if own is None else touched.of(own, keys)
        frame = difference(_with_values(core, rows, keys), old, version)
        return Answer((Output(step.operator.id, frame),), step.after, {"version": version})


def _with_values(core: Over, rows: Frame, partition: Sequence[str]) -> Frame:
    """The rows with their calls as last columns."""
    by_value = ", ".join(f"{sql(key)} {way}" for key, way in core.order)
    order = f"{by_value}, {order_text(rows)}" if by_value else order_text(rows)
    made = [
        valued(call, frame, i, rows, partition, by_value)
        if frame.by in ("values", "doubles")
        else valued(call, replace(frame, by="rows"), i, rows, partition, order)
        for i, (call, frame) in enumerate(zip(core.calls, core.frames, strict=True))
    ]
    texts = [f"{text} AS {name}" for value in made for name, text in value.columns]
    columns = [f"c{i}" for i in range(rows.width)]
    hidden = {h: h for h in rows.hidden}
    frame = Frame(rows.data.selectExpr("*", *texts), (), 0)
    return _for_peers(core, frame.select(hidden, [*columns, *(v.value for v in made)]), partition)


def _for_peers(core: Over, valued_rows: Frame, partition: Sequence[str]) -> Frame:
    """A frame that ends with a row's peers holds what that of rows does for the last of them."""
    peers = [frame.by == "peers" for frame in core.frames]
    if not any(peers):
        return valued_rows
    width = valued_rows.width - len(peers)
    alike = [*partition, *(sql(key) for key, _ in core.order)]
    rows = Frame(valued_rows.data, valued_rows.hidden, width)
    over = f"OVER (PARTITION BY {', '.join(alike)})" if alike else "OVER ()"
    columns = [f"c{i}" for i in range(width)]
    for number, shared in enumerate(peers, start=width):
        last = f"max_by(struct(c{number} AS v), {order_struct(rows)}) {over}"
        columns.append(f"({last}).v" if shared else f"c{number}")
    return valued_rows.select({h: h for h in valued_rows.hidden}, columns)
