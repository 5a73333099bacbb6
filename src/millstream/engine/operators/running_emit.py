"""ISTREAM, DSTREAM, RSTREAM over an unbounded aggregate, at multiples of the slide.

The table at a multiple e is the aggregate of all rows with ts <= e. RSTREAM gives the whole table
at every multiple, ISTREAM what it has that the one before had not, DSTREAM the reverse. The groups'
partials at the last multiple decided are the state.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.engine.dataflow import Operator, running_under, state_stream, stream_of
from millstream.engine.frames import Frame, lower, order_struct
from millstream.engine.operators.aggregates import finals, merge, names_of, partial
from millstream.engine.operators.base import Answer, Output, Step
from millstream.engine.segments import Segment
from millstream.plan.nodes import Aggregate, Emit
from millstream.plan.sql_text import sql
from millstream.plan.windows import BEGINNING, FOREVER


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
        if core.kind == "rstream":
            result = lower(core.input, lambda _: _held(points, node, slide, last))
        else:
            result = _difference(points, node, core)
        frame = lower(step.operator.node, lambda _: result)
        state = _state(parts, node)
        outputs = (
            Output(step.operator.id, frame),
            Output(state_stream(step.operator.id), state, replaces=True),
        )
        return Answer(outputs, step.after, {})

    def reachable(self, operator: Operator, segment: Segment, marks: Mapping[str, int]) -> bool:
        """Rows wait for the first multiple at or after their time."""
        assert isinstance(operator.core, Emit)
        slide = operator.core.slide
        return -(-segment.ts_max // slide) * slide >= min(marks.values())


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
    at = spans.selectExpr("*", f"explode(sequence(_end, _stop, {slide}L)) AS _at")
    return Frame(at, (), 0).select({"_ts": "_at"}, finals(keys, node.calls))


def _difference(points: DataFrame, node: Aggregate, core: Emit) -> Frame:
    """What the table gained (ISTREAM) or lost (DSTREAM) at each change, as multisets."""
    keys = _keys(node)
    values = finals(keys, node.calls)
    rows = points.selectExpr("_end", *keys, *(f"{v} AS c{i}" for i, v in enumerate(values)))
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    row = f"struct({', '.join(f'c{i}' for i in range(len(values)))})"
    paired = rows.selectExpr("*", f"lag({row}) OVER ({by}ORDER BY _end) AS _old")
    width = len(values)
    columns = [f"c{i}" for i in range(width)]
    after = Frame(paired, (), 0).select({"_ts": "_end"}, columns)
    before = Frame(paired.where("_old IS NOT NULL"), (), 0).select(
        {"_ts": "_end"}, [f"_old.{c}" for c in columns]
    )
    gained, lost = (after, before) if core.kind == "istream" else (before, after)
    plus = lower(core.input, lambda _: gained).data.selectExpr("*", "1 AS _sign")
    minus = lower(core.input, lambda _: lost).data.selectExpr("*", "-1 AS _sign")
    shown = len(core.schema)
    names = ["_ts", *(f"c{i}" for i in range(shown))]
    counted = plus.unionByName(minus).groupBy(*names).agg(F.expr("sum(_sign)").alias("_times"))
    copied = counted.where("_times > 0").withColumn("_c", F.expr("explode(sequence(1L, _times))"))
    return Frame(copied.select(*names), ("_ts",), shown)


def _state(parts: DataFrame, node: Aggregate) -> Frame:
    keys = _keys(node)
    merged = merge(parts, keys, node.calls)
    return Frame(merged, (), 0).select({"_ts": "_latest"}, [*keys, *names_of(node.calls)])
