"""Session aggregates: runs of rows of a group that follow each other within a gap.

New rows become partials of the runs that they make by themselves; runs that touch, among them and
with the open ones that the operator keeps as its state, are merged. A run ends the gap after its
last row: when the watermark has reached that, no row can join it, and it is a result.
"""

from pyspark.sql import DataFrame

from millstream.language.plan.nodes import Aggregate
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import Session
from millstream.language.share.dataflow import state_stream, stream_of
from millstream.spark.frames import Frame, lower, order_struct, steady
from millstream.spark.operators.aggregates import finals, merge, names_of, partial
from millstream.spark.operators.base import Answer, Output, Step
from millstream.store.segments import Segment


class SessionLogic:
    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Aggregate)
        assert isinstance(node.grouping, Session)
        fresh = any(i.fresh for i in step.inputs.values())
        known = [s for s in step.states.get(0, ()) if s.rows]
        if not fresh and not (known and step.after > step.before):
            return Answer((), step.after, {})
        runs = _runs(step, node, node.grouping.gap, known, fresh=fresh)
        end = f"(_latest + {node.grouping.gap}L)"
        keys = _keys(node)
        over = f"{end} <= {steady(step.after, '_latest')}"
        closed = Frame(runs.where(over), (), 0).select({"_ts": end}, finals(keys, node.calls))
        frame = lower(step.operator.node, lambda _: closed)
        columns = ["_begin", *keys, *names_of(node.calls)]
        state = Frame(runs.where(f"NOT ({over})"), (), 0).select({"_ts": "_latest"}, columns)
        outputs = (
            Output(step.operator.id, frame),
            Output(state_stream(step.operator.id), state, replaces=True),
        )
        return Answer(outputs, step.after, {})


def _keys(node: Aggregate) -> list[str]:
    return [f"k{i}" for i in range(len(node.keys))]


def _runs(step: Step, node: Aggregate, gap: int, known: list[Segment], *, fresh: bool) -> DataFrame:
    """All runs that are not yet told: partials by (_begin, keys), `_latest` their last row."""
    keys = _keys(node)
    frames = []
    if fresh:
        rows = lower(
            node.input, lambda leaf: step.read(stream_of(leaf), step.inputs[stream_of(leaf)].new)
        )
        named = (f"{sql(e)} AS {k}" for k, e in zip(keys, node.keys, strict=True))
        begun = _begun(rows.data.selectExpr("*", *named), keys, "_ts", "_ts", gap)
        groups = [(name, name) for name in ("_begin", *keys)]
        frames.append(partial(begun, groups, node.calls, order_struct(rows)))
    if known:
        old = step.read(state_stream(step.operator.id), known)
        names = ["_begin", *keys, *names_of(node.calls)]
        columns = (f"c{i} AS {name}" for i, name in enumerate(names))
        frames.append(old.data.selectExpr(*columns, "_ts AS _latest"))
    runs = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    if not known:
        return runs
    placed = runs.withColumnRenamed("_begin", "_first")
    return merge(_begun(placed, keys, "_first", "_latest", gap), ["_begin", *keys], node.calls)


def _begun(data: DataFrame, keys: list[str], first: str, last: str, gap: int) -> DataFrame:
    """Each run with the beginning of the run that it is a part of, as `_begin`."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    order = f"{by}ORDER BY {first}, {last}"
    before = f"max({last}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    opened = data.selectExpr("*", f"coalesce({first} >= {before} + {gap}L, TRUE) AS _opens")
    begin = f"max(IF(_opens, {first}, NULL)) OVER ({order} ROWS UNBOUNDED PRECEDING)"
    return opened.selectExpr("*", f"{begin} AS _begin")
