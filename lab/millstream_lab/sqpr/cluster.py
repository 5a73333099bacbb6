"""Seed 004, figures 7(a) to 7(c): the cluster deployment, SQPR beside SODA.

Fifteen hosts on a 10 Mbps LAN, 300 streams of 10 kbps, 250 two- and three-way joins, fifty at a
time, each host good for fifteen joins, the objective set to balance. Planners are real, hosts are
virtual; several seeds, because 250 queries are few.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, pstdev
from typing import Any

from millstream.decide.place.planners import Outcome as Planning
from millstream.decide.place.workload import CLUSTER, generate
from millstream_lab.experiment import EXPERIMENTS, Experiment, Outcome, Row
from millstream_lab.sqpr.runs import Progress, finding, planned, plot_distribution, plot_lines

STEP = 50
PLANNERS = ("sqpr", "soda")
LOADS = (50, 150)


def run_7a(seed: int, quick: bool, progress: Progress) -> Outcome:
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
    final = {
        planner: mean(
            int(str(row["admitted"]))
            for row in rows
            if row["planner"] == planner and row["submitted"] == CLUSTER.queries
        )
        for planner in PLANNERS
    }
    return Outcome(
        rows,
        [
            finding(
                "SQPR admits more than SODA",
                f"of {CLUSTER.queries}: sqpr {final['sqpr']:.0f}, soda {final['soda']:.0f}",
                final["sqpr"] > final["soda"],
            ),
            finding(
                "at saturation SQPR does not admit all",
                f"{final['sqpr']:.0f} of {CLUSTER.queries}",
                final["sqpr"] < CLUSTER.queries,
                "with reuse chosen by popularity, fifteen joins a host suffice for nearly all",
            ),
        ],
    )


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


def _spread(rows: Sequence[Row], value: str) -> dict[str, tuple[float, float]]:
    spread: dict[str, tuple[float, float]] = {}
    for run in dict.fromkeys(str(row["run"]) for row in rows):
        amounts = [float(str(row[value])) for row in rows if row["run"] == run]
        spread[run] = (mean(amounts), pstdev(amounts))
    return spread


def run_7b(seed: int, quick: bool, progress: Progress) -> Outcome:
    """CPU use over hosts, with 50 and 150 queries."""
    del quick  # seconds in any case
    rows = _per_host(seed, progress)
    spread = _spread(rows, "cpu_share")
    return Outcome(
        rows,
        [
            finding(
                "both planners balance CPU",
                "mean and deviation: "
                + "; ".join(f"{run} {m:.2f} +- {d:.2f}" for run, (m, d) in spread.items()),
                all(deviation < 0.15 for _, deviation in spread.values()),
            )
        ],
    )


def run_7c(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Sent and received data over hosts, with 50 and 150 queries."""
    del quick  # seconds in any case
    rows = _per_host(seed, progress)
    spread = _spread(rows, "network_kbps")
    return Outcome(
        rows,
        [
            finding(
                "both planners roughly balance the network",
                "kbps, mean and deviation: "
                + "; ".join(f"{run} {m:.0f} +- {d:.0f}" for run, (m, d) in spread.items()),
                all(deviation < 0.6 * average for average, deviation in spread.values()),
                "with 50 queries a host has few flows, and a popular stream's origin many",
            )
        ],
    )


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


for _name, _title, _run, _draw in (
    ("sqpr-7a", "queries admitted beside SODA", run_7a, plot_7a),
    ("sqpr-7b", "CPU over hosts beside SODA", run_7b, plot_7b),
    ("sqpr-7c", "network over hosts beside SODA", run_7c, plot_7c),
):
    EXPERIMENTS.add(_name, Experiment(_name, _title, "sqpr", _run, _draw))
