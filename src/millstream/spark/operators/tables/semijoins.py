"""Semijoins and antijoins of tables that change: IN, EXISTS, outer joins, and NOT before each.

A row of the first table stands or falls with the rows of the second that have its key. A step
computes the result anew for the keys that changes of either side have, from both tables.
"""

from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.expressions import (
    Call,
    Expr,
    columns_of,
    conjuncts,
    shift,
    total,
)
from millstream.language.plan.nodes import Semijoin
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.spark.frames import Frame
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.semijoins import alternatives, links
from millstream.spark.operators.tables.changes import (
    Touched,
    difference,
    new_of,
    own_table,
    rows_of,
    so_far,
)


class TableSemijoinLogic:
    def evaluate(self, step: Step) -> Answer:
        core = step.operator.core
        assert isinstance(core, Semijoin)
        if not any(i.fresh for i in step.inputs.values()):
            return Answer((), step.after, dict(step.progress))
        version = int(step.progress.get("version", 0)) + 1
        ours, theirs = _keys(core)
        left, right = core.inputs
        touched = Touched(step, [(new_of(step, left), ours), (new_of(step, right), theirs)])
        rows = rows_of(touched.of(so_far(step, left), ours))
        others = rows_of(touched.of(so_far(step, right), theirs))
        now = _met(core, rows, others)
        old = own_table(step)
        told = None if old is None else touched.of(old, ours)
        frame = difference(now, told, version)
        return Answer((Output(step.operator.id, frame),), step.after, {"version": version})


def _keys(core: Semijoin) -> tuple[list[str], list[str]]:
    """What the predicate equates: expressions over the first input, and over the second."""
    width = len(core.inputs[0].schema)
    ours: list[str] = []
    theirs: list[str] = []
    for term in conjuncts(core.predicate):
        if isinstance(term, Call) and links(term, width):
            first, second = sorted(term.args, key=lambda e: max(columns_of(e)))
            ours.append(sql(first))
            theirs.append(sql(shift(second, -width)))
    return ours, theirs


def _met(core: Semijoin, rows: Frame, others: Frame) -> Frame:
    """The rows that meet one of the others, or with anti none."""
    texts = ["_ts AS _ts1", *(f"c{i} AS c{rows.width + i}" for i in range(others.width))]
    data, other = rows.data, others.data.selectExpr(*texts)
    predicates = alternatives(core.predicate) if core.anti else [core.predicate]
    how = "left_anti" if core.anti else "left_semi"
    for predicate in predicates:
        data = data.join(other, F.expr(_condition(predicate, rows.width)), how)
    return Frame(data, ("_ts",), rows.width).select(
        {"_ts": "_ts"}, [f"c{i}" for i in range(rows.width)]
    )


def _condition(predicate: Expr | None, width: int) -> str:
    terms = conjuncts(predicate)
    if all(total(t) for t in terms):
        return " AND ".join(sql(t) for t in terms) or "TRUE"
    # it mentions both sides, so that Spark evaluates what can raise for rows that meet alone
    keys = [sql(t) for t in terms if links(t, width)]
    both = f"IF(_ts <= _ts1 OR _ts > _ts1, {predicate_sql(predicate)}, FALSE)"
    return " AND ".join([*keys, both])
