"""Experiments raindrop-6.2 to raindrop-6.7 and raindrop-7.1: single algorithms against selectors.

The seed shows one run a figure. Here each figure is a few seeds; a claim is judged on their mean.
Claims about 'the adaptive framework' are judged for the seed's roulette wheel over its four
algorithms and, apart, for our default selector.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from time import process_time
from typing import Any

from millstream.decide.schedule import Specification
from millstream.decide.schedule.settings import THESIS_CANDIDATES
from millstream.sim.plotting import mark_claim
from millstream_lab.experiment import EXPERIMENTS, Experiment, Finding, Outcome, Progress, Row
from millstream_lab.raindrop.runs import (
    DEFAULT,
    PLANS,
    SINGLES,
    WHEEL,
    Contest,
    contest,
    mean_of,
    rank_of,
    run_plan,
    settings_for,
    specification,
)

ADAPTIVE = (WHEEL, DEFAULT)
UNITS = {"delay": "s", "rate": "rows/s", "memory": "rows in queues"}
LEAST = {"delay": True, "rate": False, "memory": True}
RATE_UP = 1.01  # from here on a rate is clearly better
Judge = Callable[[Contest], list[Finding]]


def tidy(found: Contest, seeds: Sequence[int], plan: int) -> list[Row]:
    """One row a contender, seed, second and metric."""
    return [
        {
            "plan": plan,
            "contender": contender,
            "seed": seed,
            "second": sample.second,
            "metric": metric,
            "value": getattr(sample, metric),
            # A second in which a hundred rows come out says more of delay than one with a single.
            "weight": sample.rate if metric == "delay" else 1.0,
        }
        for contender, runs in found.items()
        for seed, run in zip(seeds, runs, strict=True)
        for sample in run.samples
        for metric in UNITS
        if getattr(sample, metric) is not None
    ]


def figures(found: Contest, metric: str, names: Sequence[str] | None = None) -> str:
    """'fifo 2.2, chain 4.6, ...', best first."""
    chosen = names or list(found)
    values = {name: mean_of(found[name], metric) for name in chosen if name in found}
    ordered = sorted(values.items(), key=lambda pair: pair[1] if LEAST[metric] else -pair[1])
    return ", ".join(f"{name} {value:.3g}" for name, value in ordered) + f" {UNITS[metric]}"


def place(found: Contest, contender: str, metric: str) -> int:
    """The contender's rank among the seed's four algorithms: 1 is above all of them."""
    others = [mean_of(found[name], metric) for name in THESIS_CANDIDATES]
    return rank_of(mean_of(found[contender], metric), others, least=LEAST[metric])


def best_single(found: Contest, metric: str) -> float:
    choose = min if LEAST[metric] else max
    return choose(mean_of(found[name], metric) for name in THESIS_CANDIDATES)


def seconds_ahead(found: Contest, contender: str, metric: str) -> float:
    """Share of seconds in which the contender is better than all four."""
    ahead: list[bool] = []
    for number, run in enumerate(found[contender]):
        rivals = [{s.second: getattr(s, metric) for s in found[name][number].samples}
                  for name in THESIS_CANDIDATES]  # fmt: skip
        for sample in run.samples:
            mine = getattr(sample, metric)
            theirs = [rival.get(sample.second) for rival in rivals]
            known = [value for value in theirs if value is not None]
            if mine is None or not known:
                continue
            ahead.append(mine < min(known) if LEAST[metric] else mine > max(known))
    return fmean(ahead) if ahead else 0.0


def against_all(found: Contest, metric: str, claim: str, *, rank_max: int = 1) -> list[Finding]:
    """One finding for the wheel and one for the default selector."""
    findings = []
    for name in ADAPTIVE:
        rank = place(found, name, metric)
        value, best = mean_of(found[name], metric), best_single(found, metric)
        ahead = seconds_ahead(found, name, metric)
        findings.append(
            Finding(
                f"{claim} [{name}]",
                f"{value:.3g} against {best:.3g} {UNITS[metric]} of the best single algorithm, "
                f"place {rank} of 5; better than all four in {ahead:.0%} of seconds",
                rank <= rank_max,
                "" if rank <= rank_max else WHY_WHEEL if name == WHEEL else WHY_DEFAULT,
            )
        )
    return findings


WHY_WHEEL = (
    "scores by equation 5.1 lie close together, so the wheel spreads its time almost evenly over "
    "good and bad algorithms, and each leaves its queues to the next"
)
WHY_RATE = (
    "with a mean load below 1 every row that arrives is delivered, whatever the weights: the rate "
    "cannot rise"
)
WHY_DEFAULT = "another goal of the specification pulls the other way, or the model misses something"


def judge_6_2(found: Contest) -> list[Finding]:
    memory = sorted(THESIS_CANDIDATES, key=lambda name: mean_of(found[name], "memory"))
    delay = sorted(THESIS_CANDIDATES, key=lambda name: mean_of(found[name], "delay"))
    return [
        Finding(
            "Chain and MTIQ keep least in memory",
            figures(found, "memory", THESIS_CANDIDATES),
            set(memory[:2]) == {"chain", "mtiq"},
            ""
            if set(memory[:2]) == {"chain", "mtiq"}
            else "MTIQ and FIFO lie close together; which is ahead depends on load and seed",
        ),
        Finding(
            "Chain and MTIQ have the worst delay at the end",
            figures(found, "delay", THESIS_CANDIDATES),
            set(delay[2:]) == {"chain", "mtiq"},
            ""
            if set(delay[2:]) == {"chain", "mtiq"}
            else "Chain beats Round Robin here; the seed's text counts it both among the worst and "
            "among the best in delay",
        ),
        Finding(
            "FIFO does well in delay", f"place {delay.index('fifo') + 1} of 4", "fifo" in delay[:2]
        ),
    ]


def judge_6_4(found: Contest) -> list[Finding]:
    rate = against_all(found, "rate", "about average in output rate", rank_max=3)
    return [*against_all(found, "delay", "best of all in delay"), *rate]


def judge_6_5(found: Contest, before: Contest) -> list[Finding]:
    """`before` is the same at 70-30: what the new weights changed."""
    findings = against_all(found, "delay", "still exceptionally good in delay", rank_max=2)
    for name in ADAPTIVE:
        now, then = mean_of(found[name], "rate"), mean_of(before[name], "rate")
        up = now >= RATE_UP * then
        findings.append(
            Finding(
                f"clearly better in rate than at 70-30 [{name}]",
                f"{now:.4g} against {then:.4g} rows/s at 70-30, "
                f"{best_single(found, 'rate'):.4g} of the best single algorithm",
                up,
                "" if up else WHY_RATE,
            )
        )
    return findings


def judge_6_6(found: Contest) -> list[Finding]:
    return [
        *against_all(found, "delay", "above all single algorithms for most of the run (delay)"),
        *against_all(found, "rate", "the output rate suffers slightly", rank_max=5),
    ]


def judge_6_7(found: Contest) -> list[Finding]:
    return [
        *against_all(found, "delay", "better than all but the best single in delay", rank_max=2),
        *against_all(found, "memory", "better than all but the best single in memory", rank_max=2),
    ]


def figure(
    plan: int, goals: Specification, contenders: Sequence[str], judge: Judge, seconds: int
) -> Callable[[int, bool, Progress], Outcome]:
    """A run of one figure: contenders under one specification."""

    def run(seed: int, quick: bool, progress: Progress) -> Outcome:
        seeds = [seed] if quick else [seed, seed + 1, seed + 2]
        length = 40 if quick else seconds
        found = contest(PLANS[plan], goals, contenders, seeds, length, progress)
        return Outcome(tidy(found, seeds, plan), judge(found))

    return run


def run_6_3(seed: int, quick: bool, progress: Progress) -> Outcome:
    """One goal, 30 seconds: memory in panel a, delay in panel b."""
    seeds = [seed] if quick else list(range(seed, seed + 10))
    rows: list[Row] = []
    findings: list[Finding] = []
    for metric, claim in (
        ("memory", "memory: at many times below every single algorithm"),
        ("delay", "delay: below all single algorithms"),
    ):
        goals = specification(**{metric: 1.0})
        found = contest(PLANS[2], goals, (*SINGLES, *ADAPTIVE), seeds, 30, progress)
        rows += [row for row in tidy(found, seeds, 2) if row["metric"] == metric]
        findings += against_all(found, metric, claim)
    return Outcome(rows, findings)


def run_6_5(seed: int, quick: bool, progress: Progress) -> Outcome:
    """30-70, and the adaptive ones at 70-30 beside it."""
    seeds, seconds = ([seed], 40) if quick else ([seed, seed + 1, seed + 2], 300)
    found = contest(PLANS[1], _GOALS["6.5"], ALL, seeds, seconds, progress)
    before = contest(PLANS[1], _GOALS["6.4"], ADAPTIVE, seeds, seconds, progress)
    return Outcome(tidy(found, seeds, 1), judge_6_5(found, before))


def run_7_1(seed: int, quick: bool, progress: Progress) -> Outcome:
    """Tuned for A beats tuned for B on A; overhead; a sole optimum is chosen most."""
    seeds = [seed] if quick else list(range(seed, seed + 5))
    length = 40 if quick else 120
    rows: list[Row] = []
    findings: list[Finding] = []
    tuned: dict[tuple[str, str], list[Any]] = {}
    for name in ADAPTIVE:
        for goal in ("delay", "memory"):
            progress(f"{name} tuned for {goal}")
            runs = [
                run_plan(PLANS[2], name, specification(**{goal: 1.0}), s, length) for s in seeds
            ]
            tuned[name, goal] = runs
            labelled = {
                f"{name} for {goal}": [replace(r, contender=f"{name} for {goal}") for r in runs]
            }
            rows += tidy(labelled, seeds, 2)
    for name in ADAPTIVE:
        for goal, other in (("delay", "memory"), ("memory", "delay")):
            own, foreign = mean_of(tuned[name, goal], goal), mean_of(tuned[name, other], goal)
            findings.append(
                Finding(
                    f"tuned for {goal} beats tuned for {other} on {goal} [{name}]",
                    f"{own:.3g} against {foreign:.3g} {UNITS[goal]}",
                    own <= foreign,
                    "" if own <= foreign else WHY_WHEEL,
                )
            )
        shares = {
            algorithm: fmean(run.in_charge.get(algorithm, 0.0) for run in tuned[name, "memory"])
            for algorithm in SINGLES
        }
        most = max(shares, key=lambda algorithm: shares[algorithm])
        good = most in ("chain", "cost_aware")  # the two that are optimal for memory
        findings.append(
            Finding(
                f"the algorithm that alone is best (memory: Chain) is chosen most [{name}]",
                ", ".join(
                    f"{a} {s:.0%}" for a, s in sorted(shares.items(), key=lambda p: -p[1]) if s
                ),
                good,
                "" if good else WHY_WHEEL,
            )
        )
    findings.append(_overhead(seed, 20 if quick else 60))
    return Outcome(rows, findings)


def _overhead(seed: int, length: int) -> Finding:
    """CPU time of a run under each contender: the only clock that is read in these figures."""
    cost = {}
    for name in ("fifo", "chain", *ADAPTIVE):
        started = process_time()
        run = run_plan(
            PLANS[2], name, specification(memory=1.0), seed, length, settings_for(name, seed)
        )
        cost[name] = (process_time() - started) / max(1, length) * 1e3
        del run
    single = fmean((cost["fifo"], cost["chain"]))
    return Finding(
        "the overhead of adapting is comparable to that of a single algorithm",
        ", ".join(f"{name} {value:.1f}" for name, value in cost.items())
        + " ms of CPU time a virtual second, simulation included",
        cost[WHEEL] < 2 * single,
        "foresight plays every candidate at each review, which costs more than the wheel",
    )


def plot_over_time(rows: Sequence[Row], target: Any) -> None:
    """A panel a metric and plan: the mean of the last ten seconds over all seeds, by weight."""
    metrics = list(dict.fromkeys(str(row["metric"]) for row in rows))
    plans = list(dict.fromkeys(row["plan"] for row in rows))
    target.set_size_inches(4.4 * len(plans) + 2, 2.3 * len(metrics) + 0.4)
    axes = target.subplots(len(metrics), len(plans), squeeze=False, sharex=True)
    for metric, across in zip(metrics, axes, strict=True):
        for plan, axis in zip(plans, across, strict=True):
            _plot_contenders(
                [row for row in rows if (row["metric"], row["plan"]) == (metric, plan)], axis
            )
            axis.set_ylabel(f"{metric}, {UNITS[metric]}")
    for plan, top, bottom in zip(plans, axes[0], axes[-1], strict=True):
        if len(plans) > 1:
            top.set_title(f"plan {plan}", fontsize=8, loc="right")
        bottom.set_xlabel("seconds of virtual time\n(mean of the last ten, over all seeds)")
    lines, labels = axes[0][0].get_legend_handles_labels()
    target.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=7)


def _plot_contenders(rows: Sequence[Row], axis: Any) -> None:
    for contender in dict.fromkeys(str(row["contender"]) for row in rows):
        seconds, means = smoothed([row for row in rows if row["contender"] == contender])
        bold = {"linewidth": 2.2} if contender.split()[0] in ADAPTIVE else {"linewidth": 1.0}
        axis.plot(seconds, means, label=contender, **bold)


def smoothed(rows: Sequence[Row], span: int = 10) -> tuple[list[int], list[float]]:
    """Seconds, and for each the weighted mean of the span that ends with it."""
    sums: dict[int, tuple[float, float]] = {}
    for row in rows:
        second, weight = int(str(row["second"])), float(str(row["weight"]))
        value, weights = sums.get(second, (0.0, 0.0))
        sums[second] = (value + weight * float(str(row["value"])), weights + weight)
    means = []
    for second in sorted(sums):
        lately = [sums[s] for s in range(second - span + 1, second + 1) if s in sums]
        means.append(sum(v for v, _ in lately) / max(1e-9, sum(w for _, w in lately)))
    return sorted(sums), means


def plotter(claim: str) -> Callable[[Sequence[Row], Any], None]:
    def plot(rows: Sequence[Row], target: Any) -> None:
        plot_over_time(rows, target)
        mark_claim(target.axes[0], claim)

    return plot


ALL = (*SINGLES, *ADAPTIVE)
_GOALS = {
    "6.2": specification(memory=0.5, delay=0.5),
    "6.4": specification(delay=0.7, rate=0.3),
    "6.5": specification(delay=0.3, rate=0.7),
    "6.6": specification(delay=0.5, rate=0.5),
    "6.7": specification(delay=0.33, rate=0.34, memory=0.33),
}
_FIGURES = (
    ("6.2", "four algorithms: memory and delay", "Chain, MTIQ least memory and worst delay",
     figure(2, _GOALS["6.2"], THESIS_CANDIDATES, judge_6_2, 300)),
    ("6.3", "one goal: memory, and delay", "adaptive below all", run_6_3),
    ("6.4", "70 % delay, 30 % rate", "adaptive best in delay, average in rate",
     figure(1, _GOALS["6.4"], ALL, judge_6_4, 300)),
    ("6.5", "30 % delay, 70 % rate", "delay still good, rate clearly up", run_6_5),
    ("6.6", "50 % delay, 50 % rate", "adaptive above single algorithms most of the run",
     figure(2, _GOALS["6.6"], ALL, judge_6_6, 300)),
    ("6.7", "three equal goals", "adaptive better than all but the best in delay and memory",
     figure(2, _GOALS["6.7"], ALL, judge_6_7, 300)),
    ("7.1", "tuned for one goal against tuned for another", "each best on its own goal", run_7_1),
)  # fmt: skip
for _number, _title, _claim, _run in _FIGURES:
    EXPERIMENTS.add(
        f"raindrop-{_number}",
        Experiment(
            f"raindrop-{_number}", f"{_number}: {_title}", "raindrop", _run, plotter(_claim)
        ),
    )
