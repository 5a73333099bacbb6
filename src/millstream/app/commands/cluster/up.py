"""`millstream up`: a manager and processors on this machine, until Ctrl-C or SIGTERM.

Exit codes: 0 after a signal; 2 for a mistake; 3 where something could not be started.
"""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from millstream.app.commands.cluster.credentials import private_home
from millstream.app.commands.cluster.token import link_to
from millstream.app.config import load_job
from millstream.core.errors import UsageError

WATCH_S = 0.5


def register(app: typer.Typer) -> None:
    app.command("up")(up)


def up(
    job: Annotated[
        Path | None, typer.Argument(help="A job file whose queries are submitted at once.")
    ] = None,
    processors: Annotated[int, typer.Option(min=1, max=64, help="How many processors.")] = 2,
    least: Annotated[
        int | None,
        typer.Option("--min", min=1, max=64, help="At least so many, by load up to --max."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--max", min=1, max=64, help="At most so many, added and ended by load."),
    ] = None,
    grow_after: Annotated[
        float, typer.Option(min=0, help="Seconds that one must be full before another is started.")
    ] = 20.0,
    shrink_after: Annotated[
        float, typer.Option(min=0, help="Seconds that fewer must be enough before one ends.")
    ] = 120.0,
    home: Annotated[Path, typer.Option(help="Folder of all homes; found again later.")] = Path(
        "millstream-cluster"
    ),
    port: Annotated[int, typer.Option(help="The manager's port; 0 takes a free one.")] = 0,
    spark: Annotated[str, typer.Option(help="Spark master of every processor.")] = "local[2]",
    heap: Annotated[str, typer.Option(help="Heap of every Spark driver.")] = "1g",
    pattern: Annotated[
        str | None,
        typer.Option(help="Place queries by this distribution pattern, without admission."),
    ] = None,
    replicas: Annotated[
        int, typer.Option(min=1, max=3, help="Processors that keep a copy of each home.")
    ] = 1,
    ui: Annotated[bool, typer.Option(help="Serve the dashboard.")] = True,
    ui_port: Annotated[int, typer.Option(help="Its port; 0 takes a free one.")] = 0,
    allow_folder: Annotated[
        list[Path] | None,
        typer.Option(help="Clients may read it; without any: the folder where it starts."),
    ] = None,
    step_seconds: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="A step is cut off after it; queries fail."),
    ] = 900.0,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print where everything is as one JSON object.")
    ] = False,
) -> None:
    """Start a cluster on this machine; stop it with Ctrl-C."""
    from millstream.edge.http.reserved_port import KeptPort  # noqa: PLC0415
    from millstream.edge.peers.local_cluster import LocalCluster, submit_job  # noqa: PLC0415

    wanted = load_job(job) if job is not None else None
    bounds: tuple[str, ...] = ()
    if most is not None or least is not None:
        processors = least or min(processors, most or processors)
        most = max(processors, most or processors)
        if least is not None and least > most:
            raise UsageError(f"--min {least} is above --max {most}")
        bounds = (
            "--processors-min", str(processors), "--processors-max", str(most),
            "--grow-after", str(grow_after), "--shrink-after", str(shrink_after),
        )  # fmt: skip
    signals: list[int] = []  # no event: a handler may interrupt whoever holds its lock
    for wished in (signal.SIGINT, signal.SIGTERM):
        signal.signal(wished, lambda number, _: signals.append(number))

    def say(text: str) -> None:
        typer.echo(text, err=True)

    private_home(home)
    pages = KeptPort(ui_port)
    options = (
        *bounds,
        *(("--pattern", pattern) if pattern else ()),
        *(("--replicas", str(replicas)) if replicas > 1 else ()),
        *(("--ui-at", str(pages.number)) if ui else ()),
    )
    cluster = LocalCluster(
        home, processors, most=most or 0, port=port, spark=spark, heap=heap,
        manager_options=options, say=say,
        processor_options=[
            "--step-seconds", f"{step_seconds:g}",
            *(w for one in allow_folder or () for w in ("--allow-folder", str(one.absolute()))),
        ],
    )  # fmt: skip
    try:
        count = len(cluster.processors)
        say(f"starting a manager and {count} processors in {cluster.folder}")
        cluster.start()
        told = cluster.describe()
        if ui:
            told["dashboard"] = f"http://127.0.0.1:{pages.number}/"
            told["link"] = link_to(told["dashboard"].rstrip("/"))
        if json_output:
            typer.echo(json.dumps(told))
        else:
            typer.echo(f"manager    {told['manager']}")
            for name, url in told["processors"].items():
                typer.echo(f"processor  {name}  {url}")
            if ui:
                typer.echo(f"dashboard  {told['link']}")
            typer.echo(f"try: millstream status --manager {told['manager']}")
        sys.stdout.flush()
        if wanted is not None:
            for query in submit_job(cluster.client, wanted):
                say(f"query {query['name']} is {query['state']}")
        while not signals:
            cluster.watch()
            if bounds:
                cluster.scale()
            time.sleep(WATCH_S)
        say("stopping")
    finally:
        cluster.stop()
        pages.close()
