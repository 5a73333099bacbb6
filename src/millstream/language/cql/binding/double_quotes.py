"""Words in double quotes: names in standard SQL, texts in Spark's.

After AS, beside a dot and in FROM such a word can only be a name. Anywhere else it is a text, as
Spark has it, unless a column in scope has that name: then the two readings differ and nothing but
the user can choose, so the query is refused.
"""

from collections.abc import Iterable

from sqlglot import exp

from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.scope import Scope
from millstream.language.cql.catalog import TIME, lookup
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.sql_text import quoted


def refuse_named_columns(
    text: Text, node: exp.Expr, scope: Scope, aliases: Iterable[str] = ()
) -> None:
    """Refuses words in double quotes that name a column, anywhere but in subqueries."""
    known = [TIME, *aliases, *(c.name for m in scope.members for c in m.columns)]
    for part in node.walk(prune=lambda n: isinstance(n, exp.Subquery | exp.With)):
        refuse_name(text, part, known)


def refuse_name(text: Text, word: exp.Expr, known: list[str]) -> None:
    """Refuses a word in double quotes that is one of the known names."""
    if not isinstance(word, exp.Literal) or not word.is_string:
        return
    span = span_of(word)
    if text.source[span.start : span.start + 1] == '"' and lookup(word.name, known):
        raise text.error(
            f'"{word.name}" could be the column or a text', span,
            f"write {quoted(word.name)} for the column, '{word.name}' for the text",
        )  # fmt: skip
