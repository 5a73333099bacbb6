"""placement-5 and placement-6: what to move (seed 002, figures 5 and 6)."""

from collections.abc import Sequence
from typing import Any

from millstream.sim.plotting import mark_claim
from millstream_lab.experiment import EXPERIMENTS, Experiment, Finding, Outcome, Progress, Row
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


def measure_units(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows: list[dict[str, Any]] = []
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
    return Outcome(rows, _unit_findings(rows))


def _unit_findings(rows: list[dict[str, Any]]) -> list[Finding]:
    sizes = list(dict.fromkeys(r["operators_a_fragment"] for r in rows))
    few, many = sizes[0], sizes[-1]
    qf = averages(rows, "worst_ratio", "operators_a_fragment", policy="flow_aware")
    op = averages(rows, "worst_ratio", "operators_a_fragment", policy="operator_based")
    op_want = averages(rows, "wanted_mbps", "operators_a_fragment", policy="operator_based")
    qf_want = averages(rows, "wanted_mbps", "operators_a_fragment", policy="flow_aware")
    op_moves = averages(rows, "moves", "operators_a_fragment", policy="operator_based")
    qf_mb = averages(rows, "data_mb", "operators_a_fragment", policy="flow_aware")
    op_mb = averages(rows, "data_mb", "operators_a_fragment", policy="operator_based")
    return [
        Finding(
            "with more operators fragments give a much better worst ratio",
            ", ".join(f"at {n:.0f}: {qf[n]:.0f} against {op[n]:.0f}" for n in sizes),
            all(qf[n] < op[n] for n in sizes[len(sizes) // 2 :]),
        ),
        Finding(
            "the rival's data transfer grows quickly with the operators and congests the network",
            f"at {few:.0f} and {many:.0f} operators its placement wants {op_want[few]:.0f} and "
            f"{op_want[many]:.0f} Mbps, that of fragments {qf_want[few]:.0f} and "
            f"{qf_want[many]:.0f}; it moves "
            f"{op_moves[few]:.0f} and {op_moves[many]:.0f} operators",
            op_want[many] > 1.5 * op_want[few],
            ""
            if op_want[many] > 1.5 * op_want[few]
            else "it does not grow by itself, for each further filter also thins the rows that "
            f"cross; against fragments it goes from {op_want[few] / qf_want[few]:.1f} to "
            f"{op_want[many] / qf_want[many]:.1f} times",
        ),
        Finding(
            "fragments keep the transfer small",
            ", ".join(f"{qf_mb[n]:.0f} MB at {n:.0f}" for n in sizes),
            all(qf_mb[n] < op_mb[n] for n in sizes),
        ),
    ]


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
    ),
)

# --- figure 6: which fragments --------------------------------------------------------------------
STRATEGIES = ("static", "flow_aware", "intermediate", "elementary")
DYNAMIC = STRATEGIES[1:]
STAGES = {
    "before": (10.0, SURGE_AT_S),
    "surge": (SURGE_AT_S, SURGE_UNTIL_S),
    "after": (60.0, SURGE_END_S),
}


def measure_selection(seed: int, quick: bool, progress: Progress) -> Outcome:
    rows: list[dict[str, Any]] = []
    for number in seeds(seed, 2 if quick else 8):
        progress(f"seed {number}")
        done = {name: run(surge(quick=quick, policy=name), number) for name in STRATEGIES}
        still = [s.data_mbps for s in done["static"].samples]
        for name, result in done.items():
            for n, sample in enumerate(result.samples):
                rows.append(
                    {
                        "policy": name,
                        "seed": number,
                        "now_s": round(sample.now_s, 3),
                        "extra_mbps": sample.data_mbps - still[n],
                        "state_mbps": sample.state_mbps,
                        "worst_ratio": sample.ratio_worst,
                        "moves": sample.moves,
                    }
                )
    return Outcome(rows, _selection_findings(rows))


def _stage(rows: list[dict[str, Any]], policy: str, stage: str, key: str = "extra_mbps") -> float:
    low, high = STAGES[stage]
    return average([r for r in rows if low < r["now_s"] <= high], key, policy=policy)


def _selection_findings(rows: list[dict[str, Any]]) -> list[Finding]:
    extra = {name: {stage: _stage(rows, name, stage) for stage in STAGES} for name in DYNAMIC}
    shown = "; ".join(
        f"{name} " + ", ".join(f"{value:.1f} {stage}" for stage, value in stages.items())
        for name, stages in extra.items()
    )
    ratio = averages(rows, "worst_ratio", "policy")
    back = {name: stages["after"] - stages["before"] for name, stages in extra.items()}
    dynamic = [ratio[name] for name in DYNAMIC]
    return [
        Finding(
            "flow-aware selection adds least traffic at all stages, elementary most",
            f"Mbps over static: {shown}",
            all(
                extra["flow_aware"][stage] <= min(extra[n][stage] for n in DYNAMIC) + 0.05
                for stage in STAGES
            )
            and extra["elementary"]["surge"] >= extra["intermediate"]["surge"] - 0.05,
        ),
        Finding(
            "when rates fall back flow-aware returns to where it was, the others do not",
            "after minus before: " + ", ".join(f"{n} {v:+.1f} Mbps" for n, v in back.items()),
            back["flow_aware"] <= min(back.values()) and back["flow_aware"] < 0.5,
            "a light node asks its heaviest partner, which seldom is the one that holds its "
            "fragments: most of what comes back is foreign, and within kappa nobody asks"
            if back["flow_aware"] >= 0.5
            else "",
        ),
        Finding(
            "static placement has the worst ratio, the three dynamic ones are alike",
            ", ".join(f"{n} {v:.0f}" for n, v in ratio.items()),
            ratio["static"] > max(dynamic) and max(dynamic) < 2 * min(dynamic),
        ),
    ]


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
    ),
)
