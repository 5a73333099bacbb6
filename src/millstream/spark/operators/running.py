"""Aggregates over everything so far: a relation, told by its changes.

A step merges the partials of new rows with what is known of their groups and emits, for each group
touched, the old row with `-` and the new one with `+`. A `+` carries the partials of its group, so
that the operator's own output is its state: what was added and not taken back. Over an input that
is itself a relation, touched groups are computed anew from the input's table: taking back a double
or a maximum from an aggregate would not be exact. There a group can vanish: its `-` comes alone.
The row of a `-` is always read from the output, never computed again: sums of doubles depend on the
order of their rows, and a `-` that differs from its `+` in the last digit takes nothing back.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import Aggregate, is_relation
from millstream.language.plan.sql_text import sql
from millstream.language.share.dataflow import stream_of
from millstream.spark.frames import Frame, lower, order_struct
from millstream.spark.operators.aggregates import finals, merge, names_of, partial
from millstream.spark.operators.base import Answer, Output, Step

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
    old = present(step.read(step.operator.id, known))
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


def present(frame: Frame) -> Frame:
    """The changes of a relation that were not taken back: they say the same as all of them.

    Each keeps its hidden columns, those of the latest where several are alike.
    """
    columns = frame.data.columns
    latest = "_version" if "_version" in columns else "_ts"
    counted = frame.data.groupBy("_ts", *(f"c{i}" for i in range(frame.width))).agg(
        F.expr("sum(_op)").alias("_times"),
        F.expr(f"max_by(struct({', '.join(columns)}), {latest}) FILTER (WHERE _op = 1)").alias(
            "_row"
        ),
    )
    data = _copied(counted).select("_row.*")
    return Frame(data, frame.hidden, frame.width)


def table(frame: Frame) -> DataFrame:
    """The rows of a relation's table, without what else their changes carry."""
    names = ["_ts", *(f"c{i}" for i in range(frame.width))]
    counted = frame.data.groupBy(*names).agg(F.expr("sum(_op)").alias("_times"))
    return _copied(counted).select(*names)


def _copied(counted: DataFrame) -> DataFrame:
    """Every row as often as it is there."""
    there = counted.where("_times > 0")
    return there.withColumn("_copy", F.expr("explode(sequence(1L, _times))"))


def _from_relation(step: Step, node: Aggregate, version: int) -> Frame:
    """Touched groups anew from the input's table; what was known of them is taken back."""
    keys = [f"k{i}" for i in range(len(node.keys))]
    texts = [(k, sql(e)) for k, e in zip(keys, node.keys, strict=True)]
    touched = _new_rows(step, node).data.selectExpr(*(f"{t} AS {k}" for k, t in texts)).distinct()

    def of_touched(groups: DataFrame, names: Sequence[str]) -> DataFrame:
        if not keys:
            return groups
        same = " AND ".join(f"g.{n} <=> t.{k}" for n, k in zip(names, keys, strict=True))
        return groups.alias("g").join(touched.alias("t"), F.expr(same), "left_semi")

    everything = {stream: (*i.tail, *i.new) for stream, i in step.inputs.items()}
    changes = lower(
        node.input, lambda leaf: step.read(stream_of(leaf), everything[stream_of(leaf)])
    )
    rows = Frame(table(changes), ("_ts",), changes.width)
    groups = of_touched(partial(rows.data, texts, node.calls, order_struct(rows)), keys)
    data = groups.selectExpr("*", f"{version}L AS _version")
    plus = Frame(data, (), 0).select(_hidden(node), finals(keys, node.calls))
    known = [s for s in step.own if s.rows]
    if not known:
        return plus
    old = present(step.read(step.operator.id, known))
    names = [f"c{i}" for i in range(old.width)]
    gone = Frame(of_touched(old.data, names[: len(keys)]), old.hidden, old.width)
    hidden = {
        "_ts": "_ts", "_op": MINUS, "_version": f"{version}L",
        **{f"_{n}": f"IF(TRUE, NULL, _{n})" for n in names_of(node.calls)},
    }  # fmt: skip
    return gone.select(hidden, names).union(plus)
