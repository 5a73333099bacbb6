"""Admission as a manager uses it: queries come and go, hosts come, change and vanish.

Keeps one placement over a growing catalog with the default planner. Every answer has passed the
independent checker; a refusal, a dry run and an unknown name change nothing. Talks to no host:
the manager turns differences between placements into commands.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.core.errors import UsageError
from millstream.decide.place.moves import Step, safe_steps
from millstream.decide.place.online import Decision
from millstream.decide.place.planners import verify
from millstream.decide.place.problem import (
    Host,
    Links,
    Operator,
    Problem,
    Query,
    Stream,
    Weights,
    check_problem,
)
from millstream.decide.place.replan import Measured, Replan, replan
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.rebuild import recounted
from millstream.decide.place.reuse.state import PlanState
from millstream.decide.place.solution import Refusal, Solution

SHARES = (0.9, 0.75, 0.5, 0.25, 0.1)  # of its rate and cost at which a refused query is tried


@dataclass(frozen=True, slots=True)
class Displaced:
    """What a change of hosts did: the way to the new placement, and who has no place now."""

    steps: tuple[Step, ...]
    moved: tuple[str, ...]
    lost: tuple[Decision, ...]  # refusals: these queries are served no longer


class Admission:
    """The planner's state between a manager's events."""

    def __init__(
        self,
        hosts: Iterable[Host] = (),
        links: Links | None = None,
        weights: Weights | None = None,
        settings: SqprSettings | None = None,
    ) -> None:
        self.catalog = Catalog(links, weights)
        self.catalog.add_hosts(hosts)
        self.planner = SqprPlanner(self.catalog, settings)
        self.queries: dict[str, Query] = {}

    @property
    def state(self) -> PlanState:
        return self.planner.state

    # --- what exists ---------------------------------------------------------------------------

    def learn(self, streams: Iterable[Stream] = (), operators: Iterable[Operator] = ()) -> None:
        """Makes streams and operators known; those known already are left as they are."""
        new_streams = [item for item in streams if item.id not in self.catalog.stream_at]
        new_operators = [item for item in operators if item.id not in self.catalog.operator_at]
        problem = self._problem(new_streams, new_operators)
        check_problem(problem)
        self.catalog.add_streams(new_streams)
        self.catalog.add_operators(new_operators)
        self.state.grow()

    def _problem(
        self, streams: Sequence[Stream] = (), operators: Sequence[Operator] = ()
    ) -> Problem:
        """All that is known, as the checker reads it."""
        catalog = self.catalog
        known = tuple(
            Stream(name, rate, None if base < 0 else catalog.host_ids[base])
            for name, rate, base in zip(catalog.stream_ids, catalog.rate, catalog.base, strict=True)
        )
        ways = tuple(
            Operator(
                name,
                tuple(catalog.stream_ids[stream] for stream in catalog.inputs[number]),
                catalog.stream_ids[catalog.output[number]],
                catalog.cpu[number],
                catalog.memory[number],
            )
            for number, name in enumerate(catalog.operator_ids)
        )
        return Problem(
            hosts=tuple(catalog.hosts),
            streams=(*known, *streams),
            operators=(*ways, *operators),
            queries=tuple(self.queries.values()),
            links=catalog.links,
            weights=catalog.weights,
        )

    # --- queries -------------------------------------------------------------------------------

    def submit(self, query: Query, *, dry_run: bool = False) -> Decision:
        """Admits or refuses a query on a known stream."""
        if query.id in self.queries:
            raise UsageError(f"query {query.id!r} is given twice", hint="drop it first")
        if query.stream not in self.catalog.stream_at:
            raise UsageError(f"unknown stream {query.stream!r}", hint="make it known first")
        if query.deliver_to is not None and query.deliver_to not in self.catalog.host_at:
            raise UsageError(f"unknown host {query.deliver_to!r}")
        if dry_run:
            return self.planner.consider(query)
        decision = self.planner.submit((query,))[0]
        if decision.admitted:
            self.queries[query.id] = query
            self._checked()
        return decision

    def what_would_fit(self, query: Query) -> float | None:
        """The largest share of its new operators' rate and cost at which it would be admitted.

        A longer slide or a smaller window lowers both in about that proportion.
        """
        catalog, state = self.catalog, self.state
        closure = catalog.closure(catalog.stream_at[query.stream])
        absent = [name for name in closure.streams[closure.roots :] if not state.holders.get(name)]
        idle = [way for name in absent for way in catalog.producers[name]]
        rates = {name: catalog.rate[name] for name in absent}
        costs = {way: catalog.cpu[way] for way in idle}
        try:
            for share in SHARES:
                for name, rate in rates.items():
                    catalog.change_rate(catalog.stream_ids[name], rate * share)
                for way, cost in costs.items():
                    catalog.change_cost(catalog.operator_ids[way], cost * share)
                if self.planner.consider(query).admitted:
                    return share
        finally:
            for name, rate in rates.items():
                catalog.change_rate(catalog.stream_ids[name], rate)
            for way, cost in costs.items():
                catalog.change_cost(catalog.operator_ids[way], cost)
        return None

    def remove(self, query: str) -> tuple[Step, ...]:
        """Takes a query away; the steps stop what served it alone."""
        if query not in self.queries:
            raise UsageError(f"unknown query {query!r}")
        before = recounted(self.state)
        del self.queries[query]
        self.state.withdraw(query)
        self.state.commit()
        self._checked()
        return safe_steps(before, self.state)

    def rest(self) -> tuple[Step, ...]:
        """A slice of the background sweep, as steps; empty when nothing gets better."""
        before = self.planner.replanned
        old = recounted(self.state)
        self.planner.rest()
        if self.planner.replanned == before:
            return ()
        self._checked()
        return safe_steps(old, self.state)

    # --- hosts and measurements ----------------------------------------------------------------

    def add_host(self, host: Host) -> None:
        """A new host, or one that is back."""
        if host.id in self.catalog.host_at:
            self.catalog.change_host(host)
        else:
            self.catalog.add_hosts((host,))
        self.state.grow()

    def change_host(self, host: Host) -> Displaced:
        """New capacities; queries that no longer fit there are planned again."""
        if host.id not in self.catalog.host_at:
            raise UsageError(f"unknown host {host.id!r}")
        self.catalog.change_host(host)
        outcome = self.measure(Measured())
        return Displaced(outcome.steps, outcome.moved, ())

    def lose_host(self, name: str) -> Displaced:
        """The host is gone: what it served is planned again elsewhere, or lost."""
        if name not in self.catalog.host_at:
            raise UsageError(f"unknown host {name!r}")
        place = self.catalog.host_at[name]
        old = recounted(self.state)
        state = self.state
        touched = [
            query
            for query, held in state.served.items()
            if any(host == place for _, host in state.supports(*held))
        ]
        for query in touched:
            state.withdraw(query)
        state.commit()
        self.catalog.lose_host(name)
        for stream in self.catalog.base_at[place]:
            state.holders[stream].pop(place, None)
        moved: list[str] = []
        lost: list[Decision] = []
        for query in touched:
            decision = self._again(self.queries[query])
            if decision.admitted:
                moved.append(query)
            else:
                lost.append(decision)
                del self.queries[query]
        self._checked()
        return Displaced(safe_steps(old, self.state), tuple(moved), tuple(lost))

    def _again(self, query: Query) -> Decision:
        if query.deliver_to is not None and not self._alive(query.deliver_to):
            detail = f"its results are wanted at {query.deliver_to}, which is gone"
            return Decision(query.id, refusal=Refusal(query.id, "host", detail, query.deliver_to))
        return self.planner.submit((query,))[0]

    def _alive(self, host: str) -> bool:
        return self.catalog.alive[self.catalog.host_at[host]]

    def missing_hosts(self, decision: Decision) -> tuple[str, ...]:
        """Hosts of a decision that vanished before it was deployed; then `lose_host` them."""
        named = {decision.host, *(host for _, host in decision.started)}
        named.update(host for _, source, target in decision.shipped for host in (source, target))
        return tuple(sorted(name for name in named if name is not None and not self._alive(name)))

    def measure(self, measured: Measured, threshold: float = 0.2) -> Replan:
        """Takes measured rates and costs as the new estimates and plans again what departs."""
        for name in measured.rates:
            if name not in self.catalog.stream_at:
                raise UsageError(f"unknown stream {name!r}")
        for name in measured.cpu:
            if name not in self.catalog.operator_at:
                raise UsageError(f"unknown operator {name!r}")
        outcome = replan(self.planner, measured, threshold)
        if not outcome.short:
            self._checked()
        return outcome

    # --- the placement -------------------------------------------------------------------------

    def problem(self) -> Problem:
        return self._problem()

    def solution(self) -> Solution:
        """The present placement in the form that the checker and the manager read."""
        state = self.state
        return Solution(
            admitted=tuple(state.served),
            operators=state.placed(),
            flows=state.flows(),
            delivered=state.delivered(),
        )

    def _checked(self) -> None:
        verify(self._problem(), self.solution())
