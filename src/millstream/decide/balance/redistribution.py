"""Redistribution: whether operators move to other processors, which, and why.

D-CAPE, section 6.3: algorithm 5 and its two policies, over a cost table of any model. Given costs,
the current placement and the parameters of table 6.1, `redistribute` answers with moves in the
order in which they are to be carried out, each with a sentence, or with none and the reason. It
never gives an invalid placement: only eligible operators go, only to eligible processors that
have reported, and a move that makes the table invalid is struck out and decided anew, a bounded
number of times. Nothing here carries a move out.

- `balance` takes from the heaviest processor for the lightest until costs are as even as they get;
  one that is not above the mean is moderately loaded, and nothing is taken from it.
- `degradation` looks at processors whose cost has risen since operators were last allocated to
  them, and moves their costliest operators away, those first whose move removes a connection.
- `relief` (ours) takes only from processors that are full, for those with room, and lets what has
  moved rest for a while: where everybody keeps up, nothing is gained by a move.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from millstream.core.errors import UsageError
from millstream.core.operator_graph import PlanGraph
from millstream.core.placement import Placement, problems
from millstream.core.registry import Registry
from millstream.decide.balance.cost_models import CostTable

FULL = 0.6  # cost from which a processor is relieved
ROOM = 0.45  # cost up to which one is filled by that
RESTING_CHECKS = 10  # in which what was moved stays where it is, under `relief`
ATTEMPTS_MAX = 3  # the seed asks for a new one until one is valid; ours is bounded


@dataclass(frozen=True, slots=True)
class Parameters:
    """Table 6.1 (the cost table is part of the situation), and how often and how much at a time.

    0 % redistributes at any difference of costs, 100 % never. `None` allows all.
    """

    percent_difference: float = 10.0
    eligible_operators: frozenset[str] | None = None
    eligible_processors: frozenset[str] | None = None  # may get operators
    state_rows_min: float = 0.0
    state_rows_max: float = float("inf")
    check_s: float = 60.0
    moves_max: int = 4  # in one decision

    def __post_init__(self) -> None:
        if not 0 <= self.percent_difference <= 100:
            raise UsageError(
                f"percent_difference must lie in 0 to 100, not {self.percent_difference}"
            )
        if not self.check_s > 0 or self.moves_max < 1:
            raise UsageError("check_s must be above 0 and moves_max at least 1")
        if not 0 <= self.state_rows_min <= self.state_rows_max:
            raise UsageError("state_rows_min must lie in 0 to state_rows_max")


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What a policy sees; processors without a cost have not reported and get nothing."""

    graph: PlanGraph
    table: Placement
    costs: CostTable
    state_rows: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    operator: str
    source: str
    target: str
    reason: str

    def __str__(self) -> str:
        return f"move {self.operator} from {self.source} to {self.target}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Decision:
    """Moves in order; the sentence says why, also why there are none."""

    moves: tuple[Move, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Of each processor: its operators, and its cost when they had just been allocated."""

    allocation: Mapping[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    checks: int = 0
    moved: Mapping[str, int] = field(default_factory=dict)  # by operator: at which check


Policy = Callable[[Situation, Parameters, Memory], Decision]
POLICIES: Registry[Policy] = Registry("redistribution policy")
DEFAULT_POLICY = "degradation"


def redistribute(
    policy: str,
    situation: Situation,
    parameters: Parameters | None = None,
    memory: Memory | None = None,
    valid: Callable[[Placement], tuple[str, ...]] | None = None,
) -> tuple[Decision, Memory]:
    """Algorithm 5: decide, check, and decide anew without what was invalid.

    `valid` says what is wrong with a table (the query plan manager's check); by default that every
    operator is on a processor that has reported. The memory goes back in at the next check.
    """
    parameters = parameters or Parameters()
    member = POLICIES.get(policy)
    memory = _remembered(situation, memory or Memory())
    apart = 100 * (situation.costs.heaviest - situation.costs.lightest)
    if parameters.percent_difference >= 100 or apart <= parameters.percent_difference:
        limit = f"{parameters.percent_difference:g} %"
        sentence = f"nothing moves: costs are {apart:.0f} % apart, and up to {limit} is accepted"
        return Decision((), sentence), memory
    judge = valid or (lambda t: problems(situation.graph, t, set(situation.costs.processors)))
    tried = parameters
    wrong: tuple[str, ...] = ()
    for _ in range(ATTEMPTS_MAX):
        decision = member(situation, tried, memory)
        already = set(judge(situation.table))  # what was wrong before is not this decision's fault
        wrong = tuple(w for w in judge(applied(situation.table, decision)) if w not in already)
        if not wrong:
            return decision, _with_moves(memory, decision)
        refused = {move.operator for move in decision.moves}
        allowed = tried.eligible_operators
        names = {o.id for o in situation.graph} if allowed is None else set(allowed)
        tried = replace(tried, eligible_operators=frozenset(names - refused))
    sentence = f"nothing moves: no valid placement in {ATTEMPTS_MAX} tries ({'; '.join(wrong)})"
    return Decision((), sentence), memory


def applied(table: Placement, decision: Decision) -> dict[str, str]:
    """The placement after the moves."""
    return {**table, **{move.operator: move.target for move in decision.moves}}


def _remembered(situation: Situation, memory: Memory) -> Memory:
    """Notes the cost of processors whose operators are not those of the last look."""
    allocation = dict(memory.allocation)
    for processor, cost in situation.costs.processors.items():
        mine = tuple(o.id for o in situation.graph if situation.table.get(o.id) == processor)
        known = allocation.get(processor)
        if known is None or known[0] != mine:
            allocation[processor] = (mine, cost)
    moved = {o: at for o, at in memory.moved.items() if memory.checks - at < RESTING_CHECKS}
    return Memory(allocation, memory.checks + 1, moved)


def _with_moves(memory: Memory, decision: Decision) -> Memory:
    moved = {move.operator: memory.checks for move in decision.moves}
    return replace(memory, moved={**memory.moved, **moved})


class _Plan:
    """A placement under revision: where operators are by now, and what costs would become."""

    def __init__(self, situation: Situation, parameters: Parameters) -> None:
        self.graph, self.costs = situation.graph, situation.costs
        self.parameters, self.state_rows = parameters, situation.state_rows
        self.table = dict(situation.table)
        self.cost = dict(situation.costs.processors)
        self.moves: list[Move] = []
        # An operator's part in its processor's cost: costs of operators need not add up to it.
        self.part: dict[str, float] = {}
        for processor, cost in self.cost.items():
            mine = [o for o, p in self.table.items() if p == processor]
            total = sum(situation.costs.operators.get(o, 0.0) for o in mine)
            for operator in mine:
                share = situation.costs.operators.get(operator, 0.0) / total if total else 0.0
                self.part[operator] = cost * share

    def eligible(self, processor: str) -> list[str]:
        """Operators that may leave, in the graph's order; each moves once in a decision."""
        allowed, moved = self.parameters.eligible_operators, {m.operator for m in self.moves}
        low, high = self.parameters.state_rows_min, self.parameters.state_rows_max
        return [
            o.id
            for o in self.graph
            if self.table.get(o.id) == processor
            and o.id not in moved
            and (allowed is None or o.id in allowed)
            and low <= self.state_rows.get(o.id, 0.0) <= high
        ]

    def receivers(self) -> list[str]:
        allowed = self.parameters.eligible_processors
        return [p for p in self.cost if allowed is None or p in allowed]

    def part_at(self, operator: str, processor: str) -> float:
        """What the operator would add to another processor's cost."""
        capacity = self.costs.capacity
        source = self.table[operator]
        ratio = capacity.get(source, 1.0) / max(1e-9, capacity.get(processor, 1.0))
        return self.part.get(operator, 0.0) * ratio

    def connections_added(self, operator: str, target: str) -> int:
        """By how many connections the whole placement grows; below 0 where it shrinks."""
        streams = (operator, *dict.fromkeys(self.graph.by_id[operator].inputs))
        after = {**self.table, operator: target}
        return sum(
            _readers(self.graph, after, s) - _readers(self.graph, self.table, s) for s in streams
        )

    def move(self, operator: str, target: str, reason: str) -> None:
        source = self.table[operator]
        added = self.part_at(operator, target)
        self.cost[source] -= self.part.get(operator, 0.0)
        self.cost[target] += added
        self.part[operator] = added
        self.table[operator] = target
        self.moves.append(Move(operator, source, target, reason))

    @property
    def full(self) -> bool:
        return len(self.moves) >= self.parameters.moves_max


def _readers(graph: PlanGraph, table: Placement, stream: str) -> int:
    """Connections of one stream: processors that read it elsewhere than where it is made."""
    places = {table.get(consumer) for consumer in graph.consumers(stream)}
    return len(places - {None, table.get(stream)})


@POLICIES.member("balance")
def balance(situation: Situation, parameters: Parameters, memory: Memory) -> Decision:  # noqa: ARG001  (one signature for all)
    """From the heaviest to the lightest, what brings the two closest."""
    plan = _Plan(situation, parameters)
    mean = sum(plan.cost.values()) / max(1, len(plan.cost))
    while not plan.full:
        heavy = sorted((p for p in plan.cost if plan.cost[p] > mean), key=lambda p: -plan.cost[p])
        for source in heavy:
            if _give(plan, source):
                break
        else:
            break
    if not plan.moves:
        return Decision((), "nothing moves: no operator would bring the costs closer together")
    before, after = _spread(situation.costs.processors), _spread(plan.cost)
    text = f"costs by {situation.costs.model} should come from {before:.0%} apart to {after:.0%}"
    return Decision(tuple(plan.moves), text)


def _give(plan: _Plan, source: str) -> bool:
    """Moves the operator that brings a heavy processor and the lightest one closest together."""
    others = [p for p in plan.receivers() if p != source]
    if not others:
        return False
    target = min(others, key=lambda p: plan.cost[p])
    apart = plan.cost[source] - plan.cost[target]
    if 100 * apart <= plan.parameters.percent_difference:
        return False

    def left(operator: str) -> float:
        return abs(apart - plan.part.get(operator, 0.0) - plan.part_at(operator, target))

    choices = [o for o in plan.eligible(source) if left(o) < apart - 1e-12]
    if not choices:
        return False
    chosen = min(  # of equals the one with fewer connections, then the smaller
        choices, key=lambda o: (round(left(o), 9), plan.connections_added(o, target), plan.part[o])
    )
    plan.move(
        chosen,
        target,
        f"{source} is the heaviest with a cost of {plan.cost[source]:.2f} and {target} the lightest"
        f" with {plan.cost[target]:.2f} ({plan.costs.model}); this operator makes"
        f" {plan.part[chosen]:.2f} of it",
    )
    return True


def _spread(costs: Mapping[str, float]) -> float:
    return max(costs.values()) - min(costs.values())


@POLICIES.member("degradation")
def degradation(situation: Situation, parameters: Parameters, memory: Memory) -> Decision:
    """Relieves processors whose cost has risen since their operators were allocated."""
    plan = _Plan(situation, parameters)
    costs = situation.costs.processors
    before = {p: memory.allocation[p][1] if p in memory.allocation else c for p, c in costs.items()}
    risen = {p: cost - before[p] for p, cost in costs.items()}
    degraded = [p for p in costs if 100 * risen[p] > parameters.percent_difference]
    for source in sorted(degraded, key=lambda p: -risen[p]):
        healthy = [p for p in plan.receivers() if p not in degraded]
        while not plan.full and plan.cost[source] > before[source] + 1e-12:
            if not _relieve(plan, source, before[source], healthy):
                break
    if plan.moves:
        names = ", ".join(dict.fromkeys(move.source for move in plan.moves))
        text = f"cost by {situation.costs.model} has risen on {names} since the last allocation"
        return Decision(tuple(plan.moves), text)
    if degraded:
        return Decision((), f"nothing moves: no better place for operators of {degraded[0]}")
    return Decision((), "nothing moves: no processor's cost has risen since the last allocation")


def _relieve(plan: _Plan, source: str, before: float, healthy: list[str]) -> bool:
    """Moves the costliest operator, one that removes a connection before all others."""
    choices = []
    for operator in plan.eligible(source):
        share = plan.costs.operators.get(operator, 0.0)
        for target in healthy:
            if target == source or plan.cost[target] >= plan.cost[source]:
                continue
            added = plan.connections_added(operator, target)
            if share > 0 or added < 0:  # one that costs nothing and connects no better stays
                key = (added >= 0, -share, added, plan.cost[target])
                choices.append((key, operator, target, added))
    if not choices:
        return False
    (_, share, *_), operator, target, added = min(choices)
    connection = {-1: "; a connection goes away", 0: ""}.get(
        added, f"; {-added} connections go away" if added < 0 else f"; {added} more connections"
    )
    plan.move(
        operator,
        target,
        f"the cost of {source} rose from {before:.2f} to {plan.cost[source]:.2f} since its"
        f" operators were allocated ({plan.costs.model}), this one makes {-share:.0%} of what it"
        f" costs, {target} is at {plan.cost[target]:.2f}{connection}",
    )
    return True


@POLICIES.member("relief")
def relief(situation: Situation, parameters: Parameters, memory: Memory) -> Decision:
    """From processors that are full, the operator that fills another best without filling it up.

    One that is moderately loaded keeps up with its streams, however much less others have to do.
    """
    plan = _Plan(situation, parameters)
    for source in sorted(plan.cost, key=lambda p: (-plan.cost[p], p)):
        while not plan.full and plan.cost[source] >= FULL:
            if not _unload(plan, source, memory):
                break
    if plan.moves:
        names = ", ".join(dict.fromkeys(move.source for move in plan.moves))
        text = f"{names} had no room left by {situation.costs.model}"
        return Decision(tuple(plan.moves), text)
    if max(situation.costs.processors.values(), default=0.0) < FULL:
        return Decision((), f"nothing moves: no processor's cost has reached {FULL:g}")
    return Decision((), "nothing moves: what could leave a full processor has no room elsewhere")


def _unload(plan: _Plan, source: str, memory: Memory) -> bool:
    """Moves what another processor has room for: what saves connections, then what is large."""
    choices = []
    for operator in plan.eligible(source):
        part = plan.part.get(operator, 0.0)
        if operator in memory.moved or part <= 0:
            continue
        for target in plan.receivers():
            added = plan.part_at(operator, target)
            if target != source and plan.cost[target] + added <= ROOM:
                key = (plan.connections_added(operator, target), -part, plan.cost[target])
                choices.append((key, operator, target))
    if not choices:
        return False
    _, operator, target = min(choices)
    plan.move(
        operator,
        target,
        f"{source} is full with a cost of {plan.cost[source]:.2f} ({plan.costs.model}), this"
        f" operator makes {plan.part[operator]:.2f} of it, and {target} is at"
        f" {plan.cost[target]:.2f}",
    )
    return True
