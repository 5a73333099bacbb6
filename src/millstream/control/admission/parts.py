"""What runs, cut into the trees that are placed by distance: one a query, one a shared operator.

An operator that one query alone uses belongs to that query's tree (`query_tree`). One that several
operators or queries read is the root of a tree of its own, with what only it reads; its stream is
wanted wherever it is read, so it is placed for all its readers at once, and the readers' trees
count it as a source. What lies below or above a tree takes its share of the latency bound.
Decides nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from millstream.control.admission.query_tree import (
    QueryTree,
    Survey,
    problem_of,
    query_tree,
    sites,
    survey,
)
from millstream.control.manager.connections import owner_of, placed_operators
from millstream.control.manager.state import ManagerState
from millstream.core.errors import UsageError
from millstream.core.placement import Placement
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.planners.cheapest import cheapest_placement
from millstream.decide.place.network.replacement import Judged
from millstream.decide.place.network.tree import NetworkTree


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A tree that is placed as one; `ends` are the processors that read its root's stream."""

    id: str  # the query, or the shared operator
    queries: tuple[str, ...]
    problem: NetworkTree
    ends: tuple[str, ...]
    running: Placement
    state_bytes: Mapping[str, float]
    measured: bool
    timed: tuple[str, ...] = ()  # ends that a latency bound counts for; all where there is none

    @property
    def shared(self) -> bool:
        return self.id not in self.queries

    def judged(self, placement: Placement) -> Judged:
        """Cost to all who read it, and the longest way to any of them."""
        cost, _ = cost_and_delay(self.problem.towards(self.ends[0]), placement)
        delays = [
            cost_and_delay(self.problem.towards(end), placement)[1]
            for end in self.timed or self.ends
        ]
        distance, root = self.problem.distance, placement[self.problem.root]
        at = {node: n for n, node in enumerate(self.problem.nodes)}
        rate = self.problem.rates()[self.problem.root]
        more = sum(float(distance[at[root], at[end]]) for end in self.ends[1:])
        return Judged(cost + rate * more, max(delays))

    def cheapest(self) -> Placement:
        """The optimum without a bound."""
        ends = [self.problem.nodes.index(end) for end in self.ends]
        return cheapest_placement(self.problem, ends)


def parts(state: ManagerState, seen: Survey | None = None) -> tuple[Part, ...]:
    """All trees of what runs whole: those of queries by name, then those of shared operators."""
    seen = seen or survey(state)
    running = sorted(name for name, query in state.queries.items() if query.phase == "running")
    own = [part for name in running if (part := query_part(state, name, seen)) is not None]
    return (*own, *shared_parts(state, seen))


def query_part(state: ManagerState, name: str, seen: Survey) -> Part | None:
    """What a query alone uses; none where nothing of it can be placed now."""
    try:
        tree = query_tree(state, name, seen)
    except UsageError:
        return None
    query = state.queries[name]
    problem = tree.present()
    if not query.deliver_to:  # it may be handed over anywhere: that way costs nothing
        problem = problem.with_rate(problem.root, 0.0)
    return Part(
        name, (name,), _bounded(state, seen, problem, tree), (problem.proxy,), tree.running,
        tree.state_bytes, tree.measured,
    )  # fmt: skip


def shared_parts(state: ManagerState, seen: Survey) -> Iterator[Part]:
    """The trees of operators that several read."""
    readers: dict[str, set[str]] = {}
    users: dict[str, set[str]] = {}
    results: dict[str, set[str]] = {}
    whole = {name for name, query in state.queries.items() if query.phase == "running"}
    for query in state.queries.values():
        if query.result:
            results.setdefault(query.result, set()).add(query.name)
        for operator in placed_operators(query):
            users.setdefault(operator, set()).add(query.name)
            for stream in state.operators[operator].inputs:
                readers.setdefault(stream, set()).add(operator)
    fan_out = {o: len(readers.get(o, ())) + len(results.get(o, ())) for o in users}
    alone = {o for o, count in fan_out.items() if count <= 1 and o not in results}
    for root in sorted(o for o, count in fan_out.items() if count > 1):
        if not users[root] <= whole:
            continue
        try:
            yield _shared(state, seen, root, alone, readers.get(root, set()), users[root],
                          results.get(root, set()))  # fmt: skip
        except UsageError:
            continue  # a processor that it needs does not answer


def _shared(
    state: ManagerState, seen: Survey, root: str, alone: set[str], readers: set[str],
    users: set[str], results: set[str],
) -> Part:  # fmt: skip
    wanted = {state.operators[reader].processor for reader in readers}
    for name in results:
        if state.queries[name].deliver_to:
            wanted.add(sites(state, state.queries[name].deliver_to)[0])
    here = state.operators[root].processor
    ends = tuple(sorted(wanted)) or (here,)
    query = state.queries[min(users)]
    tree = problem_of(state, query, root, alone | {root}, ends, None, seen)
    problem = tree.problem if wanted else tree.problem.with_rate(root, 0.0)
    bounds = {n: q.latency_s * 1000 for n in sorted(users)
              if (q := state.queries[n]).latency_s is not None}  # fmt: skip
    timed: set[str] = set()
    left: list[float] = []
    for name, bound in bounds.items():
        known = state.queries[name]
        mine = [reader for reader in readers if reader in known.operators]
        timed |= {state.operators[reader].processor for reader in mine}
        if known.result == root and known.deliver_to:
            timed.add(sites(state, known.deliver_to)[0])
        left.append(bound - max((_ahead(state, seen, name, o) for o in mine), default=0.0))
    if left:
        problem = problem.with_bound(max(0.0, min(left)))
    bounded = _bounded(state, seen, problem, tree)
    return Part(
        root, tuple(sorted(users)), bounded, ends, tree.running, tree.state_bytes, tree.measured,
        tuple(sorted(timed)),
    )  # fmt: skip


def _bounded(
    state: ManagerState, seen: Survey, problem: NetworkTree, tree: QueryTree
) -> NetworkTree:
    """The bound, less the ways below its sources as they are now."""
    bound = problem.latency_bound
    if bound is None:
        return problem
    below = max((_below(state, seen, s) for s in tree.streams.values()), default=0.0)
    return problem.with_bound(max(0.0, bound - below))


def _below(state: ManagerState, seen: Survey, stream: str) -> float:
    """The longest way of a row to the operator that gives a stream."""
    if stream not in state.operators:
        return 0.0
    here = state.operators[stream].processor
    ways = [
        _below(state, seen, child) + seen.apart(state, owner_of(state, child), here)
        for child in state.operators[stream].inputs
    ]
    return max(ways, default=0.0)


def _ahead(state: ManagerState, seen: Survey, query: str, reader: str) -> float:
    """The longest way on from an operator to where a query's result is wanted."""
    known = state.queries[query]
    if reader not in known.operators:
        return 0.0
    here = state.operators[reader].processor
    above = [o for o in known.operators if reader in state.operators[o].inputs]
    if reader == known.result or not above:
        at = sites(state, known.deliver_to)[0] if known.deliver_to else here
        return seen.apart(state, here, at)
    return max(
        seen.apart(state, here, state.operators[o].processor) + _ahead(state, seen, query, o)
        for o in above
    )


def moved(state: ManagerState, moves: Mapping[str, tuple[str, str]]) -> ManagerState:
    """The state after some moves, as if they were done."""
    operators = dict(state.operators)
    for name, (_, target) in moves.items():
        operators[name] = replace(operators[name], processor=target)
    return replace(state, operators=operators)
