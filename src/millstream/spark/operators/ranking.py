"""Ranks of the rows of one instant, when the watermark has passed it.

Rows wait in the input's tail until then; there is no other state. Rows that are equal in what they
are ordered by are told apart by position, or by all columns.
"""

from millstream.language.plan.nodes import Ranked
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import stream_of
from millstream.spark.frames import lower, order_text
from millstream.spark.operators.base import Answer, Output, Step


class RankLogic:
    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Ranked)
        found = [s for i in step.inputs.values() for s in (*i.tail, *i.new) if s.rows]
        if step.after <= step.before or not any(s.ts_min < step.after for s in found):
            return Answer((), step.after, {})
        rows = lower(
            node.input,
            lambda leaf: step.read(
                stream_of(leaf), [s for s in found if s.stream == stream_of(leaf)]
            ),
        ).where(f"_ts < {step.after}L")
        if step.before > BEGINNING:
            rows = rows.where(f"_ts >= {step.before}L")
        keys = ", ".join(["_ts", *(sql(k) for k in node.partition)])
        order = ", ".join(f"{sql(k)} {way}" for k, way in node.order)
        ties = f", {order_text(rows)}" if node.function == "row_number" else ""
        rank = f"{node.function}() OVER (PARTITION BY {keys} ORDER BY {order}{ties})"
        columns = [*(f"c{i}" for i in range(rows.width)), rank]
        hidden = {"_ts": "_ts"} | ({"_pos": "_pos"} if "_pos" in rows.hidden else {})
        ranked = rows.select(hidden, columns)
        frame = lower(step.operator.node, lambda _: ranked)
        return Answer((Output(step.operator.id, frame),), step.after, {})
