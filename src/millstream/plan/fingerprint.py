"""A digest of what a node means, equal for plans that differ only in spelling.

Ignored: names and aliases, the order of conjuncts that cannot raise, the order of commutative
operands, the direction of comparisons, the order of a join's inputs. Kept: the order of conjuncts
around one that can raise, because a guard changes which rows fail. A query's start enters last:
a fingerprint is a digest of the shape and the start, so that who knows the shapes of a query's
operators knows their fingerprints for every start.
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice, permutations, product
from typing import assert_never

from millstream.plan.expressions import (
    COMMUTATIVE,
    MIRRORED,
    Call,
    Cast,
    Column,
    Expr,
    Lambda,
    Literal,
    Parameter,
    Time,
    conjuncts,
    total,
)
from millstream.plan.nodes import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Source,
    Union,
    Windowed,
    inputs_of,
)
from millstream.plan.windows import BEGINNING, Grouping, Range, Rows, Sliding, Window

ORDERS_TRIED_MAX = 720  # orders of equal inputs of a self-join that are compared


def digest(*parts: str) -> str:
    return blake2b("\x1f".join(parts).encode(), digest_size=12).hexdigest()


def expression_key(expr: Expr, columns: dict[int, str] | None = None) -> str:
    """A canonical text; `columns` renames positions (for joins, whose inputs have no order).

    >>> a, b = Column(0), Column(1)
    >>> expression_key(Call("<", (a, b))) == expression_key(Call(">", (b, a)))
    True
    """
    match expr:
        case Column(index):
            return columns[index] if columns else f"${index}"
        case Time():
            return "$time"
        case Literal(text, type_):
            return f"{text}:{type_}"
        case Cast(arg, type_, lenient):
            return f"{'try_' if lenient else ''}cast({expression_key(arg, columns)} as {type_})"
        case Lambda(parameters, body):
            return f"({','.join(parameters)})->{expression_key(body, columns)}"
        case Parameter(name):
            return f"\\{name}"
        case Call("and", _):
            return predicate_key(expr, columns)
        case Call(name, args):
            keys = [expression_key(arg, columns) for arg in args]
            if name in MIRRORED and (keys[::-1], MIRRORED[name]) < (keys, name):
                name, keys = MIRRORED[name], keys[::-1]
            elif name in COMMUTATIVE or name == "in":
                # `a OR b` may guard as well: only operands that cannot raise change places
                head, rest = (keys[:1], keys[1:]) if name == "in" else ([], keys)
                keys = head + sorted(rest) if all(total(a) for a in args) or name in "+*" else keys
            return f"{name}({','.join(keys)})"
        case _:
            assert_never(expr)


def predicate_key(predicate: Expr | None, columns: dict[int, str] | None = None) -> str:
    """Conjuncts sorted and without repeats, except around those that can raise."""
    runs: list[list[str]] = [[]]
    for term in conjuncts(predicate):
        key = expression_key(term, columns)
        if total(term):
            runs[-1].append(key)
        else:
            runs += [[key], []]
    return "and(" + ";".join("&".join(sorted(set(run))) for run in runs) + ")"


def window_key(window: Window) -> str:
    if isinstance(window, Rows):
        return f"rows({window.count};{','.join(expression_key(e) for e in window.partition)})"
    if isinstance(window, Range) and not window.half_open:
        return f"Range(length={window.length})"
    return repr(window)


def grouping_key(grouping: Grouping) -> str:
    if isinstance(grouping, Sliding) and not grouping.offset:
        return f"Sliding(length={grouping.length}, slide={grouping.slide})"
    return repr(grouping)


def start_of(node: Node) -> int | None:
    """The one start of all that a node reads; None where its parts have several."""
    starts = {child.start_of_all for child in inputs_of(node)}
    if isinstance(node, Source | Aggregate):
        starts.add(node.start)
    return starts.pop() if len(starts) == 1 else None


def starting(shape: str, start: int | None) -> str:
    """The fingerprint of what has a shape, for rows from a start on."""
    return shape if start in (None, BEGINNING) else digest(shape, str(start))


def shape(node: Node) -> str:
    """The digest of a node without its start, where it has one: equal for queries that differ in
    their start alone."""
    match node:
        case Source():
            types = ",".join(f.type for f in node.columns)
            own = (node.reader,) if node.reader else ()
            return digest("source", node.stream, types, str(BEGINNING), *own)
        case Filter():
            if isinstance(node.input, Filter):
                return _merged_filter(node)
            return digest("filter", _key(node, node.input), predicate_key(node.predicate))
        case Project():
            columns = (expression_key(c) for c in node.columns)
            return digest("project", _key(node, node.input), *columns)
        case Union():
            return digest("union", *sorted(_key(node, i) for i in node.inputs))
        case Windowed():
            return digest("window", _key(node, node.input), window_key(node.window))
        case Join():
            return _join(node)
        case Aggregate():
            calls = (
                f"{c.function}|{c.distinct}|{c.argument and expression_key(c.argument)}"
                f"|{predicate_key(c.condition)}|{c.type}"
                for c in node.calls
            )
            keys = ",".join(expression_key(k) for k in node.keys)
            start = node.start if node.start_of_all is None else BEGINNING
            return digest(
                "aggregate", _key(node, node.input), grouping_key(node.grouping), str(start), keys,
                *calls,
            )  # fmt: skip
        case Distinct():
            return digest("distinct", _key(node, node.input))
        case Emit():
            return digest("emit", _key(node, node.input), node.kind, str(node.slide))
        case _:
            raise TypeError(f"not a plan node: {node!r}")


def _key(node: Node, child: Node) -> str:
    """What a child is to a node: its shape, unless the node's parts have several starts."""
    return child.fingerprint if node.start_of_all is None else child.shape


def _merged_filter(node: Filter) -> str:
    """Filters on top of each other mean their conjunction, the inner one first."""
    terms = conjuncts(node.predicate)
    inner: Node = node.input
    while isinstance(inner, Filter):
        terms = conjuncts(inner.predicate) + terms
        inner = inner.input
    return digest("filter", _key(node, inner), predicate_key(Call("and", terms)))


def canonical_order(node: Join) -> tuple[int, ...]:
    """The positions of a join's inputs in the order that gives the least key.

    Inputs are ordered by shape; equal ones (self-joins) by the order that makes the
    predicate's text smallest, so that swapping them changes nothing.
    """
    return min(_orders(node), key=lambda order: _join_key(node, order))


def symmetries(node: Join) -> tuple[tuple[int, ...], ...]:
    """All orders of the inputs that give the very same join; one where there is no self-join."""
    own = tuple(range(len(node.inputs)))
    children = [_key(node, child) for child in node.inputs]
    if len(set(children)) == len(own):
        return (own,)
    key = _join_key(node, own)
    return tuple(
        order
        for order in _orders(node)
        if [children[p] for p in order] == children and _join_key(node, order) == key
    )


def _orders(node: Join) -> Iterator[tuple[int, ...]]:
    """Orders of the inputs by shape, equal ones in every way, up to a limit."""
    groups: dict[str, list[int]] = {}
    for position, child in enumerate(node.inputs):
        groups.setdefault(_key(node, child), []).append(position)
    choices = product(*(permutations(groups[name]) for name in sorted(groups)))
    orders = (tuple(p for group in choice for p in group) for choice in choices)
    return islice(orders, ORDERS_TRIED_MAX)


def _join_key(node: Join, order: tuple[int, ...]) -> str:
    starts, total_columns = [], 0
    for child in node.inputs:
        starts.append(total_columns)
        total_columns += len(child.schema)
    names = {
        starts[position] + column: f"${place}.{column}"
        for place, position in enumerate(order)
        for column in range(len(node.inputs[position].schema))
    }
    return predicate_key(node.predicate, names)


def _join(node: Join) -> str:
    """The output's column order is part of the meaning: a permuted join is another stream.

    Queries see a join through a projection; `rewrite` puts inputs into canonical order first, so
    that joins written in another order become the same node under another projection.
    """
    order = canonical_order(node)
    children = (_key(node, node.inputs[p]) for p in order)
    return digest("join", *children, _join_key(node, order), ",".join(map(str, order)))
