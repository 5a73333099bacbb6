"""ISTREAM, DSTREAM, RSTREAM over an unbounded aggregate, at multiples of the slide.

The table at a multiple e is the aggregate of all rows with ts <= e. RSTREAM gives the whole table
at every multiple, ISTREAM what it has that the one before had not, DSTREAM the reverse. The groups'
partials at the last multiple decided are the state.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import Aggregate, Emit, Node, inputs_of, is_relation
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.dataflow import running_under, state_stream, stream_of
from millstream.spark.frames import Frame, lower, multiples, order_struct
from millstream.spark.operators.aggregates import finals, merge, names_of, partial
from millstream.spark.operators.base import Answer, Output, Step


class RunningEmitLogic:
    def evaluate(self, step: Step) -> Answer:
        core = step.operator.core
        assert isinstance(core, Emit)
        node = running_under(core)
        slide = core.slide
        first = BEGINNING if step.before == BEGINNING else -(-step.before // slide) * slide
        last = (step.after - 1) // slide * slide
        if step.after == FOREVER:
            last = -(-step.last_row // slide) * slide
        nothing = Answer((), step.after, {})
        if step.after == BEGINNING or last < first or step.last_row == BEGINNING:
            return nothing
        parts = _partials(step, node, slide, first, last)
        if parts is None:
            return nothing
        points = _tables(parts, node, core, first)
        if _nested(core):
            result = _nested_result(points, node, core, first, last)
        elif core.kind == "rstream":
            result = lower(core.input, lambda _: _held(points, node, slide, last))
        else:
            result = _difference(points, node, core, first)
        frame = lower(step.operator.node, lambda _: result)
        state = _state(parts, node)
        outputs = (
            Output(step.operator.id, frame),
            Output(state_stream(step.operator.id), state, replaces=True),
        )
        return Answer(outputs, step.after, {})


def _keys(node: Aggregate) -> list[str]:
    return [f"k{i}" for i in range(len(node.keys))]


def _partials(step: Step, node: Aggregate, slide: int, first: int, last: int) -> DataFrame | None:
    """Partials by (_end, keys) of the rows of this span, and what was known before it."""
    found = [s for i in step.inputs.values() for s in (*i.tail, *i.new) if s.rows]
    known = [s for s in step.states.get(0, ()) if s.rows]
    frames: list[DataFrame] = []
    end = f"(_ts + pmod(-_ts, {slide}L))"
    if any(s.ts_min <= last for s in found):
        rows = lower(
            node.input,
            lambda leaf: step.read(
                stream_of(leaf), [s for s in found if s.stream == stream_of(leaf)]
            ),
        )
        inside = f"{end} <= {last}L" + (f" AND {end} >= {first}L" if first > BEGINNING else "")
        texts = [("_end", end), *((f"k{i}", sql(e)) for i, e in enumerate(node.keys))]
        frames.append(partial(rows.where(inside).data, texts, node.calls, order_struct(rows)))
    if known:
        old = step.read(state_stream(step.operator.id), known)
        names = names_of(node.calls)
        frames.append(
            old.data.selectExpr(
                f"{first - slide}L AS _end",
                *(f"c{i} AS {k}" for i, k in enumerate(_keys(node))),
                *(f"c{len(node.keys) + i} AS {n}" for i, n in enumerate(names)),
                "_ts AS _latest",
            )
        )
    if not frames:
        return None
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _tables(parts: DataFrame, node: Aggregate, core: Emit, first: int) -> DataFrame:
    """Each group's merged partials where it changes and, for RSTREAM, at the first multiple."""
    keys = _keys(node)
    ends = parts.select("_end", *keys).distinct()
    if core.kind == "rstream" and first > BEGINNING:
        begin = parts.where(f"_end < {first}L").selectExpr(f"{first}L AS _end", *keys)
        ends = ends.where(f"_end >= {first}L").unionByName(begin).distinct()
    same = ["p._end <= e._end", *(f"p.{k} <=> e.{k}" for k in keys)]
    joined = ends.alias("e").join(parts.alias("p"), F.expr(" AND ".join(same)))
    columns = ["e._end", *(f"e.{k}" for k in keys), *names_of(node.calls), "_latest"]
    return merge(joined.selectExpr(*columns), ["_end", *keys], node.calls)


def _held(points: DataFrame, node: Aggregate, slide: int, last: int) -> Frame:
    """Each group's row at every multiple from one change to the next."""
    keys = _keys(node)
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    following = f"lead(_end) OVER ({by}ORDER BY _end)"
    spans = points.selectExpr("*", f"coalesce({following} - {slide}L, {last}L) AS _stop")
    at = spans.selectExpr("*", f"{multiples('_end', '_stop', slide)} AS _at")
    return Frame(at, (), 0).select({"_ts": "_at"}, finals(keys, node.calls))


def _difference(points: DataFrame, node: Aggregate, core: Emit, first: int) -> Frame:
    """What the table gained (ISTREAM) or lost (DSTREAM) at each change, as multisets."""
    keys = _keys(node)
    values = finals(keys, node.calls)
    rows = points.selectExpr("_end", *keys, *(f"{v} AS c{i}" for i, v in enumerate(values)))
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    row = f"struct({', '.join(f'c{i}' for i in range(len(values)))})"
    paired = rows.selectExpr("*", f"lag({row}) OVER ({by}ORDER BY _end) AS _old")
    if first > BEGINNING:
        paired = paired.where(f"_end >= {first}L")  # what was known before is no change
    width = len(values)
    columns = [f"c{i}" for i in range(width)]
    after = Frame(paired, (), 0).select({"_ts": "_end"}, columns)
    before = Frame(paired.where("_old IS NOT NULL"), (), 0).select(
        {"_ts": "_end"}, [f"_old.{c}" for c in columns]
    )
    gained, lost = (after, before) if core.kind == "istream" else (before, after)
    return _without(
        lower(core.input, lambda _: gained), lower(core.input, lambda _: lost), len(core.schema)
    )


def _without(kept: Frame, taken: Frame, width: int) -> Frame:
    """The rows of one table that another of the same time has not, as multisets."""
    plus = kept.data.selectExpr("*", "1 AS _sign")
    minus = taken.data.selectExpr("*", "-1 AS _sign")
    names = ["_ts", *(f"c{i}" for i in range(width))]
    counted = plus.unionByName(minus).groupBy(*names).agg(F.expr("sum(_sign)").alias("_times"))
    copied = counted.where("_times > 0").withColumn("_c", F.expr("explode(sequence(1L, _times))"))
    return Frame(copied.select(*names), ("_ts",), width)


# -- relations over relations ---------------------------------------------------------------------


def _nested(core: Emit) -> bool:
    """Whether further unbounded aggregates lie above the lowest one."""
    return any(isinstance(n, Aggregate) and is_relation(n.input) for n in _chain(core.input))


def _chain(node: Node) -> list[Node]:
    found = [node]
    while not (isinstance(node, Aggregate) and not is_relation(node.input)):
        (node,) = inputs_of(node)
        found.append(node)
    return found


def _nested_result(points: DataFrame, node: Aggregate, core: Emit, first: int, last: int) -> Frame:
    """Whole tables at every multiple at which anything changed, then held or compared.

    An aggregate over a table can change wherever the table does, so each table is told in full.
    """
    slide = core.slide
    moments = points.select("_end").distinct()
    steps = moments.selectExpr("_end", "lead(_end) OVER (ORDER BY _end) AS _following")
    keys = _keys(node)
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    spans = points.selectExpr("*", f"lead(_end) OVER ({by}ORDER BY _end) AS _next")
    held = spans.join(
        steps.selectExpr("_end AS _at", "_following"),
        F.expr("_end <= _at AND (_next IS NULL OR _at < _next)"),
    )
    lowest = Frame(held, (), 0).select(
        {"_ts": "_at", "_next": "_following"}, finals(keys, node.calls)
    )
    table = _table(core.input, node, lowest)
    names = [f"c{i}" for i in range(table.width)]
    if core.kind == "rstream":
        stop = f"coalesce(_next - {slide}L, {last}L)"
        low = f"greatest(_ts, {first}L)" if first > BEGINNING else "_ts"
        at = table.data.selectExpr(*names, f"{multiples(low, stop, slide)} AS _ts")
        return Frame(at, ("_ts",), table.width)
    present = table.select({"_ts": "_ts"}, names)
    previous = Frame(table.data.where("_next IS NOT NULL"), table.hidden, table.width).select(
        {"_ts": "_next"}, names
    )
    kept, taken = (present, previous) if core.kind == "istream" else (previous, present)
    changed = _without(kept, taken, table.width)
    return changed.where(f"_ts >= {first}L") if first > BEGINNING else changed


def _table(node: Node, lowest: Aggregate, rows: Frame) -> Frame:
    """A relation's table at each moment, from the table of its lowest aggregate."""

    def leaf(found: Node) -> Frame:
        if found is lowest:
            return rows
        assert isinstance(found, Aggregate)
        below = _table(found.input, lowest, rows)
        keys = [("_at", "_ts"), ("_following", "_next")]
        keys += [(f"k{i}", sql(e)) for i, e in enumerate(found.keys)]
        grouped = partial(below.data, keys, found.calls, order_struct(below))
        return Frame(grouped, (), 0).select(
            {"_ts": "_at", "_next": "_following"}, finals(_keys(found), found.calls)
        )

    return lower(node, leaf)


def _state(parts: DataFrame, node: Aggregate) -> Frame:
    keys = _keys(node)
    merged = merge(parts, keys, node.calls)
    return Frame(merged, (), 0).select({"_ts": "_latest"}, [*keys, *names_of(node.calls)])
