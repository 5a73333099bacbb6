"""`millstream bench NAME`: ours and a peer on the same input in one run.

Each benchmark is a function of `millstream_bench`, imported when it is asked for. It gets those of
the options below that its signature names, and gives figures ready for JSON.
"""

import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean

BENCHMARKS = {
    "single": (
        "millstream_bench.throughput.single",
        "run",
        "one query: plain Structured Streaming and ours",
    ),
    "outer": (
        "millstream_bench.throughput.outer",
        "run",
        "a window left join and a top-3 per window: plain Structured Streaming, our inner join",
    ),
    "sharing": (
        "millstream_bench.throughput.sharing",
        "run",
        "many queries: one job each and one dataflow",
    ),
    "live": (
        "millstream_bench.live.bench",
        "run",
        "rows as they come: delay and pace, plain Structured Streaming and ours",
    ),
    "large": (
        "millstream_bench.large.bench",
        "run",
        "tens of millions of rows: pace, memory, disk and growth",
    ),
    "attach": (
        "millstream_bench.throughput.attaching",
        "run",
        "from attach in a Spark that runs to the first row",
    ),
    "backfill": (
        "millstream_bench.live.backfill",
        "run",
        "queries that begin with history: ten and one, beside a live query",
    ),
    "rules": (
        "millstream_bench.rules.bench",
        "run",
        "queries that come and go, and ten thousand rules, over live rows",
    ),
    "nexmark": (
        "millstream_bench.nexmark.bench",
        "run",
        "Nexmark's queries at once and one by one: plain Structured Streaming and ours",
    ),
    "scheduling": (
        "millstream_bench.throughput.scheduling",
        "run",
        "scheduling algorithms on one processor",
    ),
    "choosing": (
        "millstream_bench.throughput.choosing",
        "run",
        "what the scheduler itself costs a step",
    ),
    "digests": (
        "millstream_bench.throughput.digests",
        "run",
        "what digests of segments cost",
    ),
    "checking": (
        "millstream_bench.throughput.digests",
        "through",
        "throughput with digests and without, from files to files",
    ),
    "push": (
        "millstream_bench.throughput.pushing",
        "run",
        "a pushed batch: read by Arrow, and by a Spark job",
    ),
    "tables": (
        "millstream_bench.throughput.tables",
        "run",
        "changes of a query's table into PostgreSQL and Delta",
    ),
    "planning": ("millstream_bench.planning.reuse", "run_planning_bench", "planners with reuse"),
    "admission": (
        "millstream_bench.cluster.admission",
        "run",
        "whether admitted queries keep up on a real processor, and twice as many do not",
    ),
    "replanning": (
        "millstream_bench.cluster.replanning",
        "run",
        "three real processors whose load changes: planned again, and every row right",
    ),
    "managed": (
        "millstream_bench.planning.managed",
        "run_managed_bench",
        "queries that the manager admits, against plan, on the workload of 50 hosts",
    ),
    "moves": (
        "millstream_bench.cluster.moves",
        "run",
        "the pause of a move against its state's size",
    ),
    "balancing": (
        "millstream_bench.cluster.balancing",
        "run",
        "three processors even out a skewed load by themselves, no manager",
    ),
    "control": (
        "millstream_bench.cluster.control",
        "run",
        "what control requests cost a processor",
    ),
    "manager": (
        "millstream_bench.cluster.manager",
        "run",
        "traffic and memory of a manager with nothing to do",
    ),
    "replicas": (
        "millstream_bench.cluster.replicas",
        "run",
        "what a second copy of every home costs",
    ),
    "dashboard": ("millstream_bench.pages.dashboard", "run", "pages in a real browser (Chromium)"),
    "placement": (
        "millstream_bench.planning.network",
        "run_placement_bench",
        "network-aware placement",
    ),
}


def register(app: typer.Typer) -> None:
    app.command("bench", epilog=listing())(bench)


def listing() -> str:
    return "Benchmarks: " + "; ".join(f"{n}: {words}" for n, (_, _, words) in BENCHMARKS.items())


def bench(
    name: Annotated[
        str | None, typer.Argument(help="Which one; without it, they are listed.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file; - is stdout.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small run, to see that it works.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of generated input.")] = 1,
    queries: Annotated[
        str | None,
        typer.Option(
            help="Numbers of queries to try: 3,12,30,100; nexmark: names of queries, q0,q12."
        ),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            help="A second peer of sharing, live and nexmark: flink "
            "(MILLSTREAM_FLINK_PYTHON names it)."
        ),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            help="Parts to run; planning: tight,literal,large,links,milp; "
            "rules: registration,sc1,sc2,ajoin1,ajoin2,rules; live: delay,sustained; "
            "large: mix,skew,day."
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Rows of each stream of large: 2000000,20000000.")
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(help="Rows a second in each stream of live: 1000,10000,50000."),
    ] = None,
) -> None:
    """Run a benchmark and print both sides and the ratio."""
    if name is None:
        for known, (_, _, words) in BENCHMARKS.items():
            typer.echo(f"{known:<12}{words}")
        return
    function = benchmark(name)
    to_stdout = str(json_file) == "-"
    offered: dict[str, Any] = {
        "quick": quick,
        "seed": seed,
        "progress": lambda line: typer.echo(line, err=to_stdout),
    }
    if queries is not None:
        offered["queries"] = queries
    if peer is not None:
        offered["peer"] = peer
    if parts is not None:
        offered["parts"] = parts
    if rows is not None:
        offered["rows"] = rows
    if rates is not None:
        offered["rates"] = rates
    taken = inspect.signature(function).parameters
    figures = function(**{k: v for k, v in offered.items() if k in taken})
    if to_stdout:
        typer.echo(json.dumps(figures, indent=2, default=str))
    elif json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2, default=str) + "\n", encoding="utf-8")
        typer.echo(f"written to {json_file}")


def benchmark(name: str) -> Callable[..., Any]:
    """The function of a benchmark; UsageError where there is none."""
    if name not in BENCHMARKS:
        near = did_you_mean(name, BENCHMARKS)
        hint = f"one of {', '.join(BENCHMARKS)}"
        raise UsageError(f"unknown benchmark {name}{near}", hint=hint)
    module, attribute, _ = BENCHMARKS[name]
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UsageError(f"benchmark {name} is not part of this version") from None
    return found
