"""The time of a stream: from the text of its definition to an expression over its columns.

Here `ts` is a column like any other: the time that queries know by that name does not exist yet.
"""

from sqlglot import exp

from millstream.core.errors import CqlError, UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.coercion import Typed
from millstream.language.cql.binding.double_quotes import refuse_name
from millstream.language.cql.binding.expressions import Lowering, span_of, with_fields
from millstream.language.cql.catalog import Catalog, StreamDefinition, lookup
from millstream.language.cql.parsing.parser import parse_expression
from millstream.language.plan.expressions import Call, Cast, Column, Expr, Literal, transform
from millstream.language.plan.sql_text import DATED, dated_sql, quoted, sql

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
EMPTY = Catalog()


def bind_time(definition: StreamDefinition, analyzer: Analyzer, catalog: Catalog = EMPTY) -> Expr:
    """The event time as a timestamp over the stream's columns; refused where it is none."""
    at = definition.time_column
    source = definition.time if at is None else quoted(definition.columns[at].name)
    made, kind = _checked(definition, source, analyzer, catalog)
    if kind == "timestamp":
        return made
    if kind in ("timestamp_ntz", "date"):
        return Cast(made, "timestamp")
    function = "timestamp_seconds" if kind in NUMBERS else "to_timestamp"
    raise UsageError(
        f"the time of stream {definition.name} is {kind}, not a timestamp",
        detail=f"  time = {definition.time}",
        hint=f"convert it, e.g. {function}({definition.time})",
    )


def guarded_time(definition: StreamDefinition, analyzer: Analyzer) -> str:
    """The time as Spark SQL over the stream's own names; texts in it never mean the run's day."""
    at = definition.time_column
    if at is not None:
        name = quoted(definition.columns[at].name)
        return dated_sql(name) if definition.columns[at].type == "string" else name
    made, kind = _checked(definition, definition.time, analyzer, EMPTY)
    if kind == "string":
        made = Call(DATED, (made,))
    names = [Literal(quoted(f.name), "name") for f in definition.columns]
    return sql(transform(made, lambda e: names[e.index] if isinstance(e, Column) else None))


def _checked(
    definition: StreamDefinition, source: str, analyzer: Analyzer, catalog: Catalog
) -> tuple[Expr, str]:
    """What a time means and its type; it may call what a query may call, and nothing else."""
    try:
        return _typed(definition, source, analyzer, catalog)
    except CqlError as mistake:
        raise UsageError(
            f"the time of stream {definition.name}: {mistake.message}",
            detail=mistake.detail,
            hint=mistake.hint or "a column named like a word of SQL goes in backquotes: `order`",
        ) from None


def _typed(
    definition: StreamDefinition, source: str, analyzer: Analyzer, catalog: Catalog
) -> tuple[Expr, str]:
    text, tree = parse_expression(source)
    names = [f.name for f in definition.columns]

    def resolve(node: exp.Expr) -> Expr | None:
        if not isinstance(node, exp.Column):
            return None
        first, *fields = [part.name for part in node.parts]
        found = lookup(first, names)
        if len(found) != 1:
            raise text.error(
                f"unknown column {first}{did_you_mean(first, names)}", span_of(node),
                f"columns: {', '.join(names)}",
            )  # fmt: skip
        return with_fields(Column(found[0]), fields)

    for part in tree.walk():
        refuse_name(text, part, names)
    lowering = Lowering(text, catalog, resolve)
    made = lowering.lower(tree)
    ((checked, kind),) = Typed(lowering, definition.columns, analyzer).check([(made, tree)])
    return checked, kind
