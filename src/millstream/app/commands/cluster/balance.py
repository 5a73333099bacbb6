"""`millstream balance URL...`: how processors that balance without a manager are doing.

Asks each for its load, its partners and what it gave away, and shows the standard deviation of the
loads (seed 002, section 4.1). Changes nothing. Exit codes: 0; 2 for a mistake; 3 where none of them
answers.
"""

import json
import statistics
import time
from typing import Annotated, Any

import typer

from millstream.core.errors import AwayError

SILENT_CODE = 3
LINES = 5  # of what happened lately


def register(app: typer.Typer) -> None:
    app.command("balance")(balance)


def balance(
    urls: Annotated[list[str], typer.Argument(help="Addresses of processors.")],
    watch: Annotated[
        float, typer.Option(help="Look again after so many seconds, until interrupted; 0: once.")
    ] = 0.0,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show loads, partners and moves of processors that balance by themselves."""
    while True:
        found = {url: _asked(url) for url in urls}
        if json_output:
            typer.echo(json.dumps(summary(found)))
        else:
            for line in lines(found):
                typer.echo(line)
        if not watch:
            break
        time.sleep(watch)
    if not any(found.values()):
        raise typer.Exit(SILENT_CODE)


def _asked(url: str) -> dict[str, Any] | None:
    from millstream.edge.processor.client import ProcessorClient  # noqa: PLC0415

    client = ProcessorClient("", url)
    try:
        return client.get("/balance")
    except AwayError:
        return None
    finally:
        client.close()


def summary(found: dict[str, dict[str, Any] | None]) -> dict[str, Any]:
    """All answers, and the deviation of the loads of those who answered."""
    loads = [float(seen["load"]) for seen in found.values() if seen is not None]
    return {
        "processors": found,
        "load_mean": round(statistics.fmean(loads), 4) if loads else None,
        "load_deviation": round(statistics.stdev(loads), 4) if len(loads) > 1 else None,
    }


def _state(seen: dict[str, Any]) -> str:
    if seen["engaged"]:
        return f"in move {seen['engaged']}"
    return "makes itself ready" if seen["priming"] else "balances"


def lines(found: dict[str, dict[str, Any] | None]) -> list[str]:
    """The same for people."""
    shown = []
    for url, seen in found.items():
        if seen is None:
            shown.append(f"{url}  does not answer, or does not balance")
            continue
        partners = ", ".join(sorted(seen["partners"])) or "none yet"
        state = seen["led"] or _state(seen)
        shown.append(
            f"{seen['processor']:<12} load {seen['load']:>6.1%}  busy {seen['busy']:>6.1%}  "
            f"{len(seen['operators']):>3} operators  {seen['moved']:>3} given away  {state}; "
            f"partners: {partners}"
        )
        shown += [f"    {line}" for line in seen["log"][-LINES:]]
    whole = summary(found)
    if whole["load_deviation"] is not None:
        shown.append(f"mean load {whole['load_mean']:.1%}, deviation {whole['load_deviation']:.3f}")
    return shown
