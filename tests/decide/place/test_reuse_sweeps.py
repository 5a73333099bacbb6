"""When background work is done, for whom others are moved, and that sweeps of flows keep all."""

from millstream.decide.place.planners import solution_of, verify
from millstream.decide.place.problem import Host, Operator, Problem, Query, Stream
from millstream.decide.place.reuse.blocking_deliveries import least_cpu, worth_room
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.planners.sweep import Sweep
from millstream.decide.place.workload import TIGHT, generate, scaled

CHAIN = Problem(
    hosts=(Host("h0", 10.0, 100.0, 100.0), Host("h1", 10.0, 100.0, 100.0)),
    streams=(
        *(Stream(name, 1.0, "h0") for name in ("a", "b", "c")),
        *(Stream(name, 0.1) for name in ("ab", "bc", "abc")),
    ),
    operators=(
        Operator("o1", ("a", "b"), "ab", 1.0),
        Operator("o2", ("b", "c"), "bc", 1.5),
        Operator("o3", ("ab", "c"), "abc", 0.5),
        Operator("o4", ("a", "bc"), "abc", 0.25),
    ),
    queries=(Query("q1", "ab"), Query("q2", "abc")),
)


def test_a_newcomer_needs_what_nobody_computes_yet() -> None:
    planner = SqprPlanner(Catalog.of(CHAIN))
    catalog = planner.state.catalog
    closure = catalog.closure(catalog.stream_at["abc"])
    assert least_cpu(planner.state, closure) == 1.5
    planner.submit(CHAIN.queries[:1])
    assert least_cpu(planner.state, closure) == 0.5
    planner.submit(CHAIN.queries[1:])
    assert least_cpu(planner.state, closure) == 0.0


def test_others_are_moved_for_cheap_newcomers_only() -> None:
    planner = SqprPlanner(Catalog.of(CHAIN))
    catalog = planner.state.catalog
    planner.submit(CHAIN.queries[:1])  # the average delivery costs 1.0
    cheap, costly = (catalog.closure(catalog.stream_at[name]) for name in ("abc", "bc"))
    assert worth_room(planner.state, cheap, 0.5)
    assert not worth_room(planner.state, cheap, 0.4)
    assert not worth_room(planner.state, costly, 1.1)


def test_sweeps_of_flows_keep_every_query_in_a_valid_placement() -> None:
    problem = generate(scaled(TIGHT, 6), 8)
    planner = SqprPlanner(Catalog.of(problem))
    decisions = [planner.submit((query,))[0] for query in problem.queries]
    served = set(planner.state.served)
    assert Sweep().flows(planner, 40) > 0
    assert set(planner.state.served) == served
    verify(problem, solution_of(problem, planner, decisions, [0.0]))


def test_background_work_waits_for_need() -> None:
    problem = generate(scaled(TIGHT, 6), 8)
    moved = {}
    for name, settings in (("default", SqprSettings()), ("always", SqprSettings(sweep_from=0.0))):
        planner = SqprPlanner(Catalog.of(problem), settings)
        for query in problem.queries[:30]:
            assert planner.submit((query,))[0].admitted
            planner.rest()
        moved[name] = planner.replanned > 0
    assert moved == {"default": False, "always": True}
    eager = SqprPlanner(Catalog.of(problem), SqprSettings(sweep_from=2.0))
    for query in problem.queries:
        eager.submit((query,))
        eager.rest()
    assert eager.refused > eager.settings.sweep_refused  # room is short by then
    assert eager.replanned > 0
