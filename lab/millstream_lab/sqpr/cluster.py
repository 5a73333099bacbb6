"""Seed 004, figures 7(a) to 7(c): the cluster deployment, SQPR beside SODA.

Fifteen hosts on a 10 Mbps LAN, 300 streams of 10 kbps, 250 two- and three-way joins, fifty at a
time, each host good for fifteen joins, the objective set to balance. Planners are real, hosts are
virtual; several seeds, because 250 queries are few.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import pstdev
from typing import Any

from millstream.decide.place.planners import Outcome as Planning
from millstream.decide.place.workload import CLUSTER, generate
from millstream_lab.claims import Claim, Row, Rows, at_least, at_most, change, mean, numbers, values
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.sqpr.runs import Progress, admitted, planned, plot_distribution, plot_lines

STEP = 50
PLANNERS = ("sqpr", "soda")
LOADS = (50, 150)


def run_7a(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """Admitted queries for every 50 submitted."""
    rows: list[Row] = []
    for number in range(2 if quick else 5):
        problem = generate(CLUSTER, seed + number)
        for planner in PLANNERS:
            outcome = planned(problem, planner, progress)
            for submitted in range(STEP, len(problem.queries) + 1, STEP):
                count = sum(decision.admitted for decision in outcome.decisions[:submitted])
                rows.append(
                    {
                        "seed": seed + number,
                        "planner": planner,
                        "submitted": submitted,
                        "admitted": count,
                    }
                )
    return rows


def _per_step(rows: Rows) -> str:
    return "; ".join(
        f"of {n}: " + ", ".join(
            f"{p} {mean(rows, 'admitted', planner=p, submitted=n):.0f}" for p in PLANNERS
        )
        for n in values(rows, "submitted")
    )  # fmt: skip


SEEDS_NEEDED = at_least("seeds", lambda rows: len(values(rows, "seed")), 5)
ALL_NEEDED = at_least("queries", lambda rows: max(numbers(rows, "submitted")), CLUSTER.queries)
CLAIMS_7A = (
    Claim(
        "SQPR admits more than SODA",
        at_least("queries admitted over SODA's",
                 lambda rows: change(admitted(rows, "sqpr"), admitted(rows, "soda")), 0.01, 0,
                 "+%"),
        (SEEDS_NEEDED, ALL_NEEDED),
        _per_step,
    ),
    Claim(
        "at saturation SQPR does not admit all 250",
        at_most("queries admitted", lambda rows: admitted(rows, "sqpr"), CLUSTER.queries - 1),
        (SEEDS_NEEDED, ALL_NEEDED),
    ),
)  # fmt: skip


def _per_host(seed: int, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for load in LOADS:
        problem = generate(CLUSTER, seed)
        problem = replace(problem, queries=problem.queries[:load])
        for planner in PLANNERS:
            rows += _hosts(f"{planner}-{load}", planned(problem, planner, progress))
    return rows


def _hosts(run: str, outcome: Planning) -> list[Row]:
    state = outcome.planner.state
    catalog = state.catalog
    return [
        {
            "run": run,
            "host": name,
            "cpu_share": float(state.cpu_used[number] / catalog.cpu_offered[number]),
            "network_kbps": 1000 * float(state.in_used[number] + state.out_used[number]),
        }
        for number, name in enumerate(catalog.host_ids)
    ]


def _spread(rows: Rows, column: str, run: str) -> float:
    """Deviation over hosts, as a share of the mean."""
    return pstdev(numbers(rows, column, run=run)) / mean(rows, column, run=run)


def _balanced(column: str, most: float, what: str, planner: str, load: int) -> Claim:
    """The seed says 'balance' and draws it; how much deviation that may be is ours."""
    run = f"{planner}-{load}"
    return Claim(
        f"{planner} balances {what} with {load} queries",
        at_most(
            "deviation over hosts, of the mean", lambda rows: _spread(rows, column, run), most,
            0, "%",
        ),
        (at_least("hosts", lambda rows: len(values(rows, "host")), CLUSTER.hosts),),
        lambda rows: (
            f"mean {mean(rows, column, run=run):.3g}, "
            f"from {min(numbers(rows, column, run=run)):.3g} "
            f"to {max(numbers(rows, column, run=run)):.3g}"
        ),
    )  # fmt: skip


def _all_balanced(column: str, most: float, what: str) -> tuple[Claim, ...]:
    return tuple(
        _balanced(column, most, what, planner, load) for planner in PLANNERS for load in LOADS
    )


CLAIMS_7B = _all_balanced("cpu_share", 0.25, "CPU")
CLAIMS_7C = _all_balanced("network_kbps", 0.5, "the network")


def run_hosts(seed: int, quick: bool, progress: Progress) -> list[Row]:
    """CPU and network use over hosts, with 50 and 150 queries."""
    del quick  # seconds in any case
    return _per_host(seed, progress)


def plot_7a(rows: Sequence[Row], figure: Any) -> None:
    plot_lines(
        rows,
        figure,
        x="submitted",
        y="admitted",
        line="planner",
        claim="SQPR admits more than SODA",
        labels=("queries submitted", "queries admitted"),
    )


def plot_7b(rows: Sequence[Row], figure: Any) -> None:
    plot_distribution(
        rows, figure, value="cpu_share", label="CPU used, share", claim="both planners balance"
    )


def plot_7c(rows: Sequence[Row], figure: Any) -> None:
    plot_distribution(
        rows,
        figure,
        value="network_kbps",
        label="sent and received, kbps",
        claim="both roughly balance the network",
    )


for _name, _title, _run, _draw, _claims, _measured in (
    ("sqpr-7a", "queries admitted beside SODA", run_7a, plot_7a, CLAIMS_7A, ("admitted",)),
    ("sqpr-7b", "CPU over hosts beside SODA", run_hosts, plot_7b, CLAIMS_7B, ("cpu_share",)),
    ("sqpr-7c", "network over hosts beside SODA", run_hosts, plot_7c, CLAIMS_7C, ("network_kbps",)),
):
    EXPERIMENTS.add(_name, Experiment(_name, _title, "sqpr", _run, _draw, _claims, _measured))
