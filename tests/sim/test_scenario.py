"""Scenario files: read, refused with the field's name, run, questioned."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from millstream.core.errors import UsageError
from millstream.sim.policies import DEFAULT, POLICIES
from millstream.sim.report import summary
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
        ({"queries": [LISTED["queries"][0]]}, "not a stream or an operator"),  # type: ignore[index]
        ({"workload": {"selectivity": [1e6, 1e6]}}, "rows a second"),
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


@pytest.mark.parametrize("bound", ["load_max", "worst_ratio_max"])
def test_checks_are_judged_where_samples_are_rarer_than_their_span(bound: str) -> None:
    scenario = small(sample_s=7, checks={"over_s": 2, bound: 1e-6})
    outcome = run_variant(Variant(scenario), seed=3)
    assert [bound in failure for failure in outcome.failures] == [True]
    without_end = replace(outcome.run, samples=outcome.run.samples[:1])
    assert len(expectations(scenario, without_end)) == 1
    assert "no sample" in expectations(scenario, replace(outcome.run, samples=()))[0]


def test_no_number_at_all_passes_no_check() -> None:
    scenario = small(checks={"worst_ratio_max": 1e6, "over_s": 5})
    run = run_variant(Variant(scenario), seed=1).run
    unknown = tuple(replace(sample, ratio_worst=float("nan")) for sample in run.samples)
    assert len(expectations(scenario, replace(run, samples=unknown))) == 1


@pytest.mark.parametrize(
    ("changed", "at_s"),
    [
        ({"duration_s": 0.5}, [0.5]),
        ({"sample_s": 1000}, [10.0]),
        ({"sample_s": 4}, [4.0, 8.0, 10.0]),
        ({"sample_s": 5}, [5.0, 10.0]),
        ({"duration_s": 10.05, "sample_s": 5}, [5.0, 10.0]),  # less than a tick is no news
    ],
)
def test_the_end_of_a_run_is_sampled(changed: dict[str, object], at_s: list[float]) -> None:
    outcome = run_variant(Variant(small(**changed)), seed=1)
    assert [sample.now_s for sample in outcome.run.samples] == pytest.approx(at_s)
    assert summary(outcome)["load_mean"] > 0


@pytest.mark.parametrize("name", POLICIES.names())
def test_policies_wait_while_no_host_is_up(name: str) -> None:
    everyone = {"kind": "crash", "at_s": 1, "until_s": 6, "hosts": ["h0", "h1", "h2", "h3"]}
    outcome = run_variant(Variant(small(policy={"name": name}, faults=[everyone])), seed=1)
    assert not [move for move in outcome.run.moves if 1 < move.started_s < 6]
    assert outcome.run.samples[-1].loads.max() > 0


@pytest.mark.parametrize("name", POLICIES.names())
def test_queries_that_cost_nothing(name: str) -> None:
    free = {"id": "f", "inputs": ["s"], "cost_us": 0, "selectivity": 0.5}
    scenario = {
        **LISTED,
        "queries": [{"id": "free", "operators": [free]}],
        "policy": {"name": name},
    }
    run = run_variant(Variant(parse_scenario(scenario, "test")), 1).run
    assert all(np.isfinite(sample.ratio_worst) for sample in run.samples)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"duration_s": float("inf")}, "duration_s: input should be"),
        ({"duration_s": 1, "tick_ms": 1001}, "nothing would happen"),
        ({"duration_s": 1e8}, "more than 10000000 times tick_ms"),
        ({"cluster": {"rate": float("nan")}}, "cluster.rate: input should be a finite"),
        ({"cluster": {"rate": 1e300}}, "cluster.rate: input should be less"),
        ({"cluster": {"hosts": 10**30}}, "cluster.hosts: input should be less"),
        ({"network": {"latency_ms": float("inf")}}, "network.latency_ms"),
        ({"workload": {"zipf_theta": 1e4}}, "workload.zipf_theta"),
        ({"workload": {"zipf_theta": float("nan")}}, "workload.zipf_theta"),
        ({"workload": {"selectivity": [0.8, 0.5]}}, "selectivity is from low to high"),
        ({"workload": {"window_s": [9, 5]}}, "window_s is from low to high"),
        ({"changes": [{"at_s": 1, "factor": 1e300, "random_hosts": 1}]}, "changes.0.factor"),
        ({"faults": [{"kind": "crash", "at_s": float("nan")}]}, "faults.0.at_s"),
        ({"faults": [{"kind": "crash", "until_s": float("inf")}]}, "faults.0.until_s"),
        ({"faults": [{"kind": "slow_host", "factor": float("nan")}]}, "faults.0.factor"),
        ({"faults": [{"kind": "slow_link", "bandwidth_mbps": 0}]}, "faults.0.bandwidth_mbps"),
        ({"faults": [{"kind": "clock", "drift": float("inf")}]}, "faults.0.drift"),
    ],
)
def test_figures_that_mean_nothing_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small(**changed)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("flow_aware", {"kappa": "x"}),
        ("flow_aware", {"window_s": 0}),
        ("flow_aware", {"limits": 3}),
        ("flow_aware", {"partners_max": "x"}),
        ("flow_aware", {"partners_max": 2.5}),
        ("least_ratio", {"tolerance": "x"}),
        ("least_ratio", {"tolerance": float("nan")}),
        ("least_ratio", {"period_s": 0}),
        ("least_ratio", {"period_s": True}),
        ("operator_based", {"global_start": 3}),
    ],
)
def test_settings_of_another_kind_are_told(policy: str, settings: dict[str, object]) -> None:
    scenario = small(policy={"name": policy, "settings": settings})
    with pytest.raises(UsageError, match=rf"setting '{next(iter(settings))}' cannot be"):
        run_variant(Variant(scenario), seed=1)


def test_settings_of_the_right_kind_are_taken() -> None:
    made = POLICIES.get("operator_based").make({"threshold": 1, "global_start": True})
    assert made[0].policy.global_start is True  # type: ignore[attr-defined]
    POLICIES.get("flow_aware").make({"partners_max": 3, "kappa": 2, "selection": "elementary"})


def test_a_scenario_that_is_not_utf8(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes('title = "über"'.encode("latin-1"))
    with pytest.raises(UsageError, match="not UTF-8"):
        load_scenario(latin)


def test_factors_of_one_stream_multiply() -> None:
    setting = prepare(ask(Variant(small()), "stream:s0=2+stream:s0=3"), 1)
    assert setting.flow.streams[0].rate == 1500.0


def test_few_queries_are_at_least_one() -> None:
    assert len(prepare(ask(Variant(small()), "queries=0.01"), 1).flow.queries) == 1


@pytest.mark.parametrize(
    "question",
    [
        "add-host=0.5",
        "add-host=2.9",
        "add-host=nan",
        "add-host=inf",
        "add-host:h9=2",
        "stream:s0=nan",
        "stream:s0=inf",
        "stream:s0=1e300",
        "queries=inf",
        "queries=1e6",
        "queries:all=2",
        "bandwidth=nan",
        "bandwidth=1e-300",
        "crash:h0=5",
        "crash:h0@",
        "crash:h0@nan",
        "cut:h0-h1=7",
        "slow:h0",
        "add-host+",
    ],
)
def test_a_question_of_wrong_figures_is_told(question: str) -> None:
    with pytest.raises(UsageError, match="question"):
        ask(Variant(small()), question)


@pytest.mark.parametrize(
    ("question", "kind", "hosts", "at_s"),
    [
        ("crash:web-1@0", "crash", ["web-1"], 0.0),
        ("crash:web-1@2.5", "crash", ["web-1"], 2.5),
        ("cut:web-1-web-2", "cut_link", ["web-1", "web-2"], 0.0),
        ("cut:web-2-a+b@c=d@3", "cut_link", ["web-2", "a+b@c=d"], 3.0),
        ("slow-link:a+b@c=d-web-1=4", "slow_link", ["a+b@c=d", "web-1"], 0.0),
        ("crash:a+b@c=d", "crash", ["a+b@c=d"], 0.0),
        ("slow:a+b@c=d=2", "slow_host", ["a+b@c=d"], 0.0),
        ("crash:h0+add-host", "crash", ["h0"], 0.0),
    ],
)
def test_hosts_of_a_question_may_have_any_name(
    question: str, kind: str, hosts: list[str], at_s: float
) -> None:
    names = [{"id": "web-1"}, {"id": "web-2"}, {"id": "a+b@c=d"}]
    fault = ask(Variant(small(hosts=names)), question).scenario.faults[0]
    assert (fault.kind, fault.hosts, fault.at_s) == (kind, hosts, at_s)


def test_a_link_that_can_be_read_in_two_ways_is_refused() -> None:
    names = [{"id": name} for name in ("a", "a-b", "b-c", "c")]
    with pytest.raises(UsageError, match="several links"):
        ask(Variant(small(hosts=names)), "cut:a-b-c")


def test_a_stream_of_a_question_may_have_any_name() -> None:
    assert ask(Variant(small()), "stream:a+b=c=2+add-host").stream_factors == (("a+b=c", 2.0),)
