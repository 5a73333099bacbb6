"""One item of FROM: a stream, a subquery or constants, with its window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.expressions import Lowering, span_of
from millstream.language.cql.binding.joins.constants import renamed
from millstream.language.cql.binding.matching.clauses import MatchBinder
from millstream.language.cql.binding.relations import (
    SLIDE_DEFAULT_US,
    Bound,
    Lifetime,
    Slide,
    item_rows,
)
from millstream.language.cql.binding.resolution import resolver
from millstream.language.cql.binding.scope import Member, Named, Scope, is_time
from millstream.language.cql.binding.storing import refuse_incomparable
from millstream.language.cql.binding.tables.change_data import changed_table, unmatched_deletes
from millstream.language.cql.binding.tables.pivot import pivoted
from millstream.language.cql.catalog import Catalog, StreamDefinition, lookup
from millstream.language.cql.change_data import change_data_of, is_reference_table
from millstream.language.cql.histories import KEY as HISTORY
from millstream.language.cql.histories import born
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import WindowSyntax
from millstream.language.cql.parsing.window_parser import ALIGN_HINT
from millstream.language.plan.expressions import Column, Expr
from millstream.language.plan.nodes import Constants, Node, Source
from millstream.language.plan.windows import (
    BEGINNING,
    Calendar,
    Grouped,
    Now,
    Range,
    Rows,
    Session,
    Sliding,
    Unbounded,
    Window,
)

PLAIN_ROWS_HINT = (
    "it belongs to an aggregate; plain rows can carry their window's start: FROM (SELECT *, "
    "timestamp_seconds(floor(unix_seconds(ts) / 10) * 10) AS begun FROM s) AS a [RANGE 10 SECONDS]"
)
SLIDING = ("range", "unbounded", "cumulate")  # windows that take SLIDE
HISTORY_HINT = 'declare it with the table of its past: history = { path = "past/*.parquet" }'
CHANGES_HINT = 'read the table of the past with a stream of its own: source = "delta" and a key'
RELATION_HINT = "make it a stream first: FROM (ISTREAM(SELECT ...)) [RANGE ...]"


@dataclass(frozen=True, slots=True)
class Item:
    """One item of FROM, bound, with its window not yet applied."""

    name: str | None
    node: exp.Expr
    rows: Node
    columns: tuple[Named, ...]
    window: Window | Grouped | None
    lifetime: Lifetime  # with its window
    slide: Slide | None
    momentary: bool


class ItemBinder:
    """Binds the items of one select's FROM."""

    def __init__(
        self,
        text: Text,
        catalog: Catalog,
        analyzer: Analyzer,
        start: int,
        ctes: dict[str, Bound],
        bind_query: Callable[[exp.Expr, dict[str, Bound]], Bound],
    ) -> None:
        self._text, self._catalog, self._analyzer, self._start = text, catalog, analyzer, start
        self._ctes, self._bind_query = ctes, bind_query

    def bind(self, node: exp.Expr) -> Item:
        alias = node.args.get("alias")
        if "pivot" in node.meta:
            node = self._pivoted(node)
        bound, own_name = self._rows(node)
        refuse_other_time(self._text, self._catalog, self._ctes, node)
        if alias is not None and alias.args.get("columns"):
            bound = renamed(self._text, bound, alias.args["columns"], alias)
        name = alias.name if alias is not None else own_name
        syntax: WindowSyntax | None = node.meta.get("window")
        if syntax is not None and isinstance(bound.node, Constants):
            raise self._text.error("a window over constants", syntax.span, "leave it out")
        window = None if syntax is None else self._window(syntax, bound, node)
        if syntax is not None and bound.lifetime is Lifetime.CHANGES:
            raise self._text.error("a window over a table that changes", syntax.span, RELATION_HINT)
        slide = bound.slide
        if syntax is not None or bound.streamed:
            refuse_idle_slide(self._text, bound.slide)
            slide = None
        if syntax is not None and syntax.slide_us is not None and syntax.slide_span is not None:
            start_span = syntax.align_span if syntax.align == "start" else None
            word = syntax.spelled or "SLIDE"
            slide = Slide(syntax.slide_us, syntax.slide_span, start_span, syntax.offset_us, word)
        if syntax is not None and isinstance(window, Grouped):
            word = syntax.spelled or syntax.kind.upper()
            slide = Slide(SLIDE_DEFAULT_US, syntax.span, word=word)
        rows = item_rows(bound, window)
        momentary = (bound.momentary and window is None) or isinstance(window, Now)
        lifetime = _lifetime(bound, window)
        return Item(name, node, rows, bound.columns, window, lifetime, slide, momentary)

    def own_times(self, nodes: Sequence[exp.Expr]) -> dict[str, str]:
        """The column of each stream that is its time, by the item's name in lower case."""
        found = {}
        for node in nodes:
            try:
                time = own_time(self._catalog, self._ctes, node)
            except UsageError:  # a query, or nothing at all: told where items are bound
                continue
            if time is not None:
                found[node.alias_or_name.lower()] = time
        return found

    def _pivoted(self, node: exp.Expr) -> exp.Expr:
        select = pivoted(self._text, node, self._rows(node)[0])
        made = exp.Subquery(this=select, alias=node.args.get("alias"))
        span = span_of(node)
        made.meta.update(start=span.start, end=span.end)
        return made

    def _rows(self, node: exp.Expr) -> tuple[Bound, str | None]:
        if "match" in node.meta:
            rows = self._bind_query(node.this, self._ctes)
            time = own_time(self._catalog, self._ctes, node.this.args["from_"].this)
            matches = MatchBinder(self._text, self._catalog, self._analyzer, time)
            return matches.bind(node.meta["match"], rows), None
        if isinstance(node, exp.Subquery):
            return self._bind_query(node.this, self._ctes), None
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self._fail("expected a stream or a subquery", node)
        name = node.this.name
        found = lookup(name, self._ctes)
        if found:
            chosen = list(self._ctes)[found[0]]
            return self._ctes[chosen], chosen
        try:
            stream = self._catalog.stream(name)
        except UsageError as mistake:
            deletes = unmatched_deletes(self._catalog, name, self._start)
            if deletes is not None:
                return deletes, name.rpartition(".")[2]
            raise self._fail(mistake.message, node.this, mistake.hint) from None
        told = change_data_of(stream.source)
        if self._catalog.history_until is not None:
            self._refuse_without_history(stream, node)
        if told is not None and "window" not in node.meta:
            start = BEGINNING if is_reference_table(stream.source) else self._start
            return changed_table(stream, told, start), stream.name
        columns = tuple(
            Named(f.name, i) for i, f in enumerate(stream.columns) if not is_time(f.name)
        )
        source = Source(stream.name, stream.columns, self._start)
        until = self._catalog.history_until
        whole = source if until is None or told is not None else born(source, until)
        return Bound(whole, columns, Lifetime.OPEN), stream.name

    def _refuse_without_history(self, stream: StreamDefinition, node: exp.Expr) -> None:
        """Of the streams of a query that begins with history only reference tables need none."""
        if is_reference_table(stream.source):
            return
        if change_data_of(stream.source) is not None:
            raise self._fail(f"a history of {stream.name}, whose rows are changes", node.this,
                             CHANGES_HINT)  # fmt: skip
        if HISTORY not in stream.source:
            raise self._fail(f"stream {stream.name} has no history", node.this, HISTORY_HINT)

    def _window(self, syntax: WindowSyntax, bound: Bound, node: exp.Expr) -> Window | Grouped:
        if syntax.slide_span is not None and syntax.kind not in SLIDING:
            raise self._text.error(
                f"SLIDE does not go with {syntax.kind.upper()}", syntax.slide_span,
                "SLIDE belongs to RANGE: [RANGE 1 MINUTE SLIDE 5 SECONDS]",
            )  # fmt: skip
        if syntax.kind == "cumulate":
            return self._cumulating(syntax)
        if syntax.align_span is not None and (syntax.kind != "range" or syntax.slide_us is None):
            raise self._text.error(
                f"{'OFFSET' if syntax.offset_us else 'ALIGN'} does not go without RANGE and SLIDE",
                syntax.align_span,
                ALIGN_HINT,
            )
        match syntax.kind:
            case "range":
                return Range(syntax.length_us)
            case "now":
                return Now()
            case "unbounded":
                return Unbounded()
            case "session":
                return Session(syntax.length_us)
            case "calendar":
                asked = syntax.calendar
                assert asked is not None
                return Calendar(asked.unit, asked.length, asked.slide, asked.zone, asked.offset_us)
            case _:
                return Rows(syntax.count, self._partition(syntax, bound, node))

    def _cumulating(self, syntax: WindowSyntax) -> Sliding:
        size_us, step_us = syntax.length_us, syntax.slide_us
        if step_us is None or size_us % step_us or syntax.align:
            raise self._text.error(
                "CUMULATE needs a SLIDE that divides its length, and no ALIGN", syntax.span,
                "[CUMULATE 1 DAY SLIDE 1 HOUR], [CUMULATE 1 DAY SLIDE 1 HOUR OFFSET 6 HOURS]",
            )  # fmt: skip
        return Sliding(size_us, step_us, syntax.offset_us % size_us, cumulates=True)

    def _partition(self, syntax: WindowSyntax, bound: Bound, node: exp.Expr) -> tuple[Expr, ...]:
        alias = node.args.get("alias")
        name = alias.name if alias is not None else getattr(node.this, "name", None)
        scope = Scope((Member(name, bound.columns),), bound.node.schema)
        lowering = Lowering(self._text, self._catalog, resolver(self._text, scope, "PARTITION BY"))
        made = [lowering.lower(key) for key in syntax.partition]
        for key, key_node in zip(made, syntax.partition, strict=True):
            if not isinstance(key, Column):
                raise self._fail(
                    "PARTITION BY takes columns", key_node,
                    "compute it in a subquery: FROM (SELECT ..., expression AS k FROM s) "
                    "[PARTITION BY k ROWS n]",
                )  # fmt: skip
        keys = tuple(bound.node.schema[k.index] for k in made if isinstance(k, Column))
        refuse_incomparable(self._text, self._analyzer, "PARTITION BY", keys, syntax.partition)
        return tuple(made)

    def _fail(self, message: str, node: exp.Expr, hint: str = "") -> CqlError:
        return self._text.error(message, span_of(node), hint)


def refuse_other_time(text: Text, catalog: Catalog, ctes: dict[str, Bound], node: exp.Expr) -> None:
    """A window of another system names its time: only the row's own time will do."""
    time: exp.Expr | None = node.meta.get("window_time")
    if time is None or (isinstance(time, exp.Column) and is_time(time.name)):
        return
    if time.name.lower() == own_time(catalog, ctes, node):
        return
    raise text.error(
        "a window over a time that is not the row's own", span_of(time),
        "windows go by ts, the time of each row",
    )  # fmt: skip


def own_time(catalog: Catalog, ctes: dict[str, Bound], node: exp.Expr) -> str | None:
    """The column of a stream that is its time, in lower case; None where there is none."""
    stream = node.this.name if isinstance(node, exp.Table) else ""
    if not stream or lookup(stream, ctes):
        return None
    definition = catalog.stream(stream)
    at = definition.time_column
    return None if at is None else definition.columns[at].name.lower()


def _lifetime(bound: Bound, window: Window | Grouped | None) -> Lifetime:
    match window:
        case None:
            return Lifetime.OPEN if bound.streamed else bound.lifetime
        case Unbounded() | Session() | Sliding() | Calendar():
            return Lifetime.OPEN
        case _:
            return Lifetime.BOUNDED


def refuse_idle_slide(text: Text, slide: Slide | None) -> None:
    """SLIDE says when to look at a relation; without an aggregate or RSTREAM nobody looks."""
    if slide is not None:
        foreign = slide.word not in ("SLIDE", "CUMULATE", "SESSION", "RANGE", "CALENDAR")
        raise text.error(
            f"{slide.word} has no effect here", slide.span,
            PLAIN_ROWS_HINT if foreign else
            "it belongs to an aggregate over [RANGE ... SLIDE ...], or to RSTREAM(SELECT ...)",
        )  # fmt: skip
