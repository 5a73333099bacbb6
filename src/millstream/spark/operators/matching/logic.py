"""Matches of row patterns, as the watermark decides them.

A step takes the rows below the new watermark that no step has seen, after those that the operator
keeps as its state: the rows from the first undecided one of each partition on, and the few before
it at which PREV looks. Spark orders them, computes whatever hangs on one row, and has a Python
worker walk through each partition (`machine.py`); of the rows that match it makes the measures.
"""

from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from millstream.language.plan.nodes import Matched
from millstream.language.plan.row_patterns import Leaf, Term, program, variables_of
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.language.plan.windows import BEGINNING, FOREVER, OverFrame
from millstream.language.share.dataflow import state_stream, stream_of
from millstream.spark.frames import Frame, lower, order_text, steady
from millstream.spark.operators.aggregates import finals, partial
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.matching import machine, terms
from millstream.spark.operators.over.frame_texts import valued
from millstream.store.segments import Segment

SO_FAR, WHOLE = OverFrame("rows", BEGINNING), OverFrame("rows", BEGINNING, FOREVER)
EPOCH = "TIMESTAMP'1970-01-01 00:00:00Z'"
CARRIED = {
    "_class": StringType(), "_match": LongType(), "_nth": IntegerType(), "_back": IntegerType(),
    "_place": IntegerType(), "_place_back": IntegerType(),
}  # fmt: skip

# workers need not have this package
for module in (machine, terms):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class MatchLogic:
    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Matched)
        known = [s for s in step.states.get(0, ()) if s.rows]
        open_from = min((s.ts_min for s in known), default=FOREVER)
        fresh = [
            s
            for i in step.inputs.values()
            for s in (*i.tail, *i.new)
            if s.rows and s.ts_min < step.after and s.ts_max >= step.before
        ]
        mark = _watermark(step, node, open_from, fresh)
        if step.after <= step.before or not (fresh or _decides(step, node, open_from)):
            return Answer((), mark, {})
        rows = _rows(step, node, known, fresh)
        ready, payload = _prepared(rows, node)
        orders = _orders(node, step.after, payload)
        matched = _matched(ready, node, orders, payload)
        frame = lower(step.operator.node, lambda _: matched)
        state = _state(ready, rows, orders, payload)
        outputs = (
            Output(step.operator.id, frame),
            Output(state_stream(step.operator.id), state, replaces=True),
        )
        return Answer(outputs, mark, {})


def _decides(step: Step, node: Matched, open_from: int) -> bool:
    """Whether time alone decides about rows that wait."""
    if step.after == FOREVER:
        return open_from < FOREVER
    return node.spec.within is not None and open_from + node.spec.within <= step.after


def _watermark(step: Step, node: Matched, open_from: int, fresh: list[Segment]) -> int:
    """No later match ends before this: none begins before the first row that was undecided when
    the step began, nor before one that a full WITHIN has passed since."""
    if step.after == FOREVER:
        return FOREVER
    mark = min(open_from, step.before if fresh else step.after)
    if node.spec.within is not None:
        mark = max(mark, min(step.after - node.spec.within + 1, step.after))
    return mark


def _rows(step: Step, node: Matched, known: list[Segment], fresh: list[Segment]) -> Frame:
    """All rows that this step looks at: columns of the input, then whether a row is decided, and
    how many matches its partition had."""
    made = lower(
        node.input,
        lambda leaf: step.read(stream_of(leaf), [s for s in fresh if s.stream == stream_of(leaf)]),
    ).where(f"_ts < {steady(step.after)}")
    if step.before > BEGINNING:
        made = made.where(f"_ts >= {steady(step.before)}")
    width = made.width
    columns = [f"c{i}" for i in range(width)]
    hidden = {h: h for h in made.hidden if h in ("_ts", "_pos")}
    rows = made.select(hidden, [*columns, "FALSE", "0L"])
    if known:
        old = step.read(state_stream(step.operator.id), known)
        placed = {"_ts": f"c{width + 2}"} | ({"_pos": f"c{width + 3}"} if "_pos" in hidden else {})
        rows = rows.union(old.select(placed, [*columns, f"c{width}", f"c{width + 1}"]))
    return Frame(rows.data, rows.hidden, width)


def _prepared(rows: Frame, node: Matched) -> tuple[DataFrame, tuple[str, ...]]:
    """Rows by partition, in order, with all that hangs on one of them; and what is handed on."""
    spec = node.spec
    by = ", ".join(sql(key) for key in node.keys)
    over = f"OVER ({f'PARTITION BY {by} ' if by else ''}ORDER BY {order_text(rows)})"
    looks = [f"c{rows.width + i}" for i in range(len(spec.looks))]
    placed = [
        *rows.hidden,
        *(f"c{i}" for i in range(rows.width)),
        f"c{rows.width} AS _decided",
        f"c{rows.width + 1} AS _count",
        f"row_number() {over} = 1 AS _first",
    ]
    seen = [
        f"lag({sql(look.value)}, {look.back}) {over} AS {name}"
        for look, name in zip(spec.looks, looks, strict=True)
    ]
    # a look is over columns alone, so that one pass computes them all
    data = rows.data.selectExpr(*placed, *seen)
    own = [
        f"coalesce({predicate_sql(c.own)}, FALSE) AS b{v}"
        for v, c in enumerate(spec.conditions)
        if c.own is not None
    ]
    leaves = [f"{_plain(leaf)} AS l{i}" for i, leaf in enumerate(spec.leaves)]
    payload = (*rows.hidden, *(f"c{i}" for i in range(rows.width)), *looks)
    return data.selectExpr(*payload, "_decided", "_count", "_first", *own, *leaves), payload


def _plain(leaf: Leaf) -> str:
    """A leaf's value as the workers take it: times and intervals as microseconds."""
    if leaf.value is None:
        return "TRUE"
    text = sql(leaf.value)
    of = leaf.type
    if of == "timestamp":
        return f"unix_micros({text})"
    if of.startswith("interval"):
        return f"unix_micros({EPOCH} + {text})"
    return text


def _orders(node: Matched, after: int, payload: tuple[str, ...]) -> machine.Orders:
    spec = node.spec
    names = tuple(dict.fromkeys(variables_of(spec.pattern)))
    numbers = {name: i for i, name in enumerate(names)}
    return machine.Orders(
        program(spec.pattern),
        names,
        tuple(c.own is not None for c in spec.conditions),
        tuple(tuple(_told(term) for term in c.others) for c in spec.conditions),
        tuple((e.kind, numbers.get(e.variable or "", -1), e.offset, e.type) for e in spec.leaves),
        spec.within,
        spec.skip.kind,
        numbers.get(spec.skip.variable, -1),
        spec.context,
        after,
        after == FOREVER,
        payload,
        node.unmatched,
    )


def _told(term: Term | int) -> Any:
    if isinstance(term, int):
        return term
    return term.name, term.type, tuple(_told(arg) for arg in term.args)


def _matched(
    ready: DataFrame, node: Matched, orders: machine.Orders, payload: tuple[str, ...]
) -> Frame:
    """One row for each match, or with `finals` each of its rows."""
    fields = [ready.schema[name] for name in payload]
    schema = StructType([*fields, *(StructField(name, kind) for name, kind in CARRIED.items())])
    found = ready.mapInArrow(machine.finder(orders, state=False), schema)
    first = sum(name.startswith("c") for name in payload)
    named = found.selectExpr(
        *payload, *CARRIED, *(f"{name} AS c{first + i}" for i, name in enumerate(CARRIED))
    )
    if node.finals is not None:
        return _all_rows(node, named, payload)
    keys = [(f"k{i}", sql(e)) for i, e in enumerate(node.keys)]
    grouped = partial(named, [("_number", "_match"), *keys], node.calls, "_place")
    values = finals([k for k, _ in keys], node.calls)
    return Frame(grouped, (), 0).select({"_ts": "_latest"}, values)


def _all_rows(node: Matched, named: DataFrame, payload: tuple[str, ...]) -> Frame:
    """Each row of each match, with calls over the rows up to it, or over all of them."""
    assert node.finals is not None
    width = len(node.input.schema)
    rows = Frame(named, tuple(h for h in ("_ts", "_pos") if h in payload), width)
    match_of = [*(sql(key) for key in node.keys), "_match"]
    made = [
        valued(call, WHOLE if final else SO_FAR, i, rows, match_of, "_place")
        for i, (call, final) in enumerate(zip(node.calls, node.finals, strict=True))
    ]
    texts = [f"{text} AS {name}" for value in made for name, text in value.columns]
    values = [f"IF(_match IS NULL, NULL, {v.value})" if node.unmatched else v.value for v in made]
    columns = [*(f"c{i}" for i in range(width)), *values]
    return Frame(named.selectExpr("*", *texts), (), 0).select({"_ts": "_ts"}, columns)


def _state(
    ready: DataFrame, rows: Frame, orders: machine.Orders, payload: tuple[str, ...]
) -> Frame:
    """Undecided rows, and decided ones that are still looked at; those hold no watermark back."""
    more = [StructField("_decided", BooleanType()), StructField("_count", LongType())]
    schema = StructType([*(ready.schema[name] for name in payload), *more])
    kept = ready.mapInArrow(machine.finder(orders, state=True), schema)
    columns = [*(f"c{i}" for i in range(rows.width)), "_decided", "_count", "_ts"]
    position = ["_pos"] if "_pos" in rows.hidden else []
    hidden = {"_ts": f"IF(_decided, {FOREVER}L, _ts)"}
    return Frame(kept, (), 0).select(hidden, [*columns, *position])
