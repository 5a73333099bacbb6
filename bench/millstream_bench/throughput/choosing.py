"""`millstream bench choosing`: what choosing an operator and keeping statistics cost a step.

No Spark: the scheduler alone, with the views a processor of many operators would hand it, in CPU
time of this process. The share is of a step of 50 ms, the shortest that Spark gives.
"""

import random
from collections.abc import Callable, Sequence
from time import process_time

from millstream.decide.schedule import OperatorView, Scheduler, ScheduleSettings, StepReport
from millstream.decide.schedule.algorithms import ALGORITHMS

STEP_S = 0.05
LINE = 10  # operators from a leaf to its root


def plan_views(operators: int, chance: random.Random) -> list[OperatorView]:
    """Lines of ten operators; a third of them have work."""
    views = []
    for number in range(operators):
        place = number % LINE
        last = place == LINE - 1 or number == operators - 1
        views.append(
            OperatorView(
                f"o{number}",
                chance.randint(1, 5000) if chance.random() < 1 / 3 else 0,
                oldest=chance.random() * 10,
                producers=(f"o{number - 1}",) if place else (),
                consumers=() if last else (f"o{number + 1}",),
                queries=(f"q{number // LINE}",),
                fixed_cost_s=0.06,
                row_cost_s=2e-5,
                row_selectivity=0.5,
            )
        )
    return views


def step_cost_s(settings: ScheduleSettings, views: Sequence[OperatorView], steps: int) -> float:
    """CPU seconds for one choice and one report."""
    scheduler = Scheduler(settings)
    started, now = process_time(), 0.0
    for _ in range(steps):
        choice = scheduler.choose(views, now)
        now += STEP_S
        if choice is not None:
            scheduler.report(StepReport(choice.operator, 100, 50, STEP_S, now, choice.number))
    return (process_time() - started) / steps


def run(
    quick: bool = False, seed: int = 1, progress: Callable[[str], None] = print
) -> dict[str, object]:
    operators, steps = (50, 100) if quick else (300, 1000)
    views = plan_views(operators, random.Random(seed))
    names = ALGORITHMS.names()
    kinds = {name: ScheduleSettings(candidates=(name,), selector="fixed") for name in names}
    kinds["roulette"] = ScheduleSettings(candidates=names, selector="roulette")
    kinds["foresight"] = ScheduleSettings(selector="foresight")
    figures: dict[str, object] = {"operators": operators, "steps": steps, "step_ms": STEP_S * 1e3}
    for name, settings in kinds.items():
        cost = step_cost_s(settings, views, steps)
        figures[name] = {"cpu_ms_a_step": round(cost * 1e3, 4), "share": round(cost / STEP_S, 5)}
        progress(f"{name:<12} {cost * 1e3:7.3f} ms a step, {cost / STEP_S:6.2%} of 50 ms")
    return figures
