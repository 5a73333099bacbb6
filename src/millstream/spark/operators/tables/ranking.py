"""Ranks over everything so far: a table, of which a step computes the partitions that it touches.

Of a table all rows may come to the front again, so that they are ranked anew. Of a stream rows
only ever come: with a limit, those in the operator's own output and the new ones are all that can
be among the first.
"""

from millstream.language.plan.nodes import Ranked, is_relation
from millstream.language.plan.sql_text import sql
from millstream.spark.frames import Frame, order_text
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.tables.changes import (
    Touched,
    difference,
    new_of,
    own_table,
    rows_of,
    so_far,
)


class TableRankLogic:
    def evaluate(self, step: Step) -> Answer:
        core = step.operator.core
        assert isinstance(core, Ranked)
        if not any(i.fresh for i in step.inputs.values()):
            return Answer((), step.after, dict(step.progress))
        version = int(step.progress.get("version", 0)) + 1
        keys = [sql(k) for k in core.partition]
        new = new_of(step, core.input)
        touched = Touched(step, [(new, keys)])
        own = own_table(step)
        old = None if own is None else touched.of(own, keys)
        if core.limit is not None and not is_relation(core.input):
            rows = rows_of(new)
            if old is not None:
                rows = rows.union(Frame(old.data, rows.hidden, rows.width))
        else:
            rows = rows_of(touched.of(so_far(step, core.input), keys))
        frame = difference(_ranked(core, rows), old, version)
        return Answer((Output(step.operator.id, frame),), step.after, {"version": version})


def _ranked(core: Ranked, rows: Frame) -> Frame:
    by = ", ".join(sql(k) for k in core.partition)
    order = ", ".join(f"{sql(k)} {way}" for k, way in core.order)
    ties = f", {order_text(rows)}" if core.function == "row_number" else ""
    partition = f"PARTITION BY {by} " if by else ""
    rank = f"{core.function}() OVER ({partition}ORDER BY {order}{ties})"
    columns = [*(f"c{i}" for i in range(rows.width)), rank]
    ranked = rows.select({h: h for h in rows.hidden}, columns)
    return ranked if core.limit is None else ranked.where(f"c{rows.width} <= {core.limit}")
