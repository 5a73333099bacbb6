"""Commands to a running cluster: submit, queries, drop, status, placement, move, tail, drain, ...

Each asks the manager (`--manager URL`, or MILLSTREAM_MANAGER), or any member of a cluster without
one (`--to URL`, which means the same); rows of `tail` come from the processors. Exit codes: 0 done;
1 it could not be done; 2 a mistake.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from millstream.app.config import load_job
from millstream.client.manager_client import ManagerClient, manager_url
from millstream.client.results import ResultReader
from millstream.control.snapshot.alarms import told as alarm_line
from millstream.control.snapshot.model import Alarm
from millstream.core.beginning import beginning_gone
from millstream.core.codec import from_json
from millstream.core.durations import microseconds
from millstream.core.errors import MillstreamError, UsageError
from millstream.store.file_formats import json_lines

Manager = Annotated[
    str | None,
    typer.Option("--manager", "--to", help="URL of the manager, or of any member without one."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
T = TypeVar("T")
EMPTY_MAX = 20
WEIGHT_MAX = 1e6
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


def register(app: typer.Typer) -> None:
    app.command("submit")(submit)
    app.command("queries")(queries)
    app.command("drop")(drop)
    app.command("status")(status)
    app.command("placement")(placement)
    app.command("move")(move)
    app.command("drain")(drain)
    app.command("remove")(remove)
    app.command("tail")(tail)
    app.command("decisions")(decisions)
    app.command("coordinators")(coordinators)
    app.command("redistribute")(redistribute)
    app.command("shutdown")(shutdown)


def _asked(manager: str | None, what: Callable[[ManagerClient], T]) -> T:
    """What a manager answers."""
    with ManagerClient(manager_url(manager)) as client:
        return what(client)


def _print(told: Any) -> None:
    typer.echo(json.dumps(told, default=str))


def submit(
    query: Annotated[str, typer.Argument(help="A job file (.toml), or a query's text.")],
    name: Annotated[str, typer.Option(help="The query's name.")] = "",
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the oldest rows still there.")
    ] = False,
    deliver_to: Annotated[str, typer.Option(help="Site where results are wanted.")] = "",
    latency: Annotated[str, typer.Option(help="How late results may be, such as 300ms.")] = "",
    queue: Annotated[
        bool, typer.Option("--queue", help="Wait for room instead of being refused.")
    ] = False,
    weight: Annotated[
        float, typer.Option(help="How much it counts where others have to make room; 1 is usual.")
    ] = 1.0,
    replicas: Annotated[
        int, typer.Option(min=1, max=3, help="Processors that keep a copy of what it needs.")
    ] = 1,
    dry_run: DryRun = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait until it runs.")] = 120.0,
    manager: Manager = None,
    json_output: Json = False,
) -> None:
    """Register a query, or all streams and queries of a job file."""

    def ask(client: ManagerClient) -> list[dict[str, Any]]:
        if query.endswith(".toml") and Path(query).is_file():
            from millstream.edge.peers.local_cluster import submit_job  # noqa: PLC0415

            return submit_job(client, load_job(Path(query)), wait_s=wait)
        return [
            client.submit(
                name or _free_name(client), query, from_beginning=from_beginning, wait_s=wait,
                deliver_to=deliver_to, latency_s=_seconds(latency), queue=queue, dry_run=dry_run,
                weight=_weight(weight), replicas=replicas,
            )
        ]  # fmt: skip

    told = _asked(manager, ask)
    if json_output:
        _print(told)
        return
    for one in told:
        typer.echo(_considered(one) if dry_run else _told(one))


def _free_name(client: ManagerClient) -> str:
    taken = {q["name"] for q in client.queries()}
    number = 1
    while f"q{number}" in taken:
        number += 1
    return f"q{number}"


def _weight(said: float) -> float:
    if not 0 < said <= WEIGHT_MAX:
        raise UsageError(
            f"--weight is {said:g}", detail="of two queries for one room the weightier gets it",
            hint=f"a number above 0, at most {WEIGHT_MAX:g}",
        )  # fmt: skip
    return said


def _seconds(text: str) -> float | None:
    if not text:
        return None
    return microseconds(text) / 1e6


def _considered(one: dict[str, Any]) -> str:
    fits = f" ({one['fits']})" if one.get("fits") else ""
    weighed = f"; {one['objective']}" if one.get("objective") else ""
    return f"{one['name']} would be {one['verdict']}: {one['sentence']}{weighed}{fits}"


def _told(query: dict[str, Any]) -> str:
    line = f"{query['name']}  {query['state']}"
    if query["admission"].get("sentence"):
        line += f"  {query['admission']['sentence']}"
    if query["reason"]:
        line += f"  ({query['reason']})"
    if query.get("from_beginning") and (gone := beginning_gone(query.get("start"))):
        line += f"\n{query['name']}: {gone}"
    return line


def queries(manager: Manager = None, json_output: Json = False) -> None:
    """List all queries with their state and place."""
    told, alarms = _asked(manager, lambda c: (c.queries(), c.alarms()))
    stalled = {a["subject"]: a["culprit"] for a in alarms if a["kind"] == "stalled"}
    for query in told:
        if query["name"] in stalled:
            query |= {"state": "stalled", "reason": stalled[query["name"]]}
    if json_output:
        _print(told)
        return
    for query in told:
        places = sorted({o["processor"] for o in query["operators"]})
        typer.echo(
            f"{query['name']:<20} {query['state']:<9} {int(query['rows']):>12,} rows  "
            f"on {', '.join(places) or '-'}{'  ' + query['reason'] if query['reason'] else ''}"
        )


def drop(
    name: Annotated[str, typer.Argument(help="The query.")],
    manager: Manager = None,
    json_output: Json = False,
) -> None:
    """End a query and forget its results."""
    told = _asked(manager, lambda c: c.drop(name, wait_s=30.0))
    if json_output:
        _print(told)
    else:
        typer.echo(f"{name} is {'gone' if told['gone'] else 'going'}")


def status(manager: Manager = None, json_output: Json = False) -> None:
    """Show processors, streams and what is under way."""
    told, alarms = _asked(manager, lambda c: (c.status(), c.alarms()))
    if json_output:
        _print(told | {"alarms": alarms})
        return
    for alarm in alarms:
        line = alarm_line(from_json(Alarm, alarm), time.time())
        colour = "red" if alarm["severity"] == "error" else "yellow"
        typer.secho(f"{alarm['severity']}: {line}", fg=colour)
    for name, processor in told["processors"].items():
        load = processor["figures"].get("load") if processor["state"] == "up" else None
        shown = f"load {load:.0%}" if load is not None else ""
        typer.echo(
            f"{name:<12} {processor['state']:<9} {processor['operators']:>4} operators  "
            f"{shown:<10} {processor['url']}"
        )
    for name, stream in told["streams"].items():
        rows = int(stream["figures"].get("rows", 0))
        begun = "" if stream["started"] else "  not started"
        typer.echo(f"stream {name:<16} {rows:>12,} rows  enters at {stream['processor']}{begun}")
    counts = ", ".join(f"{n} {phase}" for phase, n in sorted(told["queries"].items())) or "none"
    typer.echo(f"queries: {counts}; operators: {told['operators']}; moves: {len(told['moves'])}")
    for name, served in list(told.get("ratios", {}).items())[:1]:
        typer.echo(
            f"worst performance ratio: {served['ratio']:.1f} ({name}; "
            f"{served['ratio_communication']:.1f} of it communication)"
        )
    for name, one in told.get("lost", {}).items():
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one["since"]))
        typer.echo(
            f"{name} was lost, last heard at {at} UTC: {len(one['queries'])} queries began again"
        )
    if told["superseded"]:
        typer.echo(f"this manager has stopped acting: {told['superseded']}")


def placement(manager: Manager = None, json_output: Json = False) -> None:
    """Show which processor runs which operator."""
    told = _asked(manager, lambda c: c.placement())
    if json_output:
        _print(told)
        return
    for one in sorted(told["operators"], key=lambda o: (o["processor"], o["id"])):
        to = f" -> {one['moving_to']}" if one["moving_to"] else ""
        typer.echo(
            f"{one['processor']:<10} {one['id'][:14]:<15} {one['kind']:<10} "
            f"{', '.join(one['queries']):<20} {one['label']}{to}"
        )
    for edge in told["edges"]:
        size = int(edge["figures"].get("bytes", 0))
        typer.echo(f"{edge['stream'][:20]:<21} {edge['from']} -> {edge['to']}  {size:,} bytes")


def move(
    operator: Annotated[
        str,
        typer.Argument(
            help="Id, the beginning of one, a label, a query for all of it, or a stream."
        ),
    ],
    processor: Annotated[str, typer.Argument(help="Where it shall run, or rows enter.")],
    subplan: Annotated[
        bool, typer.Option("--subplan", help="With everything below the operator.")
    ] = False,
    dry_run: DryRun = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end of the move.")] = 120.0,
    manager: Manager = None,
    json_output: Json = False,
) -> None:
    """Move an operator, a sub-plan, a whole query, or where a stream enters, as it runs."""
    told = _asked(
        manager,
        lambda c: c.move(operator, processor, subplan=subplan, dry_run=dry_run, wait_s=wait),
    )
    if json_output:
        _print(told)
    elif dry_run or not told["moves"]:
        typer.echo(told["sentence"])
    else:
        for one in told["moves"]:
            typer.echo(_moved(one))
    if any(one["outcome"] for one in told["moves"]):
        raise typer.Exit(1)


def _moved(one: dict[str, Any]) -> str:
    words = {"done": "is done", "owned": "is done", "undone": "was undone"}
    going = "is being undone" if one["outcome"] else f"is {one['phase']}"
    state = words.get(one["phase"], going)
    why = f": {one['outcome']}" if one["outcome"] else ""
    return f"move {one['id']} from {one['from']} to {one['to']} {state}{why}"


def drain(
    processor: Annotated[str, typer.Argument(help="The processor.")],
    back: Annotated[bool, typer.Option("--back", help="Let it take part again.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait until it is empty.")] = 300.0,
    manager: Manager = None,
    json_output: Json = False,
) -> None:
    """Move all operators and entrances of streams away from a processor; names what stays."""
    patience = 0.0 if back else min(wait, 300.0)
    told = _asked(manager, lambda c: c.drain(processor, back=back, wait_s=patience))
    if json_output:
        _print(told)
        return
    for one in told["moves"]:
        typer.echo(_moved(one))
    left = told["processor"]
    typer.echo(f"{processor} is {left['state']} with {left['operators']} operators")
    if not back:
        _tell_entering(told["entering"])
    if (left["operators"] or told["entering"]) and not back:
        raise typer.Exit(1)


def remove(
    processor: Annotated[str, typer.Argument(help="The processor.")],
    lost: Annotated[
        bool,
        typer.Option(
            "--lost", help="It will not return: a replica takes over, or its queries begin again."
        ),
    ] = False,
    manager: Manager = None,
    json_output: Json = False,
) -> None:
    """Forget a processor that was drained, or, with --lost, one that is gone with its home."""
    told = _asked(manager, lambda c: c.remove_processor(processor, lost=lost))
    if json_output:
        _print(told)
        return
    if "copies" in told:
        kept = ", ".join(told["copies"])
        typer.echo(f"a replica of {processor} takes over; copies of its home are at {kept}")
        return
    typer.echo(f"{processor} is forgotten")
    if not lost:
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(told["since"]))
    typer.echo(f"what only {processor} had since then is gone; it was last heard at {since} UTC")
    for name in told["streams"]:
        typer.echo(f"rows of {name} enter elsewhere; those that only {processor} had are gone")
    for name in told["queries"]:
        typer.echo(f"query {name} begins again, with a gap")


def _tell_entering(streams: list[dict[str, Any]]) -> None:
    for one in streams:
        typer.echo(f"rows of {one['stream']} still enter there: {one['reason']}")
    if any(not one["ended"] for one in streams):
        typer.echo(
            "they wait while it is down, and continue when its home is opened again, on any "
            "machine that sees the home and the source: "
            "millstream processor --home DIR --manager URL"
        )


def tail(
    query: Annotated[str, typer.Argument(help="The query.")],
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more rows.")
    ] = True,
    limit: Annotated[int, typer.Option(help="Rows to show; 0 for all.")] = 0,
    manager: Manager = None,
) -> None:
    """Print a query's rows as they come, one JSON object a line; takes nothing from anybody."""
    with ManagerClient(manager_url(manager)) as client:
        reader = ResultReader(client, query)
        shown = empty = 0
        while not reader.ended:
            came = False
            for batch in reader.pages(10.0 if follow else 1.0):
                came = True
                for line in json_lines(batch.table) if batch.table is not None else ():
                    typer.echo(line)
                    shown += 1
                    if limit and shown >= limit:
                        return
            if came:
                continue
            empty += 1  # a pointer was followed, nobody answered, or there is nothing more
            if not follow and (reader.idle or empty > EMPTY_MAX):
                return
            told = client.query(query)
            if told["state"] == "failed":
                raise MillstreamError(f"query {query} has failed", detail=told["reason"])


def decisions(
    after: Annotated[int, typer.Option(help="Only those after this number.")] = 0,
    manager: Manager = None,
    json_output: Json = False,
) -> None:
    """Print what the manager decided, and why."""
    told = _asked(manager, lambda c: c.decisions(after))
    if json_output:
        _print(told)
        return
    for one in told:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one["at_s"]))
        why = f" ({one['reason']})" if one["reason"] else ""
        typer.echo(f"{one['number']:>5} {at} {one['kind']:<10} {one['sentence']}{why}")


def shutdown(
    processor: Annotated[str, typer.Argument(help="The processor; drained before.")],
    manager: Manager = None,
) -> None:
    """End the process of a processor that has nothing any more; its home stays."""
    _asked(manager, lambda c: c.halt(processor))
    typer.echo(f"{processor} will end its process")


def redistribute(
    dry_run: DryRun = False,
    policy: Annotated[str, typer.Option(help="Another policy from now on.")] = "",
    cost_model: Annotated[str, typer.Option(help="Another cost model from now on.")] = "",
    percent: Annotated[
        float | None, typer.Option(help="Difference of costs that is accepted from now on, in %.")
    ] = None,
    check: Annotated[
        float | None, typer.Option(help="Seconds between looks at costs from now on.")
    ] = None,
    moves_max: Annotated[
        int | None, typer.Option(help="Moves of one decision from now on.")
    ] = None,
    operators: Annotated[
        str,
        typer.Option(
            help="The only operators that may move: ids, labels or queries, with commas; or all."
        ),
    ] = "",
    processors: Annotated[
        str, typer.Option(help="Processors that may receive operators, with commas; or all.")
    ] = "",
    state_rows: Annotated[
        str, typer.Option(help="Only operators with so many rows of state: LEAST:MOST.")
    ] = "",
    every: Annotated[
        bool | None,
        typer.Option("--on/--off", help="Carry the policy's moves out at every look from now on."),
    ] = None,
    manager: Manager = None,
    json_output: Json = False,
) -> None:
    """Let the redistribution policy look at the costs now, and carry out its moves."""
    from millstream.edge.manager.settings import read_names, read_state_rows  # noqa: PLC0415

    given = {
        "policy": policy or None, "cost_model": cost_model or None, "percent_difference": percent,
        "check_s": check, "moves_max": moves_max, "redistribute": every,
    }  # fmt: skip
    chosen: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if operators:
        chosen["eligible_operators"] = read_names(operators)
    if processors:
        chosen["eligible_processors"] = read_names(processors)
    if state_rows:
        chosen |= read_state_rows(state_rows)
    if chosen and dry_run:
        raise UsageError("a dry run changes no settings", hint="leave out --dry-run")

    def ask(client: ManagerClient) -> dict[str, Any]:
        if chosen:
            client.change(chosen)
        return client.redistribution() if dry_run else client.redistribute()

    told = _asked(manager, ask)
    if json_output:
        _print(told)
        return
    for name, cost in told["processors"].items():
        typer.echo(f"{name:<10} cost {cost:.2f} by {told['model']}")
    typer.echo(told["sentence"])
    for one in told["moves"]:
        typer.echo(f"{one['operator']} from {one['from']} to {one['to']}: {one['reason']}")


def coordinators(manager: Manager = None, json_output: Json = False) -> None:
    """Show the trees that members keep placed by distance: proxies, coordinators, what became."""
    found = _asked(manager, lambda client: client.coordinators())
    if json_output:
        _print(found)
        return
    for tree in found:
        zones = ", ".join(f"{zone} by {name}" for zone, name in tree["coordinators"].items())
        typer.echo(
            f"{tree['part']:<20} proxy {tree['proxy']}  mapped {tree['epoch']} times  "
            f"traffic x distance {tree['cost']:,.0f}"
        )
        typer.echo(f"  zones: {zones or '-'}")
        typer.echo(f"  {tree['sentence'] or 'it has not been mapped yet'}")
    if not found:
        typer.echo("no member keeps a query placed")
