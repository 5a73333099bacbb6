"""Where a select ranks its rows: functions in its list, QUALIFY, ORDER BY with LIMIT.

Each is taken off the select and becomes hidden columns, of what partitions and orders, of the
select that is left. `top_n.py` puts the ranks on top of that.
"""

from dataclasses import dataclass

from sqlglot import exp

from millstream.language.cql.binding.over.clauses import qualifies, rank_of, way
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import Span, span_of

QUALIFY_HINT = "QUALIFY ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY n DESC) <= 3"
COMPARED: dict[type[exp.Expr], str] = {exp.LTE: "<=", exp.LT: "<", exp.EQ: "="}


@dataclass(frozen=True, slots=True)
class Rank:
    """One ranking: its hidden columns, counted from the first one, and what it is for."""

    function: str
    partition: tuple[int, ...]
    order: tuple[tuple[int, str], ...]  # hidden column and direction
    span: Span
    output: str = ""  # the column of the select list that it is; empty for QUALIFY and LIMIT
    bound: tuple[str, int] | None = None  # rows that stay: "<=", 3
    of_window: bool = False  # LIMIT, which ranks each window's rows by itself


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """A select without its rankings, the rankings, and how many hidden columns they have."""

    select: exp.Select
    ranks: tuple[Rank, ...]
    hidden: int


def ranks_rows(select: exp.Expr) -> bool:
    """Whether ORDER BY or QUALIFY of a select is a ranking."""
    if not isinstance(select, exp.Select):
        return False
    limited = select.args.get("order") is not None and select.args.get("limit") is not None
    qualified = select.args.get("qualify") is not None and not qualifies(select)
    return limited or qualified or bool(distinct_on(select))


def ranking_of(text: Text, select: exp.Select) -> Ranking | None:
    """The rankings of a select; None where it has none."""
    listed = [e for e in select.expressions if rank_of(e.unalias()) is not None]
    if not listed and not ranks_rows(select):
        return None
    if select.args.get("distinct") and (listed or not distinct_on(select)):
        raise text.error(
            "DISTINCT with a rank", span_of(select), "take DISTINCT in a subquery in FROM"
        )
    return _Taking(text, select.copy()).taken()


def distinct_on(select: exp.Expr) -> list[exp.Expr]:
    """What DISTINCT ON names: of rows that are equal in it, the first one stays."""
    distinct = select.args.get("distinct")
    named = distinct.args.get("on") if distinct is not None else None
    return list(named.expressions) if named is not None else []


class _Taking:
    """Takes the rankings off a select; the select is changed."""

    def __init__(self, text: Text, select: exp.Select) -> None:
        self._text, self._select = text, select
        self._hidden: list[exp.Expr] = []
        self._ranks: list[Rank] = []

    def taken(self) -> Ranking:
        select = self._select
        for number, item in enumerate(list(select.expressions)):
            node = item.unalias()
            if rank_of(node) is None:
                continue
            name = item.alias if isinstance(item, exp.Alias) else f"{rank_of(node)}_{number}"
            self._ranks.append(self._rank(node, output=name))
            place = exp.Alias(this=exp.Literal.number(0), alias=exp.to_identifier(name))
            span = span_of(item)
            place.meta.update(start=span.start, end=span.end)
            item.replace(place)
        if select.args.get("qualify") is not None and not qualifies(select):
            self._qualify(select.args["qualify"])
            select.set("qualify", None)
        if named := distinct_on(select):
            self._first_of_each(named, select.args.get("order"), select.args.get("limit"))
            select.set("order", None)
        elif select.args.get("order") is not None and select.args.get("limit") is not None:
            self._limit(select.args["order"], select.args["limit"])
            select.set("order", None)
            select.set("limit", None)
        for number, node in enumerate(self._hidden):
            label = exp.Alias(this=node, alias=exp.to_identifier(f"__rank{number}"))
            select.append("expressions", label)
        return Ranking(select, tuple(self._ranks), len(self._hidden))

    def _rank(
        self, window: exp.Expr, output: str = "", bound: tuple[str, int] | None = None
    ) -> Rank:
        function = rank_of(window)
        assert function is not None
        order = window.args.get("order")
        if order is None:
            raise self._text.error(
                f"{function} without ORDER BY", span_of(window),
                f"{function.upper()}() OVER (PARTITION BY window_end ORDER BY n DESC)",
            )  # fmt: skip
        if window.args.get("spec") is not None:
            raise self._text.error(f"{function} takes no frame", span_of(window), "leave it out")
        partition = tuple(self._hide(p) for p in window.args.get("partition_by") or ())
        return Rank(function, partition, self._ways(order), span_of(window), output, bound)

    def _ways(self, order: exp.Expr) -> tuple[tuple[int, str], ...]:
        return tuple((self._hide(key.this), way(key)) for key in order.expressions)

    def _hide(self, node: exp.Expr) -> int:
        """The hidden column of an expression; a name of the select list is what it names."""
        named = node
        listed = self._select.expressions
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
            if not 1 <= int(node.this) <= len(listed):
                raise self._text.error(
                    f"ORDER BY {node.this}: the select list has {len(listed)} columns",
                    span_of(node),
                )
            named = listed[int(node.this) - 1].unalias()
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            labelled = (e for e in listed if isinstance(e, exp.Alias))
            found = next((e for e in labelled if e.alias.lower() == node.name.lower()), None)
            named = node if found is None else found.this
        self._hidden.append(named.copy())
        return len(self._hidden) - 1

    def _qualify(self, clause: exp.Expr) -> None:
        condition = clause.this
        operator = COMPARED.get(type(condition))
        limit = condition.expression if operator else None
        if not isinstance(limit, exp.Literal) or limit.is_string or not limit.this.isdigit():
            raise self._text.error(
                "QUALIFY takes a rank and a whole number", span_of(clause), QUALIFY_HINT
            )
        bound = (operator or "", int(limit.this))
        ranked = condition.this
        if rank_of(ranked) is not None:
            self._ranks.append(self._rank(ranked, bound=bound))
            return
        known = {r.output.lower(): i for i, r in enumerate(self._ranks)}
        at = known.get(ranked.name.lower()) if isinstance(ranked, exp.Column) else None
        if at is None:
            raise self._text.error(
                "QUALIFY of something that is not a rank", span_of(clause), QUALIFY_HINT
            )
        found = self._ranks[at]
        self._ranks[at] = Rank(
            found.function, found.partition, found.order, found.span, found.output, bound
        )

    def _first_of_each(
        self, named: list[exp.Expr], order: exp.Expr | None, limit: exp.Expr | None
    ) -> None:
        """DISTINCT ON (a, b) ... ORDER BY a, b, c: the first row by c, or by time."""
        if limit is not None:
            raise self._text.error(
                "LIMIT with DISTINCT ON", span_of(limit), "take DISTINCT ON in a subquery in FROM"
            )
        self._select.set("distinct", None)
        span = span_of(named[0])
        keys = tuple(self._hide(node) for node in named)
        ways = self._ways(order) if order is not None else ()
        by = tuple((i, way) for i, way in ways if self._hidden[i] not in named)
        if not by:
            time = exp.column("ts")
            time.meta.update(start=span.start, end=span.end)
            by = ((self._hide(time), "ASC NULLS FIRST"),)
        self._ranks.append(Rank("row_number", keys, by, span, bound=("=", 1), of_window=True))

    def _limit(self, order: exp.Expr, limit: exp.Expr) -> None:
        count, name = limit.expression, "row_number"
        if isinstance(limit, exp.Fetch):  # FETCH FIRST 3 ROWS ONLY, or WITH TIES
            options = limit.args.get("limit_options")
            ties = options is not None and bool(options.args.get("with_ties"))
            count, name = limit.args.get("count"), "rank" if ties else name
            count = None if options is not None and options.args.get("percent") else count
        if not isinstance(count, exp.Literal) or count.is_string or not count.this.isdigit():
            raise self._text.error("LIMIT takes a whole number", span_of(limit), "LIMIT 3")
        bound = ("<=", int(count.this))
        span = span_of(order)
        self._ranks.append(Rank(name, (), self._ways(order), span, bound=bound, of_window=True))
