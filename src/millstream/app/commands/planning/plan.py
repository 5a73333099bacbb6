"""`millstream plan`: admit and place the queries of a planning problem, or check a solution.

Reads a problem (JSON), plans it with a planner chosen by name, writes the solution (JSON); with
`--check` it judges a given solution instead, by a checker that knows no planner.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from millstream.core.errors import UsageError
from millstream.decide.place.check import check
from millstream.decide.place.planners import DEFAULT_PLANNER, PLANNERS, Outcome, plan_all
from millstream.decide.place.problem import GOALS, Problem
from millstream.decide.place.problem_json import read_problem
from millstream.decide.place.solution import read_solution, solution_to_json

PLANNER_HELP = f"One of {', '.join(PLANNERS.names())}."
GOAL_HELP = f"Weights by name instead of the file's: {', '.join(GOALS)}."


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    problem: Annotated[Path, typer.Argument(help="A planning problem (JSON).")],
    solution: Annotated[
        Path | None, typer.Argument(help="A solution (JSON) to judge, with --check.")
    ] = None,
    planner: Annotated[str, typer.Option(help=PLANNER_HELP)] = DEFAULT_PLANNER,
    out: Annotated[Path | None, typer.Option(help="Where to write the solution.")] = None,
    batch: Annotated[int, typer.Option(help="Queries planned at a time.")] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that a planner with a solver may take for a query."),
    ] = None,
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Also say how many any planner could admit.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Judge SOLUTION instead of planning.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Admit and place continuous queries with reuse."""
    if check:
        _check(problem, solution, json_output)
        return
    if solution is not None:
        raise UsageError(
            "a solution is given, but nothing to do with it",
            hint="--check judges it; --out FILE is where a new one goes",
        )
    if batch < 1:
        raise UsageError(f"--batch is {batch}", hint="1 or more")
    if timeout is not None and not timeout > 0:
        raise UsageError(f"--timeout is {timeout:g}", hint="seconds, more than 0")
    wanted = read_problem(problem)
    if goal is not None:
        wanted = replace(wanted, weights=_goal(goal))
    with _progress(len(wanted.queries), quiet=json_output or out is None) as advance:
        outcome = plan_all(wanted, planner, batch=batch, timeout_s=timeout, progress=advance)
    document: dict[str, Any] = {**solution_to_json(outcome.solution), "planner": planner}
    if bounds:
        document["bounds"] = _bounds(wanted)
    if out is not None:
        _write(out, document)
    if json_output or out is None:
        typer.echo(json.dumps(document))
    else:
        typer.echo(_summary(wanted, outcome, planner, document.get("bounds")))


def _check(problem: Path, solution: Path | None, json_output: bool) -> None:
    if solution is None:
        raise UsageError(
            "--check needs a problem and a solution", hint="plan --check P.json S.json"
        )
    wanted = read_problem(problem)
    violations = check(wanted, read_solution(solution))
    if json_output:
        listed = [
            {"rule": item.rule, "where": item.where, "detail": item.detail} for item in violations
        ]
        typer.echo(json.dumps({"valid": not violations, "violations": listed}))
    elif violations:
        for item in violations:
            typer.echo(str(item))
        typer.echo(f"invalid: {len(violations)} violations", err=True)
    else:
        typer.echo("valid")
    if violations:
        raise typer.Exit(1)


def _goal(name: str) -> Any:
    if name not in GOALS:
        raise UsageError(f"unknown goal {name!r}", hint=f"one of {', '.join(GOALS)}")
    return GOALS[name]


def _bounds(problem: Problem) -> dict[str, Any]:
    from millstream.decide.place.bounds import (  # noqa: PLC0415  (the solver is slow to load)
        aggregate_host,
        proven_bound,
    )

    proven = proven_bound(problem)
    return {"aggregate_host": len(aggregate_host(problem).admitted), "proven": proven.admitted}


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}", detail=str(error.strerror or error)) from None


def _summary(problem: Problem, outcome: Outcome, planner: str, bounds: Any) -> str:
    solution, times = outcome.solution, outcome.solution.planning_ms
    busy = solution.planning_cpu_ms
    lines = [
        f"{planner}: {len(solution.admitted)} of {len(problem.queries)} queries admitted, "
        f"{len(solution.operators)} operators, {len(solution.flows)} flows",
        f"planning: median {times.median:.2f} ms, p95 {times.p95:.2f} ms, max {times.max:.1f} ms; "
        f"of CPU: median {busy.median:.2f} ms, p95 {busy.p95:.2f} ms, max {busy.max:.1f} ms",
    ]
    reasons: dict[str, int] = {}
    for refusal in solution.refused:
        reasons[refusal.reason] = reasons.get(refusal.reason, 0) + 1
    if reasons:
        listed = ", ".join(f"{count} for {name}" for name, count in sorted(reasons.items()))
        lines.append(f"refused: {listed}")
    if bounds is not None:
        lines.append(
            f"bounds: aggregate host {bounds['aggregate_host']}, none admits more than "
            f"{bounds['proven']}"
        )
    return "\n".join(lines)


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """A bar on a terminal, a line every tenth elsewhere, on standard error."""
    if quiet or total < 100:
        yield None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        said = [0]

        def say(done: int) -> None:
            if done * 10 // total > said[0]:
                said[0] = done * 10 // total
                typer.echo(f"planned {done} of {total} queries", err=True)

        yield say
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("planning", total=total)
        yield lambda done: bar.update(task, completed=done)
