"""Scenario files: read, refused with the field's name, run, questioned."""

from pathlib import Path

import numpy as np
import pytest

from millstream.errors import UsageError
from millstream.sim.policies import DEFAULT, POLICIES
from millstream.sim.scenario import Scenario, load_scenario, parse_scenario
from millstream.sim.scenario_run import expectations, prepare, run_variant
from millstream.sim.what_if import Variant, ask

SMALL = {
    "name": "small",
    "duration_s": 10,
    "cluster": {"hosts": 4, "streams_a_host": 2},
    "workload": {"queries": 40, "operators": 300, "choice": "zipf"},
}
LISTED = {
    "name": "listed",
    "duration_s": 5,
    "hosts": [{"id": "a"}, {"id": "b", "cpu": 2.0}],
    "streams": [{"id": "s", "host": "a", "rate": 10}, {"id": "t", "host": "b", "rate": 20}],
    "queries": [
        {
            "id": "q",
            "operators": [
                {"id": "f", "inputs": ["s"], "cost_us": 100, "selectivity": 0.5},
                {
                    "id": "j",
                    "inputs": ["f", "t"],
                    "cost_us": 200,
                    "selectivity": 0.1,
                    "window_s": 5,
                },
            ],
        }
    ],
}


def small(**changed: object) -> Scenario:
    return parse_scenario({**SMALL, **changed}, "test")


@pytest.mark.parametrize("name", POLICIES.names())
def test_every_policy_runs_a_scenario_and_breaks_nothing(name: str) -> None:
    outcome = run_variant(Variant(small(policy={"name": name})), seed=1)
    assert outcome.failures == ()
    assert len(outcome.run.samples) == 10
    assert (name == "static") == (not outcome.run.moves)


def test_a_listed_cluster() -> None:
    setting = prepare(Variant(parse_scenario(LISTED, "test")), seed=1)
    assert setting.flow.hosts == ("a", "b")
    assert setting.host_cpu.tolist() == [1.0, 2.0]
    assert [unit.id for unit in setting.flow.units] == ["q/s", "q/t"]
    assert setting.flow.operator_cost_s.tolist() == pytest.approx([1e-4, 2e-4])
    assert run_variant(Variant(parse_scenario(LISTED, "test")), 1).failures == ()


@pytest.mark.parametrize("name", POLICIES.names())
def test_streams_without_rows_and_operators_without_cost(name: str) -> None:
    free = {"id": "f", "inputs": ["s"], "cost_us": 0, "selectivity": 1.0}
    silent = {
        **LISTED,
        "streams": [{"id": "s", "host": "a", "rate": 0}, {"id": "t", "host": "b", "rate": 20}],
        "queries": [{"id": "free", "operators": [free]}, *LISTED["queries"]],  # type: ignore[misc]
        "policy": {"name": name},
    }
    outcome = run_variant(Variant(parse_scenario(silent, "test")), 1)
    assert outcome.failures == ()
    assert all(np.isfinite(s.ratio_worst) for s in outcome.run.samples)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clutser": {}}, "test: clutser: extra inputs"),
        ({"cluster": {"hosts": 0}}, "cluster.hosts: input should be greater"),
        ({"changes": [{"at_s": 1, "factor": 2}]}, "names streams, hosts or a number"),
        ({"changes": [{"at_s": 5, "until_s": 2, "factor": 2, "hosts": ["h0"]}]}, "after at_s"),
        ({"network": {"medium": "carrier pigeon"}}, "network.medium"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small(**changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policy": {"name": "flow_awre"}}, "unknown balancing policy"),
        ({"policy": {"name": "flow_aware", "settings": {"kapa": 2}}}, "unknown setting 'kapa'"),
        ({"policy": {"name": "static", "settings": {"kappa": 2}}}, "has no settings"),
        ({"faults": [{"kind": "crash", "hosts": ["h9"]}]}, "unknown host 'h9'"),
        ({"faults": [{"kind": "fire", "hosts": ["h1"]}]}, "unknown fault"),
        ({"faults": [{"kind": "cut_link", "hosts": ["h1"]}]}, "two hosts of the link"),
        ({"faults": [{"kind": "crash"}]}, "names the hosts"),
        ({"changes": [{"at_s": 1, "factor": 2, "streams": ["x"]}]}, "unknown stream or host 'x'"),
        ({"streams": [{"id": "s", "host": "x", "rate": 1}]}, "unknown host 'x'"),
        ({"hosts": [{"id": "a"}, {"id": "a"}]}, "two hosts have one name: 'a'"),
        ({**LISTED, "queries": [LISTED["queries"][0]] * 2}, "two queries have one name"),  # type: ignore[index]
        ({"queries": [LISTED["queries"][0]]}, "no stream and no operator"),  # type: ignore[index]
    ],
)
def test_what_only_a_run_can_see_is_told_too(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_variant(Variant(small(**changed)), seed=1)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_scenario(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = 1")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_scenario(broken)
    named = tmp_path / "named.toml"
    named.write_text("duration_s = 3")
    assert load_scenario(named).name == "named"


def test_the_default_policy_is_the_better_one() -> None:
    assert small().policy.name == DEFAULT == "least_ratio"


def test_expectations_are_judged() -> None:
    scenario = small(checks={"worst_ratio_max": 0.5, "load_max": 1.0, "over_s": 5})
    outcome = run_variant(Variant(scenario), seed=1)
    assert len(outcome.failures) == 1
    assert "worst_ratio_max is 0.5" in outcome.failures[0]
    assert expectations(small(), outcome.run) == []


def test_random_hosts_of_a_change_depend_on_the_seed_only() -> None:
    scenario = small(changes=[{"at_s": 1, "factor": 2.0, "random_hosts": 2}])
    first = prepare(Variant(scenario), 1).changes[0].streams
    more = prepare(Variant(scenario, hosts_more=3), 1).changes[0].streams
    assert first == more
    assert len(first) == 4
    assert any(prepare(Variant(scenario), seed).changes[0].streams != first for seed in range(2, 9))


def test_questions_change_the_run_and_not_the_queries() -> None:
    base = Variant(small())
    plain = prepare(base, 1)
    more = prepare(ask(base, "add-host=2"), 1)
    assert more.flow.hosts == (*plain.flow.hosts, "h4", "h5")
    assert [u.id for u in more.flow.units] == [u.id for u in plain.flow.units]
    double = prepare(ask(base, "stream:s1=2"), 1)
    assert [s.rate for s in double.flow.streams][:3] == [250.0, 500.0, 250.0]
    assert np.array_equal(double.placement, plain.placement)
    half = prepare(ask(base, "queries=0.5"), 1)
    assert len(half.flow.queries) == 20
    faults = prepare(ask(base, "cut:h0-h1 + crash:h2@3 + slow:h3=2 + slow-link:h0-h2=9"), 1).faults
    assert [(f.kind, f.hosts, f.at_s, f.factor) for f in faults] == [
        ("cut_link", ("h0", "h1"), 0.0, 1.0),
        ("crash", ("h2",), 3.0, 1.0),
        ("slow_host", ("h3",), 0.0, 2.0),
        ("slow_link", ("h0", "h2"), 0.0, 9.0),
    ]
    assert ask(base, "policy:static").scenario.policy.name == "static"
    assert ask(base, "bandwidth=0.5").scenario.network.bandwidth_mbps == 50


@pytest.mark.parametrize(
    "question", ["", "more", "stream:s0", "stream:s0=x", "stream:s0=-1", "cut:", "add-host=0"]
)
def test_a_question_that_makes_no_sense_is_told(question: str) -> None:
    with pytest.raises(UsageError, match="question"):
        ask(Variant(small()), question)


def test_questions_about_what_is_not_there() -> None:
    with pytest.raises(UsageError, match="unknown stream 's99'"):
        prepare(ask(Variant(small()), "stream:s99=2"), 1)
    with pytest.raises(UsageError, match="listed queries"):
        ask(Variant(parse_scenario(LISTED, "test")), "queries=2")
