"""Window joins: combinations of rows whose intervals intersect and for which the predicate holds.

Each combination appears once, when the last of its rows to arrive is processed. For inputs 1..n a
step gives the sum over i of: old rows of the inputs before i, new rows of i, all rows of those
after. Equalities between inputs become keys of a hash join; without any, a bucket of time does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.engine.ports import Input
from millstream.language.plan.expressions import (
    Call,
    Expr,
    columns_of,
    conjunction,
    conjuncts,
    total,
)
from millstream.language.plan.nodes import Join, Node
from millstream.language.plan.products import outermost_window
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.language.plan.windows import BEGINNING, FOREVER, Now, Range, reach
from millstream.language.share.dataflow import leaves, stream_of
from millstream.spark.frames import Frame, Leaf, lower, time_bound
from millstream.spark.operators.base import Answer, Output, Step
from millstream.store.segments import Segment

OLD = "_old"  # hidden column: the row was there before this step
BROADCAST_BYTES = 16 << 20  # new rows below this are sent to all tasks instead of shuffled
BROADCAST, IN_PLACE = "broadcast", "shuffle_hash"


class JoinLogic:
    def evaluate(self, step: Step) -> Answer:
        join = step.operator.core
        assert isinstance(join, Join)
        short = not step.prepared and _tails_are_short(step, join)
        terms = [_at_once(step, join)] if short else [
            term
            for position in range(len(join.inputs))
            if (term := _term(step, join, position)) is not None
        ]  # fmt: skip
        outputs: tuple[Output, ...] = ()
        if terms:
            joined = terms[0]
            for other in terms[1:]:
                joined = joined.union(other)
            frame = lower(step.operator.node, lambda _: joined)
            outputs = (Output(step.operator.id, frame),)
        return Answer(outputs, step.after, {})


def _term(step: Step, join: Join, newest: int) -> Frame | None:
    """Combinations with a new row of input `newest` and only old rows of the inputs before it."""
    members: list[Frame] = []
    small: list[bool] = []
    for position, member in enumerate(join.inputs):
        streams = {stream_of(leaf) for leaf in leaves(member)}
        inputs = [step.inputs[s] for s in streams]
        new = [s for i in inputs for s in i.new]
        old = [s for i in inputs for s in i.tail]
        if position == newest:
            chosen = new
        elif position < newest:
            chosen = old
        else:
            chosen = old + new
        if not any(s.rows for s in chosen):
            return None
        horizon = (
            BEGINNING
            if position == newest or step.prepared
            else min(step.inputs[stream_of(leaf)].before for leaf in leaves(join.inputs[newest]))
        )
        members.append(_member(step, member, chosen, horizon))
        small.append(sum(s.size for s in chosen) < BROADCAST_BYTES)
    hint = IN_PLACE if step.prepared else BROADCAST if small[newest] else None
    return combine(join, members, start=newest, hint=hint)


def _tails_are_short(step: Step, join: Join) -> bool:
    """Whether joining old rows with old ones as well costs less than a second join.

    Only for two inputs of one stream each, whose files hold rows of that stream alone: old rows
    are told from new ones by their file.
    """
    if len(join.inputs) != 2 or any(len(list(leaves(m))) != 1 for m in join.inputs):
        return False
    found = [i for i in step.inputs.values() if i.fresh or i.tail]
    segments = [s for i in found for s in (*i.tail, *i.new)]
    if len(found) != len(step.inputs) or any(s.tag is not None for s in segments):
        return False
    old = sum(s.rows for i in found for s in i.tail)
    new = sum(s.rows for i in found for s in i.new)
    return all(any(s.file for s in (*i.tail, *i.new)) for i in found) and old <= new


def _at_once(step: Step, join: Join) -> Frame:
    """One join of all rows with all rows, without the combinations of old ones alone."""
    members = []
    sizes = []
    for member in join.inputs:
        (leaf,) = leaves(member)
        source = step.inputs[stream_of(leaf)]
        rows = _marked(step, source)
        frame = lower(member, _only(rows))
        if "_until" not in frame.hidden:
            frame = frame.with_hidden(_until=f"{FOREVER}L")
        members.append(frame)
        sizes.append(sum(s.size for s in (*source.tail, *source.new)))
    start = sizes.index(min(sizes))
    hint = BROADCAST if min(sizes) < BROADCAST_BYTES else None
    return combine(join, members, start=start, hint=hint)


def _only(rows: Frame) -> Leaf:
    return lambda _: rows


def _marked(step: Step, source: Input) -> Frame:
    """An input's rows, each with whether it was there before this step."""
    frame = step.read(source.stream, (*source.tail, *source.new))
    names = ", ".join(f"'{s.file}'" for s in source.tail if s.file)
    old = f"_metadata.file_name IN ({names})" if names else "FALSE"
    data = frame.data.selectExpr("*", f"{old} AS {OLD}")
    return Frame(data, (*frame.hidden, OLD), frame.width)


def _member(step: Step, member: Node, segments: Sequence[Segment], horizon: int) -> Frame:
    """A member's rows that can still meet a row at or after the horizon."""
    window = outermost_window(member)
    bound = BEGINNING
    if window is not None and isinstance(window.window, Range | Now) and horizon > BEGINNING:
        bound = horizon - reach(window.window)

    rows = sum(s.rows for s in segments)

    def leaf(node: Node) -> Frame:
        stream = stream_of(node)
        frame = step.read(stream, [s for s in segments if s.stream == stream])
        if bound == BEGINNING:
            return frame
        return frame.where(f"_ts >= {time_bound(bound, rows)}")

    frame = lower(member, leaf)
    if step.prepared:  # in one piece, which needs no exchange
        frame = Frame(frame.data.coalesce(1), frame.hidden, frame.width)
    if "_until" not in frame.hidden:
        return frame.with_hidden(_until=f"{FOREVER}L")
    if window is not None or horizon == BEGINNING:
        return frame
    return frame.where(f"_until > {time_bound(horizon, rows)}")


@dataclass(frozen=True, slots=True)
class _Side:
    position: int
    offset: int
    width: int


def combine(join: Join, members: Sequence[Frame], *, start: int, hint: str | None) -> Frame:
    """Joins the members, beginning with one of them, by keys wherever the predicate has any.

    `hint` tells Spark how to hold the one it begins with.
    """
    sides, offset = [], 0
    for position, node in enumerate(join.inputs):
        sides.append(_Side(position, offset, len(node.schema)))
        offset += len(node.schema)
    owner = {side.offset + c: side.position for side in sides for c in range(side.width)}
    terms = conjuncts(join.predicate)
    keys = [t for t in terms if total(t) and _equality(t, owner)]
    frames = {s.position: _renamed(members[s.position], s) for s in sides}
    done = [start]
    data = frames[start].data
    if hint is not None:
        data = data.hint(hint)
    pending = [s.position for s in sides if s.position != start]
    applied: set[int] = set()
    while pending:
        following = next(
            (p for p in pending if any(_links(k, owner, done, p) for k in keys)), pending[0]
        )
        pending.remove(following)
        conditions = [f"(_ts{p} < _until{following} AND _ts{following} < _until{p})" for p in done]
        inside = {*done, following}
        if all(OLD in members[p].hidden for p in inside):
            conditions.append(f"NOT ({' AND '.join(f'{OLD}{p}' for p in sorted(inside))})")
        for number, term in enumerate(terms):
            if number in applied or not {owner[c] for c in columns_of(term)} <= inside:
                continue
            if total(term):
                conditions.append(sql(term))
                applied.add(number)
        if any(_links(k, owner, done, following) for k in keys):
            data = data.join(frames[following].data, F.expr(" AND ".join(conditions)))
        else:
            data = _join_by_time(join, data, frames[following].data, done, following, conditions)
        done.append(following)
    if len(applied) < len(terms):
        # those that can raise: again in the order in which they stand, behind their guards
        data = data.where(predicate_sql(conjunction(terms)))
    ends = [s.position for s in sides]
    hidden = {
        "_ts": f"greatest({', '.join(f'_ts{p}' for p in ends)})",
        "_until": f"least({', '.join(f'_until{p}' for p in ends)})",
    }
    names = [f"c{i}" for i in range(offset)]
    return Frame(data, (), 0).select(hidden, names)


def _renamed(frame: Frame, side: _Side) -> Frame:
    texts = [f"_ts AS _ts{side.position}", f"_until AS _until{side.position}"]
    texts += [f"{OLD} AS {OLD}{side.position}"] if OLD in frame.hidden else []
    texts += [f"c{i} AS c{side.offset + i}" for i in range(side.width)]
    return Frame(frame.data.selectExpr(*texts), (), 0)


def _equality(term: Expr, owner: dict[int, int]) -> bool:
    """Whether a conjunct equates an expression over one input with one over another."""
    match term:
        case Call("=" | "<=>", (left, right)):
            a = {owner[c] for c in columns_of(left)}
            b = {owner[c] for c in columns_of(right)}
            return len(a) == 1 and len(b) == 1 and a != b
        case _:
            return False


def _links(term: Expr, owner: dict[int, int], done: Sequence[int], following: int) -> bool:
    owners = {owner[c] for c in columns_of(term)}
    return following in owners and bool(owners & set(done)) and owners <= {*done, following}


def _join_by_time(
    join: Join,
    left: DataFrame,
    right: DataFrame,
    done: Sequence[int],
    following: int,
    conditions: Sequence[str],
) -> DataFrame:
    """A join without keys: rows meet in buckets of time, never in a cartesian product.

    Intervals that intersect begin at most the longest window apart, so that with buckets of that
    length one row's bucket is the other's or a neighbour of it.
    """
    lengths = [_length(join.inputs[p]) for p in (*done, following)]
    if FOREVER in lengths:
        return left.join(right, F.expr(" AND ".join(conditions)))
    length = max(lengths) + 1
    keyed_left = left.withColumn("_bucket", F.expr(bucket(f"_ts{done[0]}", length)))
    own = bucket(f"_ts{following}", length)
    keyed_right = right.withColumn(
        "_other", F.expr(f"explode(array({own} - 1L, {own}, {own} + 1L))")
    )
    condition = " AND ".join(["_bucket = _other", *conditions])
    return keyed_left.join(keyed_right, F.expr(condition)).drop("_bucket", "_other")


def bucket(column: str, length: int) -> str:
    return f"(({column} - pmod({column}, {length}L)) DIV {length}L)"


def _length(member: Node) -> int:
    window = outermost_window(member)
    return FOREVER if window is None else reach(window.window)
