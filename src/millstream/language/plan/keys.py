"""Expressions, windows and groupings as texts that are equal where they mean the same.

Ignored: the order of conjuncts that cannot raise, the order of commutative operands, the direction
of comparisons. Kept: the order of conjuncts around one that can raise, because a guard changes
which rows fail.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice, permutations, product
from typing import assert_never

from millstream.language.plan.expressions import (
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
from millstream.language.plan.windows import Grouping, Range, Rows, Sliding, Window

ORDERS_TRIED_MAX, ORDERS_TRIED_MIN = 720, 24  # of equal inputs of a self-join that are compared
TERMS_AT_EASE = 16  # of its condition; with more of them fewer orders are compared


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
    if isinstance(grouping, Sliding) and not grouping.cumulates:
        offset = f", offset={grouping.offset}" if grouping.offset else ""
        return f"Sliding(length={grouping.length}, slide={grouping.slide}{offset})"
    return repr(grouping)


def input_orders(keys: Sequence[str], predicate: Expr | None) -> Iterator[tuple[int, ...]]:
    """Orders of a join's inputs by their keys, equal ones in every way, up to a limit.

    Fewer where many conditions make each comparison long: it is all done while a text is read.
    """
    groups: dict[str, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    terms = max(TERMS_AT_EASE, len(conjuncts(predicate)))
    tried = max(ORDERS_TRIED_MIN, ORDERS_TRIED_MAX * TERMS_AT_EASE // terms)
    # `product` keeps all that it is given: the orders of twelve equal inputs would fill the memory
    some = (islice(permutations(groups[name]), tried) for name in sorted(groups))
    orders = (tuple(p for group in choice for p in group) for choice in product(*some))
    return islice(orders, tried)


def join_key(predicate: Expr | None, widths: Sequence[int], order: tuple[int, ...]) -> str:
    """A join's condition where its inputs, each of so many columns, come in this order."""
    starts = [sum(widths[:position]) for position in range(len(widths))]
    names = {
        starts[position] + column: f"${place}.{column}"
        for place, position in enumerate(order)
        for column in range(widths[position])
    }
    return predicate_key(predicate, names)
