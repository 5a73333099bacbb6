"""Other ways to compute what joins of a plan give: from joins of some of their inputs.

Intervals intersect in any order, and a joined row carries both ends of its interval, so that a join
of many inputs may read joins of some of them as streams. A way is an operator with the id of what
it gives and other inputs: a part of the inputs joined before, or, where a query's own columns lie
on top, the join as it is. Parts have the same id in every query that joins the same inputs alike,
in whatever order it was written. Which way is taken is the planner's business.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from millstream.core.operator_graph import OperatorGraph, R
from millstream.language.plan.equalities import chain, equal_columns
from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
    total,
)
from millstream.language.plan.nodes import Join, Node, Project, with_inputs
from millstream.language.plan.rewrite import drop_idle_projects, order_join_inputs
from millstream.language.share.dataflow import Operator, has_rows, leaves, stream_of

INPUTS_MAX = 5  # of a join whose ways are looked at: there are 106 with five, 343 with six
Part = tuple[int, ...]  # positions of a join's inputs, ascending


def other_ways(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Operators beside those of a plan, producers first: parts, and other ways of what is there."""
    usual = {(o.id, o.inputs) for o in operators}
    found: dict[tuple[str, tuple[str, ...]], Operator] = {}
    for operator in operators:
        for way in _ways(operator):
            if (way.id, way.inputs) not in usual:
                found.setdefault((way.id, way.inputs), way)
    return tuple(found.values())


def by_ways(
    usual: Iterable[R],
    others: Iterable[R],
    ways: Mapping[str, tuple[str, ...]],
    wanted: Iterable[str],
) -> dict[str, R]:
    """What is wanted with all that it reads, producers first: each operator by the way that is
    told for it, else the usual one, else, for a part, the first there is."""
    known: dict[str, R] = {}
    for operator in others:
        if ways.get(operator.id, operator.inputs) == operator.inputs:
            known.setdefault(operator.id, operator)
    for operator in usual:
        if ways.get(operator.id, operator.inputs) == operator.inputs:
            known[operator.id] = operator
    found: set[str] = set()
    waiting = [name for name in wanted if name in known]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [i for i in known[name].inputs if i in known]
    graph = OperatorGraph(operator for name, operator in known.items() if name in found)
    return {operator.id: operator for operator in graph.by_depth()}


def _ways(operator: Operator) -> Iterator[Operator]:
    join = operator.core
    if operator.kind != "join" or not isinstance(join, Join) or not _divides(join):
        return
    parts = _Parts.of(join)
    whole = tuple(range(len(join.inputs)))
    for size in range(2, len(whole)):
        for part in combinations(whole, size):
            if parts.linked(part):
                yield from _all_ways(parts, part)
    if operator.node is not join:
        yield _as_it_stands(join)
        yield from _halved(parts, whole, f"o:{join.fingerprint}", join)
        yield Operator(operator.id, "map", operator.node, None, (f"o:{join.fingerprint}",))
    yield from _halved(parts, whole, operator.id, operator.node)


def _divides(join: Join) -> bool:
    """Whether parts of it may be joined first: no conjunct guards another, no end is open."""
    return (
        len(join.inputs) <= INPUTS_MAX
        and not has_rows(join)
        and all(total(term) for term in conjuncts(join.predicate))
    )


def _all_ways(parts: "_Parts", part: Part) -> Iterator[Operator]:
    """A part as a stream of its own: all inputs at once, and from two smaller parts."""
    node = parts.node(part)
    core = node.input if isinstance(node, Project) else node
    assert isinstance(core, Join)
    yield _as_it_stands(core)
    if len(part) > 2:
        inner = _Parts.of(core)
        whole = tuple(range(len(part)))
        yield from _halved(inner, whole, f"o:{core.fingerprint}", core)


def _as_it_stands(join: Join) -> Operator:
    return Operator(f"o:{join.fingerprint}", "join", join, join, _streams(join.inputs))


def _halved(parts: "_Parts", whole: Part, name: str, node: Node) -> Iterator[Operator]:
    """A join of many inputs, with what lies on top, from two parts that are there as streams."""
    if len(whole) < 3:
        return
    for size in range(len(whole) - 1):
        for more in combinations(whole[1:], size):
            left = (whole[0], *more)
            right = tuple(p for p in whole if p not in left)
            if parts.linked(left) and parts.linked(right) and parts.meet(left, right):
                core, below = parts.joined(left, right)
                over = _over(node, parts.join, below)
                yield Operator(name, "join", over, core, _streams(core.inputs))


def _over(node: Node, join: Join, below: Node) -> Node:
    """A chain of filters and projections over something else than the join at its end."""
    if node is join:
        return below
    return with_inputs(node, lambda inner: _over(inner, join, below))


def _streams(members: Sequence[Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stream_of(leaf) for member in members for leaf in leaves(member)))


@dataclass(frozen=True, slots=True)
class _Parts:
    """A join whose inputs are taken apart."""

    join: Join
    owner: tuple[int, ...]  # by column: the input
    alike: tuple[tuple[int, ...], ...]  # columns that the predicate makes equal
    terms: tuple[Expr, ...]  # the others of its conjuncts

    @classmethod
    def of(cls, join: Join) -> "_Parts":
        owner = [p for p, member in enumerate(join.inputs) for _ in member.schema]
        return cls(join, tuple(owner), *equal_columns(join))

    def linked(self, part: Part) -> bool:
        """Whether equalities hold a part together: else it would be a product."""
        reached = {part[0]}
        while True:
            more = {p for p in part if p not in reached and self.meet((*reached,), (p,))}
            if not more:
                return len(reached) == len(part)
            reached |= more

    def meet(self, left: Part, right: Part) -> bool:
        """Whether an equality links two parts."""
        for known in self.alike:
            owners = {self.owner[c] for c in known}
            if owners & set(left) and owners & set(right):
                return True
        return any(_links(t, self.owner, left, right) for t in self.terms)

    def node(self, part: Part) -> Node:
        """The join of a part, in canonical form; its columns are those of the part's inputs."""
        inside = {p: i for i, p in enumerate(part)}
        columns = [c for c, p in enumerate(self.owner) if p in inside]
        place = {column: at for at, column in enumerate(columns)}
        terms = [self._moved(t, place) for t in self.terms if self._within(t, part)]
        for known in self.alike:
            terms += chain(tuple(place[c] for c in known if c in place))
        inputs = tuple(self.join.inputs[p] for p in part)
        return drop_idle_projects(order_join_inputs(Join(inputs, conjunction(tuple(terms)))))

    def joined(self, left: Part, right: Part) -> tuple[Join, Node]:
        """The join of two parts, and the same with the columns where the whole has them."""
        halves = tuple(
            self.node(half) if len(half) > 1 else self.join.inputs[half[0]]
            for half in (left, right)
        )
        columns = [c for half in (left, right) for c in self._columns(half)]
        place = {column: at for at, column in enumerate(columns)}
        terms = [
            self._moved(term, place)
            for term in conjuncts(self.join.predicate)
            if not self._within(term, left) and not self._within(term, right)
        ]
        core = Join(halves, conjunction(tuple(terms)))
        order = tuple(Column(place[c]) for c in range(len(self.owner)))
        return core, drop_idle_projects(Project(core, order, self.join.schema))

    def _columns(self, part: Part) -> list[int]:
        return [c for c, p in enumerate(self.owner) if p in part]

    def _within(self, term: Expr, part: Part) -> bool:
        return all(self.owner[c] in part for c in columns_of(term))

    def _moved(self, term: Expr, place: dict[int, int]) -> Expr:
        to_new = tuple(Column(place.get(c, 0)) for c in range(len(self.owner)))
        return substitute(term, to_new)


def _links(term: Expr, owner: Sequence[int], left: Part, right: Part) -> bool:
    """Whether a conjunct equates something of one part with something of the other."""
    match term:
        case Call("=" | "<=>", (a, b)):
            sides = [{owner[c] for c in columns_of(side)} for side in (a, b)]
            ways = ((left, right), (right, left))
            return all(sides) and any(sides[0] <= {*x} and sides[1] <= {*y} for x, y in ways)
        case _:
            return False
