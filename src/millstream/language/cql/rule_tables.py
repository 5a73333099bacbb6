"""Rule tables: streams whose rows are rules, each with the time in which it holds.

The first column names a rule, the others are its parameters. The system adds two: `removed`, true
in a row that ends its rule, and `since`, the event time from which a row counts. A rule holds from
its row's `since` to that of the next row with the same name.
"""

from collections.abc import Mapping
from typing import Any

from millstream.core.errors import UsageError
from millstream.language.plan.schema import Field, Schema

SOURCE = "rules"
REMOVED, SINCE = "removed", "since"
VALIDITY = (Field(REMOVED, "boolean"), Field(SINCE, "timestamp"))
TABLE_HINT = (
    "CREATE STREAM limits (rule STRING, threshold DOUBLE) WITH (source = 'rules'): "
    "the rule's name, then its parameters"
)


def is_rule_table(source: Mapping[str, Any]) -> bool:
    return source.get("source") == SOURCE


def with_validity(name: str, columns: Schema, time: str) -> tuple[Schema, str]:
    """The columns of a rule table with those that the system adds, and its time.

    >>> columns, time = with_validity("limits", (Field("rule", "string"),), "")
    >>> [f.name for f in columns], time
    (['rule', 'removed', 'since'], 'since')
    """
    if columns[-2:] == VALIDITY and len(columns) > len(VALIDITY) and time == SINCE:
        return columns, time
    taken = {f.name.lower() for f in columns} & {f.name for f in VALIDITY}
    if taken:
        raise UsageError(
            f"rule table {name} has a column {min(taken)}, which the system adds by itself",
            hint="give it another name",
        )
    if time:
        raise UsageError(
            f"rule table {name} has a time of its own",
            hint="leave it out: a rule holds from when it is added",
        )
    return (*columns, *VALIDITY), SINCE


def parameters_of(columns: Schema) -> Schema:
    """The columns of a rule table that queries name with a colon, the rule's name among them."""
    return columns[: -len(VALIDITY)]
