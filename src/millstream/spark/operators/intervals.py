"""Operators that look at instants below the watermark.

Windows of rows, joins over them, DISTINCT over windows, DSTREAM, RSTREAM, and aggregates at the
instants where rows change or at multiples of a slide. They process the instants from the last
watermark to the new one: the relation is every row whose interval touches that span. A window of
rows keeps its last rows in a state stream, because their ends are not known yet.
"""

from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Windowed,
)
from millstream.language.plan.products import outermost_window
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import (
    BEGINNING,
    FOREVER,
    Change,
    Now,
    Range,
    Rows,
    Snapshot,
    end_from,
    end_until,
    reach,
)
from millstream.language.share.dataflow import (
    change_below,
    distinct_input,
    has_rows,
    relation_of,
    rows_windows,
    state_stream,
    stream_of,
)
from millstream.spark.frames import (
    Frame,
    lower,
    multiples,
    order_struct,
    order_text,
)
from millstream.spark.operators.aggregates import finals, partial
from millstream.spark.operators.base import Answer, Output, Step
from millstream.spark.operators.joining import combine
from millstream.store.segments import Segment


@dataclass(frozen=True, slots=True)
class Span:
    """Instants [start, stop) that this step decides."""

    start: int
    stop: int

    def holds(self, text: str) -> str:
        """SQL: whether a time lies in the span."""
        tests = [f"{text} >= {self.start}L"] if self.start > BEGINNING else []
        # an interval without end never ends, also not at the end of the stream
        tests.append(f"{text} < {self.stop}L")
        return f"({' AND '.join(tests)})"


class IntervalLogic:
    def evaluate(self, step: Step) -> Answer:
        core = step.operator.core
        assert core is not None
        span = Span(step.before, step.after)
        if span.stop <= span.start:
            return Answer((), step.after, {})
        relation = relation_of(core)
        rows = Relation(step, span, relation)
        if not any(s.rows for s in rows.segments()):
            return Answer((), step.after, {})
        alive = rows.of(relation)
        if "_until" not in alive.hidden:
            alive = alive.with_hidden(_until=f"{FOREVER}L")
        unique = distinct_input(core)
        if unique is not None and (change := change_below(unique)) is not None:
            held = _between_changes(change, alive, span)
            alive = lower(unique, lambda _: held)
        result = _result(core, alive, span, step)
        frame = lower(step.operator.node, lambda _: result)
        outputs = [Output(step.operator.id, frame)]
        outputs += [
            Output(state_stream(step.operator.id, part), rows.last_rows(window), replaces=True)
            for part, window in enumerate(rows_windows(relation))
        ]
        return Answer(tuple(outputs), step.after, {})


class Relation:
    """Rows whose intervals touch a span, read from tails, new segments and kept last rows.

    `earlier_us` lengthens the span to before its start, for rows that need no kept last ones.
    """

    def __init__(self, step: Step, span: Span, root: Node, earlier_us: int = 0) -> None:
        self.step, self.span = step, span
        self.windows = rows_windows(root)
        bounded = span.start > BEGINNING and earlier_us < FOREVER
        self._earliest = span.start - earlier_us if bounded else BEGINNING

    def segments(self) -> list[Segment]:
        inputs = self.step.inputs.values()
        kept = [s for part in self.step.states.values() for s in part]
        return [s for i in inputs for s in (*i.tail, *i.new)] + kept

    def of(self, node: Node) -> Frame:
        """A node's rows with their intervals; ends that are not yet known are open."""
        if isinstance(node, Join) and has_rows(node):
            return self._join(node)
        below = _through(node)
        if isinstance(below, Join) and has_rows(below):
            return lower(node, lambda n: self._join(n) if n is below else self._leaf(n, node))
        return lower(node, lambda leaf: self._leaf(leaf, node))

    def _join(self, join: Node) -> Frame:
        assert isinstance(join, Join)
        members = []
        for child in join.inputs:
            frame = self.of(child)
            members.append(
                frame if "_until" in frame.hidden else frame.with_hidden(_until=f"{FOREVER}L")
            )
        return combine(join, members, start=0, hint=None)

    def _leaf(self, leaf: Node, root: Node) -> Frame:
        if isinstance(leaf, Windowed):
            return self._rows_window(leaf)
        frame = self._read(leaf)
        window = outermost_window(root)
        start = self._earliest
        if window is not None and isinstance(window.window, Range | Now) and start > BEGINNING:
            return frame.where(f"_ts >= {start - reach(window.window) - 1}L")
        if window is None and "_until" in frame.hidden and start > BEGINNING:
            return frame.where(f"_until >= {start}L")
        return frame

    def _read(self, leaf: Node) -> Frame:
        """All that is there of a stream and lies before the end of the span."""
        source = self.step.inputs[stream_of(leaf)]
        found = [s for s in (*source.tail, *source.new) if s.rows and s.ts_min < self.span.stop]
        return self.step.read(source.stream, found).where(f"_ts < {self.span.stop}L")

    def _all_rows(self, window: Windowed) -> Frame:
        """Kept last rows and rows of the span, in the columns below the window."""
        fresh = lower(window.input, self._read)
        if self.span.start > BEGINNING:
            fresh = fresh.where(f"_ts >= {self.span.start}L")
        if "_until" in fresh.hidden:
            fresh = fresh.without("_until")
        kept = self.step.states.get(self._part(window), ())
        if not any(s.rows for s in kept):
            return fresh
        old = self.step.read(state_stream(self.step.operator.id, self._part(window)), kept)
        return fresh.union(old)

    def _part(self, window: Windowed) -> int:
        return next(i for i, w in enumerate(self.windows) if w is window)

    def _rows_window(self, window: Windowed) -> Frame:
        """Each row ends with the n-th next one; rows that end where they begin are never seen."""
        rows = self._all_rows(window)
        assert isinstance(window.window, Rows)
        over = f"OVER ({_partition(window.window)}ORDER BY {order_text(rows)})"
        until = f"coalesce(lead(_ts, {window.window.count}) {over}, {FOREVER}L)"
        return rows.with_hidden(_until=until).where("_until > _ts")

    def last_rows(self, window: Windowed) -> Frame:
        """The rows whose end is still open after this span: the last n of each partition."""
        rows = self._all_rows(window)
        assert isinstance(window.window, Rows)
        over = f"OVER ({_partition(window.window)}ORDER BY {order_text(rows, descending=True)})"
        ranked = rows.data.selectExpr("*", f"row_number() {over} AS _rank")
        return Frame(
            ranked.where(f"_rank <= {window.window.count}").drop("_rank"), rows.hidden, rows.width
        )


def _through(node: Node) -> Node:
    """What lies below a chain of filters and projections."""
    while isinstance(node, Filter | Project):
        node = node.input
    return node


def _partition(window: Rows) -> str:
    if not window.partition:
        return ""
    return f"PARTITION BY {', '.join(sql(e) for e in window.partition)} "


def _result(core: Node, alive: Frame, span: Span, step: Step) -> Frame:
    match core:
        case Aggregate(grouping=Change()):
            return _at_changes(core, alive, span)
        case Emit() if (
            not isinstance(core.input, Distinct)
            and (change := change_below(core.input)) is not None
        ):
            held = (
                _at_changes(change, alive, span, before=True)
                if core.kind == "dstream"
                else _groups_at_multiples(change, core.slide, alive, span, step)
            )
            return lower(core.input, lambda _: held)
        case Aggregate(grouping=Snapshot()):
            return _at_multiples(core, alive, span, step)
        case Distinct():
            return _islands(alive, "_ts", span)
        case Emit(kind="dstream"):
            if isinstance(core.input, Distinct):
                return _islands(alive, "_until", span)
            ended = alive.where(span.holds("_until"))
            return _stream(ended, "_until")
        case Emit(kind="rstream"):
            emitted = _relation_at_multiples(core.slide, alive, span, step)
            rows = emitted.select({"_ts": "_ts"}, [f"c{i}" for i in range(emitted.width)])
            if isinstance(core.input, Distinct):
                return Frame(rows.data.distinct(), rows.hidden, rows.width)
            return rows
        case _:
            begun = alive.where(span.holds("_ts"))
            return begun if isinstance(core, Join) else _stream(begun, "_ts")


def _stream(frame: Frame, time: str) -> Frame:
    """Rows of a stream: a time, no end."""
    hidden = {"_ts": time} | ({"_pos": "_pos"} if "_pos" in frame.hidden else {})
    return frame.select(hidden, [f"c{i}" for i in range(frame.width)])


def _columns(frame: Frame) -> str:
    return ", ".join(f"c{i}" for i in range(frame.width))


def _islands(alive: Frame, edge: str, span: Span) -> Frame:
    """Merged intervals of equal rows: their starts, or their ends, within the span."""
    by = f"PARTITION BY {_columns(alive)} ORDER BY _ts, _until"
    before = f"max(_until) OVER ({by} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    marked = alive.data.selectExpr("*", f"coalesce({before} >= _ts, FALSE) AS _joins")
    if edge == "_ts":
        starts = Frame(marked, alive.hidden, alive.width).where(
            f"NOT _joins AND {span.holds('_ts')}"
        )
        return _stream(starts.without("_pos") if "_pos" in alive.hidden else starts, "_ts")
    number = f"sum(CAST(NOT _joins AS INT)) OVER ({by}) AS _island"
    grouped = (
        marked.selectExpr("*", number)
        .groupBy("_island", *[f"c{i}" for i in range(alive.width)])
        .agg(F.expr("max(_until)").alias("_ts"))
    )
    return Frame(grouped, ("_ts",), alive.width).where(span.holds("_ts"))


def _relation_at_multiples(slide: int, alive: Frame, span: Span, step: Step) -> Frame:
    """Every row that is in the relation at a multiple of the slide, once for each multiple.

    Rows without an end are there up to the first multiple at or after the last row of all.
    """
    first = BEGINNING if span.start == BEGINNING else -(-span.start // slide) * slide
    low = f"(_ts + pmod(-_ts, {slide}L))"
    low = f"greatest({low}, {first}L)" if first > BEGINNING else low
    end = -(-step.last_row // slide) * slide + 1 if span.stop == FOREVER else FOREVER
    until = f"(IF(_until = {FOREVER}L, {end}L, _until) - 1L)"
    high = f"({until} - pmod({until}, {slide}L))"
    if span.stop < FOREVER:
        high = f"least({high}, {(span.stop - 1) // slide * slide}L)"
    at = alive.data.selectExpr("*", f"{multiples(low, high, slide)} AS _at")
    copied = Frame(at, (*alive.hidden, "_at"), alive.width)
    return copied.select(
        {"_ts": "_at", "_from": "_ts"} | ({"_pos": "_pos"} if "_pos" in alive.hidden else {}),
        [f"c{i}" for i in range(alive.width)],
    )


def _groups_at_multiples(
    node: Aggregate, slide: int, alive: Frame, span: Span, step: Step
) -> Frame:
    """Groups of the rows that are in the relation at a multiple of the slide."""
    rows = _relation_at_multiples(slide, alive, span, step)
    keys = [(f"k{i}", sql(e)) for i, e in enumerate(node.keys)]
    order = order_struct(rows).replace("struct(_ts", "struct(_from")
    grouped = partial(rows.data, [("_at", "_ts"), *keys], node.calls, order)
    return Frame(grouped, (), 0).select({"_ts": "_at"}, finals([k for k, _ in keys], node.calls))


def _at_changes(core: Aggregate, alive: Frame, span: Span, *, before: bool = False) -> Frame:
    """A result for each group and each instant at which one of its rows began or ended.

    With `before`, the result that held up to that instant: what DSTREAM gives.
    """
    keys = [f"k{i}" for i in range(len(core.keys))]
    keyed = alive.data.selectExpr("*", *(f"{sql(e)} AS k{i}" for i, e in enumerate(core.keys)))
    instants = (
        keyed.selectExpr(*keys, "explode(array(_ts, _until)) AS _at")
        .where(span.holds("_at"))
        .distinct()
    )
    low, high = ("<", "<=") if before else ("<=", "<")
    holds = [f"r._ts {low} i._at", f"i._at {high} r._until"]
    same = [*holds, *(f"r.{k} <=> i.{k}" for k in keys)]
    joined = instants.alias("i").join(keyed.alias("r"), F.expr(" AND ".join(same)))
    rows = joined.selectExpr("i._at", "r.*")
    grouped = partial(
        rows, [("_at", "_at"), *((k, k) for k in keys)], core.calls, order_struct(alive)
    )
    return Frame(grouped, (), 0).select({"_ts": "_at"}, finals(keys, core.calls))


def _between_changes(core: Aggregate, alive: Frame, span: Span) -> Frame:
    """The results of a group with the time for which each holds, from one change to the next.

    What held when the span began counts from just before it.
    """
    keys = [f"k{i}" for i in range(len(core.keys))]
    keyed = alive.data.selectExpr("*", *(f"{sql(e)} AS k{i}" for i, e in enumerate(core.keys)))
    inside = span.holds("_at")
    instants = keyed.selectExpr(*keys, "explode(array(_ts, _until)) AS _at").where(inside)
    if span.start > BEGINNING:
        before = keyed.where(f"_ts < {span.start}L").selectExpr(*keys, f"{span.start - 1}L AS _at")
        instants = instants.unionByName(before)
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    until = f"coalesce(lead(_at) OVER ({by}ORDER BY _at), {FOREVER}L) AS _to"
    spans = instants.distinct().selectExpr("*", until)
    same = ["r._ts <= i._at", "i._at < r._until", *(f"r.{k} <=> i.{k}" for k in keys)]
    joined = spans.alias("i").join(keyed.alias("r"), F.expr(" AND ".join(same)))
    rows = joined.selectExpr("i._at", "i._to", "r.*")
    groups = [("_at", "_at"), ("_to", "_to"), *((k, k) for k in keys)]
    grouped = partial(rows, groups, core.calls, order_struct(alive))
    hidden = {"_ts": "_at", "_until": "_to"}
    return Frame(grouped, (), 0).select(hidden, finals(keys, core.calls))


def _at_multiples(core: Aggregate, alive: Frame, span: Span, step: Step) -> Frame:
    """A result for each group and each window end e: its rows alive at e - 1 us."""
    window = core.grouping
    assert isinstance(window, Snapshot)
    slide, offset = window.slide, window.offset
    earliest = BEGINNING if span.start == BEGINNING else end_from(window, span.start + 1)
    if core.start > BEGINNING:  # the longest window begins at or after the start
        earliest = max(earliest, end_from(window, core.start + max(window.length, 1)))
    low = f"(_ts + 1L + pmod({offset}L - (_ts + 1L), {slide}L))"
    low = f"greatest({low}, {earliest}L)" if earliest > BEGINNING else low
    # rows without an end count up to the first window end after the last row of all
    end = end_from(window, step.last_row + 1) if span.stop == FOREVER else FOREVER
    until = f"IF(_until = {FOREVER}L, {end}L, _until)"
    high = f"({until} - pmod({until} - {offset}L, {slide}L))"
    if span.stop < FOREVER:
        high = f"least({high}, {end_until(window, span.stop)}L)"
    keys = [(f"k{i}", sql(e)) for i, e in enumerate(core.keys)]
    copied = alive.data.selectExpr("*", f"{multiples(low, high, slide)} AS _at")
    grouped = partial(copied, [("_at", "_at"), *keys], core.calls, order_struct(alive))
    hidden = {"_ts": "_at", "_until": f"_at + {slide}L"}
    return Frame(grouped, (), 0).select(hidden, finals([k for k, _ in keys], core.calls))
