"""Aggregates over everything so far: a relation, told by its changes.

A step merges the partials of new rows with what is known of their groups and emits, for each group
touched, the old row with `-` and the new one with `+`. The latest `+` of each group carries its
partials, so that the operator's own output is its state. Over an input that is itself a relation,
touched groups are computed anew from the input's table: taking back a double or a maximum from an
aggregate would not be exact.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.plan.nodes import Aggregate, is_relation
from millstream.plan.sql_text import sql
from millstream.share.dataflow import Operator, stream_of
from millstream.spark.frames import Frame, lower, order_struct
from millstream.spark.operators.aggregates import finals, merge, names_of, partial
from millstream.spark.operators.base import Answer, Output, Step
from millstream.store.segments import Segment

PLUS, MINUS = "CAST(1 AS TINYINT)", "CAST(-1 AS TINYINT)"


class RunningLogic:
    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Aggregate)
        version = int(step.progress.get("version", 0)) + 1
        if not any(i.fresh for i in step.inputs.values()):
            return Answer((), step.after, dict(step.progress))
        if is_relation(node.input):
            frame = _from_relation(step, node, version)
        else:
            frame = _from_stream(step, node, version)
        return Answer((Output(step.operator.id, frame),), step.after, {"version": version})

    def reachable(self, operator: Operator, segment: Segment, marks: Mapping[str, int]) -> bool:
        """An input that is a relation is needed as a table for ever."""
        assert isinstance(operator.core, Aggregate)
        return is_relation(operator.core.input)


def _new_rows(step: Step, node: Aggregate) -> Frame:
    return lower(
        node.input, lambda leaf: step.read(stream_of(leaf), step.inputs[stream_of(leaf)].new)
    )


def _hidden(node: Aggregate) -> dict[str, str]:
    """Hidden columns of the changes: time, sign, version, and the group's partials."""
    return {
        "_ts": "_latest",
        "_op": PLUS,
        "_version": "_version",
        **{f"_{name}": name for name in names_of(node.calls)},
    }


def _from_stream(step: Step, node: Aggregate, version: int) -> Frame:
    keys = [f"k{i}" for i in range(len(node.keys))]
    rows = _new_rows(step, node)
    texts = [(k, sql(e)) for k, e in zip(keys, node.keys, strict=True)]
    touched = partial(rows.data, texts, node.calls, order_struct(rows))
    width = len(node.fields)
    known = [s for s in step.own if s.rows]
    if not known:
        fresh = Frame(touched.selectExpr("*", f"{version}L AS _version"), (), 0)
        return fresh.select(_hidden(node), finals(keys, node.calls))
    old = latest(step.read(step.operator.id, known), len(node.keys))
    names = names_of(node.calls)
    old_row = ", ".join(["_ts", *(f"c{i}" for i in range(width))])
    state = old.data.selectExpr(
        *(f"c{i} AS {k}" for i, k in enumerate(keys)),
        *(f"_{n} AS {n}" for n in names),
        "_ts AS _latest",
        f"struct({old_row}) AS _old",
        "FALSE AS _new",
    )
    new = touched.selectExpr(*keys, *names, "_latest", "NULL AS _old", "TRUE AS _new")
    both = new.unionByName(state)
    marks = both.groupBy(*keys).agg(
        F.expr("any_value(_old, TRUE)").alias("_old"), F.expr("bool_or(_new)").alias("_new")
    ).where("_new")  # fmt: skip
    merged = merge(both, keys, node.calls)
    if keys:
        same = F.expr(" AND ".join(f"m.{k} <=> g.{k}" for k in keys))
        joined = merged.alias("m").join(marks.alias("g"), same)
        data = joined.selectExpr(*(f"m.{c}" for c in merged.columns), "g._old")
    else:
        data = merged.crossJoin(marks.select("_old"))
    data = data.selectExpr("*", f"{version}L AS _version")
    plus = Frame(data, (), 0).select(_hidden(node), finals(keys, node.calls))
    hidden = {
        "_ts": "_old._ts", "_op": MINUS, "_version": "_version",
        **{f"_{n}": f"IF(TRUE, NULL, {n})" for n in names},
    }  # fmt: skip
    gone = Frame(data.where("_old IS NOT NULL"), (), 0)
    return gone.select(hidden, [f"_old.c{i}" for i in range(width)]).union(plus)


def latest(frame: Frame, keys: int) -> Frame:
    """The present row of each group of a running aggregate's own output."""
    columns = frame.data.columns
    names = [f"c{i}" for i in range(keys)]
    rest = [c for c in columns if c not in names]
    data = (
        frame.data.where("_op = 1")
        .groupBy(*names)
        .agg(F.expr(f"max_by(struct({', '.join(rest)}), _version)").alias("_row"))
        .selectExpr(*names, "_row.*")
    )
    return Frame(data.select(*columns), frame.hidden, frame.width)


def table(frame: Frame) -> DataFrame:
    """The rows of a relation's table: changes that have not been taken back."""
    names = ["_ts", *(f"c{i}" for i in range(frame.width))]
    counted = frame.data.groupBy(*names).agg(F.expr("sum(_op)").alias("_times"))
    return (
        counted.where("_times > 0")
        .withColumn("_copy", F.expr("explode(sequence(1L, _times))"))
        .select(*names)
    )


def _from_relation(step: Step, node: Aggregate, version: int) -> Frame:
    """Touched groups before and after, each from the input's table."""
    keys = [f"k{i}" for i in range(len(node.keys))]
    texts = [(k, sql(e)) for k, e in zip(keys, node.keys, strict=True)]

    def rows(segments_of: str) -> Frame | None:
        chosen = {
            s: tuple(getattr(i, "tail")) + (i.new if segments_of == "all" else ())  # noqa: B009
            for s, i in step.inputs.items()
        }
        if not any(s.rows for found in chosen.values() for s in found):
            return None
        return lower(node.input, lambda leaf: step.read(stream_of(leaf), chosen[stream_of(leaf)]))

    touched = _new_rows(step, node).data.selectExpr(*(f"{t} AS {k}" for k, t in texts)).distinct()
    results = []
    for which, sign in (("tail", MINUS), ("all", PLUS)):
        frame = rows(which)
        if frame is None:
            continue
        present = Frame(table(frame), ("_ts",), frame.width)
        grouped = partial(present.data, texts, node.calls, order_struct(present))
        if keys:
            same = F.expr(" AND ".join(f"g.{k} <=> t.{k}" for k in keys))
            grouped = grouped.alias("g").join(touched.alias("t"), same, "left_semi")
        grouped = grouped.where("_latest IS NOT NULL").selectExpr("*", f"{version}L AS _version")
        hidden = _hidden(node) | {"_op": sign}
        results.append(Frame(grouped, (), 0).select(hidden, finals(keys, node.calls)))
    return results[0] if len(results) == 1 else results[0].union(results[1])
