"""Planners with reuse by name, and how one is run over a whole problem.

`PLANNERS` is what a user chooses from; `plan_all` submits a problem's queries in their order, in
batches, lets the planner rest in between, times every answer and has the independent checker look
at the result before anybody uses it. Decides nothing itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

from millstream.core.errors import InternalError, UsageError
from millstream.core.registry import Registry
from millstream.decide.place.check import check
from millstream.decide.place.online import Decision, OnlinePlanner
from millstream.decide.place.problem import Problem
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.heuristic import HeuristicPlanner
from millstream.decide.place.reuse.hierarchy import TieredPlanner
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner
from millstream.decide.place.reuse.soda import SodaPlanner
from millstream.decide.place.solution import Durations, Solution, durations

DEFAULT_PLANNER = "sqpr"


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    timeout_s: float | None = None  # a query; only planners with a solver heed it


PlannerMaker = Callable[[Catalog, PlannerOptions], OnlinePlanner]
PLANNERS: Registry[PlannerMaker] = Registry("planner")


@PLANNERS.member("sqpr")
def _sqpr(catalog: Catalog, _options: PlannerOptions) -> OnlinePlanner:
    return SqprPlanner(catalog)


@PLANNERS.member("sqpr_tiers")
def _sqpr_tiers(catalog: Catalog, _options: PlannerOptions) -> OnlinePlanner:
    return TieredPlanner(catalog)


@PLANNERS.member("sqpr_milp")
def _sqpr_milp(catalog: Catalog, options: PlannerOptions) -> OnlinePlanner:
    from millstream.decide.place.reuse.planners.sqpr_milp import (  # noqa: PLC0415  (the solver is slow to load)
        DEFAULT_TIMEOUT_S,
        MilpPlanner,
        MilpSettings,
    )

    seconds = DEFAULT_TIMEOUT_S if options.timeout_s is None else options.timeout_s
    return MilpPlanner(catalog, MilpSettings(timeout_s=seconds))


@PLANNERS.member("sqpr_batch")
def _sqpr_batch(catalog: Catalog, options: PlannerOptions) -> OnlinePlanner:
    from millstream.decide.place.reuse.planners.sqpr_batch import (  # noqa: PLC0415  (the same)
        SECONDS_EACH,
        BatchPlanner,
        BatchSettings,
    )

    seconds = SECONDS_EACH if options.timeout_s is None else options.timeout_s
    return BatchPlanner(catalog, BatchSettings(seconds))


@PLANNERS.member("heuristic")
def _heuristic(catalog: Catalog, _options: PlannerOptions) -> OnlinePlanner:
    return HeuristicPlanner(catalog)


@PLANNERS.member("soda")
def _soda(catalog: Catalog, _options: PlannerOptions) -> OnlinePlanner:
    return SodaPlanner(catalog)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A checked solution with what led to it."""

    solution: Solution
    decisions: tuple[Decision, ...]
    seconds_total: float  # planning and background work
    planner: OnlinePlanner

    @property
    def cpu_ms(self) -> Durations:
        """CPU time a query: what a busy machine does not spoil."""
        return self.solution.planning_cpu_ms

    @property
    def before_first_refusal(self) -> int:
        """Queries admitted before the first was refused: choosing cheap ones cannot raise it."""
        for number, decision in enumerate(self.decisions):
            if not decision.admitted:
                return number
        return len(self.decisions)


def plan_all(
    problem: Problem,
    planner: str = DEFAULT_PLANNER,
    *,
    batch: int = 1,
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Plans all queries of a problem with a planner; the result has passed the checker."""
    if batch < 1:
        raise UsageError(f"a batch of {batch} queries", hint="1 or more")
    started = perf_counter()
    seconds = timeout_s if timeout_s is not None else problem.timeout_s
    online = PLANNERS.get(planner)(Catalog.of(problem), PlannerOptions(seconds))
    decisions: list[Decision] = []
    times: list[float] = []
    busy: list[float] = []
    for first in range(0, len(problem.queries), batch):
        queries = problem.queries[first : first + batch]
        before, before_cpu = perf_counter(), process_time()
        decisions.extend(online.submit(queries))
        busy.extend([(process_time() - before_cpu) / len(queries)] * len(queries))
        times.extend([(perf_counter() - before) / len(queries)] * len(queries))
        for _ in queries:
            online.rest()
        if progress is not None:
            progress(min(first + batch, len(problem.queries)))
    total = perf_counter() - started
    solution = solution_of(problem, online, decisions, times, busy)
    verify(problem, solution)
    return Outcome(solution, tuple(decisions), total, online)


def solution_of(
    problem: Problem,
    online: OnlinePlanner,
    decisions: list[Decision],
    times: Sequence[float],
    busy: Sequence[float] = (),
) -> Solution:
    state = online.state
    order = {query.id: number for number, query in enumerate(problem.queries)}
    return Solution(
        admitted=tuple(decision.query for decision in decisions if decision.admitted),
        refused=tuple(item.refusal for item in decisions if item.refusal is not None),
        operators=state.placed(),
        flows=state.flows(),
        delivered=tuple(sorted(state.delivered(), key=lambda given: order[given.query])),
        planning_ms=durations(times),
        planning_cpu_ms=durations(busy),
    )


def verify(problem: Problem, solution: Solution) -> None:
    """Raises when the checker finds fault: no such placement may be used."""
    violations = check(problem, solution)
    if violations:
        raise InternalError(
            "a planner gave a placement that the checker refuses",
            detail="; ".join(str(violation) for violation in violations[:5]),
            hint="please report this with the problem file",
        )
