"""`millstream processor`: a query processor as a daemon, until it is told to stop.

Exit codes: 0 after SIGTERM, SIGINT or a manager's `stop`; 2 for a mistake in the settings; 3 where
another process has the home by now; 70 for a fault of ours while it stopped.
"""

import faulthandler
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

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
from millstream.core.errors import UsageError

ENDED_CODE = 3
INTERNAL_CODE = 70
PATIENCE_S = 12.0  # for steps in hand, when the processor is to stop
CUT_S = 2.0  # between cuts
TELL_S = 25.0  # after which it tells where it stands


def register(app: typer.Typer) -> None:
    app.command("processor")(processor)


def processor(
    home: Annotated[Path, typer.Option(help="Folder of its ledger and segments; made if missing.")],
    manager: Annotated[
        str | None,
        typer.Option(help="URL of the manager, or URL,URL; it also works without one."),
    ] = None,
    spark: Annotated[str, typer.Option(help="Spark master of its session.")] = "local[2]",
    heap: Annotated[str, typer.Option(help="Heap of its Spark driver.")] = "1g",
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of its Spark; may be repeated."),
    ] = None,
    name: Annotated[
        str, typer.Option("--id", help="Its id; kept in the home, made up for a new one.")
    ] = "",
    host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 0,
    advertise: Annotated[
        str | None, typer.Option(metavar="URL", help="Where others reach it, if elsewhere.")
    ] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option("--property", help="What it says of itself: KEY=VALUE; may be repeated."),
    ] = None,
    token_file: TokenFile = None,
    certificate: Certificate = None,
    key: Key = None,
    plain_http: PlainHttp = False,
    authority: Authority = None,
    allow_folder: Annotated[
        list[Path] | None,
        typer.Option(help="Clients may read it; without any: the folder where it starts."),
    ] = None,
    allow_format: Annotated[
        list[str] | None, typer.Option(help="Clients may name this format of a Spark source too.")
    ] = None,
    allow_option: Annotated[
        list[str] | None, typer.Option(help="... and this option, or those of a pattern: kafka.*")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Steps in flight at once.")] = 2,
    pace: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Least time between two steps of an operator, while no row waits for longer; "
            "0 without balancing, else 1.",
        ),
    ] = None,
    step_seconds: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="A step is cut off after it; queries fail."),
    ] = 900.0,
    balance: Annotated[
        str,
        typer.Option(
            help="Balance load with its peers while no manager leads: placement (seed 002), "
            "or a load selection by name; none: a member that load never moves; off."
        ),
    ] = "off",
    peers: Annotated[
        str, typer.Option(help="Addresses of other processors, with commas between them.")
    ] = "",
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A member of a cluster without a manager, which it joins; may be repeated. "
            "The first member has --balance placement alone.",
        ),
    ] = None,
    replace_every: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="A member keeps what runs placed by measured distances and rates (seed 003), "
            "while no manager leads: seconds between looks; 0: no.",
        ),
    ] = 0.0,
    replace_gain: Annotated[
        float,
        typer.Option(min=0, max=100, help="Traffic x distance that a move must save, in %."),
    ] = 10.0,
    replace_dry_run: Annotated[
        bool, typer.Option("--replace-dry-run", help="Only report what would be placed anew.")
    ] = False,
    coordinators: Annotated[
        str,
        typer.Option(
            help="How coordinators and candidates are found: routes (of an overlay over measured "
            "distances), or hash (every member is a candidate)."
        ),
    ] = "routes",
    shared_storage: Annotated[
        bool, typer.Option("--shared-storage", help="The home lies on a network file system.")
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve the dashboard of the cluster, as a member sees it.")
    ] = False,
    ui_at: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serve the dashboard on this port (or host:port)."),
    ] = None,
    log_format: Annotated[
        str, typer.Option(help="Notices as text or as json: one object a line.")
    ] = "text",
) -> None:
    """Run a query processor."""
    from millstream.control.definitions.source_rules import (  # noqa: PLC0415
        SourceRules,
        usual_folders,
    )
    from millstream.edge.processor.app import ProcessorServer, ProcessorSettings  # noqa: PLC0415
    from millstream.engine.settings import EngineSettings  # noqa: PLC0415
    from millstream.spark.plane import SparkPlane  # noqa: PLC0415

    if (ui or ui_at is not None) and balance == "off" and not join:
        raise UsageError(
            "only a member of a cluster without a manager has a dashboard",
            hint="--balance placement or --join URL; or the manager's --ui",
        )
    settings = ProcessorSettings(
        host=host,
        port=port,
        token=daemon_token(token_file, host),
        tls=tls_of(certificate, key, plain=plain_http),
        authority=existing_file(authority),
        manager=manager,
        advertise=advertise,
        properties=properties_of(prop or ()),
        balance=_balance(balance, peers, join or ()),
        standing=_standing(
            replace_every,
            replace_gain,
            coordinators,
            moves=not replace_dry_run,
            member=balance != "off" or bool(join),
        ),
        rules=SourceRules(
            tuple(allow_folder) if allow_folder else usual_folders(Path.cwd()),
            tuple(allow_format or ()),
            tuple(allow_option or ()),
            tuple(one for one in (home, token_file, key) if one is not None),
        ),
    )
    engine = EngineSettings(
        slots=slots,
        pace_s=_pace(pace, settings.balance),
        local_disk=not shared_storage,
        step_seconds_max=step_seconds,
    )
    given = settings_of(spark_conf or ())
    say = speaker(log_format, "notice")
    private_home(home)
    session = _session(spark, {"spark.driver.memory": heap, **given}, home)
    server = ProcessorServer(
        name,
        home,
        SparkPlane(session),
        settings,
        engine,
        say=say,
        command=(sys.executable, *sys.orig_argv[1:]),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "asked_to_stop", True))
    server.start()
    typer.echo(f"processor {server.processor.id} listens on {server.url}")
    with ExitStack() as pages:
        if ui or ui_at is not None:
            from millstream.edge.http.serving import address  # noqa: PLC0415
            from millstream.edge.peers.member_dashboard import member_dashboard  # noqa: PLC0415

            board = pages.enter_context(member_dashboard(server, address(ui_at)))
            typer.echo(f"dashboard: {board.link}")
        sys.stdout.flush()
        reason = server.wait()
    if server.engine.lost.is_set() and not server.asked_to_stop:  # nothing is left to be stopped
        say(f"error: {reason}", "error")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ENDED_CODE)
    _stop(server, session, say)
    if reason:
        say(f"error: {reason}", "error")
        raise typer.Exit(ENDED_CODE)
    if server.again:
        say("the process begins again", "notice")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, sys.orig_argv)  # the same process for whoever watches over it


def _stop(server: Any, session: Any, say: Callable[..., None]) -> None:
    """Ends everything in bounded time.

    What takes longer than a while is cut off: it has committed nothing, and is done again by the
    next process of this home. Where even that does not help, the output says where every thread
    stands, and the process goes: threads of the endpoint would keep it for ever.
    """
    from millstream.spark.failures import java_gone  # noqa: PLC0415

    faulthandler.dump_traceback_later(TELL_S)
    ended = threading.Event()
    threading.Thread(
        target=_cut_off, args=(ended, session, say), name="millstream-impatience", daemon=True
    ).start()
    try:
        server.stop()
        ended.set()
        session.stop()
    except BaseException:
        ended.set()
        told = java_gone(session) is None
        if told:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(INTERNAL_CODE if told else 0)  # a signal to a whole service ends Java too
    faulthandler.cancel_dump_traceback_later()


def _cut_off(ended: threading.Event, session: Any, say: Callable[..., None]) -> None:
    """Cancels Spark's jobs, those in hand and those begun since, until all parts have ended."""
    wait_s = PATIENCE_S
    while not ended.wait(wait_s):
        say("what is under way takes too long and is cut off", "warning")
        session.sparkContext.cancelAllJobs()
        wait_s = CUT_S


def _balance(scheme: str, peers: str, join: Sequence[str]) -> Any:
    from millstream.client.http import checked_url  # noqa: PLC0415
    from millstream.edge.peers.balancing import PLACEMENT, BalanceSettings  # noqa: PLC0415

    addresses = tuple(
        checked_url(url.strip(), "--peers") for url in peers.split(",") if url.strip()
    )
    addresses += tuple(checked_url(url, "--join") for url in join)
    if join and scheme == "off":
        scheme = PLACEMENT  # members of a cluster without a manager balance with each other
    if scheme == "off":
        if addresses:
            raise UsageError("peers are for balancing", hint="--balance placement")
        return None
    settings = BalanceSettings(scheme, addresses)
    settings.node_settings()  # a name that does not exist is told before Spark starts
    return settings


def _standing(every_s: float, gain: float, finding: str, *, moves: bool, member: bool) -> Any:
    from millstream.control.peers.standing import StandingSettings  # noqa: PLC0415

    if not every_s:
        return None
    if not member:
        raise UsageError(
            "only members of a cluster keep queries placed among themselves",
            hint="--balance none, or --balance placement, or --join URL; a manager has "
            "--replace-every too",
        )
    return StandingSettings(every_s, gain / 100, moves, finding)  # type: ignore[arg-type]


def _pace(given: float | None, balance: Any) -> float:
    from millstream.edge.peers.balancing import PACE_SECONDS  # noqa: PLC0415

    if given is not None:
        if not isfinite(given):
            raise UsageError(f"a pace of {given} seconds never ends", hint="--pace 1")
        return given
    return PACE_SECONDS if balance is not None else 0.0


def _session(master: str, settings: dict[str, str], home: Path) -> Any:
    from millstream.spark.session import session  # noqa: PLC0415

    cores = re.fullmatch(r"local\[(\d+)\]", master)
    own = {"spark.sql.shuffle.partitions": cores[1]} if cores else {}
    return session(master, {**own, **settings}, log=home / "spark.log")


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE pairs of Spark.

    >>> settings_of(["spark.cores.max=2", "spark.executor.extraJavaOptions=-Dx=y"])
    {'spark.cores.max': '2', 'spark.executor.extraJavaOptions': '-Dx=y'}
    """
    found = {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not key.startswith("spark.") or not sign:
            raise UsageError(
                f"{pair!r} is not a setting of Spark", hint="--spark-conf spark.cores.max=2"
            )
        found[key] = value
    return found


def properties_of(given: Sequence[str]) -> dict[str, str | int | float]:
    """KEY=VALUE pairs; values that are numbers become numbers.

    >>> properties_of(["cpu=3.0", "os=Linux"])
    {'cpu': 3.0, 'os': 'Linux'}
    """
    found: dict[str, str | int | float] = {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not key or not sign:
            raise UsageError(f"{pair!r} is not a property", hint="--property KEY=VALUE")
        found[key] = _value(value)
    return found


def _value(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
