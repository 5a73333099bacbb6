"""Semijoins and antijoins: rows of one input by whether they meet a row of another.

Whether a row meets anybody is decided below the watermark: at the first instant at which it does,
or when it leaves without. A step decides the instants from the last watermark to the new one. It
reads the rows of the first input that live in them, and those of the second that lived while any
of these did.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.expressions import Call, Expr, columns_of, conjuncts, total
from millstream.language.plan.nodes import Node, Semijoin
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.language.plan.windows import FOREVER, longer
from millstream.language.share.dataflow import lasting, rows_windows, state_stream
from millstream.spark.frames import Frame, lower
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.intervals import Relation, Span
from millstream.spark.operators.joining import BROADCAST_BYTES, bucket

EQUALITIES = ("=", "<=>")


class SemijoinLogic:
    def evaluate(self, step: Step) -> Answer:
        core = step.operator.core
        assert isinstance(core, Semijoin)
        span = Span(step.before, step.after)
        left, right = core.inputs
        lasts = lasting(left)
        ours = Relation(step, span, left)
        theirs = Relation(step, span, right, longer(lasts, 1) if lasts else 0)
        if span.stop <= span.start or not any(s.rows for s in theirs.segments()):
            return Answer((), step.after, {})
        sides = _Sides(core, _ending(ours, left), _ending(theirs, right), _small(theirs))
        if core.anti:
            rows = _without(sides, span, "_ts" if lasts == 0 else "_until")
        elif lasts == 0:
            rows = _stream(sides.ours.where(span.holds("_ts")), sides, "left_semi")
        else:
            rows = _at_first_partner(sides, span)
        frame = lower(step.operator.node, lambda _: rows)
        outputs = [Output(step.operator.id, frame)]
        outputs += [
            Output(state_stream(step.operator.id, part), theirs.last_rows(window), replaces=True)
            for part, window in enumerate(rows_windows(right))
        ]
        return Answer(tuple(outputs), step.after, {})


@dataclass(frozen=True, slots=True)
class _Sides:
    core: Semijoin
    ours: Frame
    theirs: Frame
    small: bool  # the second input is sent to all tasks

    def other(self) -> DataFrame:
        """The second input under names of its own."""
        width = self.ours.width
        texts = ["_ts AS _ts1", "_until AS _until1"]
        texts += [f"c{i} AS c{width + i}" for i in range(self.theirs.width)]
        return self.theirs.data.selectExpr(*texts)


def _ending(relation: Relation, node: Node) -> Frame:
    frame = relation.of(node)
    return frame if "_until" in frame.hidden else frame.with_hidden(_until=f"{FOREVER}L")


def _small(relation: Relation) -> bool:
    return sum(s.size for s in relation.segments()) < BROADCAST_BYTES


def _stream(ours: Frame, sides: _Sides, how: str, time: str = "_ts") -> Frame:
    """Our rows joined in a way that keeps their columns alone, as rows of a stream."""
    predicates = alternatives(sides.core.predicate) if how == "left_anti" else None
    data = ours.data
    for predicate in predicates or [sides.core.predicate]:
        data = _joined(data, sides, predicate, how)
    kept = Frame(data, ours.hidden, ours.width)
    return kept.select({"_ts": time}, [f"c{i}" for i in range(ours.width)])


def _without(sides: _Sides, span: Span, time: str) -> Frame:
    return _stream(sides.ours.where(span.holds(time)), sides, "left_anti", time)


def _at_first_partner(sides: _Sides, span: Span) -> Frame:
    """Each row that met somebody, at the first instant at which it did, within the span."""
    numbered = sides.ours.data.withColumn("_row", F.monotonically_increasing_id())
    pairs = _joined(numbered, sides, sides.core.predicate, "inner")
    names = [f"c{i}" for i in range(sides.ours.width)]
    row = f"any_value(struct({', '.join(names)}))" if names else "any_value(0)"
    met = pairs.groupBy("_row").agg(
        F.expr("min(greatest(_ts, _ts1))").alias("_at"), F.expr(row).alias("_columns")
    )
    inside = Frame(met.where(span.holds("_at")), (), 0)
    return inside.select({"_ts": "_at"}, [f"_columns.{name}" for name in names])


def alternatives(predicate: Expr | None) -> list[Expr | None]:
    """A row that meets nobody meets nobody by any part of a disjunction: each is a join by keys."""
    if isinstance(predicate, Call) and predicate.name == "or" and total(predicate):
        return [part for arg in predicate.args for part in alternatives(arg)]
    return [predicate]


def _joined(data: DataFrame, sides: _Sides, predicate: Expr | None, how: str) -> DataFrame:
    width = sides.ours.width
    conditions = ["_ts < _until1", "_ts1 < _until"]
    terms = conjuncts(predicate)
    if all(total(t) for t in terms):
        conditions += [sql(t) for t in terms]
    else:  # it mentions both sides, so that Spark evaluates it for rows that meet alone
        conditions += [sql(t) for t in terms if total(t) and links(t, width)]
        conditions.append(f"IF(_ts < _until1, {predicate_sql(predicate)}, FALSE)")
    other = sides.other()
    if not any(links(t, width) for t in terms):
        data, other, conditions = _by_time(data, other, sides.core.inputs, conditions)
    if sides.small:
        other = F.broadcast(other)
    return data.join(other, F.expr(" AND ".join(conditions)), how)


def links(term: Expr, width: int) -> bool:
    """Whether a conjunct equates an expression over one input with one over the other."""
    if not (isinstance(term, Call) and term.name in EQUALITIES and total(term)):
        return False
    a, b = (columns_of(arg) for arg in term.args)
    if not a or not b:
        return False
    return (max(a) < width <= min(b)) or (max(b) < width <= min(a))


def _by_time(
    data: DataFrame, other: DataFrame, inputs: tuple[Node, Node], conditions: Sequence[str]
) -> tuple[DataFrame, DataFrame, list[str]]:
    """Without keys rows meet in buckets of time, as in a join."""
    longest = max(lasting(i) for i in inputs)
    if longest == FOREVER:
        return data, other, list(conditions)
    own = bucket("_ts1", longest + 1)
    near = f"explode(array({own} - 1L, {own}, {own} + 1L))"
    return (
        data.withColumn("_bucket", F.expr(bucket("_ts", longest + 1))),
        other.withColumn("_other", F.expr(near)),
        ["_bucket = _other", *conditions],
    )
