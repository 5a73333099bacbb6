"""OVER as written: where it stands in a select, named windows, and its frames.

Decided here, from the tree alone: which calls are of neighbours, and which frame each has. Ranks
that are not in the order of time are the business of `ranking`.
"""

from collections.abc import Container, Iterator, Sequence
from typing import Literal as OneOf

from sqlglot import exp

from millstream.core.durations import CALENDAR_HINT, CALENDAR_UNITS, microseconds
from millstream.core.errors import UsageError
from millstream.language.cql.binding.scope import is_time
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import span_of
from millstream.language.plan.windows import BEGINNING, FOREVER, OverFrame

RANKS = ("row_number", "rank", "dense_rank")
ROWS_MAX = 2**31 - 1  # Spark counts the rows of a frame in 32 bits
FRAME_HINT = (
    "RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW, "
    "or ROWS BETWEEN 9 PRECEDING AND CURRENT ROW"
)
ORDER_HINT = "OVER (PARTITION BY k ORDER BY ts ...): rows stand in the order of their time"
TABLE_ENDS = (("UNBOUNDED", "FOLLOWING"), ("CURRENT ROW", None), (None, None))
TABLE_HINT = (
    "over a table frames are of rows, ROWS BETWEEN 9 PRECEDING AND CURRENT ROW, of all rows up to "
    "the present one, or of values: OVER (ORDER BY v RANGE BETWEEN 5 PRECEDING AND CURRENT ROW); "
    "frames of time are over streams: FROM (ISTREAM(SELECT ...)) AS t"
)
ENDLESS_HINT = (
    "a stream has no end: write CURRENT ROW, or a number of rows or an interval FOLLOWING"
)


def overs(root: exp.Expr) -> Iterator[exp.Window]:
    """The calls with OVER of an expression, outermost ones, none of subqueries."""
    waiting = [root]
    while waiting:
        here = waiting.pop()
        if isinstance(here, exp.Window):
            yield here
        elif not isinstance(here, exp.Subquery | exp.Select):
            waiting += reversed(list(here.iter_expressions()))


def parts_of(window: exp.Window) -> list[exp.Expr]:
    """What stands inside a call with OVER: its arguments, and what partitions and orders it."""
    parts: list[exp.Expr] = list(window.args.get("partition_by") or ())
    order = window.args.get("order")
    parts += [] if order is None else [key.this for key in order.expressions]
    here = window.this
    while not isinstance(here, exp.Anonymous) and here.this is not None:
        parts += [part for part in here.iter_expressions() if part is not here.this]
        here = here.this
    return [*parts, *here.iter_expressions()]


def has_overs(select: exp.Select) -> bool:
    qualify = select.args.get("qualify")
    roots = [*select.expressions, *([] if qualify is None else [qualify])]
    return any(True for root in roots for _ in overs(root))


def spelled_out(text: Text, select: exp.Select, time: str | None) -> exp.Select:
    """The select with its named windows in place of their names, and its time called `ts`.

    `time` is the column that holds the time of the one stream that it reads, if that is so.
    """
    if not has_overs(select):
        if select.args.get("windows"):
            raise text.error(
                "WINDOW without OVER", span_of(select.args["windows"][0]),
                "name it in a call: sum(v) OVER w; windows of streams stand in brackets",
            )  # fmt: skip
        return select
    select = select.copy()
    named = {w.this.name.lower(): w for w in select.args.get("windows") or ()}
    select.set("windows", None)
    roots = [*select.expressions, select.args.get("qualify")]
    for root in roots:
        for window in [] if root is None else list(overs(root)):
            _spell(text, window, named)
            order = window.args.get("order")
            for key in [] if order is None else order.expressions:
                if isinstance(key.this, exp.Column) and key.this.name.lower() == time:
                    key.this.this.set("this", "ts")
    return select


def own_time(catalog: Catalog, ctes: Container[str], select: exp.Select) -> str | None:
    """The name of the column that is the time of the one stream of FROM; None elsewhere."""
    clause = select.args.get("from_")
    item = None if clause is None or select.args.get("joins") else clause.this
    if not isinstance(item, exp.Table) or item.name in ctes:
        return None
    try:
        stream = catalog.stream(item.name)
    except UsageError:
        return None
    at = stream.time_column
    return None if at is None else stream.columns[at].name.lower()


def _spell(text: Text, window: exp.Window, named: dict[str, exp.Window]) -> None:
    """`OVER w` and `OVER (w ROWS ...)` with what w stands for."""
    name = window.args.get("alias")
    if name is None:
        return
    known = named.get(name.name.lower())
    if known is None:
        names = ", ".join(w.this.name for w in named.values()) or "none"
        raise text.error(f"unknown window {name.name}", span_of(name), f"named windows: {names}")
    _spell(text, known, {k: w for k, w in named.items() if w is not known})
    for part in ("partition_by", "order", "spec"):
        own, theirs = window.args.get(part), known.args.get(part)
        if own and theirs:
            raise text.error(
                f"window {name.name} has that already", span_of(window), "leave it out"
            )
        if theirs:
            copied = [p.copy() for p in theirs] if isinstance(theirs, list) else theirs.copy()
            window.set(part, copied)
    window.set("alias", None)


def in_time(window: exp.Window) -> bool:
    """Whether OVER has its rows in the order of time, the earliest first."""
    order = window.args.get("order")
    keys = [] if order is None else order.expressions
    if len(keys) != 1 or keys[0].args.get("desc"):
        return False
    key = keys[0].this
    return isinstance(key, exp.Column) and (
        is_time(key.name) or (len(key.parts) == 1 and key.name.lower() == "window_end")
    )


def qualifies(select: exp.Select) -> bool:
    """Whether QUALIFY asks about what OVER gives, rather than about ranks."""
    clause = select.args.get("qualify")
    if clause is None:
        return False
    near = {
        e.alias.lower()
        for e in select.expressions
        if isinstance(e, exp.Alias) and any(rank_of(w) is None for w in overs(e))
    }
    named = any(len(c.parts) == 1 and c.name.lower() in near for c in clause.find_all(exp.Column))
    return named or any(rank_of(w) is None for w in overs(clause))


def rank_of(node: exp.Expr | None) -> str | None:
    """The ranking function that a node calls; counting rows in the order of time is none."""
    if not isinstance(node, exp.Window) or not isinstance(node.this, exp.Anonymous):
        return None
    name: str = node.this.name.lower()
    counted = name == "row_number" and in_time(node)  # from the first row on
    return name if name in RANKS and not counted else None


def way(node: exp.Expr) -> str:
    """The direction of a key, as Spark has it: NULL first where values ascend."""
    descends = bool(node.args.get("desc"))
    first = node.args.get("nulls_first", not descends)
    return f"{'DESC' if descends else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def refuse_disorder(text: Text, window: exp.Window) -> None:
    if in_time(window):
        return
    order = window.args.get("order")
    what = "OVER without ORDER BY" if order is None else "OVER in another order than that of time"
    raise text.error(what, span_of(window if order is None else order), ORDER_HINT)


def frame_of(text: Text, window: exp.Window) -> OverFrame:
    """The frame of an aggregate; without one, all rows up to the present one's time."""
    spec = window.args.get("spec")
    if spec is None:
        return OverFrame("time", BEGINNING)
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        what = "EXCLUDE" if kind in ("ROWS", "RANGE") else kind
        raise text.error(f"{what} in a frame is not supported", span_of(window), FRAME_HINT)
    by: OneOf["rows", "time"] = "rows" if kind == "ROWS" else "time"
    first = _edge(text, window, spec, "start", by)
    last = _edge(text, window, spec, "end", by) if spec.args.get("end") is not None else 0
    if first > last:
        raise text.error("a frame that ends before it begins", span_of(window), FRAME_HINT)
    if first == BEGINNING and last != 0:
        raise text.error(
            "UNBOUNDED PRECEDING up to another row than the present one", span_of(window),
            "UNBOUNDED PRECEDING AND CURRENT ROW, or give the frame a first row too",
        )  # fmt: skip
    return OverFrame(by, first, last)


def table_frame_of(text: Text, window: exp.Window) -> OverFrame:
    """The frame of an aggregate over a table, which has a last row: without ORDER BY all rows."""
    spec = window.args.get("spec")
    whole = OverFrame("rows", BEGINNING, FOREVER)
    if spec is None:
        return whole if window.args.get("order") is None else OverFrame("peers", BEGINNING)
    kind = str(spec.args.get("kind") or "").upper()
    if kind == "RANGE" and not spec.args.get("exclude"):
        edges = [(spec.args.get(e), spec.args.get(f"{e}_side")) for e in ("start", "end")]
        if edges[0] != ("UNBOUNDED", "PRECEDING") or edges[1] not in TABLE_ENDS:
            raise text.error("this RANGE over a table that changes", span_of(window), TABLE_HINT)
        return whole if edges[1] == TABLE_ENDS[0] else OverFrame("peers", BEGINNING)
    if kind != "ROWS" or spec.args.get("exclude"):
        what = "EXCLUDE" if kind == "ROWS" else kind
        raise text.error(f"{what} in a frame is not supported", span_of(window), TABLE_HINT)
    first = _edge(text, window, spec, "start", "rows", last=FOREVER)
    last = 0
    if spec.args.get("end") is not None:
        last = _edge(text, window, spec, "end", "rows", last=FOREVER)
    if first > last or last == BEGINNING or first == FOREVER:
        raise text.error("a frame that ends before it begins", span_of(window), TABLE_HINT)
    return OverFrame("rows", first, last)


def _edge(
    text: Text, window: exp.Window, spec: exp.Expr, which: str, by: str, last: int | None = None
) -> int:
    """Where a frame begins or ends; `last` stands for UNBOUNDED FOLLOWING where there is one."""
    edge, side = spec.args[which], str(spec.args.get(f"{which}_side") or "PRECEDING").upper()
    if edge == "CURRENT ROW":
        return 0
    if edge == "UNBOUNDED":
        if side == "FOLLOWING" and last is not None:
            return last
        if side == "FOLLOWING":
            raise text.error("UNBOUNDED FOLLOWING", span_of(window), ENDLESS_HINT)
        return BEGINNING
    size = _row_count(text, edge) if by == "rows" else length_us(text, edge)
    return -size if side == "PRECEDING" else size


def _row_count(text: Text, node: exp.Expr) -> int:
    number = node.this if isinstance(node, exp.Literal) and not node.is_string else ""
    if not str(number).isdigit() or int(number) > ROWS_MAX:
        raise text.error(
            "ROWS takes a whole number of rows", span_of(node), "ROWS BETWEEN 9 PRECEDING AND ..."
        )
    return int(number)


def length_us(text: Text, node: exp.Expr) -> int:
    """A constant interval, or a text that is one."""
    written = ""
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        written = f"{node.this.this} {'' if unit is None else unit.name}"
        if unit is not None and unit.name.lower() in CALENDAR_UNITS:
            raise text.error("a frame of months or years", span_of(node), CALENDAR_HINT)
    elif isinstance(node, exp.Literal) and node.is_string:
        written = node.this
    try:
        length = microseconds(written)
    except UsageError:
        length = -1
    if length < 0:
        raise text.error("RANGE takes an interval of time", span_of(node), FRAME_HINT)
    return length


def constant(node: exp.Expr | None) -> int | None:
    """A whole number as written; None for anything else."""
    plain = isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()
    return int(node.this) if plain and node is not None else None


def replaced(roots: Sequence[exp.Expr], old: exp.Expr, new: exp.Expr) -> list[exp.Expr]:
    """The roots with one node in place of another, which may be a root itself."""
    if any(root is old for root in roots):
        return [new if root is old else root for root in roots]
    old.replace(new)
    return list(roots)
