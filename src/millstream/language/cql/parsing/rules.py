"""Queries with parameters: `SELECT ... WHERE v > :limit FOR EACH limits`.

The table stands behind the query or in CREATE RULES. The select remembers it under `rules`, and a
parameter becomes a column of an item that no text can name.
"""

from sqlglot import exp

from millstream.language.cql.parsing.syntax import CqlSyntaxError, RulesSyntax, span_of

ITEM = ":rules"  # the item of FROM whose columns are the parameters
HINT = "CREATE RULES name FROM table AS SELECT ... FROM s WHERE value > :limit"
ONE_SELECT_HINT = (
    "put it on one SELECT: SELECT ... FROM (SELECT ... FROM s WHERE v > :limit FOR EACH limits)"
)


def mark_rules(query: exp.Expr, rules: RulesSyntax) -> None:
    """Notes which rules a query is asked for; its parameters become columns."""
    if not isinstance(query, exp.Select):
        raise CqlSyntaxError("FOR EACH over more than one SELECT", rules.span, ONE_SELECT_HINT)
    if "rules" in query.meta:
        raise CqlSyntaxError("two rule tables for one query", rules.span, HINT)
    query.meta["rules"] = rules
    for node in list(query.find_all(exp.Placeholder)):
        if node.find_ancestor(exp.Select) is query and isinstance(node.this, str):
            node.replace(_column(node))


def _column(node: exp.Placeholder) -> exp.Column:
    span = span_of(node)
    made = exp.Column(this=exp.to_identifier(node.this), table=exp.to_identifier(ITEM, quoted=True))
    for part in made.walk():
        part.meta.update(start=span.start, end=span.end)
    return made
