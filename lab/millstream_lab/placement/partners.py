"""placement-4: how many partners a node needs (seed 002, figure 4)."""

from collections.abc import Sequence
from typing import Any

from millstream.sim.plotting import mark_claim
from millstream_lab.experiment import EXPERIMENTS, Experiment, Finding, Outcome, Progress, Row
from millstream_lab.placement.setup import (
    averages,
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


def measure(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows: list[dict[str, Any]] = []
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
    return Outcome(rows, _findings(rows))


def _median(rows: list[dict[str, Any]], key: str, partners: int) -> float:
    found = sorted(float(r[key]) for r in rows if r["max1"] == partners)
    middle = len(found) // 2
    return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2


def _findings(rows: list[dict[str, Any]]) -> list[Finding]:
    spread = averages(rows, "deviation", "max1")
    many = [n for n in spread if n >= 4]
    ratio = {n: _median(rows, "worst_ratio", n) for n in spread}
    pace = averages(rows, "convergence_s", "max1")
    told = averages(rows, "control_kbps", "max1")
    some = [n for n in spread if n >= 1]
    stuck = sum(r["load_max"] > 0.98 for r in rows if r["max1"] >= 4)
    total = sum(r["max1"] >= 4 for r in rows)
    return [
        Finding(
            "the load is well balanced from max1 = 4 on, more partners hardly help",
            f"deviation {spread[0]:.3f} without, "
            + ", ".join(f"{spread[n]:.3f} at {n}" for n in some),
            max(spread[n] for n in many) < spread[0] / 2
            and max(spread[n] for n in many) - min(spread[n] for n in many) < 0.04,
        ),
        Finding(
            "the worst ratio is alike from max1 = 4 on",
            "median over seeds: " + ", ".join(f"{ratio[n]:.1f} at {n}" for n in ratio),
            max(ratio[n] for n in many) < 3 * min(ratio[n] for n in many),
            f"in {stuck} of {total} runs one node stays full: no partner of it is a factor kappa "
            "below its own average, so nobody asks (algorithm 2)"
            if stuck
            else "",
        ),
        Finding(
            "convergence takes about as long with few partners as with many",
            ", ".join(f"{pace[n]:.0f} s at {n}" for n in some),
            max(pace[n] for n in some) < 2.5 * min(pace[n] for n in some),
        ),
        Finding(
            "more partners cost more messages",
            ", ".join(f"{told[n]:.0f} kbps at {n}" for n in some),
            told[max(some)] > told[min(some)],
        ),
    ]


def plot(rows: Sequence[Row], figure: Any) -> None:
    figure.set_size_inches(9.6, 3.2)
    panels = figure.subplots(1, 3)
    keys = ("deviation", "worst_ratio", "convergence_s")
    labels = ("deviation of load (of a node)", "worst performance ratio", "time to converge (s)")
    claims = ("balanced from 4 on", "alike from 4 on", "hardly depends on it")
    known: list[dict[str, Any]] = [dict(r) for r in rows]
    for axis, key, label, claim in zip(panels, keys, labels, claims, strict=True):
        shown = [r for r in known if r["max1"] > 0 or key != "convergence_s"]
        values = list(dict.fromkeys(int(r["max1"]) for r in shown))
        axis.plot([r["max1"] for r in shown], [r[key] for r in shown], ".", alpha=0.4, c="C5")
        axis.plot(values, [_median(known, key, n) for n in values], "o-", c="C0")
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
    ),
)
