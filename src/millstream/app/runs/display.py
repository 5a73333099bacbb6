"""What a person sees while a job runs.

On a terminal a table that is drawn anew; else a plain line every two seconds. Reads an engine's
status, changes nothing.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

PLAIN_SECONDS = 2.0
LIVE_SECONDS = 0.5
RATE_SECONDS = 10.0
QUERIES_SHOWN_MAX = 30


class Display(Protocol):
    """Shown now and then; closed at the end."""

    def show(self, status: Mapping[str, Any], steps: int) -> None: ...

    def due(self) -> bool: ...

    def say(self, line: str) -> None: ...

    def close(self) -> None: ...


def display_for(console: Console, *, quiet: bool) -> Display:
    if quiet:
        return Silent()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class Rate:
    """Rows a second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, rows: int) -> float:
        now = time.monotonic()
        self._seen.append((now, rows))
        while len(self._seen) > 2 and self._seen[1][0] < now - RATE_SECONDS:
            self._seen.popleft()
        passed = now - self._seen[0][0]
        return (rows - self._seen[0][1]) / passed if passed > 0 else 0.0


def figures(status: Mapping[str, Any]) -> dict[str, Any]:
    """Rows read, rows waiting, and the least watermark, over all streams."""
    streams = status["streams"].values()
    marks = [s["watermark"] for s in streams if s["watermark"] != "end"]
    ended = all(s["ended"] for s in streams)
    return {
        "rows": sum(s["rows"] for s in streams),
        "backlog": sum(o["backlog"] for o in status["operators"].values()),
        "watermark": "end" if ended else min((m for m in marks if m), default="-"),
    }


def limits_told(status: Mapping[str, Any]) -> list[str]:
    """Goals with a limit beside what is measured: met or not."""
    goals = status.get("scheduling", {}).get("goals", ())
    return [
        f"{goal['query']}: {goal['told']}" if goal["query"] else str(goal["told"])
        for goal in goals
        if goal["limit"] is not None
    ]


class Silent:
    """Shows nothing."""

    def show(self, status: Mapping[str, Any], steps: int) -> None:
        return None

    def due(self) -> bool:
        return False

    def say(self, line: str) -> None:
        return None

    def close(self) -> None:
        return None


class PlainDisplay:
    """A line every two seconds."""

    def __init__(self, console: Console) -> None:
        self._console, self._rate, self._next = console, Rate(), time.monotonic() + PLAIN_SECONDS

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def show(self, status: Mapping[str, Any], steps: int) -> None:
        self._next = time.monotonic() + PLAIN_SECONDS
        now = figures(status)
        rate = self._rate.update(now["rows"])
        results = sum(q["rows"] for q in status["queries"].values())
        limits = "".join(f", {line}" for line in limits_told(status))
        self.say(
            f"{now['rows']:,} rows, {rate:,.0f} rows/s, backlog {now['backlog']:,}, "
            f"watermark {now['watermark']}, {steps} steps, {results:,} result rows{limits}"
        )

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        return None


class LiveDisplay:
    """A table on a terminal, drawn anew."""

    def __init__(self, console: Console) -> None:
        self._console, self._rate, self._next = console, Rate(), 0.0
        self._started = time.monotonic()
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def show(self, status: Mapping[str, Any], steps: int) -> None:
        self._next = time.monotonic() + LIVE_SECONDS
        now = figures(status)
        rate = self._rate.update(now["rows"])
        head = Text.assemble(
            (f"{time.monotonic() - self._started:5.0f} s  ", "dim"),
            (f"{now['rows']:,}", "bold"), " rows  ",
            (f"{rate:,.0f}", "bold"), " rows/s  backlog ",
            (f"{now['backlog']:,}", "bold"), f"  watermark {now['watermark']}  {steps} steps",
        )  # fmt: skip
        table = Table("query", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("rows", justify="right")
        table.add_column("watermark")
        table.add_column("state")
        queries = list(status["queries"].items())
        limits = limits_told(status)
        # the head may take two lines, and the cursor stands below
        room = max(3, min(QUERIES_SHOWN_MAX, self._console.height - 5 - len(limits)))
        for name, query in queries[:room]:
            style = "red" if query["state"] == "failed" else ""
            table.add_row(
                Text(name), f"{query['rows']:,}", query["watermark"] or "-", query["state"],
                style=style,
            )  # fmt: skip
        more = len(queries) - room
        tail = [Text(f"... and {more} queries more", "dim")] if more > 0 else []
        tail += [Text(line, "red" if line.endswith("not met") else "green") for line in limits]
        self._live.update(Group(head, table, *tail))

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)

    def close(self) -> None:
        self._live.stop()
