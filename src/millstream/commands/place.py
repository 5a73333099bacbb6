"""`millstream place`: where the operators of one query tree should run in a network.

Reads a placement problem, prints the placement as JSON. An infeasible latency bound is told on
standard error in one line, stands in the JSON, and exits with 2.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from millstream.errors import UsageError
from millstream.place.network_check import traffic
from millstream.place.network_outcome import Infeasible, Options, Placed
from millstream.place.network_planner import DEFAULT_NETWORK_PLANNER, NETWORK_PLANNERS, plan
from millstream.place.network_problem import PlacementProblem, problem_from_json
from millstream.sim.topologies import load_topology

PLANNER_HELP = f"One of {', '.join(NETWORK_PLANNERS.names())}."


def register(app: typer.Typer) -> None:
    app.command("place")(place)


def place(
    problem: Annotated[Path, typer.Argument(help="A placement problem (JSON).")],
    planner: Annotated[str, typer.Option(help=PLANNER_HELP)] = DEFAULT_NETWORK_PLANNER,
    k: Annotated[
        int, typer.Option(help="Places inside the network that in_network tries an operator.")
    ] = Options().k,
    latency: Annotated[
        float | None,
        typer.Option(help="Latency bound instead of the file's, in the unit of its distances."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            help="Nodes and distances instead of the file's: a name (zoo-geant2012, cloud-regions, "
            "gt-itm-1000, ...) or a file (.alt, .gml, .csv)."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what crosses the network instead of JSON.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON (the default, for scripts that ask).")
    ] = False,
) -> None:
    """Place the operators of a query tree by network distance."""
    if explain and json_output:
        raise UsageError("--explain and --json exclude each other")
    if k < 0:
        raise UsageError(f"--k is {k}", hint="a number from 0 up")
    wanted = read_problem(problem, topology)
    if latency is not None:
        wanted = wanted.with_bound(latency)
    outcome = plan(wanted, planner, Options(k=k))
    typer.echo(explained(wanted, outcome) if explain else json.dumps(outcome.to_json()))
    if isinstance(outcome, Infeasible):
        typer.echo(infeasible_line(outcome), err=True)
        raise typer.Exit(2)


def read_problem(path: Path, topology: str | None = None) -> PlacementProblem:
    """The problem in a file; its `topology`, or the one given, stands for nodes and distance."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"cannot read {path}", detail=str(reason)) from None
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path} is no JSON: {error.msg}",
            detail=f"at line {error.lineno}, column {error.colno}",
        ) from None
    chosen = topology or (data.get("topology") if isinstance(data, dict) else None)
    if chosen is not None and isinstance(data, dict):
        network = load_topology(str(chosen))
        data = {**data, "nodes": list(network.nodes), "distance": network.distance_ms.tolist()}
    return problem_from_json(data)


def infeasible_line(outcome: Infeasible) -> str:
    return (
        f"latency bound {outcome.latency_bound:g} is infeasible: {outcome.detail}; "
        f"{outcome.planner} needs at least {outcome.least_delay:g}"
    )


def explained(problem: PlacementProblem, outcome: Placed | Infeasible) -> str:
    """What runs where, and what crosses between which nodes."""
    if isinstance(outcome, Infeasible):
        return "no placement"
    lines = [f"{name} on {node}" for name, node in sorted(outcome.placement.items())]
    for (origin, target), rate in sorted(traffic(problem, outcome.placement).items()):
        lines.append(f"{origin} -> {target}: rate {rate:g}")
    proven = ", the optimum" if outcome.optimal else ""
    lines.append(f"cost {outcome.cost:g}{proven}; delay {outcome.delay:g}")
    return "\n".join(lines)
