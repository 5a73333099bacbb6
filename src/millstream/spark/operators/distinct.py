"""DISTINCT over rows that stay for ever: the first row of each value, in order of time.

Which values were seen is in the operator's own output.
"""

from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import Distinct
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import stream_of
from millstream.spark.frames import Frame, lower
from millstream.spark.operators.base import Answer, Output, Step


class DistinctLogic:
    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Distinct)
        nothing = Answer((), step.after, {})
        found = [s for i in step.inputs.values() for s in (*i.tail, *i.new) if s.rows]
        if step.after <= step.before or not any(s.ts_min < step.after for s in found):
            return nothing
        rows = lower(
            node.input,
            lambda leaf: step.read(
                stream_of(leaf), [s for s in found if s.stream == stream_of(leaf)]
            ),
        ).where(f"_ts < {step.after}L")
        if step.before > BEGINNING:
            rows = rows.where(f"_ts >= {step.before}L")
        names = [f"c{i}" for i in range(rows.width)]
        both = rows.data.selectExpr("_ts", *names, "FALSE AS _known")
        own = [s for s in step.own if s.rows]
        if own:
            seen = step.read(step.operator.id, own)
            both = both.unionByName(seen.data.selectExpr("_ts", *names, "TRUE AS _known"))
        merged = both.groupBy(*names).agg(
            F.expr("min(_ts)").alias("_ts"), F.expr("bool_or(_known)").alias("_known")
        )
        frame = Frame(merged.where("NOT _known"), (), 0).select({"_ts": "_ts"}, names)
        return Answer((Output(step.operator.id, frame),), step.after, {})
