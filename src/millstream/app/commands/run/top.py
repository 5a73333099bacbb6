"""`millstream top`: live queries, operators and processors of a running system, in a terminal.

Reads the snapshot of a dashboard or manager (`run --ui`, the demo, `up`) once a second; keys sort,
hold and leave (`top_keys.py`). Without a terminal, or with `--once`, one picture; with `--json`,
the snapshot as it is. Exit codes: 0, also after `q`; 2 a mistake in the command; 3 nobody answers;
130 ended by Ctrl-C.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.app.commands.run.top_keys import (
    HELP,
    HELP_LINES,
    HOLD,
    LEAVE,
    SORT_KEYS,
    key_by_key,
    pressed,
)
from millstream.control.snapshot.alarms import told
from millstream.control.snapshot.diagnosis import seconds, slowest, title_of
from millstream.control.snapshot.model import (
    OperatorSnapshot,
    Overview,
    ProcessorSnapshot,
    QuerySnapshot,
    Snapshot,
)
from millstream.core.codec import to_json
from millstream.core.errors import MillstreamError, UsageError
from millstream.edge.views.remote_source import DEFAULT_URL, RemoteSource

SORTS = ("delay", "load", "ratio", "rows", "name")
FRESH_S, FRESH_WAIT_S = 2.0, 20.0  # figures of now, and how long a single picture waits for them
ALARMS_SHOWN = 5
STYLES = {
    "failed": "red", "stalled": "red", "silent": "red", "lost": "red",
    "parked": "yellow", "waiting": "yellow", "paused": "yellow", "moving": "magenta",
}  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command("top")(top)


def top(
    url: Annotated[
        str, typer.Option(help="Address of the dashboard.", envvar="MILLSTREAM_URL")
    ] = DEFAULT_URL,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    sort: Annotated[str, typer.Option(help=f"Order of queries: {', '.join(SORTS)}.")] = "delay",
    limit: Annotated[int, typer.Option(min=1, help="Queries and operators shown.")] = 15,
    once: Annotated[bool, typer.Option("--once", help="One picture, then end.")] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the snapshot as one JSON object.")
    ] = False,
) -> None:
    """Watch queries, operators and processors of a running system."""
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}", hint=f"one of {', '.join(SORTS)}")
    source = RemoteSource(url)
    console = Console()
    if json_output:
        typer.echo(json.dumps(to_json(source.snapshot())))
        return
    if once or not console.is_terminal:
        found = _fresh(source)
        room = Room(limit, len(found.processors))
        console.print(picture(found, time.time(), room, sort=sort))
        return
    _follow(source, console, every, sort, limit)


def _fresh(source: RemoteSource) -> Snapshot:
    """A single picture waits for figures of now; a busy system may need some seconds."""
    deadline = time.time() + FRESH_WAIT_S
    found = source.snapshot()
    while time.time() - found.taken > FRESH_S and time.time() < deadline:
        time.sleep(0.5)
        found = source.snapshot()
    return found


def _follow(source: RemoteSource, console: Console, every: float, sort: str, limit: int) -> None:
    """Until `q` or Ctrl-C; a connection that is lost is told, and tried again."""
    last = source.snapshot()  # nobody there at the start is a mistake
    look = Look(sort)
    trouble = ""
    with key_by_key() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        due = time.monotonic() + every
        while True:
            room = room_of(console.height, last, limit)
            shown = picture(last, time.time(), room, sort=look.sort, trouble=trouble)
            foot = look.foot() if keys else Text()
            whole = Text("\n".join(HELP_LINES)) if look.help else shown
            live.update(Group(whole, Text(), foot), refresh=True)
            for key in pressed(max(0.0, due - time.monotonic()), keys=keys):
                if key == LEAVE:
                    return
                look = look.after(key)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + every
            if look.held:
                continue
            try:
                last, trouble = source.snapshot(), ""
            except MillstreamError as error:
                trouble = error.message


@dataclass(frozen=True, slots=True)
class Look:
    """How somebody wants to see it."""

    sort: str
    help: bool = False
    held: bool = False

    def after(self, key: str) -> "Look":
        """The same after a key.

        >>> Look("delay").after("n").after("?")
        Look(sort='name', help=True, held=False)
        """
        if key == HELP:
            return replace(self, help=not self.help)
        if key == HOLD:
            return replace(self, held=not self.held)
        return replace(self, sort=SORT_KEYS.get(key, self.sort))

    def foot(self) -> Text:
        """What stands at the bottom."""
        held = "frozen; space continues   " if self.held else ""
        return Text(f"{held}q leaves, ? lists keys; by {self.sort}", "dim")


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a snapshot is shown; where room is short, long lines are cut."""

    rows: int  # of queries, and of operators
    processors: int
    cut: bool = False


def room_of(height: int, snapshot: Snapshot, limit: int) -> Room:
    """What a terminal of so many lines has room for.

    >>> from millstream.control.snapshot.model import Overview
    >>> room_of(30, Snapshot(0.0, Overview("x")), 15)
    Room(rows=7, processors=0, cut=True)
    """
    alarms = min(ALARMS_SHOWN, len(snapshot.overview.alarms))
    left = height - 15 - alarms  # headings, gaps, how many more there are, and keys
    processors = min(len(snapshot.processors), max(2, left // 3))
    return Room(max(2, min(limit, (left - processors) // 2)), processors, cut=True)


def picture(
    snapshot: Snapshot, now: float, room: Room, *, sort: str = "delay", trouble: str = ""
) -> RenderableType:
    """A snapshot as a terminal shows it; old figures say so."""
    parts: list[RenderableType] = [_head(snapshot, now, trouble)]
    worst = slowest(snapshot.queries)
    if worst is not None and worst.cause:
        behind = f" {seconds(worst.delay_s)} behind" if worst.delay_s else ""
        parts.append(Text.assemble(("slowest ", "dim"), (worst.name, "bold"), behind,
                                   (f"  {worst.cause}", "dim"), no_wrap=room.cut,
                                   overflow="ellipsis"))  # fmt: skip
    for alarm in snapshot.overview.alarms[:ALARMS_SHOWN]:
        colour = "red" if alarm.severity == "error" else "yellow"
        line = f"{alarm.severity} {told(alarm, now)}"
        parts.append(Text(line, colour, no_wrap=room.cut, overflow="ellipsis"))
    parts += [Text(), _queries(snapshot.queries, sort, room.rows)]
    parts += [Text(), _operators(snapshot.operators, room.rows)]
    parts += [Text(), _processors(snapshot.processors, room.processors)]
    return Group(*parts)


def _head(snapshot: Snapshot, now: float, trouble: str) -> Text:
    overview: Overview = snapshot.overview
    age = now - snapshot.taken
    ended = overview.state in ("finished", "stopped")
    head = Text.assemble(
        (overview.title, "bold"), f"  {overview.state}  ",
        (f"{overview.rows_in_per_s:,.0f}", "bold"), " rows/s in  ",
        (f"{overview.rows_out_per_s:,.0f}", "bold"), " out  backlog ",
        (f"{overview.backlog_rows:,}", "bold"), f"  {overview.steps:,} steps",
    )  # fmt: skip
    if trouble:
        head.append(f"\nno new figures: {trouble}; these are {seconds(age)} old", "bold red")
    elif ended:
        head.append("  (final figures)", "dim")
    elif age > max(5.0, 5 * snapshot.interval_s):
        head.append(f"\nstale: these figures are {seconds(age)} old", "bold red")
    return head


def _table(*columns: str) -> Table:
    """The first column is a name, those that end in a space are texts, others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        text = index == 0 or name.endswith(" ")
        table.add_column(name.strip(), justify="left" if text else "right", no_wrap=True,
                         overflow="ellipsis")  # fmt: skip
    return table


def _queries(queries: Sequence[QuerySnapshot], sort: str, limit: int) -> RenderableType:
    keys = {
        "delay": lambda q: (-(q.delay_s or 0.0), -(q.load_own + q.load_shared), q.name),
        "load": lambda q: (-(q.load_own + q.load_shared), q.name),
        "rows": lambda q: (-q.rows, q.name),
        "ratio": lambda q: (-(q.ratio or 0.0), q.name),
        "name": lambda q: q.name,
    }
    table = _table(
        "query", "state ", "behind", "rows", "rows/s", "ratio", "own", "shared", "goals "
    )
    for query in sorted(queries, key=keys[sort])[:limit]:
        missed = sum(g.met is False for g in query.goals)
        goals = f"{missed} missed" if missed else "met" if query.goals else ""
        table.add_row(
            Text(query.name), query.state, seconds(query.delay_s or 0.0), f"{query.rows:,}",
            f"{query.rows_per_s:,.1f}", f"{query.ratio:.1f}" if query.ratio is not None else "-",
            f"{query.load_own:.0%}", f"{query.load_shared:.0%}", goals,
            style=STYLES.get(query.state, ""),
        )  # fmt: skip
    return _with_more(table, len(queries) - limit, "queries")


def _operators(operators: Sequence[OperatorSnapshot], limit: int) -> RenderableType:
    table = _table("operator", "waiting", "oldest", "rows/s in", "load", "a step", "shared by")
    order = sorted(operators, key=lambda o: (-o.load, -o.queue_rows, -o.cost_s, o.id))
    for one in order[:limit]:
        table.add_row(
            Text(title_of(one)), f"{one.queue_rows:,}",
            seconds(one.waiting_s) if one.queue_rows else "-",
            f"{one.rows_in_per_s:,.0f}", f"{one.load:.0%}",
            seconds(one.cost_s / one.steps) if one.steps else "-", str(len(one.queries)),
            style=STYLES.get(one.state, ""),
        )  # fmt: skip
    return _with_more(table, len(operators) - limit, "operators")


def _processors(processors: Sequence[ProcessorSnapshot], limit: int) -> RenderableType:
    """All of them, or the busiest after those that need attention."""
    table = _table("processor", "state ", "load", "memory", "operators", "steps/s", "schedules by ")
    shown = processors
    if len(processors) > limit:
        shown = sorted(processors, key=lambda p: (p.state not in STYLES, -p.load, p.id))[:limit]
    for one in shown:
        memory = f"{one.memory_bytes / 2**20:,.0f} MiB" if one.memory_bytes is not None else "-"
        table.add_row(
            Text(one.id), one.state, f"{one.load:.0%}", memory, f"{one.operators:,}",
            f"{one.steps_per_s:,.1f}", one.algorithm or "-", style=STYLES.get(one.state, ""),
        )  # fmt: skip
    return _with_more(table, len(processors) - limit, "processors")


def _with_more(table: Table, more: int, what: str) -> RenderableType:
    return Group(table, Text(f"... and {more:,} {what} more", "dim")) if more > 0 else table
