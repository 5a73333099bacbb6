"""What each query costs: its own part, and its share of what it has in common with others.

Seconds of a job that several operators shared were attributed to them by rows when it ran
(`train_steps`); seconds of an operator that several queries use are divided among them. All parts
add up to the time that was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of steps so far."""

    own_s: float  # of operators that run for this query alone, by themselves
    shared_s: float  # its part of operators and jobs that others use as well

    @property
    def total_s(self) -> float:
        return self.own_s + self.shared_s


def query_costs(engine: "Engine") -> Mapping[str, Cost]:
    """The cost of every live query."""
    statistics = engine.ledger.operator_statistics()
    users: dict[str, int] = {}
    for query in engine.queries.values():
        for operator in query.operators:
            users[operator] = users.get(operator, 0) + 1
    costs = {}
    for query in engine.queries.values():
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
