"""SQPR's own planner: the reduced problem of its algorithm 1, solved as a mixed-integer programme.

For each batch of queries only streams and operators that can appear in their plans are decided
anew (IV.A); everything else keeps its place, and what it reads stays available. Small models are
(III.4) to (III.7) whole, with potentials for causality. Larger ones take a form that solves: hosts
in a fixed order instead of potentials, one producer a composite stream, which alone sends it, and
only hosts that matter. Admitted queries stay admitted (IV.9). The dynamic programme's plan is the
first solution, so the time limit never costs more than it would have.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.decide.place.online import (
    TIMEOUT,
    Decision,
    Totals,
    attach,
    refused,
    same_stream,
    too_late,
)
from millstream.decide.place.problem import Query
from millstream.decide.place.reuse.catalog import LEEWAY, Catalog
from millstream.decide.place.reuse.objective import Scales, objective
from millstream.decide.place.reuse.planners.milp_model import PlacementModel
from millstream.decide.place.reuse.planners.milp_scope import Scope
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.rebuild import differing_steps, rebuilt
from millstream.decide.place.reuse.state import PlanState
from millstream.decide.place.solution import Refusal

DEFAULT_TIMEOUT_S = 30.0  # a query (SQPR, section V.A)


@dataclass(frozen=True, slots=True)
class MilpSettings:
    timeout_s: float = DEFAULT_TIMEOUT_S  # for each query of a batch
    exact_cells: int = 60  # streams times hosts up to which the model is solved whole
    hosts_considered: int = 8
    gap: float = 1e-2  # of the part of the objective that is not admission; exact models: none


def in_time(state: PlanState) -> bool:
    """Whether every result keeps its latency bound; the model knows no distances."""
    return all(
        state.lateness(*state.served[query]) <= bound * LEEWAY
        for query, bound in state.bounds.items()
        if query in state.served
    )


class MilpPlanner:
    """Algorithm 1 of SQPR with a solver."""

    def __init__(self, catalog: Catalog, settings: MilpSettings | None = None) -> None:
        self.settings = settings or MilpSettings()
        self.state = PlanState(catalog)
        self.proven = 0  # batches solved to proof
        self.solved = 0  # batches given to the solver

    def submit(self, batch: Sequence[Query]) -> tuple[Decision, ...]:
        self.state.remember_wishes(batch)
        answers: dict[str, Decision] = {}
        waiting: list[Query] = []
        for query in batch:
            served = same_stream(self.state, query)
            if served is None:
                waiting.append(query)
            else:
                answers[query.id] = attach(self.state, query, served)
        self.state.commit()
        if waiting:
            answers.update(self._solve(waiting))
        return tuple(answers[query.id] for query in batch)

    def rest(self) -> None:
        """Re-plans only when a query comes."""

    def _solve(self, waiting: Sequence[Query]) -> dict[str, Decision]:
        before, old = Totals(self.state), self.state
        first = self._first_solution(waiting)
        scope = Scope.of(
            old, first, waiting, self.settings.exact_cells, self.settings.hosts_considered
        )
        model = PlacementModel(old, scope, self.settings.gap)
        answer = model.solve(self.settings.timeout_s * len(waiting), first)
        self.solved += 1
        self.proven += answer.proven
        best = first
        if answer.values:
            found = rebuilt(old, model.sources(answer.values), model.served(answer.values))
            if found is not None and in_time(found) and self._value(found) >= self._value(first):
                best = found
        self.state = best
        return {query.id: self._decision(query, old, before, answer.proven) for query in waiting}

    def _value(self, state: PlanState) -> tuple[int, float]:
        return len(state.served), objective(state, Scales.of(state.catalog))

    def _first_solution(self, waiting: Sequence[Query]) -> PlanState:
        """What the dynamic programme would do, on a copy."""
        copy = rebuilt(self.state, dict(self.state.source), dict(self.state.served))
        assert copy is not None, "the present placement fits"
        quick = SqprPlanner(copy.catalog, SqprSettings(sweep_slice=0, repair_tries=0), copy)
        quick.submit(waiting)
        return copy

    def _decision(self, query: Query, old: PlanState, before: Totals, proven: bool) -> Decision:
        state, catalog = self.state, self.state.catalog
        if query.id in state.served:
            return self._admitted(query, old, before)
        if query.latency_bound is not None:
            return too_late(query, query.latency_bound)
        if not proven:
            detail = "no placement was found within the time limit"
            return Decision(query.id, refusal=Refusal(query.id, TIMEOUT, detail))
        at = None if query.deliver_to is None else catalog.host_at[query.deliver_to]
        quick = SqprPlanner(catalog, SqprSettings(sweep_slice=0, repair_tries=0), state)
        return refused(query, quick.shortage(catalog.stream_at[query.stream], at), catalog)

    def _admitted(self, query: Query, old: PlanState, before: Totals) -> Decision:
        state, catalog, now = self.state, self.state.catalog, Totals(self.state)
        started, shipped = differing_steps(old, state)
        stream, host = state.served[query.id]
        moved = tuple(
            name for name, place in state.served.items() if old.served.get(name, place) != place
        )
        return Decision(
            query=query.id,
            host=catalog.host_ids[host],
            reused=tuple(
                (catalog.stream_ids[name], catalog.host_ids[place])
                for name, place in state.supports(stream, host)
                if old.has(name, place) and catalog.base[name] != place
            ),
            started=started,
            shipped=shipped,
            cpu=now.cpu - before.cpu,
            bandwidth=now.bandwidth - before.bandwidth,
            replanned=moved,
        )
