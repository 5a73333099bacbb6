"""Cuts a query into fragments, the units that are placed and moved (seed 002, section 3.1).

From a tree of operators and the streams' rates it decides which operators stay together: one
fragment for each stream read, its unary operators above it, and each binary operator with the side
whose result is larger. Each fragment is thus a path of the tree, and a query can never be spread
over more nodes than it reads streams: its distribution limit. The initial placement puts every
fragment at the delegation node of its stream. Nothing here looks at load: that is left to the
dynamic scheme.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.core.errors import UsageError
from millstream.decide.balance.model.operator_tree import Operator, QueryTree

Delegation = Mapping[str, str]  # stream -> the node that receives it from outside


@dataclass(frozen=True, slots=True)
class Fragment:
    """Operators of one query that stay together: a path from a stream upwards.

    `downstream` is the fragment that reads this one's result, at the operator number `entry` of its
    path; the fragment that holds the root has none.
    """

    id: str
    query: str
    stream: str
    operators: tuple[Operator, ...]  # in order of processing
    downstream: str | None = None
    entry: int = 0
    reads_stream: bool = True  # false for the upper operators when each is a unit of its own


def fragment_query(tree: QueryTree, stream_rates: Mapping[str, float]) -> tuple[Fragment, ...]:
    """The fragments of a query, by the five steps of section 3.1, in order of their streams.

    A stream that a query reads twice (a self-join) gives two fragments: a fragment is then still a
    path, and the distribution limit counts occurrences.
    """
    rates = tree.output_rates(stream_rates)
    parts, leaf_of = _leaves(tree)
    at: dict[str, int] = {}  # result so far (operator id) -> the fragment that now stands for it
    joined: dict[int, tuple[int, int]] = {}  # fragment -> (its downstream fragment, entry)
    pending = {operator.id: operator for operator in tree.operators}
    while pending:
        ready = [op for op in tree.operators if op.id in pending and _ready(op, at, leaf_of)]
        # Step 3 takes every unary operator it can before step 4 takes a binary one.
        for operator in [op for op in ready if op.unary] or ready:
            sides = [_side(operator, n, at, leaf_of) for n in range(len(operator.inputs))]
            larger = max(range(len(sides)), key=lambda n: (rates[operator.inputs[n]], -n))
            keeper = sides[larger]
            for side in sides:
                if side != keeper:
                    joined[side] = (keeper, len(parts[keeper][1]))
            parts[keeper][1].append(operator)
            at[operator.id] = keeper
            del pending[operator.id]
    names = _names(tree.id, [stream for stream, _ in parts])
    return tuple(
        Fragment(
            names[n],
            tree.id,
            stream,
            tuple(operators),
            names[joined[n][0]] if n in joined else None,
            joined[n][1] if n in joined else 0,
        )
        for n, (stream, operators) in enumerate(parts)
    )


def _leaves(
    tree: QueryTree,
) -> tuple[list[tuple[str, list[Operator]]], dict[tuple[str, int], int]]:
    """Step 2: an empty fragment for each access to a stream."""
    parts: list[tuple[str, list[Operator]]] = []
    leaf_of: dict[tuple[str, int], int] = {}
    for operator in tree.operators:
        for n, name in enumerate(operator.inputs):
            if name not in tree.by_id:
                leaf_of[operator.id, n] = len(parts)
                parts.append((name, []))
    return parts, leaf_of


def _side(
    operator: Operator, n: int, at: dict[str, int], leaf_of: dict[tuple[str, int], int]
) -> int:
    leaf = leaf_of.get((operator.id, n))
    return at[operator.inputs[n]] if leaf is None else leaf


def _ready(operator: Operator, at: dict[str, int], leaf_of: dict[tuple[str, int], int]) -> bool:
    return all((operator.id, n) in leaf_of or name in at for n, name in enumerate(operator.inputs))


def _names(query: str, streams: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    names = []
    for stream in streams:
        seen[stream] += 1
        again = f"#{seen[stream]}" if seen[stream] > 1 else ""
        names.append(f"{query}/{stream}{again}")
    return names


def single_operators(fragments: Iterable[Fragment]) -> tuple[Fragment, ...]:
    """Every operator as a unit of its own, for operator-based balancing (no distribution limit)."""
    whole = tuple(fragments)
    by_id = {fragment.id: fragment for fragment in whole}
    units = []
    for fragment in whole:
        above = None  # the unit that reads the fragment's result
        if fragment.downstream is not None:
            target = by_id[fragment.downstream]
            above = f"{target.id}:{target.operators[fragment.entry].id}"
        if not fragment.operators:  # a bare stream still has to reach its reader
            units.append(replace(fragment, downstream=above, entry=0))
        names = [f"{fragment.id}:{operator.id}" for operator in fragment.operators]
        units.extend(
            Fragment(name, fragment.query, fragment.stream, (operator,), next_up, 0, n == 0)
            for n, (name, operator, next_up) in enumerate(
                zip(names, fragment.operators, [*names[1:], above], strict=True)
            )
        )
    return tuple(units)


def initial_placement(fragments: Iterable[Fragment], delegation: Delegation) -> dict[str, str]:
    """Step 5: every fragment at the delegation node of its stream."""
    return {fragment.id: native_node(fragment, delegation) for fragment in fragments}


def native_node(fragment: Fragment, delegation: Delegation) -> str:
    if fragment.stream not in delegation:
        raise UsageError(
            f"stream {fragment.stream!r} has no delegation node",
            hint="name the host that receives the stream",
        )
    return delegation[fragment.stream]


def neighbours(fragments: Iterable[Fragment]) -> dict[str, tuple[str, ...]]:
    """For each fragment those whose results it reads, and the one that reads its result."""
    found: dict[str, list[str]] = {}
    for fragment in fragments:
        found.setdefault(fragment.id, [])
        if fragment.downstream is not None:
            found[fragment.id].append(fragment.downstream)
            found.setdefault(fragment.downstream, []).append(fragment.id)
    return {name: tuple(sorted(near)) for name, near in found.items()}


def neighbouring_factors(
    fragments: Iterable[Fragment], delegation: Delegation
) -> dict[str, dict[str, int]]:
    """For each node its neighbours, with how many pairs of neighbouring fragments they share."""
    whole = tuple(fragments)
    native = {fragment.id: native_node(fragment, delegation) for fragment in whole}
    factors: dict[str, Counter[str]] = {node: Counter() for node in delegation.values()}
    for fragment in whole:
        if fragment.downstream is not None:
            here, there = native[fragment.id], native[fragment.downstream]
            if here != there:
                factors[here][there] += 1
                factors[there][here] += 1
    return {node: dict(sorted(near.items())) for node, near in sorted(factors.items())}
