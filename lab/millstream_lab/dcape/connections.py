"""Experiment dcape-4.5: what connections cost a processor (section 4.3.4).

A plan of one operator, many times over on one processor: two connections each. The processor is the
virtual one that all experiments of chapters 5 and 6 use; this one shows its calibration.
"""

from collections.abc import Sequence
from typing import Any

from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.core.placement import connections_by_processor
from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Bound, Claim, MissingError, Row, Rows, at_least, at_most, numbers
from millstream_lab.dcape.connected_processor import Machine
from millstream_lab.dcape.distributed_plan import DistributedPlan, VirtualPlan
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress

START_S = 10.0  # the first rows are still under way
SAFE = 0.9  # of the output that the CPU alone would allow


def copies(count: int, rate: float) -> VirtualPlan:
    """So many plans of one operator, each with its own stream."""
    operators = tuple(GraphOperator(f"o{n}", (f"s{n}",), "map", (f"q{n}",)) for n in range(count))
    rates = {operator.id: rate for operator in operators}
    return VirtualPlan(
        f"{count} operators", PlanGraph(operators), {f"s{n}": rate for n in range(count)}, rates
    )


def row_seconds(machine: Machine) -> float:
    """CPU of a row in a plan of one operator: received, read, evaluated, written, sent."""
    costs = machine.costs
    return machine.receive_s + 2 * costs.omega_s + costs.rho_s + machine.send_s


def run_connections(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001
    """The streams together bring what one processor can just work off, whatever their number."""
    machine = Machine()
    total = 1.0 / row_seconds(machine)
    seconds = 40.0 if quick else 300.0
    rows: list[Row] = []
    for count in (1, 4, 5, 6, 25) if quick else (1, 2, 4, 5, 6, 8, 10, 12, 15, 20, 25):
        progress(f"{count} operators")
        plan = copies(count, total / count)
        table = {o.id: "p1" for o in plan.graph}
        record = DistributedPlan(plan, table, ("p1",)).run(seconds)
        rate = (record.rows_out - record.rows_out_at(START_S)) / (seconds - START_S)
        connections = connections_by_processor(plan.graph, table)["p1"]
        share = machine.engine_share(connections)
        rows.append(
            {
                "connections": connections,
                "rows_out_per_s": round(rate, 2),
                "of_possible": round(rate / total, 4),
                "cpu_for_connections": round(1 - share, 4),
            }
        )
    return rows


def safe_connections(rows: Rows) -> float:
    """The most connections up to which the output stays near what is possible."""
    safe = 0.0
    for row in sorted(rows, key=lambda row: float(row["connections"])):
        if float(row["of_possible"]) < SAFE:
            break
        safe = float(row["connections"])
    return safe


def _left(rows: Rows) -> float:
    """Output at the most connections over that at the fewest."""
    ordered = sorted(rows, key=lambda row: float(row["connections"]))
    if len(ordered) < 2 or not float(ordered[0]["rows_out_per_s"]):
        raise MissingError("two numbers of connections")
    return float(ordered[-1]["rows_out_per_s"]) / float(ordered[0]["rows_out_per_s"])


TRIED = (at_least("numbers of connections tried", len, 10),)
CLAIMS = (
    Claim(
        "output falls with connections",
        at_most("output at the most connections over that at the fewest", _left, 0.9),
        TRIED,
        lambda rows: ", ".join(f"{r['connections']}: {r['rows_out_per_s']} rows/s" for r in rows),
    ),
    Claim(
        "8 to 12 connections are safe",
        Bound(f"connections up to which {SAFE:.0%} come out", safe_connections, 8, 12),
        TRIED,
        lambda rows: (
            "calibrated to this claim: it shows the calibration and is no evidence; most tried "
            f"{max(numbers(rows, 'connections')):.0f}"
        ),
    ),
)


def plot(rows: Sequence[Row], figure: Any) -> None:
    axis = figure.subplots()
    counts = [row["connections"] for row in rows]
    axis.plot(counts, [row["of_possible"] for row in rows], marker="o", label="output")
    shares = [1 - float(str(row["cpu_for_connections"])) for row in rows]
    axis.plot(counts, shares, label="CPU left beside connections")
    axis.axvspan(8, 12, alpha=0.12)
    axis.set(xlabel="connections", ylabel="share of what is possible", ylim=(0, 1.05))
    axis.legend(fontsize=7)
    mark_claim(axis, "output falls with connections; 8 to 12 are safe")


EXPERIMENTS.add(
    "dcape-4.5",
    Experiment(
        "dcape-4.5",
        "output of a virtual processor by number of connections",
        "dcape",
        run_connections,
        plot,
        CLAIMS,
        ("rows_out_per_s", "of_possible", "cpu_for_connections"),
    ),
)
