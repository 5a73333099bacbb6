"""Experiment dcape-4.5: what connections cost a processor (section 4.3.4).

A plan of one operator, many times over on one processor: two connections each. The processor is the
virtual one that all experiments of chapters 5 and 6 use; this one shows its calibration.
"""

from collections.abc import Sequence
from typing import Any

from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.core.placement import connections_by_processor
from millstream.sim.plotting import mark_claim
from millstream_lab.dcape.connected_processor import Machine
from millstream_lab.dcape.distributed_plan import DistributedPlan, VirtualPlan
from millstream_lab.experiment import EXPERIMENTS, Experiment, Finding, Outcome, Progress, Row

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


def run_connections(seed: int, quick: bool, progress: Progress) -> Outcome:  # noqa: ARG001
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
    safe = max(int(str(r["connections"])) for r in rows if float(str(r["of_possible"])) >= SAFE)
    first, last = rows[0], rows[-1]
    return Outcome(
        rows,
        [
            Finding(
                "output falls with connections",
                f"{first['rows_out_per_s']} rows/s at {first['connections']}, "
                f"{last['rows_out_per_s']} at {last['connections']}",
                float(str(last["rows_out_per_s"])) < float(str(first["rows_out_per_s"])),
            ),
            Finding(
                "8 to 12 connections are safe",
                f"at least {SAFE:.0%} of the output up to {safe} connections",
                8 <= safe <= 12,
                "calibrated: half of the CPU at 36 connections, rising with their square",
            ),
        ],
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
    ),
)
