"""A stream of changes in FROM: the table that its changes make.

Of each key the last row counts, by time and position; where that deletes, the key is gone. So an
update of a key that is not there is an insert, and a delete of one changes nothing. Such deletes
are a stream of their own, `<stream>.unmatched`.
"""

from millstream.language.cql.binding.relations import Bound, Lifetime
from millstream.language.cql.binding.scope import Named, is_time
from millstream.language.cql.binding.tables.current import current_rows
from millstream.language.cql.catalog import Catalog, StreamDefinition, lookup
from millstream.language.cql.change_data import DELETED, REPLACED, ChangeData, change_data_of
from millstream.language.cql.types import fields_of
from millstream.language.plan.expressions import Call, Column, Expr, Literal
from millstream.language.plan.nodes import AggregateCall, Filter, Node, Over, Project, Source
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.sql_text import quoted
from millstream.language.plan.windows import OverFrame

UNMATCHED = "unmatched"
AFTER, BEFORE, OP = Column(1), Column(0), Column(2)  # of Debezium's envelope


def changed_table(stream: StreamDefinition, told: ChangeData, start: int) -> Bound:
    """The table of a stream of changes."""
    rows, fields, op = _rows(stream, told, start)
    names = [f.name for f in fields]
    if op is not None:
        rows = Filter(rows, _says_not(op, REPLACED))
    keys = tuple(Column(lookup(name, names)[0]) for name in told.key)
    table = current_rows(rows, keys, start)
    if op is not None:
        table = Filter(table, _says_not(op, DELETED))
    seen = [i for i, f in enumerate(fields) if not is_time(f.name)]
    columns = tuple(Named(fields[i].name, i) for i in seen if op is None or i != op.index)
    return Bound(table, columns, Lifetime.CHANGES)


def unmatched_deletes(catalog: Catalog, name: str, start: int) -> Bound | None:
    """`people.unmatched`: deletes of keys that are not there; None where no stream has any.

    A key is not there where its row before, by time and position, deletes it, or it has none.
    """
    base, dot, word = name.rpartition(".")
    if not dot or word.lower() != UNMATCHED:
        return None
    found = lookup(base, [s.name for s in catalog.streams])
    told = change_data_of(catalog.streams[found[0]].source) if len(found) == 1 else None
    if told is None or told.op is None:
        return None
    rows, fields, op = _rows(catalog.streams[found[0]], told, start)
    assert op is not None
    names = [f.name for f in fields]
    keys = tuple(Column(lookup(key, names)[0]) for key in told.key)
    deletes = Call("not", (_says_not(op, DELETED),))
    before = AggregateCall("first", deletes, "boolean", "boolean")
    seen = Over(
        Filter(rows, _says_not(op, REPLACED)), keys, (before,), (OverFrame("rows", -1, -1),)
    )
    gone = Call("coalesce", (Column(len(fields)), Literal("TRUE", "boolean")))
    columns = tuple(Named(f.name, i) for i, f in enumerate(fields) if not is_time(f.name))
    return Bound(Filter(seen, Call("and", (deletes, gone))), columns, Lifetime.OPEN)


def _rows(
    stream: StreamDefinition, told: ChangeData, start: int
) -> tuple[Node, Schema, Column | None]:
    """The rows of all changes, their columns, and the one that says what a change does."""
    source = Source(stream.name, stream.columns, start)
    if not told.envelope:
        names = [f.name for f in stream.columns]
        op = None if told.op is None else Column(lookup(told.op, names)[0])
        return source, stream.columns, op
    inner = fields_of(stream.columns[AFTER.index].type)
    gone = Call("is_null", (AFTER,))
    values = tuple(Call("if", (gone, _part(BEFORE, f), _part(AFTER, f))) for f in inner)
    fields = (*inner, Field("op", "string"))
    return Project(source, (*values, OP), fields), fields, Column(len(inner))


def _part(row: Column, field: Field) -> Expr:
    return Call("field", (row, Literal(quoted(field.name), "name")))


def _says_not(op: Column, words: tuple[str, ...]) -> Expr:
    texts = (Literal(f"'{word}'", "string") for word in words)
    word = Call("coalesce", (Call("lower", (op,)), Literal("''", "string")))
    return Call("not", (Call("in", (word, *texts)),))
