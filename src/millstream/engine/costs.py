"""What each query costs: its own part, and its share of what it has in common with others.

Seconds of a job that several operators shared were attributed to them by rows when it ran
(`steps`); seconds of an operator that several queries use are divided among them. All parts
add up to the time that was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.engine.dataflow import Dataflow
from millstream.language.plan.explain import explain
from millstream.language.plan.nodes import Plan
from millstream.language.share.dataflow import Operator
from millstream.language.share.groups import candidate
from millstream.language.share.matching import Match


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of steps so far."""

    own_s: float  # of operators that run for this query alone, by themselves
    shared_s: float  # its part of operators and jobs that others use as well

    @property
    def total_s(self) -> float:
        return self.own_s + self.shared_s


def query_costs(flow: Dataflow) -> Mapping[str, Cost]:
    """The cost of every live query."""
    statistics = flow.ledger.operator_statistics()
    users: dict[str, int] = {}
    for query in flow.queries.values():
        for operator in query.operators:
            users[operator] = users.get(operator, 0) + 1
    costs = {}
    for query in flow.queries.values():
        own = shared = 0.0
        for operator in query.operators:
            row = statistics.get(operator)
            if row is None:
                continue
            part = row["seconds"] / users[operator]
            alone = row["seconds"] - row["shared"] if users[operator] == 1 else 0.0
            own += alone
            shared += part - alone
        costs[query.name] = Cost(own, shared)
    return costs


def explained(flow: Dataflow, plan: Plan) -> str:
    """A plan, what it would reuse of what runs, and what each part costs by what was measured."""
    parts = (f"  {match.told()}; {expected(flow, match)}" for match in flow.matches(plan))
    return "\n".join([explain(plan), "sharing", *parts])


def expected(flow: Dataflow, match: Match) -> str:
    """What an operator would add: nothing, as much as its companions, or nobody knows yet."""
    if match.how == "same":
        return "costs nothing more"
    statistics = flow.ledger.operator_statistics()
    alike = [
        statistics[o.id]
        for o in flow.operators.values()
        if o.id in statistics
        and o.kind == match.operator.kind
        and (match.how == "new" or _one_family(o, match.operator))
    ]
    rows = sum(r["rows_in"] for r in alike)
    if not rows:
        return "its cost is not measured yet"
    millis = sum(r["seconds"] for r in alike) / rows * 1e6  # of a thousand rows
    whose = "its companions" if match.how == "together" else "others of its kind"
    return f"about {millis:.1f} ms a thousand rows, as {whose} cost"


def _one_family(one: Operator, other: Operator) -> bool:
    a, b = candidate(one), candidate(other)
    return a is not None and b is not None and a.family == b.family
