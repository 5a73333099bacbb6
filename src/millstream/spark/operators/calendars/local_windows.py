"""Windows whose bounds are days or months of a time zone.

Bounds are counted from 1970 on, by the zone's rules, and then instants: the unit of a row is the
one whose bounds it lies between. New rows become partials of their units, merged with those that
the operator keeps; when the watermark reaches a window's end its units are combined, and a unit
goes when the last window that holds it is told.
"""

from pyspark.sql import DataFrame

from millstream.language.plan.nodes import Aggregate
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import BEGINNING, FOREVER, Calendar
from millstream.language.share.dataflow import state_stream, stream_of
from millstream.spark.frames import Frame, lower, multiples, order_struct, steady
from millstream.spark.operators.aggregates import finals, merge, names_of, partial
from millstream.spark.operators.base import Answer, Output, Step
from millstream.store.segments import Segment


class CalendarLogic:
    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Aggregate)
        assert isinstance(node.grouping, Calendar)
        fresh = any(i.fresh for i in step.inputs.values())
        kept = [s for s in step.states.get(0, ()) if s.rows]
        if not fresh and not (kept and step.after > step.before):
            return Answer((), step.after, {})
        units = _units(step, node, kept, fresh=fresh)
        window = node.grouping
        keys = _keys(node)
        slide = window.slide
        low = f"(_unit + 1L + pmod(-(_unit + 1L), {slide}L))"
        high = f"(_unit + {window.length}L - pmod(_unit + {window.length}L, {slide}L))"
        ends = units.selectExpr("*", f"{multiples(low, high, slide)} AS _end")
        reached = _reached(step, bound(window, "_end"))
        if node.start > BEGINNING:
            reached += f" AND {bound(window, f'_end - {window.length}L')} >= {node.start}L"
        combined = merge(ends.where(reached), ["_end", *keys], node.calls)
        hidden = {"_ts": bound(window, "_end"), "_until": bound(window, f"_end + {slide}L")}
        result = Frame(combined, (), 0).select(hidden, finals(keys, node.calls))
        frame = lower(step.operator.node, lambda _: result)
        open_ = f"{bound(window, high)} > {steady(step.after, '_unit')}"
        columns = ["_unit", *keys, *names_of(node.calls)]
        state = Frame(units.where(open_), (), 0).select({"_ts": "_latest"}, columns)
        outputs = (
            Output(step.operator.id, frame),
            Output(state_stream(step.operator.id), state, replaces=True),
        )
        return Answer(outputs, step.after, {})


def _reached(step: Step, end: str) -> str:
    """Whether the watermark has come to an end in this step."""
    if step.after == FOREVER and step.before == BEGINNING:
        return "TRUE"
    reached = f"{end} <= {steady(step.after, '_end')}"
    if step.before == BEGINNING:
        return reached
    return f"{reached} AND {end} > {steady(step.before, '_end')}"


def _keys(node: Aggregate) -> list[str]:
    return [f"k{i}" for i in range(len(node.keys))]


def _units(step: Step, node: Aggregate, kept: list[Segment], *, fresh: bool) -> DataFrame:
    """Partials by (_unit, keys) of all windows that are not yet told."""
    assert isinstance(node.grouping, Calendar)
    keys = _keys(node)
    frames = []
    if fresh:
        rows = lower(
            node.input, lambda leaf: step.read(stream_of(leaf), step.inputs[stream_of(leaf)].new)
        )
        named = [(key, sql(e)) for key, e in zip(keys, node.keys, strict=True)]
        groups = [("_unit", unit_of(node.grouping, "_ts")), *named]
        frames.append(partial(rows.data, groups, node.calls, order_struct(rows)))
    if kept:
        old = step.read(state_stream(step.operator.id), kept)
        names = ["_unit", *keys, *names_of(node.calls)]
        columns = (f"c{i} AS {name}" for i, name in enumerate(names))
        frames.append(old.data.selectExpr(*columns, "_ts AS _latest"))
    if len(frames) == 1:
        return frames[0]
    return merge(frames[0].unionByName(frames[1]), ["_unit", *keys], node.calls)


def bound(window: Calendar, unit: str) -> str:
    """The instant at which a unit begins, in microseconds, as SQL over its number.

    A midnight that the clock leaves out is the instant at which it does; one that comes twice is
    the first.
    """
    if window.unit == "day":
        date = f"date_from_unix_date(CAST({unit} AS INT))"
    else:
        date = f"add_months(DATE'1970-01-01', CAST({unit} AS INT))"
    midnight = f"CAST({date} AS TIMESTAMP)"
    if window.offset:
        midnight = f"timestampadd(MICROSECOND, {window.offset}, {midnight})"
    return f"unix_micros(to_utc_timestamp({midnight}, '{window.zone}'))"


def unit_of(window: Calendar, time: str) -> str:
    """The number of the unit that an instant lies in, as SQL.

    Where a clock goes back over midnight a date comes twice; bounds decide, not dates.
    """
    local = f"from_utc_timestamp(timestamp_micros({time}), '{window.zone}')"
    if window.offset:
        local = f"timestampadd(MICROSECOND, -{window.offset}, {local})"
    if window.unit == "day":
        near = f"CAST(unix_date(CAST({local} AS DATE)) AS BIGINT)"
    else:
        near = f"CAST((year({local}) - 1970) * 12 + month({local}) - 1 AS BIGINT)"
    after = f"IF({time} >= {bound(window, f'{near} + 1L')}, 1L, 0L)"
    before = f"IF({time} < {bound(window, near)}, 1L, 0L)"
    return f"({near} + {after} - {before})"
