"""The two forms in which rows stand beside a table that changes.

As a table: all rows so far, told by changes. As of an instant: rows with the intervals in which
they are in the table, for whoever looks it up. `[PARTITION BY k ROWS 1]` is the current row of each
key in either form.
"""

from dataclasses import replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.from_item import Item
from millstream.language.cql.binding.relations import Lifetime, join_input
from millstream.language.cql.binding.tables.current import current_rows
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import Column
from millstream.language.plan.nodes import (
    Aggregate,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Union,
    Windowed,
    is_relation,
)
from millstream.language.plan.windows import Grouped, Rows, Running, Unbounded

INSTANT_US = 1  # every microsecond is looked at, where anything happens
WINDOW_HINT = (
    "beside a table a stream has no window (all rows so far), [PARTITION BY k ROWS 1] (the current "
    "row of each key), or [NOW] (a lookup)"
)
LOOKUP_HINT = (
    "a lookup reads aggregates of streams and joins of these; leave out [NOW] for a table, or make "
    "the table a stream: FROM (ISTREAM(SELECT ...)) [ROWS 1]"
)


def as_table(rows: Node, lifetime: Lifetime) -> Node | None:
    """Rows as a table; None where they leave it by themselves."""
    if lifetime is Lifetime.CHANGES:
        return rows
    if lifetime is Lifetime.OPEN:
        return join_input(rows, None, lifetime)
    match rows:
        case Filter() | Project():
            below = as_table(rows.input, lifetime)
            return None if below is None else replace(rows, input=below)
        case Windowed(input=inner, window=Rows(count=1, partition=keys)):
            return current_rows(inner, keys)
        case _:
            return None


def as_of(node: Node) -> Node | None:
    """A table's rows with the intervals in which they are in it; None where nobody can tell.

    A group's row holds until its next one: that is a window of one row over all that the group ever
    gave.
    """
    if not is_relation(node):
        return node
    match node:
        case Aggregate(grouping=Running()) if not is_relation(node.input):
            keys = tuple(Column(i) for i in range(len(node.keys)))
            return Windowed(Emit(node, "istream", INSTANT_US), Rows(1, keys))
        case Filter() | Project():
            below = as_of(node.input)
            return None if below is None else replace(node, input=below)
        case Join() | Union():
            made = tuple(as_of(below) for below in node.inputs)
            inputs = tuple(below for below in made if below is not None)
            return replace(node, inputs=inputs) if len(inputs) == len(made) else None
        case _:
            return None


def _whole(item: Item) -> bool:
    """All rows so far, or the current row of each key."""
    match item.window:
        case None | Unbounded():
            return item.lifetime in (Lifetime.OPEN, Lifetime.CHANGES) and not item.momentary
        case Rows(count=1, partition=keys):
            return bool(keys)
        case _:
            return False


class Beside:
    """Puts items into the one form that all of a FROM have."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def items(self, items: list[Item], *, whole: bool = False) -> list[Item]:
        """Items with a table among them: all as tables, or with `[NOW]` all as of its instants.

        With `whole`, rows that never leave are tables too: nobody can say of one of them that it
        will meet no other, but at each watermark which have met none so far.
        """
        if whole and all(_whole(item) for item in items):
            return [self._as_table(item) for item in items]
        if not any(item.lifetime is Lifetime.CHANGES for item in items):
            return items
        if any(item.momentary for item in items):
            return [self._as_of(item) for item in items]
        return [self._as_table(item) for item in items]

    def _as_of(self, item: Item) -> Item:
        if item.lifetime is not Lifetime.CHANGES:
            return item
        made = self.at_instant(item.rows, item.node)
        return replace(item, rows=made, lifetime=Lifetime.BOUNDED)

    def _as_table(self, item: Item) -> Item:
        if isinstance(item.window, Grouped):
            raise self._fail("a window beside a table that changes", item.node, WINDOW_HINT)
        whole = item.window is None or isinstance(item.window, Unbounded)
        rows = item.rows if whole or item.window is None else Windowed(item.rows, item.window)
        made = self.table(rows, item.lifetime, item.node)
        return replace(item, rows=made, window=None, lifetime=Lifetime.CHANGES)

    def table(self, rows: Node, lifetime: Lifetime, place: exp.Expr) -> Node:
        made = as_table(rows, lifetime)
        if made is None:
            raise self._fail("a window beside a table that changes", place, WINDOW_HINT)
        return made

    def at_instant(self, rows: Node, place: exp.Expr) -> Node:
        made = as_of(rows)
        if made is None:
            raise self._fail("a lookup in a table over tables", place, LOOKUP_HINT)
        return made

    def _fail(self, message: str, node: exp.Expr, hint: str) -> CqlError:
        return self._text.error(message, span_of(node), hint)
