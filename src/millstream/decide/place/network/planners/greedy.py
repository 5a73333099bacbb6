"""What Edge, Edge+ and In-Network share: one pass over the tree in post-order, table by table.

For every operator `map_operator` computes a table over the nodes in scope: what the subtree costs
with the operator at node v (gamma of equation 5), how long its slowest path takes, and where each
child lies then, either where it was best by itself or moved along to v. The planner then picks the
operator's own place from its few candidates. `resolve` follows the choices from the root down.

Tables are computed once, from the children's tables, and never revised: a child that a later
choice moves simply uses another row of its table, as in the distributed protocol (section 4.2).
Under a latency bound (3.5, with the set L as it must be) a row is valid only if every path so
far, continued straight to the proxy, keeps the bound; the proxy's row then always is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from millstream.decide.place.check import judged
from millstream.decide.place.network.outcome import Options, Outcome, proxy_out_of_reach
from millstream.decide.place.network.tree import Indices, NetworkTree, Vector, Vertex
from millstream.decide.place.problem import Matrix, bound_limit


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes that a planner considers, and its idea of what an edge costs between them."""

    nodes: Indices  # positions in the problem's node list
    weight: Matrix  # what the planner believes: 0 or 1 for Edge, the distance for the others
    distance: Matrix
    proxy: int  # position in `nodes`
    to_proxy: Vector
    delay_max: float  # infinite without a bound


@dataclass(slots=True)
class Table:
    """One vertex: rows by node in scope. Arrays are filled in place while it is being mapped."""

    vertex: Vertex
    cost: Vector
    delay: Vector
    child_at: list[Indices]  # for each child, where it lies in each row
    best: int
    leaves_at: Indices  # dl: the places of the sources below, sorted, each once
    outgoing: Vector  # already in `cost`: the root's edge to the proxy, else nothing


# Picks an operator's place and may improve rows: (operator's table, children's tables, scope).
Chooser = Callable[[Table, Sequence[Table], Scope], int]


def edge_scope(problem: NetworkTree) -> Scope:
    """Sources and the proxy only."""
    places = {vertex.node for vertex in problem.tree if vertex.node is not None}
    nodes = np.array(sorted(places | {problem.proxy_index}), dtype=np.intp)
    distance = np.ascontiguousarray(problem.distance[np.ix_(nodes, nodes)])
    return _scope(problem, nodes, distance, distance)


def blind_scope(problem: NetworkTree) -> Scope:
    """Sources and the proxy, with no idea of distances: an edge costs its rate, or nothing."""
    scope = edge_scope(problem)
    return replace(scope, weight=1.0 - np.eye(len(scope.nodes)))


def network_scope(problem: NetworkTree) -> Scope:
    """Every node."""
    nodes = np.arange(len(problem.nodes), dtype=np.intp)
    return _scope(problem, nodes, problem.distance, problem.distance)


def _scope(problem: NetworkTree, nodes: Indices, weight: Matrix, distance: Matrix) -> Scope:
    proxy = int(np.searchsorted(nodes, problem.proxy_index))
    bound = problem.latency_bound
    delay_max = np.inf if bound is None else bound_limit(bound)
    return Scope(nodes, weight, distance, proxy, distance[:, proxy].copy(), delay_max)


def place_greedily(
    planner: str,
    problem: NetworkTree,
    scope_of: Callable[[NetworkTree], Scope],
    choose: Chooser,
) -> Outcome:
    """The pass; refused where not even the proxy is within reach."""
    refusal = proxy_out_of_reach(planner, problem)
    if refusal is not None:
        return refusal
    scope = scope_of(problem)
    tables: list[Table] = []
    last = len(problem.tree) - 1
    for position, vertex in enumerate(problem.tree):
        if vertex.node is not None:
            tables.append(_leaf_table(vertex, scope))
            continue
        children = [tables[child] for child in vertex.children]
        table = map_operator(vertex, children, scope)
        if position == last:  # the edge to the proxy, missing in the seed's objective (1)
            table.outgoing = vertex.rate * scope.weight[:, scope.proxy]
            table.cost += table.outgoing
        table.best = choose(table, children, scope)
        tables.append(table)
    return judged(planner, problem, resolve(problem, tables, scope))


def _leaf_table(vertex: Vertex, scope: Scope) -> Table:
    at = int(np.searchsorted(scope.nodes, vertex.node or 0))
    cost = np.full(len(scope.nodes), np.inf)
    cost[at] = 0.0
    delay = np.zeros(len(scope.nodes))
    return Table(vertex, cost, delay, [], at, np.array([at], dtype=np.intp), np.zeros(0))


def map_operator(vertex: Vertex, children: Sequence[Table], scope: Scope) -> Table:
    """Equation 5 for every node in scope at once, restricted to rows that keep the bound."""
    size = len(scope.nodes)
    cost = np.zeros(size)
    delay = np.zeros(size)
    child_at: list[Indices] = []
    everywhere = np.arange(size, dtype=np.intp)
    for child in children:
        stay = child.cost[child.best] + child.vertex.rate * scope.weight[child.best]
        stay_delay = child.delay[child.best] + scope.distance[child.best]
        move = child.cost
        if scope.delay_max < np.inf:
            stay = np.where(stay_delay + scope.to_proxy <= scope.delay_max, stay, np.inf)
        moves = move < stay
        cost += np.where(moves, move, stay)
        np.maximum(delay, np.where(moves, child.delay, stay_delay), out=delay)
        child_at.append(np.where(moves, everywhere, child.best))
    below = {place for child in children for place in child.leaves_at.tolist()}
    leaves_at = np.array(sorted(below), dtype=np.intp)
    return Table(vertex, cost, delay, child_at, -1, leaves_at, np.zeros(size))


def edge(problem: NetworkTree, options: Options) -> Outcome:  # noqa: ARG001
    """Edge (section 3.2): places among sources and proxy, decided by rates alone (equation 6).

    What comes out is reported at rate times distance like every plan. Distances enter only to keep
    a latency bound.
    """

    def choose(table: Table, children: Sequence[Table], scope: Scope) -> int:
        return cheapest(table, edge_candidates(children, scope))

    return place_greedily("edge", problem, blind_scope, choose)


def edge_candidates(children: Sequence[Table], scope: Scope) -> list[int]:
    """The three cases of section 3.2: the heaviest child's place, common places, the proxy."""
    rate_at: dict[int, float] = {}
    for child in children:
        rate_at[child.best] = rate_at.get(child.best, 0.0) + child.vertex.rate
    heaviest = max(sorted(rate_at), key=lambda at: rate_at[at])
    common = set(children[0].leaves_at.tolist())
    for child in children[1:]:
        common &= set(child.leaves_at.tolist())
    return sorted(common | {heaviest, scope.proxy})


def cheapest(table: Table, candidates: Sequence[int] | Indices) -> int:
    """The candidate with the cheapest row; the lowest position among equals."""
    at = np.asarray(candidates, dtype=np.intp)
    return int(at[int(np.argmin(table.cost[at]))])


def resolve(problem: NetworkTree, tables: Sequence[Table], scope: Scope) -> dict[str, str]:
    """Follows the rows that were chosen from the root down."""
    rows = problem.unrolled(
        tables[-1].best, lambda position, row, child: int(tables[position].child_at[child][row])
    )
    return {problem.tree[p].id: problem.nodes[int(scope.nodes[row])] for p, row in rows}


def improve_row(
    table: Table, row: int, cost: float, delay: float, places: Mapping[int, int]
) -> None:
    """Replaces a row by a cheaper configuration: child number to its place."""
    table.cost[row], table.delay[row] = cost, delay
    for child, place in places.items():
        table.child_at[child][row] = place
