"""LEFT, RIGHT and FULL JOIN, LEFT SEMI and LEFT ANTI JOIN over windows and of tables.

An outer join is the inner join and, beside it, the rows that met nobody, each once when it left,
padded with NULL. So the inner part is the very join that others may run already, and what is new is
an antijoin for each side that is kept whole.
"""

from dataclasses import dataclass

from sqlglot import exp

from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.relations import as_stream
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import (
    TRUE,
    Column,
    Expr,
    Literal,
    columns_of,
    transform,
)
from millstream.language.plan.nodes import (
    Aggregate,
    Join,
    Node,
    Project,
    Semijoin,
    Union,
    is_relation,
)
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import BEGINNING, FOREVER, Running
from millstream.language.share.dataflow import has_rows, lasting

CHAIN_HINT = (
    "put the join before it into a subquery with a window of its own: "
    "FROM (SELECT ... FROM a [...] LEFT JOIN b [...] ON ...) AS ab [RANGE ...] JOIN c ..."
)
NATURAL_HINT = "name the columns: JOIN ... USING (a, b)"
ASOF_HINT = "look the latest row up: FROM a [NOW] LEFT JOIN b [PARTITION BY k ROWS 1] ON a.k = b.k"


@dataclass(frozen=True, slots=True)
class Kind:
    """A join that is not an inner one, as written."""

    word: str  # LEFT JOIN, FULL JOIN, LEFT ANTI JOIN
    left: bool = False  # rows of the left side that met nobody are wanted
    right: bool = False
    semi: bool = False  # the left side's columns alone


def kind_of(text: Text, join: exp.Join) -> Kind | None:
    """What kind of join it is; None for an inner one, refused where there is no such join."""
    side, kind, method = (join.args.get(k) or "" for k in ("side", "kind", "method"))
    if method:
        hints = {"ASOF": ASOF_HINT, "NATURAL": NATURAL_HINT}
        raise text.error(
            f"{method} JOIN is not supported", span_of(join), hints.get(method, "use JOIN ... ON")
        )
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return Kind(f"LEFT {kind} JOIN", left=kind == "ANTI", semi=True)
    if kind in ("", "OUTER") and side in ("LEFT", "RIGHT", "FULL"):
        return Kind(f"{side} JOIN", left=side != "RIGHT", right=side != "LEFT")
    if not side and kind in ("", "INNER", "CROSS"):
        return None
    words = " ".join(w for w in (side, kind) if w)
    raise text.error(f"{words} JOIN is not supported", span_of(join), "use JOIN ... ON")


def outer_rows(left: Node, right: Node, predicate: Expr | None, kind: Kind) -> Node:
    """The stream of an outer join's results; of a semijoin, or an antijoin, the left columns."""
    if kind.semi:
        return Semijoin((left, right), predicate, kind.left)
    inner = Join((left, right), predicate)
    parts: list[Node] = [inner if is_relation(inner) else as_stream(inner)]
    width = len(left.schema)
    if kind.left:
        alone = semijoin(left, right, predicate, anti=True)
        parts.append(_padded(alone, (), right.schema))
    if kind.right:
        turned = None if predicate is None else _turned(predicate, width, len(right.schema))
        alone = semijoin(right, left, turned, anti=True)
        parts.append(_padded(alone, left.schema, ()))
    return Union(tuple(parts))


def semijoin(ours: Node, theirs: Node, predicate: Expr | None, *, anti: bool) -> Node:
    """The table of the rows that have met somebody, or nobody; beside windows a stream.

    Where no side is a table that changes, and no row leaves, in the place of the other side stands
    the table of the values that the predicate compares.
    """
    width = len(ours.schema)
    sides = (ours, theirs)
    if any(is_relation(side) or lasting(side) < FOREVER for side in sides):
        return Semijoin(sides, predicate, anti)
    compared = columns_of(predicate) if predicate is not None else frozenset()
    used = sorted(i - width for i in compared if i >= width)
    keys: tuple[Expr, ...] = tuple(Column(i) for i in used)
    fields = tuple(theirs.schema[i] for i in used)
    if not used:  # whether there is any row at all
        keys, fields = (TRUE,), (Field("there", "boolean"),)
    there = Aggregate(theirs, keys, (), Running(), fields, theirs.start_of_all or BEGINNING)
    places = {width + i: width + n for n, i in enumerate(used)}

    def moved(e: Expr) -> Expr | None:
        return Column(places.get(e.index, e.index)) if isinstance(e, Column) else None

    return Semijoin((ours, there), predicate and transform(predicate, moved), anti)


def _padded(rows: Node, before: Schema, after: Schema) -> Node:
    own = tuple(Column(i) for i in range(len(rows.schema)))
    columns = (*_nulls(before), *own, *_nulls(after))
    return Project(rows, columns, (*before, *rows.schema, *after))


def _nulls(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Literal(f"CAST(NULL AS {f.type})", f.type) for f in schema)


def _turned(predicate: Expr, left: int, right: int) -> Expr:
    """The same predicate over the columns of the right side, then those of the left one."""

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Column):
            return None
        return Column(e.index + right if e.index < left else e.index - left)

    return transform(predicate, change)


def refuse_undecided(
    text: Text, word: str, ours: tuple[Node, exp.Expr], theirs: Node, *, anti: bool
) -> None:
    """Whether rows of one side met anybody must be known some time.

    A row that leaves with later rows of its stream has no end that is known; beside such rows only
    what looks at one instant can be decided, because those that have left are not kept.
    """
    rows, place = ours
    if has_rows(rows):
        raise text.error(
            f"{word} over a window of rows", span_of(place),
            "when a row leaves depends on rows to come; use [RANGE ...], or [NOW] for a lookup",
        )  # fmt: skip
    if anti and lasting(rows) == FOREVER:
        raise text.error(
            f"{word} over rows that never leave", span_of(place),
            "a match may always still come: give the stream a window, [RANGE 10 SECONDS], or [NOW]"
            " for a lookup",
        )  # fmt: skip
    if has_rows(theirs) and lasting(rows) > 0:
        raise text.error(
            f"{word} beside a window of rows, over rows that stay", span_of(place),
            "give it [NOW]: each row then sees the other side as it is at its own instant",
        )  # fmt: skip
