"""What a run has done, as plain values and as text for people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from millstream.app.runs.display import limits_told
from millstream.control.protocol.records import PAUSED
from millstream.core.errors import BadRowsError

FINISHED, FAILED = "finished", "failed"


def summarise(
    status: Mapping[str, Any],
    tables: Mapping[str, int],
    folder: Path,
    *,
    seconds: float,
    steps: int,
) -> dict[str, Any]:
    """The summary of a run; `tables` gives the rows of each relation's final table."""
    queries = {}
    for name, query in status["queries"].items():
        entry: dict[str, Any] = {
            "state": _ended(query),
            "rows": tables.get(name, query["rows"]),
            "path": str(folder / name),
        }
        if query["relation"]:
            entry |= {"changes": query["rows"], "changes_path": str(folder / f"{name}.changes")}
        if query.get("shed"):
            entry["shed"] = query["shed"]
        if query["reason"]:
            entry["reason"] = query["reason"]
        if query["culprits"]:
            entry["culprits"] = query["culprits"]
        if query.get("restartable"):
            entry["restartable"] = True
        queries[name] = entry
    streams = {
        name: {"rows": s["rows"], "late": s["late"], "rejected": s["rejected"]}
        for name, s in status["streams"].items()
    }
    failed = any(q["state"] == "failed" for q in queries.values())
    sharing = {"sharing": status["sharing"]} if "sharing" in status else {}
    return {
        "state": FAILED if failed else FINISHED,
        "out": str(folder),
        "seconds": round(seconds, 2),
        "steps": steps,
        "streams": streams,
        "queries": queries,
        **sharing,
    }


def _ended(query: Mapping[str, Any]) -> str:
    """How a query stands when its run has come to its end."""
    if query["state"] == "failed":
        return "failed"
    rests = query["state"] == "parked" and query["reason"].startswith(PAUSED)
    return "paused" if rests else "done"


def exit_code(summary: Mapping[str, Any]) -> int:
    """0 where every query is done, 1 where one has failed, 4 where most rows did not count."""
    if summary["state"] != FINISHED:
        return 1
    severe = any(warning["severe"] for warning in summary.get("warnings", ()))
    return BadRowsError.exit_code if severe else 0


def print_summary(summary: Mapping[str, Any], console: Console, *, again: bool = False) -> None:
    """Two tables and a line."""
    streams = Table("stream", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("rows", "late", "rejected"):
        streams.add_column(heading, justify="right")
    for name, stream in summary["streams"].items():
        figures = (f"{stream[k]:,}" for k in ("rows", "late", "rejected"))
        streams.add_row(name, *figures)
    queries = Table("query", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    queries.add_column("rows", justify="right")
    queries.add_column("state")
    queries.add_column("result", overflow="fold")
    for name, query in summary["queries"].items():
        shown = query["state"]
        if shown == "failed":
            shown = f"[red]failed[/red]: {_plain(query.get('reason', ''))}"
        queries.add_row(name, f"{query['rows']:,}", shown, _relative(query["path"]))
    console.print(streams)
    console.print()
    console.print(queries)
    console.print()
    if told := sharing_told(summary):
        console.print(f"shared: {told}", highlight=False, markup=False, soft_wrap=True)
    for name, query in summary["queries"].items():
        if query.get("shed"):
            console.print(
                f"WARNING: query {name} did without {query['shed']:,} rows that had missed its "
                "limit of delay (may_drop)",
                style="yellow", highlight=False, markup=False, soft_wrap=True,
            )  # fmt: skip
    for line in limits_told(summary):
        console.print(f"goal: {line}", highlight=False, markup=False)
    console.print(_closing(summary, again), highlight=False)
    for warning in summary.get("warnings", ()):
        told = f"WARNING: {warning['what']}; {warning['cause']}"
        style = "bold red" if warning["severe"] else "yellow"
        console.print(told, style=style, highlight=False, markup=False, soft_wrap=True)
        console.print(
            f"  change: {warning['change']}", highlight=False, markup=False, soft_wrap=True
        )


def sharing_told(summary: Mapping[str, Any]) -> str:
    """What sharing has saved, in a sentence; empty where nothing was shared.

    >>> sharing_told({"sharing": {"saved_s": 30.0, "saved_part": 0.6, "seconds": 20.0, "jobs": 40,
    ...     "seconds_alone": 50.0, "jobs_alone": 90, "most_queries": 7}})
    '40 Spark jobs instead of 90, 20.0 s of work instead of 50.0 s: 30.0 s (60 %) saved; one job \
served 7 queries'
    """
    found = summary.get("sharing")
    if not found or found["jobs"] >= found["jobs_alone"] or not found["saved_s"]:
        return ""
    return (
        f"{counted(found['jobs'], 'Spark job', 'Spark jobs')} instead of {found['jobs_alone']:,}, "
        f"{found['seconds']:,.1f} s of work instead of {found['seconds_alone']:,.1f} s: "
        f"{found['saved_s']:,.1f} s ({found['saved_part'] * 100:.0f} %) saved; "
        f"one job served {counted(found['most_queries'], 'query', 'queries')}"
    )


def counted(number: int, one: str, many: str) -> str:
    """A number and what it counts.

    >>> counted(1, "query", "queries"), counted(12, "query", "queries")
    ('1 query', '12 queries')
    """
    return f"{number:,} {one if number == 1 else many}"


def _closing(summary: Mapping[str, Any], again: bool) -> str:
    rows = sum(s["rows"] for s in summary["streams"].values())
    queries = counted(len(summary["queries"]), "query", "queries")
    text = f"{rows:,} rows, {queries}, {summary['seconds']:.1f} s"
    if again:
        return f"finished before: {text}; nothing to do"
    failed = [n for n, q in summary["queries"].items() if q["state"] == "failed"]
    if failed:
        told = f"{text}; failed: {', '.join(_plain(n) for n in failed)}"
        kept = [n for n in failed if summary["queries"][n].get("restartable")]
        command = f"millstream restart {kept[0]} --run {_relative(summary['out'])}" if kept else ""
        return f"{told}; to try one again: {command}" if kept else told
    return f"done: {text}"


def _relative(path: str) -> str:
    try:
        return _plain(str(Path(path).relative_to(Path.cwd())))
    except ValueError:
        return _plain(path)


def _plain(text: str) -> str:
    """A text that rich must not read as markup."""
    return text.replace("[", r"\[")
