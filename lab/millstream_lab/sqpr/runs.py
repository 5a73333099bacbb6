"""Runs and plots that the experiments of seed 004 (SQPR) share.

Planners are real, hosts are virtual: a planner only ever sees numbers. Deterministic given the
seed, but for the time limits of the mixed-integer planner.
"""

from collections.abc import Callable, Sequence
from typing import Any

from millstream.decide.place.planners import Outcome, plan_all
from millstream.decide.place.problem import Problem
from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Bound, Row, Rows, at_least, mean, numbers, values

Progress = Callable[[str], None]


def admitted_curve(outcome: Outcome, step: int) -> list[tuple[int, int]]:
    """(queries submitted, queries admitted) every so many queries."""
    points, count = [], 0
    for number, decision in enumerate(outcome.decisions, start=1):
        count += decision.admitted
        if number % step == 0:
            points.append((number, count))
    return points


def planned(problem: Problem, planner: str, progress: Progress, **options: Any) -> Outcome:
    outcome = plan_all(problem, planner, **options)
    note = f" ({options})" if options else ""
    progress(
        f"{planner}{note}: {len(outcome.solution.admitted)} of {len(problem.queries)} admitted"
    )
    return outcome


def admitted(rows: Rows, planner: str, **where: object) -> float:
    """Queries admitted of all submitted, the mean over seeds."""
    last = max(numbers(rows, "submitted", **where))
    return mean(rows, "admitted", planner=planner, submitted=last, **where)


def hosts_needed(count: int) -> Bound:
    return at_least("hosts", lambda rows: max(numbers(rows, "hosts")), count)


def plot_lines(
    rows: Sequence[Row],
    figure: Any,
    *,
    x: str,
    y: str,
    line: str,
    claim: str,
    labels: tuple[str, str],
    panel: str | None = None,
    log_y: bool = False,
) -> None:
    """One line a value of `line`, means over everything else; one axis a value of `panel`."""
    panels = values(rows, panel) if panel else [None]
    figure.set_size_inches(5.2 * len(panels) + 1.2, 4.0)
    for number, name in enumerate(panels):
        axis = figure.add_subplot(1, len(panels), number + 1)
        part = [row for row in rows if panel is None or row[panel] == name]
        for key in sorted(values(part, line), key=lambda value: value != "sqpr"):
            mine = [row for row in part if row[line] == key]
            places = sorted(values(mine, x))
            axis.plot(
                places, [mean(mine, y, **{x: place}) for place in places], marker="o", label=key
            )
        if all(isinstance(row[x], int) for row in part):
            axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel(labels[0])
        axis.set_ylabel(labels[1])
        if log_y:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.legend(fontsize=7)
        if number == 0:
            mark_claim(axis, claim)
        if name is not None:
            axis.set_title(name, loc="right", fontsize=9)


def plot_distribution(
    rows: Sequence[Row], figure: Any, *, value: str, label: str, claim: str
) -> None:
    """Cumulative distribution of a value over hosts, one line a (planner, queries)."""
    axis = figure.add_subplot()
    for key in values(rows, "run"):
        amounts = sorted(float(str(row[value])) for row in rows if row["run"] == key)
        shares = [number / len(amounts) for number in range(len(amounts) + 1)]
        axis.step([amounts[0], *amounts], shares, where="post", label=key)
    axis.set_xlabel(label)
    axis.set_ylabel("share of hosts")
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7)
    mark_claim(axis, claim)
