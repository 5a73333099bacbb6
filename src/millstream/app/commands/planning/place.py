"""`millstream place`: where the operators of one query tree should run in a network.

Reads a placement problem and prints the placement as JSON; or, with `--manager` or `--distributed`,
places a query that runs on a cluster anew: by a planner, or by the processors among themselves.
An infeasible latency bound is told on standard error in one line, stands in the JSON, and exits
with 2. `millstream replace` lets the manager look at all queries, and move those where it pays.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.client.manager_client import ManagerClient, manager_url
from millstream.core.errors import UsageError
from millstream.decide.place.check import traffic
from millstream.decide.place.json_fields import read_json
from millstream.decide.place.network.outcome import Infeasible, Options, Placed
from millstream.decide.place.network.planner import DEFAULT_NETWORK_PLANNER, NETWORK_PLANNERS, plan
from millstream.decide.place.network.tree import NetworkTree
from millstream.decide.place.problem_json import tree_from_json
from millstream.sim.topologies.families import load_topology

PLANNER_HELP = f"One of {', '.join(NETWORK_PLANNERS.names())}."
BY_THEMSELVES = ("edge", "edge_plus", "in_network")
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Manager = Annotated[
    str | None, typer.Option("--manager", help="URL of the manager; the argument is a query then.")
]


def register(app: typer.Typer) -> None:
    app.command("place")(place)
    app.command("replace")(replace)


def place(
    problem: Annotated[
        str, typer.Argument(help="A placement problem (JSON); of a cluster: a running query.")
    ],
    planner: Annotated[str, typer.Option(help=PLANNER_HELP)] = "",
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
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help="The cluster's processors place the query by messages among themselves, by edge, "
            "edge_plus or in_network.",
        ),
    ] = False,
    levels: Annotated[
        int, typer.Option(min=1, help="Levels of operators in a coordinator's zone.")
    ] = 1,
    dry_run: DryRun = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end of the moves.")] = 120.0,
    manager: Manager = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what crosses the network instead of JSON.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON (of a file: the default).")
    ] = False,
) -> None:
    """Place the operators of a query tree, or of a running query, by network distance."""
    if explain and json_output:
        raise UsageError("--explain and --json exclude each other")
    if k < 0:
        raise UsageError(f"--k is {k}", hint="a number from 0 up")
    if distributed or manager is not None:
        if latency is not None or topology is not None:
            raise UsageError("--latency and --topology are for a file, not for a running query")
        told = _place_query(
            problem, manager, wait, planner=planner, distributed=distributed, k=k, levels=levels,
            dry_run=dry_run,
        )  # fmt: skip
        typer.echo(json.dumps(told) if json_output else _shown(told))
        return
    if dry_run:
        raise UsageError("a file is only read", hint="--dry-run goes with --manager URL")
    wanted = read_problem(Path(problem), topology)
    if latency is not None:
        wanted = wanted.with_bound(latency)
    outcome = plan(wanted, planner or DEFAULT_NETWORK_PLANNER, Options(k=k))
    typer.echo(explained(wanted, outcome) if explain else json.dumps(outcome.to_json()))
    if isinstance(outcome, Infeasible):
        typer.echo(infeasible_line(outcome), err=True)
        raise typer.Exit(2)


def _place_query(
    query: str, manager: str | None, wait_s: float, *, planner: str, distributed: bool, **how: Any
) -> dict[str, Any]:
    if distributed:
        algorithm = planner or BY_THEMSELVES[-1]
        if algorithm not in BY_THEMSELVES:
            raise UsageError(
                f"processors cannot place by {algorithm} among themselves",
                hint=f"one of {', '.join(BY_THEMSELVES)}",
            )
        how["algorithm"] = algorithm
    else:
        name = planner or DEFAULT_NETWORK_PLANNER
        NETWORK_PLANNERS.get(name)  # a wrong name is told here
        how["planner"] = name
    with ManagerClient(manager_url(manager)) as client:
        patience = 0.0 if how["dry_run"] else min(max(wait_s, 0.0), 300.0)
        return client.place(query, wait_s=patience, distributed=distributed, **how)


def _shown(told: dict[str, Any]) -> str:
    """What crosses now and then, who runs what, and what it took."""
    lines = [told["sentence"]]
    lines += [f"{o} on {p}" for o, p in sorted(told["placement"].items())]
    for when, title in (("now", "so far"), ("then", "as placed")):
        known = told[when]
        lines.append(
            f"{title}: {known['bytes_per_s']:,.0f} bytes/s cross, {known['delay_ms']:g} ms "
            f"on the way, traffic x distance {known['cost']:,.0f}"
        )
        lines += [
            f"  {c['stream']} {c['from']} -> {c['to']}: {c['bytes_per_s']:,.0f} bytes/s"
            for c in known["crosses"]
        ]
    if "messages" in told:
        bounds = told["bounds"]
        lines.append(
            f"{told['messages']['all']} messages in {told['envelopes']} envelopes, "
            f"{told['probed_pairs']} distances measured; section 5 counts "
            f"{bounds['initialization']} and {bounds['topology']}"
        )
    lines += [f"move {m['id']} from {m['from']} to {m['to']}: {m['phase']}" for m in told["moves"]]
    return "\n".join(lines)


def replace(
    gain: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Traffic x distance that must be saved, in %."),
    ] = None,
    dry_run: DryRun = False,
    manager: Annotated[str | None, typer.Option("--manager", help="URL of the manager.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let the manager place running queries anew where measured distances and rates make it pay."""
    with ManagerClient(manager_url(manager)) as client:
        told = client.replace(gain=None if gain is None else gain / 100, dry_run=dry_run)
    if json_output:
        typer.echo(json.dumps(told))
        return
    for one in told["queries"]:
        why = f" ({one['reason']})" if one["moves"] else ""
        typer.echo(f"{one['sentence']}{why}")
    if not told["queries"]:
        typer.echo("no query runs")


def read_problem(path: Path, topology: str | None = None) -> NetworkTree:
    """The problem in a file; its `topology`, or the one given, stands for nodes and distance."""
    data = read_json(path)
    chosen = topology or (data.get("topology") if isinstance(data, dict) else None)
    if chosen is not None and isinstance(data, dict):
        network = load_topology(str(chosen))
        data = {**data, "nodes": list(network.nodes), "distance": network.distance_ms.tolist()}
    return tree_from_json(data)


def infeasible_line(outcome: Infeasible) -> str:
    return (
        f"latency bound {outcome.latency_bound:g} is infeasible: {outcome.detail}; "
        f"{outcome.planner} needs at least {outcome.least_delay:g}"
    )


def explained(problem: NetworkTree, outcome: Placed | Infeasible) -> str:
    """What runs where, and what crosses between which nodes."""
    if isinstance(outcome, Infeasible):
        return "no placement"
    lines = [f"{name} on {node}" for name, node in sorted(outcome.placement.items())]
    for (origin, target), rate in sorted(traffic(problem, outcome.placement).items()):
        lines.append(f"{origin} -> {target}: rate {rate:g}")
    lines.append(f"cost {outcome.cost:g}{_proven(outcome)}; delay {outcome.delay:g}")
    return "\n".join(lines)


def _proven(outcome: Placed) -> str:
    """How far from the optimum it may be, where that is known; heuristics prove nothing."""
    if outcome.optimal:
        return ", the optimum"
    if outcome.lower_bound <= 0:
        return ""
    above = 100 * (outcome.cost / outcome.lower_bound - 1)
    return f", at most {above:.3g} % above the optimum"
