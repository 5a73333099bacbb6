"""placement-4: how many partners a node needs (seed 002, figure 4)."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Claim, Row, Rows, at_least, at_most, listed, numbers, values
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.placement.setup import (
    convergence_s,
    deviation,
    run,
    scenario,
    seeds,
    traffic_mbps,
)

PARTNERS = (0, 1, 2, 3, 4, 5, 6, 8, 10)
QUICK_PARTNERS = (0, 2, 4, 6)
DURATION_S = 90.0
LAST_S = 10.0


def measure(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for partners in QUICK_PARTNERS if quick else PARTNERS:
        progress(f"max1 = {partners}")
        for number in seeds(seed, 2 if quick else 5):
            made = scenario(
                quick=quick,
                choice="zipf",
                policy="flow_aware" if partners else "static",
                settings={"partners_max": partners} if partners else None,
                duration_s=DURATION_S,
            )
            done = run(made, number)
            from_s = DURATION_S - LAST_S
            rows.append(
                {
                    "hosts": made.cluster.hosts,
                    "max1": partners,
                    "seed": number,
                    "deviation": deviation(done, from_s),
                    "worst_ratio": done.mean("ratio_worst", from_s),
                    "convergence_s": convergence_s(done),
                    "load_max": float(done.samples[-1].loads.max()),
                    "moves": sum(move.outcome == "done" for move in done.moves),
                    "traffic_mbps": traffic_mbps(done),
                    "control_kbps": done.mean("control_kbps"),
                }
            )
    return rows


def _by_partners(rows: Rows, column: str, choose: Callable[..., float] = fmean) -> dict[int, float]:
    return {n: choose(numbers(rows, column, max1=n)) for n in sorted(values(rows, "max1"))}


def _many(found: Mapping[int, float], least: int = 4) -> list[float]:
    return [value for count, value in found.items() if count >= least]


def _over(column: str, choose: Callable[..., float], least: int) -> Callable[[Rows], float]:
    """The largest value over the smallest, from so many partners on."""

    def ratio(rows: Rows) -> float:
        some = _many(_by_partners(rows, column, choose), least)
        return max(some) / max(min(some), 1e-9)

    return ratio


def _told(column: str, choose: Callable[..., float] = fmean) -> Callable[[Rows], str]:
    return lambda rows: "by max1: " + listed(_by_partners(rows, column, choose))


def _stuck(rows: Rows) -> str:
    """Runs in which one node stays full though it has partners."""
    loads = [row["load_max"] for row in rows if row["max1"] >= 4]
    full = sum(load > 0.98 for load in loads)
    return f"in {full} of {len(loads)} runs from max1 = 4 on one node stays full" if full else ""


def _slowest(rows: Rows) -> str:
    """The number of partners that takes longest, seed by seed: means of a few runs differ."""
    found = _by_partners([row for row in rows if row["max1"] >= 1], "convergence_s")
    worst = max(found, key=found.__getitem__)
    each = sorted(numbers(rows, "convergence_s", max1=worst))
    best = sorted(numbers(rows, "convergence_s", max1=min(found, key=found.__getitem__)))
    return (
        f"longest with {worst}: {', '.join(f'{v:.0f}' for v in each)} s by seed, beside "
        f"{', '.join(f'{v:.0f}' for v in best)} s"
    )


NEEDS = (
    at_least("nodes", lambda rows: max(numbers(rows, "hosts")), 32),
    at_least("seeds", lambda rows: len(values(rows, "seed")), 5),
)
CLAIMS = (
    Claim(
        "the load is well balanced from max1 = 4 on",
        at_most("deviation of load from 4 on over that without balancing",
                lambda rows: max(_many(_by_partners(rows, "deviation")))
                / _by_partners(rows, "deviation")[0], 0.5),
        NEEDS,
        _told("deviation"),
    ),
    Claim(
        "more partners than 4 hardly help",
        at_most("largest deviation of load from 4 on, less the smallest",
                lambda rows: max(_many(_by_partners(rows, "deviation")))
                - min(_many(_by_partners(rows, "deviation"))), 0.04),
        NEEDS,
        _told("deviation"),
    ),
    Claim(
        "the worst ratio is alike from max1 = 4 on",
        at_most("largest over smallest median from 4 on", _over("worst_ratio", median, 4), 1.5, 0,
                "times"),
        NEEDS,
        _told("worst_ratio", median),
        _stuck,
    ),
    Claim(
        "convergence takes about as long with few partners as with many",
        at_most("longest over shortest from 1 on", _over("convergence_s", fmean, 1), 1.5, 0,
                "times"),
        NEEDS,
        _told("convergence_s"),
        _slowest,
    ),
    Claim(
        "more partners cost more messages",
        at_least("traffic of messages at the most partners over that at one",
                 lambda rows: _many(_by_partners(rows, "control_kbps"), 1)[-1]
                 / _many(_by_partners(rows, "control_kbps"), 1)[0], 1.1, 0, "times"),
        NEEDS,
        _told("control_kbps"),
    ),
)  # fmt: skip


def plot(rows: Sequence[Row], figure: Any) -> None:
    figure.set_size_inches(9.6, 3.2)
    panels = figure.subplots(1, 3)
    keys = ("deviation", "worst_ratio", "convergence_s")
    labels = ("deviation of load (of a node)", "worst performance ratio", "time to converge (s)")
    claims = ("balanced from 4 on", "alike from 4 on", "hardly depends on it")
    known: list[dict[str, Any]] = [dict(r) for r in rows]
    for axis, key, label, claim in zip(panels, keys, labels, claims, strict=True):
        shown = [r for r in known if r["max1"] > 0 or key != "convergence_s"]
        counts = list(dict.fromkeys(int(r["max1"]) for r in shown))
        axis.plot([r["max1"] for r in shown], [r[key] for r in shown], ".", alpha=0.4, c="C5")
        axis.plot(counts, [median(numbers(known, key, max1=n)) for n in counts], "o-", c="C0")
        axis.axvline(4, color="#555555", lw=0.8, ls=":")
        axis.set_xlabel("partners a node asks for (max1)")
        axis.set_ylabel(label)
        mark_claim(axis, claim)
    panels[1].set_yscale("log")
    panels[0].set_ylim(bottom=0)
    panels[2].set_ylim(bottom=0)


EXPERIMENTS.add(
    "placement-4",
    Experiment(
        "placement-4",
        "partners a node: deviation of load, worst ratio, convergence",
        "placement",
        measure,
        plot,
        CLAIMS,
        ("deviation", "worst_ratio", "convergence_s", "control_kbps", "load_max"),
    ),
)
