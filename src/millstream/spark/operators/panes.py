"""Sliding aggregates: partial results by pane as rows arrive, windows as the watermark passes.

A pane is as long as the greatest common divisor of range and slide. New rows become partials of
their panes, a stream like any other; when the watermark reaches a window's end, its panes are
combined and emitted. Where a window holds many panes, they are first merged into blocks of 2, 4,
8, ... panes, so that a window needs a logarithmic number of them, and windows between two changes
of a group are computed once: work grows with panes and results, not with range / slide.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.plan.nodes import Aggregate
from millstream.language.plan.sql_text import sql
from millstream.language.plan.windows import (
    BEGINNING,
    FOREVER,
    Instant,
    Sliding,
    end_from,
    end_until,
    first_end,
)
from millstream.language.share.dataflow import pane_length, stream_of
from millstream.spark.frames import Frame, lower, multiples, order_struct, steady, time_bound
from millstream.spark.operators.aggregates import finals, merge, names_of, partial
from millstream.spark.operators.base import Answer, Output, Step
from millstream.store.reach import window_of

DIRECT_WINDOWS_MAX = 32  # windows a pane is in, up to which it is simply copied to each


class PartialLogic:
    """Rows to partials of panes, on arrival."""

    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Aggregate)
        outputs: tuple[Output, ...] = ()
        if any(i.fresh for i in step.inputs.values()):
            rows = lower(
                node.input,
                lambda leaf: step.read(stream_of(leaf), step.inputs[stream_of(leaf)].new),
            )
            outputs = (Output(step.operator.id, _partials(node, rows)),)
        return Answer(outputs, step.after, {})


def _partials(node: Aggregate, rows: Frame) -> Frame:
    length = pane_length(node)
    keys = [("_pane", f"_ts - pmod(_ts, {length}L)")]
    keys += [(f"k{i}", sql(key)) for i, key in enumerate(node.keys)]
    data = partial(rows.data, keys, node.calls, order_struct(rows))
    columns = [*(f"k{i}" for i in range(len(node.keys))), *names_of(node.calls)]
    # a pane's partials carry its last instant, which no watermark has passed while rows may come
    hidden = {"_ts": f"_pane + {length - 1}L", "_until": f"_pane + {length}L", "_pos": "_latest"}
    return Frame(data, (), 0).select(hidden, columns)


class CombineLogic:
    """Partials to windows, as the watermark passes their ends."""

    def evaluate(self, step: Step) -> Answer:
        node = step.operator.core
        assert isinstance(node, Aggregate)
        window = window_of(node)
        (source,) = step.inputs.values()
        answer = Answer((), promise(window, source.after), {})
        parts = [s for s in (*source.tail, *source.new) if s.rows]
        if step.prepared:
            partials, bounds = step.read(source.stream, parts), CARRIED
        else:
            span = span_of(node, source.before, source.after)
            # whole panes only: ts is a pane's last us
            parts = [s for s in parts if span is not None and s.ts_min < span.last]
            if span is None or not parts:
                return answer
            partials = step.read(source.stream, parts)
            bounds = span.bounds(sum(s.rows for s in parts))
        if bounds.least_ts is not None:
            partials = partials.where(f"_ts >= {bounds.least_ts}")
        if bounds.below_ts is not None:
            partials = partials.where(f"_ts < {bounds.below_ts}")
        data = _as_partials(partials, node)
        combined = _windows(data, node, window, bounds)
        time = "_end - 1L" if isinstance(node.grouping, Instant) else "_end"
        until = "_end" if isinstance(node.grouping, Instant) else f"_end + {window.slide}L"
        keys = [f"k{i}" for i in range(len(node.keys))]
        frame = Frame(combined, (), 0).select(
            {"_ts": time, "_until": until}, finals(keys, node.calls)
        )
        frame = lower(step.operator.node, lambda _: frame)
        return Answer((Output(step.operator.id, frame),), answer.watermark, {})


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which panes and window ends a step takes, as SQL; None where there is no bound."""

    least_ts: str | None  # on the stored time of panes
    below_ts: str | None
    first_end: str | None
    last_end: str | None
    last: int = FOREVER  # the same as a number
    carried: tuple[str, ...] = ()  # columns of the panes in which the bounds come


@dataclass(frozen=True, slots=True)
class Span:
    """The same as numbers."""

    least_ts: int
    below_ts: int
    first_end: int
    last: int

    def bounds(self, rows: int) -> Bounds:
        return Bounds(
            time_bound(self.least_ts, rows) if self.least_ts > BEGINNING else None,
            time_bound(self.below_ts, rows) if self.below_ts < FOREVER else None,
            steady(self.first_end, "_pane") if self.first_end > BEGINNING else None,
            steady(self.last, "_pane") if self.last < FOREVER else None,
            self.last,
        )

    def columns(self) -> dict[str, int]:
        """What the panes of a prepared step carry."""
        return dict(
            zip(
                CARRIED.carried,
                (self.least_ts, self.below_ts, self.first_end, self.last),
                strict=True,
            )
        )


_NAMES = ("_least_ts", "_below_ts", "_first_end", "_last_end")
CARRIED = Bounds(*_NAMES, carried=_NAMES)


def span_of(node: Aggregate, before: int, after: int) -> Span | None:
    """What a step takes as the watermark goes from one time to another; None without a window."""
    window = window_of(node)
    ends = _ends(window, before, after)
    if ends is None:
        return None
    first, last = ends
    oldest = max(first - window.length if first > BEGINNING else BEGINNING, node.start)
    earliest = first
    if node.start > BEGINNING:
        earliest = max(first, first_end(window, node.start))
    last_instant = pane_length(node) - 1  # the stored time is a pane's last instant
    return Span(
        oldest + last_instant if oldest > BEGINNING else BEGINNING,
        last + last_instant if last < FOREVER else FOREVER,
        earliest,
        last,
    )


def by_blocks(window: Sliding) -> bool:
    """Whether windows hold so many panes that they are made of blocks of them."""
    return not window.cumulates and -(-window.length // window.slide) > DIRECT_WINDOWS_MAX


def _ends(window: Sliding, before: int, after: int) -> tuple[int, int] | None:
    """The least and greatest window end that the watermark has newly reached; None without any."""
    first = BEGINNING if before == BEGINNING else end_from(window, before + 1)
    last = FOREVER if after == FOREVER else end_until(window, after)
    return None if after == BEGINNING or last < first else (first, last)


def promise(window: Sliding, after: int) -> int:
    """Every window up to `after` is out: the next one ends a slide later."""
    if after in (BEGINNING, FOREVER):
        return after
    if window.slide == 1:
        return after  # [NOW] emits at the instant itself
    return end_from(window, after + 1)


def _as_partials(frame: Frame, node: Aggregate) -> DataFrame:
    """Stored partials under their own names again."""
    keys = [f"c{i} AS k{i}" for i in range(len(node.keys))]
    values = [f"c{len(node.keys) + i} AS {name}" for i, name in enumerate(names_of(node.calls))]
    pane = f"_ts - {pane_length(node) - 1}L AS _pane"
    carried = [name for name in CARRIED.carried if name in frame.hidden]
    return frame.data.selectExpr(pane, "_pos AS _latest", *carried, *keys, *values)


def _windows(data: DataFrame, node: Aggregate, window: Sliding, bounds: Bounds) -> DataFrame:
    """Merged partials by (_end, keys) for the window ends within the bounds."""
    if by_blocks(window):
        return _windows_by_blocks(data, node, window, bounds)
    low, high = _ends_of_pane(node, window, bounds)
    copied = data.selectExpr("*", f"{multiples(low, high, window.slide)} AS _end")
    return merge(copied, ["_end", *_keys(node)], node.calls)


def _keys(node: Aggregate) -> list[str]:
    return [f"k{i}" for i in range(len(node.keys))]


def _ends_of_pane(node: Aggregate, window: Sliding, bounds: Bounds) -> tuple[str, str]:
    """First and last end of the wanted windows that hold a pane, as SQL over `_pane`."""
    low = _ceil(f"(_pane + {pane_length(node)}L)", window.slide, window.offset)
    high = _floor(f"(_pane + {window.length}L)", window.slide, window.offset)
    if window.cumulates:
        high = f"({_floor('_pane', window.length, window.offset)} + {window.length}L)"
    if bounds.first_end is not None:
        low = f"greatest({low}, {bounds.first_end})"
    if bounds.last_end is not None:
        high = f"least({high}, {bounds.last_end})"
    return low, high


def _ceil(text: str, step: int, offset: int = 0) -> str:
    """The first time at or after another that is a multiple of the step, moved by the offset."""
    return f"({text} + pmod({offset}L - {text}, {step}L))"


def _floor(text: str, step: int, offset: int = 0) -> str:
    return f"({text} - pmod({text} - {offset}L, {step}L))"


def _windows_by_blocks(
    data: DataFrame, node: Aggregate, window: Sliding, bounds: Bounds
) -> DataFrame:
    """The same for windows of very many panes.

    A group's windows change only where a pane enters or leaves; they are computed there, from
    blocks of panes, and repeated for the ends in between.
    """
    pane, slide, length = pane_length(node), window.slide, window.length
    keys = _keys(node)
    levels = (length // pane).bit_length()
    data = merge(data, ["_pane", *keys], node.calls)
    # blocks: level l holds 2^l panes and starts at a multiple of its length
    size = f"shiftleft({pane}L, _level)"
    leveled = data.selectExpr("*", f"explode(sequence(0, {levels - 1})) AS _level")
    placed = leveled.selectExpr("*", f"_pane - pmod(_pane, {size}) AS _block")
    blocks = merge(placed, ["_level", "_block", *keys], node.calls)
    # ends at which a group's window changes: where a pane enters, and after it has left
    low, high = _ends_of_pane(node, window, bounds)
    last = steady(bounds.last, "_end") if bounds.last < FOREVER else None
    left = f"({_floor(f'(_pane + {length}L)', slide, window.offset)} + {slide}L)"
    changes = data.where(f"{low} <= {high}").selectExpr(
        *keys, f"explode(array({low}, {left})) AS _end"
    )
    changes = changes if last is None else changes.where(f"_end <= {last}")
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    ends = changes.distinct().selectExpr("*", f"lead(_end) OVER ({by}ORDER BY _end) AS _next")
    # each window as few blocks, joined with what the blocks hold
    wanted = ends.selectExpr("*", f"inline({_cover(length, pane, levels)})")
    same = ["w._level = b._level", "w._block = b._block", *(f"w.{k} <=> b.{k}" for k in keys)]
    joined = wanted.alias("w").join(blocks.alias("b"), F.expr(" AND ".join(same)))
    chosen = [*(f"w.{c}" for c in ("_end", "_next", *keys)), *names_of(node.calls), "_latest"]
    merged = merge(joined.selectExpr(*chosen), ["_end", "_next", *keys], node.calls)
    stop = f"_next - {slide}L"
    stop = stop if last is None else f"coalesce({stop}, {last})"
    kept = [*keys, *names_of(node.calls), "_latest"]
    return merged.selectExpr(*kept, f"{multiples('_end', stop, slide)} AS _end")


def _cover(length: int, pane: int, levels: int) -> str:
    """The aligned blocks that make up [_end - length, _end), as an array of structs in SQL.

    Walking up the levels, a block is taken at either edge that the next level cannot reach: the
    usual decomposition of a range over a segment tree.
    """
    items = []
    for level in range(levels):
        span = pane << level
        low = _ceil(f"(_end - {length}L)", span)
        high = _floor("_end", span)
        for edge, block in ((low, low), (high, f"({high} - {span}L)")):
            taken = f"{low} < {high} AND pmod({edge}, {2 * span}L) <> 0"
            items.append(f"IF({taken}, named_struct('_level', {level}, '_block', {block}), NULL)")
    return f"filter(array({', '.join(items)}), x -> x IS NOT NULL)"
