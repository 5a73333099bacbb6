"""The current row of each key: the last one, by time and position."""

from millstream.language.plan.expressions import Call, Column, Expr, Literal
from millstream.language.plan.nodes import Aggregate, AggregateCall, Node, Project
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import BEGINNING, Running


def current_rows(rows: Node, keys: tuple[Expr, ...], start: int | None = None) -> Node:
    """The last row of each key, by time and position, as a table with the same columns."""
    names = (Literal(f"'f{i}'", "string") for i in range(len(rows.schema)))
    columns = (Column(i) for i in range(len(rows.schema)))
    parts = tuple(e for pair in zip(names, columns, strict=True) for e in pair)
    type_ = f"struct<{','.join(f'f{i}:{f.type}' for i, f in enumerate(rows.schema))}>"
    last = AggregateCall("last", Call("named_struct", parts), type_, type_)
    fields = (*(_field(rows.schema, key) for key in keys), Field("row", type_))
    since = rows.start_of_all if start is None else start
    latest = Aggregate(
        rows, keys, (last,), Running(), fields, BEGINNING if since is None else since
    )
    row = Column(len(keys))
    values = tuple(
        Call("field", (row, Literal(f"`f{i}`", "name"))) for i in range(len(rows.schema))
    )
    return Project(latest, values, rows.schema)


def _field(schema: Schema, key: Expr) -> Field:
    assert isinstance(key, Column)
    return schema[key.index]
