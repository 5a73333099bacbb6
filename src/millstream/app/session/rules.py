"""A rule set as its user holds it: a query whose parameters are rows that come and go."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.app.session.arguments import Columns
from millstream.app.session.query import HandleSession, QueryHandle
from millstream.app.session.rows import as_given
from millstream.core.errors import UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.cql.parsing.rules import HINT
from millstream.language.cql.parsing.syntax import RulesSyntax
from millstream.language.cql.rule_tables import REMOVED, SOURCE
from millstream.language.plan.schema import Field
from millstream.language.plan.sql_text import quoted

KEY = "rule"  # the column that names a rule, where nobody names it otherwise


class RuleSet(QueryHandle):
    """A query of a session with one row per rule."""

    def __init__(self, session: HandleSession, name: str, table: str, producer: str) -> None:
        super().__init__(session, name)
        self.table_name, self._producer = table, producer

    def __repr__(self) -> str:
        return super().__repr__().replace("<query", "<rules", 1)

    def add(self, rows: Any) -> None:
        """Adds rules durably; a rule replaces an existing one of the same name.

        Rows have the same forms as for `push`. A rule holds for rows that come from now on.
        """
        definition = self._system.definition(self.table_name)
        self._changed(as_given(rows, definition))

    def remove(self, *names: Any) -> None:
        """Ends rules by name; their results stay."""
        key = self._system.definition(self.table_name).columns[0].name
        self._changed([{key: name, REMOVED: True} for name in names])

    def _changed(self, rows: Sequence[Any] | pa.Table) -> None:
        if not len(rows):
            return
        answer = self._system.push(self.table_name, rows, self._producer)
        if answer["rejected"]:
            reasons = "; ".join(f"row {row}: {why}" for row, why in answer["reasons"])
            raise UsageError(
                f"{answer['rejected']} of {len(rows)} rules were rejected", detail=reasons
            )

    def rules(self) -> list[dict[str, Any]]:
        """The rules that hold now, each with `since`, the event time from which it holds."""
        return self._session.present_rules(self.table_name)


def rule_table(name: str, parameters: Columns) -> StreamDefinition:
    """The table of a rule set that is given by its parameters alone."""
    columns = [Field(n, t) for n, t in dict(parameters).items()]
    if not any(f.name.lower() == KEY for f in columns):
        columns.insert(0, Field(KEY, "string"))
    return StreamDefinition(name, tuple(columns), "", source={"source": SOURCE})


def table_named(cql: str) -> str:
    """The rule table that a text names itself; empty where it names none."""
    rules: RulesSyntax | None = parse_query(cql).tree.meta.get("rules")
    return "" if rules is None else rules.table


def for_each(cql: str, table: str) -> str:
    """The text with its rule table."""
    return f"{cql.rstrip().rstrip(';')} FOR EACH {quoted(table)}"


def refuse_tableless(cql: str) -> UsageError:
    return UsageError(
        "a rule set needs its parameters, or the name of their table",
        detail=cql,
        hint=f'parameters={{"limit": "double"}}, or {HINT}',
    )
