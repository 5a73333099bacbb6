"""`millstream manager`: the distribution manager as a daemon, until it is told to stop.

Exit codes: 0 after SIGTERM or SIGINT; 2 for a mistake in the settings; 3 where the port is taken.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from millstream.app.commands.cluster.credentials import (
    Authority,
    Certificate,
    Key,
    PlainHttp,
    TokenFile,
    daemon_token,
    existing_file,
    private_home,
    tls_of,
)
from millstream.app.runs.json_log import speaker


def register(app: typer.Typer) -> None:
    app.command("manager")(manager)


def manager(
    home: Annotated[Path, typer.Option(help="Folder of its state; made if missing.")],
    host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8360,
    advertise: Annotated[
        str | None, typer.Option(metavar="URL", help="Where others reach it, if elsewhere.")
    ] = None,
    placer: Annotated[
        str,
        typer.Option(
            help="How new queries are placed: sqpr admits what fits, pattern refuses nothing. "
            "Without it: sqpr, or pattern where one is given."
        ),
    ] = "",
    pattern: Annotated[
        str | None, typer.Option(help="Distribution pattern: round_robin, grouping, ...")
    ] = None,
    cost_model: Annotated[
        str,
        typer.Option(help="Cost model: backlog, network_output_rate, tuples_in_memory, cpu_time."),
    ] = "backlog",
    policy: Annotated[
        str, typer.Option(help="Redistribution policy: relief, balance, degradation.")
    ] = "relief",
    restart: Annotated[
        str, typer.Option(help="Failed queries: never, or backoff (tried again, ever later).")
    ] = "never",
    redistribute: Annotated[
        bool,
        typer.Option("--redistribute/--no-redistribute", help="Carry out the policy's moves."),
    ] = True,
    percent: Annotated[
        float, typer.Option(min=0, max=100, help="Difference of costs that is accepted, in %.")
    ] = 10.0,
    check: Annotated[float, typer.Option(min=1, help="Seconds between looks at costs.")] = 60.0,
    moves_max: Annotated[int, typer.Option(min=1, help="Moves of one look at costs.")] = 4,
    operators: Annotated[
        str,
        typer.Option(help="The only operators that the policy may move: ids, labels or queries."),
    ] = "all",
    processors: Annotated[
        str, typer.Option(help="The only processors to which the policy may move.")
    ] = "all",
    state_rows: Annotated[
        str, typer.Option(help="Rows of state of operators that the policy may move: LEAST:MOST.")
    ] = "0:",
    replace_every: Annotated[
        float,
        typer.Option(min=0, help="Seconds between looks at distances; 0: queries stay placed."),
    ] = 0.0,
    replace_gain: Annotated[
        float,
        typer.Option(min=0, max=100, help="Traffic x distance that placing anew must save, in %."),
    ] = 10.0,
    replace_dry_run: Annotated[
        bool,
        typer.Option("--replace-dry-run", help="Only report what would be placed anew."),
    ] = False,
    moves_a_minute: Annotated[
        float,
        typer.Option(min=0, help="Moves that planning may make a minute; 0: what runs stays."),
    ] = 12.0,
    relays: Annotated[
        bool,
        typer.Option(
            "--relays/--no-relays",
            help="Whether a reader of a stream may send it on where its owner's network is full.",
        ),
    ] = True,
    weights: Annotated[
        str,
        typer.Option(
            help="Weights of planning: admit=1000,network=1,cpu=1,balance=0; those given count."
        ),
    ] = "",
    beat: Annotated[float, typer.Option(min=0.1, help="Seconds between reports.")] = 5.0,
    replicas: Annotated[
        int, typer.Option(min=1, max=3, help="Processors that keep a copy of each home.")
    ] = 1,
    lost_after: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds of silence after which a replica takes over; 0: when told."
        ),
    ] = 15.0,
    processors_min: Annotated[
        int, typer.Option(min=1, help="At least so many processors, where --processors-max is set.")
    ] = 1,
    processors_max: Annotated[
        int,
        typer.Option(min=0, help="At most so many: says how many are wanted. 0: leaves it to you."),
    ] = 0,
    grow_after: Annotated[
        float, typer.Option(min=0, help="Seconds that one must be full before another is wanted.")
    ] = 20.0,
    shrink_after: Annotated[
        float, typer.Option(min=0, help="Seconds that fewer must be enough before one may leave.")
    ] = 120.0,
    above: Annotated[
        str | None, typer.Option(metavar="URL", help="A manager above: be a processor of it.")
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A member of a cluster without a manager: take over what runs."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="MILLSTREAM_STORE",
            help="PostgreSQL instead of a file: managers that share it stand by for each other.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--id", help="Its id for the manager above.")] = "manager",
    token_file: TokenFile = None,
    certificate: Certificate = None,
    key: Key = None,
    plain_http: PlainHttp = False,
    authority: Authority = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No decisions on stderr.")] = False,
    log_format: Annotated[
        str, typer.Option(help="Decisions as text or as json: one object a line.")
    ] = "text",
    ui: Annotated[bool, typer.Option("--ui", help="Serve the dashboard.")] = False,
    ui_at: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serve the dashboard on this port (or host:port)."),
    ] = None,
) -> None:
    """Run the manager of a cluster."""
    from millstream.control.manager.decisions import SQPR  # noqa: PLC0415
    from millstream.control.manager.state import Settings  # noqa: PLC0415
    from millstream.decide.balance.redistribution import Parameters  # noqa: PLC0415
    from millstream.decide.balance.scaling import Bounds  # noqa: PLC0415
    from millstream.decide.place.patterns import DEFAULT_PATTERN  # noqa: PLC0415
    from millstream.edge.manager.app import ManagerServer  # noqa: PLC0415
    from millstream.edge.manager.settings import (  # noqa: PLC0415
        ManagerSettings,
        changed,
        read_names,
        read_state_rows,
        read_weights,
    )

    settings = ManagerSettings(
        host=host,
        port=port,
        token=daemon_token(token_file, host),
        tls=tls_of(certificate, key, plain=plain_http),
        authority=existing_file(authority),
        advertise=advertise,
        name=name,
        above=above,
        join=join,
        store=store,
        deciding=changed(
            Settings(
                placer=placer or (SQPR if pattern is None else "pattern"),
                pattern=pattern or DEFAULT_PATTERN,
                cost_model=cost_model,
                policy=policy,
                redistribute=redistribute,
                restart=restart,
                parameters=Parameters(percent_difference=percent, check_s=check),
                replace_s=replace_every,
                replace_gain=replace_gain / 100,
                replace=not replace_dry_run,
                moves_a_minute=moves_a_minute,
                relays=relays,
                beat_s=beat,
                silent_after_s=max(3 * beat, 6.0),
                replicas=replicas,
                lost_after_s=lost_after,
                asks_strangers=above is None,  # others may read what is made here
                bounds=Bounds(
                    processors_min if processors_max else 0,
                    processors_max,
                    grow_after,
                    shrink_after,
                ),
            ),
            {
                "moves_max": moves_max,
                "eligible_operators": read_names(operators),
                "eligible_processors": read_names(processors),
                **read_state_rows(state_rows),
                **read_weights(weights),
            },
        ),
    )
    say = speaker(log_format, "decision")
    private_home(home)
    server = ManagerServer(home, settings, (lambda _: None) if quiet else say)

    with ExitStack() as pages:

        def ready() -> None:
            typer.echo(f"manager listens on {server.url}")
            if ui or ui_at is not None:
                from millstream.edge.http.serving import address  # noqa: PLC0415
                from millstream.edge.manager.dashboard import manager_dashboard  # noqa: PLC0415

                board = pages.enter_context(manager_dashboard(server, address(ui_at)))
                typer.echo(f"dashboard: {board.link}")
            sys.stdout.flush()

        server.run(ready)
