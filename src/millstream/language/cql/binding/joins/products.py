"""Products without end are asked for by name.

`a [UNBOUNDED], b [UNBOUNDED]` without an equality between them is almost always a condition that
somebody forgot, and its work grows with the square of the rows for ever. `CROSS JOIN` says that it
is meant. Asked when a query is registered, never when one that runs is opened again.
"""

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.parsing.parser import SelectStatement
from millstream.language.cql.parsing.syntax import Span
from millstream.language.plan.nodes import Plan
from millstream.language.plan.products import endless_groups, joins_of

MESSAGE = "this joins every row there ever was with every other: no equality links its inputs"
HINT = (
    "equate columns of both (ON a.k = b.k), or give a window an end ([RANGE 1 MINUTE]); "
    "where every pair is meant, say CROSS JOIN"
)


def unasked_product(statement: SelectStatement, plan: Plan) -> CqlError | None:
    """The mistake of a query with a product without end that its text does not ask for."""
    if all(endless_groups(join) < 2 for join in joins_of(plan.root)) or crosses(statement):
        return None
    return _refused(statement)


def crosses(statement: SelectStatement) -> bool:
    """Whether a text says CROSS JOIN."""
    trees = [statement.tree, *(view.select.tree for view in statement.views)]
    return any(_asked_for(tree) for tree in trees)


def _asked_for(tree: exp.Expr) -> bool:
    """Whether a text has a CROSS JOIN of two inputs."""
    return any(
        str(join.args.get("kind") or "").upper() == "CROSS" and not join.this.find(exp.Unnest)
        for join in tree.find_all(exp.Join)
    )


def _refused(statement: SelectStatement) -> CqlError:
    """The mistake, at the first input that is joined."""
    for join in statement.tree.find_all(exp.Join):
        for name in join.this.find_all(exp.Identifier):
            if "start" in name.meta:
                span = Span(int(name.meta["start"]), int(name.meta["end"]))
                return statement.text.error(MESSAGE, span, HINT)
    return statement.text.error(MESSAGE, Span(0, len(statement.text.source) - 1), HINT)
