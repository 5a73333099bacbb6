"""Cost models: the seed's equations by hand, and what every model promises."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decide.place.operator_graphs import chain, graphs, machines
from millstream.core.errors import UsageError
from millstream.core.operator_graph import PlanGraph
from millstream.decide.balance.cost_models import COST_MODELS, CostMemory, measured

STATISTICS = (
    "queue_rows", "late_rows", "state_rows", "rows_in_per_s", "rows_out_per_s", "cpu_s_per_s",
    "ratio",
)  # fmt: skip


def test_tuples_in_memory_as_a_share_of_what_fits() -> None:
    figures = {"o0": {"queue_rows": 10, "state_rows": 20}, "o1": {"queue_rows": 60}}
    seen = measured(chain(2), {"o0": "p1", "o1": "p2"}, machines(2, memory_rows="100"), figures)
    costs, _ = COST_MODELS.get("tuples_in_memory").costs(seen, CostMemory())
    assert costs.processors == {"p1": 0.3, "p2": 0.6}
    assert costs.operators == {"o0": 0.3, "o1": 0.6}


def test_cpu_time_by_cores() -> None:
    figures = {"o0": {"cpu_s_per_s": 1.0}, "o1": {"cpu_s_per_s": 5.0}}
    seen = measured(chain(2), {"o0": "p1", "o1": "p2"}, machines(2, cpu=2), figures)
    costs, _ = COST_MODELS.get("cpu_time").costs(seen, CostMemory())
    assert costs.processors == {"p1": 0.5, "p2": 1.0}


def test_cpu_time_counts_by_how_badly_its_queries_are_served() -> None:
    figures = {
        "o0": {"cpu_s_per_s": 0.4, "ratio": 1.0},  # nothing waits
        "o1": {"cpu_s_per_s": 0.4, "ratio": 5.0},
        "o2": {"cpu_s_per_s": 0.4},  # not known yet
    }
    table = {"o0": "p1", "o1": "p2", "o2": "p2"}
    seen = measured(chain(3), table, machines(2, cpu=1), figures)
    costs, _ = COST_MODELS.get("performance_ratio").costs(seen, CostMemory())
    assert costs.operators == {"o0": 0.0, "o1": pytest.approx(0.32), "o2": pytest.approx(0.2)}
    assert costs.processors == {"p1": 0.0, "p2": pytest.approx(0.52)}


def test_output_rate_counts_what_crosses_and_compares_with_the_best_since_the_allocation() -> None:
    model = COST_MODELS.get("network_output_rate")
    table = {"o0": "p1", "o1": "p1", "o2": "p2"}

    def look(rates: tuple[float, ...], memory: CostMemory, table: dict[str, str] = table):  # type: ignore[no-untyped-def]
        figures = {f"o{n}": {"rows_out_per_s": rate} for n, rate in enumerate(rates)}
        return model.costs(measured(chain(3), table, machines(2), figures), memory)

    first, memory = look((50, 40, 10), CostMemory())
    assert first.processors == {"p1": 0.0, "p2": 0.0}
    # o0 feeds o1 on the same processor: nothing of it crosses (equation 6.1).
    assert first.operators == {"o0": 0.0, "o1": 1.0, "o2": 1.0}
    second, memory = look((50, 10, 20), memory)
    assert second.processors == {"p1": 0.75, "p2": 0.0}
    moved = {"o0": "p1", "o1": "p2", "o2": "p2"}
    third, memory = look((20, 10, 5), memory, moved)  # a new allocation: what was best is forgotten
    assert third.processors == {"p1": 0.0, "p2": 0.0}
    fourth, _ = look((0, 0, 0), memory, moved)
    assert fourth.processors == {"p1": 1.0, "p2": 1.0}


def test_shares_of_an_operator_that_feeds_two_processors() -> None:
    figures = {"o0": {"rows_out_per_s": 30}, "o1": {"rows_out_per_s": 10}}
    seen = measured(chain(3), {"o0": "p1", "o1": "p2", "o2": "p1"}, machines(2), figures)
    costs, _ = COST_MODELS.get("network_output_rate").costs(seen, CostMemory())
    assert costs.operators == {"o0": 1.0, "o1": 1.0, "o2": 0.0}


@pytest.mark.parametrize("name", COST_MODELS.names())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), data=st.data())
def test_every_model(name: str, graph: PlanGraph, data: st.DataObject) -> None:
    """Between 0 and 1; a cost for each processor that reported, and for each of its operators."""
    processors = machines(3)
    table = {o.id: data.draw(st.sampled_from(["p1", "p2", "p3"])) for o in graph}
    reported = data.draw(st.frozensets(st.sampled_from(["p1", "p2", "p3"])))
    values = st.floats(-1, 1e9)
    figures = {
        o.id: {s: data.draw(values) for s in STATISTICS} for o in graph if table[o.id] in reported
    }
    model = COST_MODELS.get(name)
    assert set(model.statistics) <= set(STATISTICS)
    seen = measured(graph, table, processors, figures, reported)
    costs, memory = model.costs(seen, CostMemory())
    again, _ = model.costs(seen, memory)
    assert costs == again
    assert set(costs.processors) == set(costs.capacity) == reported
    assert set(costs.operators) == {o for o, p in table.items() if p in reported}
    for cost in (*costs.processors.values(), *costs.operators.values()):
        assert 0 <= cost <= 1


def test_statistics_of_nobody() -> None:
    with pytest.raises(UsageError, match="p9"):
        measured(chain(1), {"o0": "p1"}, machines(1), {}, frozenset({"p9"}))


def test_backlog_is_what_a_processor_does_not_work_off() -> None:
    figures = {
        "o0": {"late_rows": 400.0, "rows_in_per_s": 10.0, "cpu_s_per_s": 0.4},  # 40 s
        "o1": {"late_rows": 90.0, "rows_in_per_s": 10.0, "cpu_s_per_s": 0.9},  # it keeps up
    }
    seen = measured(chain(2), {"o0": "p1", "o1": "p2"}, machines(2), figures)
    table, _ = COST_MODELS.get("backlog").costs(seen, CostMemory())
    assert table.processors == {"p1": pytest.approx(0.75), "p2": pytest.approx(0.45)}
    assert table.operators == {"o0": 0.4, "o1": 0.9}
