"""Experiment raindrop-worldcup: the seed's plans under the World Cup site's real arrival pattern.

The seed took its data from the Internet Traffic Archive but drew arrivals from a Poisson
distribution; here the archive's own pattern arrives, a minute of the trace in a second.
"""

from dataclasses import replace

from millstream.sim.arrivals import ChangingPoisson, WorldCup
from millstream_lab.claims import Claim, Row, at_most
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.raindrop.claimed import ADAPTIVE
from millstream_lab.raindrop.figures import ALL, MEASURED, UNITS, plotter, tidy
from millstream_lab.raindrop.operators import PlanSpec
from millstream_lab.raindrop.quantities import among, lasting, place, ranked
from millstream_lab.raindrop.runs import PLANS, contest, specification


def with_world_cup(plan: PlanSpec) -> PlanSpec:
    """The plan with streams of the same mean rate that follow the trace."""
    streams = {
        name: WorldCup(arrivals.mean_rate)
        for name, arrivals in plan.streams.items()
        if isinstance(arrivals, ChangingPoisson)
    }
    return replace(plan, name=f"{plan.name}, World Cup", streams=dict(streams))


def run_world_cup(seed: int, quick: bool, progress: Progress) -> list[Row]:
    seeds = [seed] if quick else list(range(seed, seed + 5))
    seconds = 40 if quick else 120
    goals = specification(delay=0.33, rate=0.34, memory=0.33)
    rows: list[Row] = []
    for number, plan in PLANS.items():
        found = contest(with_world_cup(plan), goals, ALL, seeds, seconds, progress)
        rows += tidy(found, seeds, number, goals.name)
    return rows


CLAIMS = tuple(
    Claim(
        f"plan {number}, three equal goals: adaptive not worse than the middle of the four in "
        f"{metric} [{name}]",
        at_most("place of five", place(name, metric, plan=number), 3),
        lasting(120, 3),
        ranked(metric, plan=number),
        among(name, metric, plan=number),
    )
    for number in PLANS
    for name in ADAPTIVE
    for metric in UNITS
)
EXPERIMENTS.add(
    "raindrop-worldcup",
    Experiment(
        "raindrop-worldcup",
        "the seed's plans under the real World Cup arrival pattern",
        "raindrop",
        run_world_cup,
        plotter("the framework responds to steady and bursty arrivals alike"),
        CLAIMS,
        MEASURED,
    ),
)
