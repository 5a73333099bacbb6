"""A plan over virtual processors: nothing lost by distribution or moves, limits that bite."""

from dataclasses import replace

import pytest

from millstream.core.placement import ProcessorDescription, problems
from millstream.decide.balance.cost_models import COST_MODELS
from millstream.decide.balance.redistribution import POLICIES, Move, Parameters
from millstream.decide.place.patterns import PATTERNS, distribute
from millstream_lab.dcape.connected_processor import Machine
from millstream_lab.dcape.distributed_plan import (
    DistributedPlan,
    Environment,
    PlanRecord,
    Redistribution,
    VirtualPlan,
)
from millstream_lab.dcape.plans import plan_1, plan_2, plan_3, plan_4

IDS = ("p1", "p2", "p3")


def table(
    plan: VirtualPlan, pattern: str = "grouping", ids: tuple[str, ...] = IDS
) -> dict[str, str]:
    return dict(distribute(plan.graph, [ProcessorDescription(i) for i in ids], pattern))


def test_plans_have_the_numbers_of_the_text() -> None:
    def depth(plan: VirtualPlan, name: str) -> int:
        if name in plan.streams:
            return 0
        return 1 + max(depth(plan, s) for s in plan.graph.by_id[name].inputs)

    for plan, operators, joins, deep, streams, roots in (
        (plan_1(0, joins=False), 5, 0, 5, 1, 1),
        (plan_1(2, joins=True), 5, 5, 5, 6, 1),
        (plan_2(10), 20, 5, 9, 6, 1),
        (plan_3(10), 40, 7, 14, 8, 1),
        (plan_4(10), 80, 14, 14, 16, 2),
    ):
        assert len(plan.graph) == operators
        assert sum(o.kind == "join" for o in plan.graph) == joins
        assert max(depth(plan, root) for root in plan.graph.roots) == deep
        assert (len(plan.graph.streams), len(plan.graph.roots)) == (streams, roots)


@pytest.mark.parametrize("pattern", PATTERNS.names())
def test_results_do_not_depend_on_the_distribution_while_all_keep_up(pattern: str) -> None:
    plan = plan_1(2.0, joins=True)
    alone = DistributedPlan(plan, table(plan, pattern, ("p1",)), ("p1",)).run(60)
    apart = DistributedPlan(plan, table(plan, pattern), IDS).run(60)
    assert apart.rows_out == pytest.approx(alone.rows_out, rel=0.02)
    assert alone.rows_out > 0.8 * 60 * plan.rates["o5"]


def test_moves_lose_nothing() -> None:
    plan = plan_1(2.0, joins=True)
    still = DistributedPlan(plan, table(plan), IDS).run(60)
    driver = DistributedPlan(plan, table(plan), IDS)
    targets = iter([p for _ in range(10) for p in ("p2", "p3", "p1")])

    def move() -> None:
        target = next(targets)
        for name in ("o2", "o4"):
            if driver.table[name] != target:
                driver.move(Move(name, driver.table[name], target, "test"))

    driver.kernel.every(3.0, move)
    moved = driver.run(60)
    assert len(moved.moves) > 20
    assert moved.rows_out == pytest.approx(still.rows_out, rel=0.02)
    assert problems(plan.graph, driver.table, IDS) == ()


def run(plan: VirtualPlan, environment: Environment, seconds: float = 60) -> PlanRecord:
    return DistributedPlan(plan, table(plan, ids=("p1",)), ("p1",), environment).run(seconds)


def test_connections_cost_cpu() -> None:
    plan = plan_2(10.0)
    light = run(plan, Environment(machine=Machine(connections_half=1000.0)))
    heavy = run(plan, Environment(machine=Machine(connections_half=8.0)))
    assert heavy.rows_out < 0.9 * light.rows_out


def test_a_full_memory_ends_a_processor() -> None:
    record = run(plan_2(10.0), Environment(machine=Machine(memory_rows=5000.0)))
    assert 0 < record.failed["p1"] < 60
    late = [s.rows_out for s in record.samples if s.at > record.failed["p1"] + 1]
    assert len(set(late)) == 1


def test_rates_by_the_minute() -> None:
    plan = plan_1(0.0, joins=False)
    record = run(plan, Environment(minutes=(1.0, 3.0)), 120)
    first = record.rows_out_at(60)
    assert (record.rows_out - first) / first == pytest.approx(3.0, rel=0.03)


@pytest.mark.parametrize("model", COST_MODELS.names())
@pytest.mark.parametrize("policy", POLICIES.names())
def test_every_model_and_policy_in_a_run(model: str, policy: str) -> None:
    """Decisions are carried out, the distribution stays valid, runs repeat exactly."""
    plan = plan_2(10.0)
    start = dict.fromkeys(table(plan), "p1")
    asked = Redistribution(model, policy, Parameters(percent_difference=1.0, check_s=5.0))
    environment = replace(Environment(), minutes=(2.0,))

    def go() -> tuple[PlanRecord, dict[str, str]]:
        driver = DistributedPlan(plan, start, IDS, environment, asked)
        return driver.run(40), driver.table

    (record, after), (again, _) = go(), go()
    assert problems(plan.graph, after, IDS) == ()
    assert record.moves == again.moves
    assert record.samples == again.samples
    assert len(record.sentences) == 8
    if (model, policy) == ("cpu_time", "balance"):
        assert record.moves
        assert len(set(after.values())) == 3


def test_an_invalid_distribution_is_refused() -> None:
    plan = plan_2(10.0)
    with pytest.raises(ValueError, match="no processor"):
        DistributedPlan(plan, {}, IDS)
