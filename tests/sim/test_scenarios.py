"""Every scenario under tests/scenarios, by policies with and without a manager, over seeds."""

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.sim import reproduction
from millstream.sim.policies import DEFAULT
from millstream.sim.scenario import ChecksPart, load_scenario
from millstream.sim.scenario_run import run_variant
from millstream.sim.what_if import Variant, ask

FOLDER = Path(__file__).parents[1] / "scenarios"
SCENARIOS = sorted(FOLDER.glob("*.toml"))
POLICIES = ("least_ratio", "flow_aware")


def run(path: Path, policy: str, seed: int) -> None:
    variant = ask(Variant(load_scenario(path)), f"policy:{policy}")
    if policy != DEFAULT:  # what must come out is asked of the default, what must hold of all
        plain = variant.scenario.model_copy(update={"checks": ChecksPart()})
        variant = replace(variant, scenario=plain)
    outcome = run_variant(variant, seed)
    shown = str(path.relative_to(FOLDER.parents[1]))
    again = reproduction.line(shown, seed, policy=policy)
    assert outcome.failures == (), f"again with: {again}"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, policy: str) -> None:
    run(path, policy, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
@pytest.mark.parametrize("policy", [*POLICIES, "elementary", "operator_based"])
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_over_many_seeds(path: Path, policy: str, seed: int) -> None:
    run(path, policy, seed)
