"""VALUES: tables of constants beside a stream.

A table of constants is the same at every time, so a join with one is a matter of each row alone: it
becomes filters and columns over the rows of the stream, which keep their times and windows. Where
the condition equates an expression with a column whose values differ, each row finds its partner by
a CASE; otherwise there is a branch for each row of the table.
"""

from collections.abc import Sequence

from sqlglot import exp

from millstream.language.cql.analyzer import AnalysisFailure, Analyzer
from millstream.language.cql.binding.coercion import Typed
from millstream.language.cql.binding.expressions import FALSE, Lowering, span_of
from millstream.language.cql.binding.relations import Bound, Lifetime
from millstream.language.cql.binding.scope import Named
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import (
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    transform,
)
from millstream.language.plan.nodes import Constants, Filter, Node, Project, Union, inputs_of
from millstream.language.plan.schema import Field

KEYED_MAX, BRANCHES_MAX = 1000, 50  # rows of a table that is joined by a key, or otherwise
EXACT = ("string", "tinyint", "smallint", "int", "bigint", "boolean")
ALONE_HINT = "a query reads a stream: FROM s JOIN (VALUES ...) AS t (a, b) ON s.k = t.a"


def constants(text: Text, catalog: Catalog, analyzer: Analyzer, tree: exp.Values) -> Bound:
    """`VALUES (1, 'a'), (2, 'b')`, each column in the common type of its values."""
    rows = [r.expressions if isinstance(r, exp.Tuple) else [r] for r in tree.expressions]
    width = len(rows[0])
    lowering = Lowering(text, catalog, lambda node: _refuse_name(text, node))
    typed = Typed(lowering, (), analyzer)
    made: list[list[tuple[Expr, str]]] = []
    for row, place in zip(rows, tree.expressions, strict=True):
        if len(row) != width:
            raise text.error(
                f"a row of VALUES has {len(row)} values, the first {width}", span_of(place)
            )
        lowered = [(lowering.lower(value), value) for value in row]
        made.append(typed.check(lowered))
    types = [_common(text, analyzer, [r[i][1] for r in made], tree) for i in range(width)]
    fields = tuple(Field(f"col{i + 1}", t) for i, t in enumerate(types))
    values = tuple(
        tuple(_as(value, own, wanted) for (value, own), wanted in zip(row, types, strict=True))
        for row in made
    )
    columns = tuple(Named(f.name, i) for i, f in enumerate(fields))
    return Bound(Constants(values, fields), columns, Lifetime.OPEN)


def _refuse_name(text: Text, node: exp.Expr) -> Expr | None:
    if isinstance(node, exp.Column | exp.Identifier):
        raise text.error("VALUES takes constants", span_of(node), "put text in single quotes")
    return None


def _common(text: Text, analyzer: Analyzer, types: Sequence[str], tree: exp.Expr) -> str:
    distinct = list(dict.fromkeys(t for t in types if t != "void"))
    if len(distinct) < 2:
        return distinct[0] if distinct else "string"
    fields = tuple(Field(f"c{i}", t) for i, t in enumerate(distinct))
    listed = ", ".join(f"c{i}" for i in range(len(distinct)))
    try:
        return analyzer.analyse(fields, [f"coalesce({listed})"])[0]
    except AnalysisFailure:
        raise text.error(
            f"a column of VALUES is {distinct[0]} and {distinct[1]}", span_of(tree), "cast them"
        ) from None


def _as(value: Expr, own: str, wanted: str) -> Expr:
    if own == "void":
        return Literal(f"CAST(NULL AS {wanted})", wanted)
    return value if own == wanted else Cast(value, wanted)


def renamed(text: Text, bound: Bound, names: Sequence[exp.Expr], place: exp.Expr) -> Bound:
    """The columns under the names that stand behind an alias: `AS t (a, b)`."""
    if len(names) != len(bound.columns):
        raise text.error(
            f"{len(names)} names for {len(bound.columns)} columns", span_of(place),
            "name each column once",
        )  # fmt: skip
    columns = (Named(new.name, old.position) for new, old in zip(names, bound.columns, strict=True))
    return Bound(
        bound.node, tuple(columns), bound.lifetime, bound.slide, bound.streamed, bound.momentary
    )


def folded(node: Node) -> Node:
    """A projection of constants is a table of constants."""
    if not (isinstance(node, Project) and isinstance(node.input, Constants)):
        return node
    rows = tuple(
        tuple(_beside(column, 0, row) for column in node.columns) for row in node.input.rows
    )
    return Constants(rows, node.fields)


def refuse_alone(text: Text, node: Node, place: exp.Expr) -> None:
    """Refuses a table of constants that no stream stands beside, anywhere in a plan."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, Constants):
            raise text.error("a query over constants alone", span_of(place), ALONE_HINT)
        waiting += inputs_of(here)


# -- beside a stream ------------------------------------------------------------------------------


def joined(rows: Node, table: Constants, predicate: Expr | None, *, outer: bool) -> Node | None:
    """Rows with the columns of the table; None where the table has too many rows for that."""
    keyed = _keyed(rows, table, predicate)
    if keyed is not None:
        return _by_key(rows, table, keyed, outer=outer)
    if len(table.rows) > BRANCHES_MAX:
        return None
    width = len(rows.schema)
    fields = (*rows.schema, *table.fields)
    own = tuple(Column(i) for i in range(width))
    branches: list[Node] = []
    for row in table.rows:
        kept = rows
        if predicate is not None:
            kept = Filter(rows, _beside(predicate, width, row))
        branches.append(Project(kept, (*own, *row), fields))
    if outer:
        nulls = tuple(Literal(f"CAST(NULL AS {f.type})", f.type) for f in table.fields)
        alone = met(rows, table, predicate, negated=True)
        branches.append(Project(alone, (*own, *nulls), fields))
    return branches[0] if len(branches) == 1 else Union(tuple(branches))


def met(rows: Node, table: Constants, predicate: Expr | None, *, negated: bool) -> Node:
    """The rows for which the predicate holds with some row of the table, or with none."""
    width = len(rows.schema)
    tests = tuple(
        Call("coalesce", (_beside(predicate, width, row), FALSE))
        for row in table.rows
        if predicate is not None
    )
    if predicate is None:
        some: Expr = Literal("TRUE" if table.rows else "FALSE", "boolean")
    else:
        some = tests[0] if len(tests) == 1 else Call("or", tests)
    return Filter(rows, Call("not", (some,)) if negated else some)


def _beside(expr: Expr, width: int, row: Sequence[Expr]) -> Expr:
    """An expression over a stream's row and one row of constants behind it."""

    def change(e: Expr) -> Expr | None:
        return row[e.index - width] if isinstance(e, Column) and e.index >= width else None

    return transform(expr, change)


def _keyed(
    rows: Node, table: Constants, predicate: Expr | None
) -> tuple[Expr, int, tuple[Expr, ...]] | None:
    """The expression and the column that a predicate equates, and its terms without the table."""
    width = len(rows.schema)
    terms = conjuncts(predicate)
    mine = [t for t in terms if any(c >= width for c in columns_of(t))]
    if len(mine) != 1 or len(table.rows) > KEYED_MAX:
        return None
    match mine[0]:
        case Call("=", (key, Column(at))) | Call("=", (Column(at), key)) if at >= width:
            pass
        case _:
            return None
    values = [row[at - width] for row in table.rows]
    exact = table.fields[at - width].type in EXACT
    plain = all(isinstance(v, Literal) and v.text != "NULL" for v in values)
    if any(c >= width for c in columns_of(key)) or not exact or not plain:
        return None
    texts = {v.text.lstrip("0") if v.type != "string" else v.text
             for v in values if isinstance(v, Literal)}  # fmt: skip
    if len(texts) < len(values):
        return None
    return key, at - width, tuple(t for t in terms if t is not mine[0])


def _by_key(
    rows: Node, table: Constants, keyed: tuple[Expr, int, tuple[Expr, ...]], *, outer: bool
) -> Node:
    key, at, others = keyed
    width = len(rows.schema)
    if not outer:
        found = Call("in", (key, *(row[at] for row in table.rows)))
        condition = conjunction((*others, found))
        assert condition is not None
        rows = Filter(rows, condition)
    columns: list[Expr] = [Column(i) for i in range(width)]
    for position, field in enumerate(table.fields):
        arms: list[Expr] = []
        for row in table.rows:
            test = conjunction((*(others if outer else ()), Call("=", (key, row[at]))))
            assert test is not None
            arms += [test, row[position]]
        columns.append(Call("case", (*arms, Literal(f"CAST(NULL AS {field.type})", field.type))))
    return Project(rows, tuple(columns), (*rows.schema, *table.fields))
