"""placement-5 and placement-6: what to move (seed 002, figures 5 and 6)."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Claim, Row, Rows, at_least, at_most, listed, numbers, values
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.placement.setup import (
    SURGE_AT_S,
    SURGE_END_S,
    SURGE_UNTIL_S,
    average,
    averages,
    outcome,
    run,
    scenario,
    seeds,
    surge,
    wanted_mbps,
)

# --- figure 5: fragments against operators --------------------------------------------------------
OPERATORS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
QUICK_OPERATORS = (2.0, 4.0, 8.0)
FRAGMENTS_A_QUERY = 2.0  # on average: one to three streams
RIVALS = ("flow_aware", "operator_based")
SETTLED_S = 40.0


def measure_units(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for operators in QUICK_OPERATORS if quick else OPERATORS:
        progress(f"{operators:.0f} operators a fragment")
        for number in seeds(seed, 1 if quick else 3):
            for policy in RIVALS:
                made = scenario(
                    quick=quick,
                    choice="zipf",
                    policy=policy,
                    operators_a_query=operators * FRAGMENTS_A_QUERY,
                )
                found = outcome(made, number)
                done = found.run
                rows.append(
                    {
                        "hosts": made.cluster.hosts,
                        "operators_a_fragment": operators,
                        "policy": policy,
                        "seed": number,
                        "worst_ratio": done.mean("ratio_worst"),
                        "worst_ratio_settled": done.mean("ratio_worst", SETTLED_S),
                        "communication_settled": done.mean("ratio_communication", SETTLED_S),
                        "data_mb": done.mean("data_mbps") / 8 * made.duration_s,
                        "wanted_mbps": wanted_mbps(found),
                        "state_mb": done.mean("state_mbps") / 8 * made.duration_s,
                        "moves": sum(move.outcome == "done" for move in done.moves),
                    }
                )
    return rows


def _by_size(rows: Rows, column: str, policy: str) -> dict[float, float]:
    return averages(rows, column, "operators_a_fragment", policy=policy)


def _both(column: str) -> Callable[[Rows], str]:
    return lambda rows: "; ".join(
        f"{policy}: {listed(_by_size(rows, column, policy), '.3g')}" for policy in RIVALS
    )


def _over_rival(rows: Rows, column: str, sizes: Sequence[float]) -> float:
    """Fragments over operators, at worst."""
    mine, theirs = (_by_size(rows, column, policy) for policy in RIVALS)
    return max(mine[size] / theirs[size] for size in sizes)


def _larger_half(rows: Rows) -> list[float]:
    sizes = sorted(values(rows, "operators_a_fragment"))
    return sizes[len(sizes) // 2 :]


def _growth(rows: Rows, policy: str, column: str) -> float:
    found = list(_by_size(rows, column, policy).values())
    return found[-1] / found[0]


UNIT_NEEDS = (
    at_least("nodes", lambda rows: max(numbers(rows, "hosts")), 32),
    at_least("seeds", lambda rows: len(values(rows, "seed")), 3),
)
UNIT_CLAIMS = (
    Claim(
        "with more operators fragments give a much better worst ratio",
        at_most("worst ratio of fragments over that of operators, in the larger half, at worst",
                lambda rows: _over_rival(rows, "worst_ratio", _larger_half(rows)), 0.5),
        UNIT_NEEDS,
        _both("worst_ratio"),
    ),
    Claim(
        "the rival's data transfer grows quickly with the operators",
        at_least("traffic that its placement wants at the most operators over that at the fewest",
                 lambda rows: _growth(rows, "operator_based", "wanted_mbps"), 1.5, 0, "times"),
        UNIT_NEEDS,
        _both("wanted_mbps"),
        lambda rows: (
            f"that of fragments changes {_growth(rows, 'flow_aware', 'wanted_mbps'):.2f} times: "
            "each further filter also thins the rows that cross"
            if _growth(rows, "flow_aware", "wanted_mbps") < 1
            else ""
        ),
    ),
    Claim(
        "fragments keep the transfer small",
        at_most("data sent with fragments over that with operators, at worst",
                lambda rows: _over_rival(rows, "data_mb", values(rows, "operators_a_fragment")),
                0.8),
        UNIT_NEEDS,
        _both("data_mb"),
    ),
)  # fmt: skip


def plot_units(rows: Sequence[Row], figure: Any) -> None:
    figure.set_size_inches(8.4, 3.4)
    left, right = figure.subplots(1, 2)
    known = [dict(r) for r in rows]
    names = {"flow_aware": "fragments", "operator_based": "operators"}
    for policy, name in names.items():
        for axis, key in ((left, "worst_ratio"), (right, "wanted_mbps")):
            line = averages(known, key, "operators_a_fragment", policy=policy)
            axis.plot(list(line), list(line.values()), "o-", label=name)
    left.set_yscale("log")
    left.set_ylabel("worst performance ratio")
    right.set_ylabel("traffic of the final placement (Mbps)")
    right.axhline(100, color="#555555", lw=0.8, ls=":", label="the network's bandwidth")
    right.set_ylim(bottom=0)
    for axis in (left, right):
        axis.set_xlabel("operators a fragment")
        axis.legend()
    mark_claim(left, "fragments far better with more operators")
    mark_claim(right, "that of operators grows quickly, of fragments little")


EXPERIMENTS.add(
    "placement-5",
    Experiment(
        "placement-5",
        "fragments or single operators as the unit of moves",
        "placement",
        measure_units,
        plot_units,
        UNIT_CLAIMS,
        ("worst_ratio", "wanted_mbps", "data_mb"),
    ),
)

# --- figure 6: which fragments --------------------------------------------------------------------
STRATEGIES = ("static", "flow_aware", "intermediate", "elementary")
DYNAMIC = STRATEGIES[1:]
SPAN_S = 2  # of a stored row
STAGES = {
    "before": (10.0, SURGE_AT_S),
    "surge": (SURGE_AT_S, SURGE_UNTIL_S),
    "after": (60.0, SURGE_END_S),
}


def measure_selection(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for number in seeds(seed, 2 if quick else 8):
        progress(f"seed {number}")
        done = {name: run(surge(quick=quick, policy=name), number) for name in STRATEGIES}
        still = [s.data_mbps for s in done["static"].samples]
        for name, result in done.items():
            # A row for every span: means of its samples.
            for start in range(0, int(SURGE_END_S), SPAN_S):
                some = [
                    (sample.data_mbps - still[n], sample.ratio_worst)
                    for n, sample in enumerate(result.samples)
                    if start < sample.now_s <= start + SPAN_S
                ]
                rows.append(
                    {
                        "hosts": len(result.samples[0].loads),
                        "policy": name,
                        "seed": number,
                        "now_s": start + SPAN_S,
                        "extra_mbps": sum(extra for extra, _ in some) / len(some),
                        "worst_ratio": sum(ratio for _, ratio in some) / len(some),
                    }
                )
    return rows


def _stage(rows: Rows, policy: str, stage: str, key: str = "extra_mbps") -> float:
    low, high = STAGES[stage]
    return average([r for r in rows if low < r["now_s"] <= high], key, policy=policy)


def _told(rows: Rows) -> str:
    stages = {
        name: ", ".join(f"{_stage(rows, name, stage):.1f} {stage}" for stage in STAGES)
        for name in DYNAMIC
    }
    return "Mbps over static: " + "; ".join(f"{name} {text}" for name, text in stages.items())


def _flow_lead(rows: Rows) -> float:
    """What flow-aware selection adds over the least of the others, at the worst stage."""
    return max(
        _stage(rows, "flow_aware", stage) - min(_stage(rows, n, stage) for n in DYNAMIC[1:])
        for stage in STAGES
    )


def _back(rows: Rows, policy: str) -> float:
    """Traffic after the surge, less that before it."""
    return _stage(rows, policy, "after") - _stage(rows, policy, "before")


def _told_back(rows: Rows) -> str:
    return "after less before: " + ", ".join(f"{n} {_back(rows, n):+.1f} Mbps" for n in DYNAMIC)


def _course_back(rows: Rows) -> str:
    """Extra traffic from the end of the surge to the end of the run: whether it still falls."""
    ends = (SURGE_UNTIL_S, 60.0, 70.0, SURGE_END_S)
    found = {
        f"{b:.0f} s": average([r for r in rows if a < r["now_s"] <= b], "extra_mbps",
                              policy="flow_aware")
        for a, b in pairwise(ends)
    }  # fmt: skip
    return f"Mbps over static by {listed(found)}; before the surge {_before(rows):.3g}"


def _before(rows: Rows) -> float:
    return _stage(rows, "flow_aware", "before")


def _ratios(rows: Rows) -> dict[str, float]:
    return averages(rows, "worst_ratio", "policy")


SELECTION_NEEDS = (
    at_least("nodes", lambda rows: max(numbers(rows, "hosts")), 32),
    at_least("seeds", lambda rows: len(values(rows, "seed")), 8),
)
SELECTION_CLAIMS = (
    Claim(
        "flow-aware selection adds least traffic at all stages",
        at_most("its extra traffic less the least of the others', at worst", _flow_lead, 0.0, 0.05,
                "Mbps"),
        SELECTION_NEEDS,
        _told,
    ),
    Claim(
        "intermediate selection is better than elementary",
        at_most("extra traffic in the surge, intermediate less elementary",
                lambda rows: _stage(rows, "intermediate", "surge")
                - _stage(rows, "elementary", "surge"), 0.0, 0.05, "Mbps"),
        SELECTION_NEEDS,
        _told,
    ),
    Claim(
        "when rates fall back flow-aware returns to where it was",
        at_most("its extra traffic after the surge less that before",
                lambda rows: _back(rows, "flow_aware"), 0.0, 0.5, "Mbps"),
        SELECTION_NEEDS,
        _told_back,
        _course_back,
    ),
    Claim(
        "the other two cannot restore the state before",
        at_least("lesser of their extra traffic after less before",
                 lambda rows: min(_back(rows, n) for n in DYNAMIC[1:]), 0.5, 0, "Mbps"),
        SELECTION_NEEDS,
        _told_back,
    ),
    Claim(
        "static placement has the worst ratio",
        at_least("its worst ratio over the largest dynamic one",
                 lambda rows: _ratios(rows)["static"] / max(_ratios(rows)[n] for n in DYNAMIC),
                 1.1, 0, "times"),
        SELECTION_NEEDS,
        lambda rows: listed(_ratios(rows)),
    ),
    Claim(
        "the three dynamic ones have about the same worst ratio",
        at_most("largest over smallest of the dynamic ones",
                lambda rows: max(_ratios(rows)[n] for n in DYNAMIC)
                / min(_ratios(rows)[n] for n in DYNAMIC), 1.5, 0, "times"),
        SELECTION_NEEDS,
        lambda rows: listed(_ratios(rows)),
    ),
)  # fmt: skip


def plot_selection(rows: Sequence[Row], figure: Any) -> None:
    figure.set_size_inches(9.0, 3.6)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2, 1)})
    known = [dict(r) for r in rows]
    for name in DYNAMIC:
        line = averages([r for r in known if r["policy"] == name], "extra_mbps", "now_s")
        left.plot(list(line), list(line.values()), label=name)
    left.axvspan(SURGE_AT_S, SURGE_UNTIL_S, color="#dddddd", alpha=0.5, lw=0)
    left.set_xlabel("time (s)")
    left.set_ylabel("traffic over static (Mbps)")
    left.legend()
    mark_claim(
        left, "flow-aware least at all stages, and back to where it was after the surge (grey)"
    )
    ratio = averages(known, "worst_ratio", "policy")
    right.bar(range(len(ratio)), list(ratio.values()), color="#1f5fa8")
    right.set_xticks(range(len(ratio)), list(ratio), rotation=30, ha="right")
    right.set_yscale("log")
    right.set_ylim(bottom=min(ratio.values()) / 10)
    right.set_ylabel("worst performance ratio, mean")
    mark_claim(right, "static worst, the others alike")


EXPERIMENTS.add(
    "placement-6",
    Experiment(
        "placement-6",
        "which fragments to move: extra traffic and worst ratio under a surge",
        "placement",
        measure_selection,
        plot_selection,
        SELECTION_CLAIMS,
        ("extra_mbps", "worst_ratio"),
    ),
)
