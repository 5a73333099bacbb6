"""FOR EACH bound: the rows of an item of FROM, once for each rule that holds for them.

Parameters are columns that only a colon names. What WHERE asks of them chooses the rules.
"""

from millstream.core.errors import UsageError
from millstream.language.cql.binding.scope import Member, Named
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.rules import ITEM
from millstream.language.cql.parsing.syntax import RulesSyntax
from millstream.language.cql.rule_tables import TABLE_HINT, is_rule_table, parameters_of
from millstream.language.plan.nodes import Node, Ruled, Source, sources_of

ITEM_HINT = (
    "put it on one stream or subquery without a window: "
    "SELECT ... FROM (SELECT ... FROM a [RANGE 1 MINUTE], b) WHERE v > :limit FOR EACH limits"
)
AGGREGATE_HINT = (
    "aggregate first, FROM (SELECT k, avg(v) AS m FROM s [RANGE 1 MINUTE] GROUP BY k) "
    "WHERE m > :limit FOR EACH limits; or the rows that rules have chosen: "
    "FROM (SELECT v FROM s WHERE v > :limit FOR EACH limits) [RANGE 1 MINUTE] GROUP BY rule"
)


def ruled(text: Text, catalog: Catalog, rows: Node, syntax: RulesSyntax) -> tuple[Node, Member]:
    """The rows with the columns of their rules, and what parameters mean there."""
    try:
        table = catalog.stream(syntax.table)
    except UsageError as mistake:
        raise text.error(mistake.message, syntax.span, mistake.hint) from None
    if not is_rule_table(table.source):
        raise text.error(f"stream {table.name} is not a rule table", syntax.span, TABLE_HINT)
    if any(source.stream == table.name for source in sources_of(rows)):
        raise text.error(
            f"rules of {table.name} over {table.name} itself", syntax.span, "name another stream"
        )
    names = tuple(Named(f.name, i) for i, f in enumerate(parameters_of(table.columns)))
    member = Member(ITEM, names, len(rows.schema), lateral=True, unnamed=True)
    return Ruled(rows, Source(table.name, table.columns), None), member
