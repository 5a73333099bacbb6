"""Other ways to compute what a query gives: which of them a planner may choose, and what they cost.

A text's joins can be computed from joins of some of their inputs (`share/join_orders.py`). What a
stream carries does not depend on the way; what it costs does. A stream that runs has its way
already. Decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.control.admission.estimates import Estimate, cpu_of, estimates, experience
from millstream.control.admission.rules import leads_managers, record_of
from millstream.control.manager.connections import placed_operators
from millstream.control.manager.state import NOBODY, ManagerState, OperatorRecord, Query
from millstream.decide.place.problem import Operator, Stream
from millstream.language.share.join_orders import by_ways


def other_ways(state: ManagerState, query: Query) -> tuple[OperatorRecord, ...]:
    """Operators that may be used beside the query's own, or instead of them under their id."""
    meaning = query.meaning()
    if meaning is None or not meaning.ways or query.given or leads_managers(state):
        return ()
    used = {o for q in state.queries.values() for o in placed_operators(q)}
    known = state.operators
    running = {o.id for o in meaning.ways if o.id in known and known[o.id].processor != NOBODY}
    barred = {*query.avoided, *(running - used)}  # the latter are on their way out
    return tuple(
        record_of(way, another_way=True)
        for way in meaning.ways
        if way.id not in running and barred.isdisjoint((way.id, *way.inputs))
    )


@dataclass(frozen=True, slots=True)
class Choices:
    """A query's new operators, the usual ones first, each way under a name of its own."""

    ways: Mapping[str, OperatorRecord]  # by the planner's name
    cpu: Mapping[str, float]  # by the planner's name
    known: Mapping[str, Estimate]  # of all streams

    def parts(self) -> dict[str, OperatorRecord]:
        """One record for every stream that may be new."""
        found: dict[str, OperatorRecord] = {}
        for record in self.ways.values():
            found.setdefault(record.id, record)
        return found

    def streams(self) -> list[Stream]:
        return [Stream(name, self.known[name].bytes_out) for name in self.parts()]

    def operators(self, there: set[str]) -> list[Operator]:
        """Those whose inputs are there, as a planner sees them."""
        return [
            Operator(name, record.inputs, record.id, self.cpu[name])
            for name, record in self.ways.items()
            if all(i in there for i in record.inputs)
        ]

    def chosen(
        self, state: ManagerState, result: str, places: Mapping[str, str]
    ) -> dict[str, OperatorRecord]:
        """What a query needs in a plan, producers first: what runs, and ways that have a place."""
        ways = [self.ways[name] for name in places if name in self.ways]
        running = [o for o in state.operators.values() if o.processor != NOBODY]
        return by_ways(ways, running, {}, (result,))


def choices(
    state: ManagerState, new: Mapping[str, OperatorRecord], others: Sequence[OperatorRecord]
) -> Choices:
    """What a query's operators cost, each by every way."""
    parts = dict(new)
    for record in others:
        parts.setdefault(record.id, record)
    known = estimates(state, parts)
    ways = {name: record for name, record in new.items() if name in known}
    for number, record in enumerate(others):
        if record.id in known:
            ways[f"{record.id}|{number}"] = record
    experienced = experience(state)
    cpu = {
        name: known[name].cpu if name in new else cpu_of(state, known, record, experienced)
        for name, record in ways.items()
    }
    return Choices(ways, cpu, known)


def at_cost(choice: Choices, records: Iterable[OperatorRecord]) -> dict[str, Estimate]:
    """What streams carry, and cost by the ways that were chosen."""
    known = dict(choice.known)
    names = {(record.id, record.inputs): name for name, record in choice.ways.items()}
    for record in records:
        name = names.get((record.id, record.inputs))
        if name is not None:
            known[record.id] = replace(known[record.id], cpu=choice.cpu[name])
    return known
