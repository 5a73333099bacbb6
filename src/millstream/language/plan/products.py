"""Joins that no equality links: every row of one side meets every row of the other.

Where the windows end, rows meet in buckets of time, and the work is bounded by what a window holds.
Where two sides without a link have no end, it grows with the square of the rows, for ever. Reads
plans; decides nothing.
"""

from collections.abc import Iterator

from millstream.language.plan.expressions import Call, columns_of, conjuncts
from millstream.language.plan.nodes import Filter, Join, Node, Project, Windowed, inputs_of
from millstream.language.plan.windows import Unbounded


def outermost_window(node: Node) -> Windowed | None:
    """The window that decides how long rows of a chain stay; None where the leaf decides."""
    match node:
        case Windowed():
            return node
        case Filter() | Project():
            return outermost_window(node.input)
        case _:
            return None


def endless(member: Node) -> bool:
    """Whether rows of a join's input stay for ever, by its window; those of [ROWS n] give way."""
    window = outermost_window(member)
    return window is not None and isinstance(window.window, Unbounded)


def linked(join: Join) -> list[set[int]]:
    """The inputs of a join in groups that equalities hold together."""
    owner = [number for number, node in enumerate(join.inputs) for _ in node.schema]
    groups = [{number} for number in range(len(join.inputs))]
    for term in conjuncts(join.predicate):
        match term:
            case Call("=" | "<=>", (left, right)):
                sides = [{owner[c] for c in columns_of(e)} for e in (left, right)]
                if all(len(side) == 1 for side in sides):
                    one = set().union(*(g for g in groups if g & (sides[0] | sides[1])))
                    groups = [g for g in groups if not g & one] + [one]
    return groups


def endless_groups(join: Join) -> int:
    """How many of those groups have no end; two or more make a product without end."""
    return sum(any(endless(join.inputs[m]) for m in group) for group in linked(join))


def joins_of(node: Node) -> Iterator[Join]:
    """Every join of a plan."""
    if isinstance(node, Join):
        yield node
    for child in inputs_of(node):
        yield from joins_of(child)
