"""What a run, or several side by side, came to: figures, words, tidy rows, drawings.

Summaries are means over the last part of a run, where a cluster has had time to settle, and over
the whole. Draws on figures that the caller makes and keeps; writes no file.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.sim.cluster.cluster import load_deviation
from millstream.sim.scenario_run import Outcome

Row = dict[str, Any]


def summary(outcome: Outcome, over_s: float = 10.0) -> Row:
    """The figures of one run."""
    run = outcome.run
    end = outcome.setting.duration_s
    tail = [s for s in run.samples if s.now_s > end - over_s] or list(run.samples[-1:])
    done = [move for move in run.moves if move.outcome == "done"]
    return {
        "name": outcome.name,
        "seed": outcome.seed,
        "hosts": len(outcome.setting.flow.hosts),
        "queries": len(outcome.setting.flow.queries),
        "duration_s": end,
        "worst_ratio": _mean([s.ratio_worst for s in tail]),
        "worst_ratio_whole_run": _mean([s.ratio_worst for s in run.samples]),
        "median_ratio": _mean([s.ratio_median for s in tail]),
        "worst_query": tail[-1].ratio_worst_query,
        "load_mean": _mean([float(s.loads.mean()) for s in tail]),
        "load_max": _mean([float(s.loads.max()) for s in tail]),
        "load_deviation": _mean([load_deviation(s.loads) for s in tail]),
        "waiting_rows": tail[-1].waiting_rows,
        "data_mbps": _mean([s.data_mbps for s in run.samples]),
        "state_mbps": _mean([s.state_mbps for s in run.samples]),
        "control_kbps": _mean([s.control_kbps for s in run.samples]),
        "moves": len(done),
        "moves_undone": len(run.moves) - len(done),
        "failures": list(outcome.failures),
    }


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


COLUMNS = (
    ("worst_ratio", "worst ratio", "{:.4g}"),
    ("median_ratio", "median", "{:.3g}"),
    ("load_max", "top load", "{:.2f}"),
    ("load_deviation", "spread", "{:.3f}"),
    ("data_mbps", "Mbps", "{:.1f}"),
    ("moves", "moves", "{:d}"),
)


def table_rows(summaries: Sequence[Row]) -> list[list[str]]:
    """Cells for people: the name, then the figures, those of variants with their change."""
    first = summaries[0]
    rows = []
    for figures in summaries:
        cells = [str(figures["name"])]
        for key, _, form in COLUMNS:
            text = form.format(figures[key])
            if figures is not first and key == "worst_ratio" and first[key]:
                times = figures[key] / first[key]
                text += f" ({times - 1:+.0%})" if times < 10 else f" (x{times:.0f})"
            cells.append(text)
        rows.append(cells)
    return rows


def verdict(summaries: Sequence[Row]) -> list[str]:
    """One sentence a variant: what the question's answer is."""
    base = summaries[0]
    lines = []
    for figures in summaries[1:]:
        change = figures["worst_ratio"] / max(base["worst_ratio"], 1e-9) - 1
        traffic = figures["data_mbps"] - base["data_mbps"]
        if figures["load_max"] >= 0.999:
            words = "a host is overloaded and rows pile up"
        elif abs(change) < 0.05:
            words = "hardly any difference"
        else:
            how = "worse" if change > 0 else "better"
            words = f"the worst query is served {abs(change):.0%} {how}"
        whole = figures["worst_ratio_whole_run"] / max(base["worst_ratio_whole_run"], 1e-9)
        lines.append(
            f"{figures['name']}: at the end {words}; worst ratio over the whole run x{whole:.2f}, "
            f"{traffic:+.1f} Mbps of data"
        )
    return lines


def sample_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    return [
        {
            "name": outcome.name,
            "now_s": round(s.now_s, 6),
            "worst_ratio": s.ratio_worst,
            "worst_ratio_processing": s.ratio_processing,
            "worst_ratio_communication": s.ratio_communication,
            "median_ratio": s.ratio_median,
            "worst_query": s.ratio_worst_query,
            "load_mean": float(s.loads.mean()),
            "load_max": float(s.loads.max()),
            "load_deviation": load_deviation(s.loads),
            "data_mbps": s.data_mbps,
            "state_mbps": s.state_mbps,
            "control_kbps": s.control_kbps,
            "moves": s.moves,
            "waiting_rows": s.waiting_rows,
        }
        for outcome in outcomes
        for s in outcome.run.samples
    ]


def move_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    return [
        {
            "name": outcome.name,
            "number": m.number,
            "unit": m.unit,
            "from": m.source,
            "to": m.target,
            "started_s": round(m.started_s, 3),
            "ended_s": round(m.ended_s, 3),
            "state_bytes": round(m.state_bytes),
            "outcome": m.outcome,
            "reason": m.reason,
        }
        for outcome in outcomes
        for m in outcome.run.moves
    ]


def draw_course(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """Worst ratio, deviation of load and traffic over time, one line a run."""
    figure.set_size_inches(7.0, 7.5)
    axes = figure.subplots(3, 1, sharex=True)
    for outcome in outcomes:
        at = [s.now_s for s in outcome.run.samples]
        axes[0].plot(at, [s.ratio_worst for s in outcome.run.samples], label=outcome.name)
        axes[1].plot(at, [load_deviation(s.loads) for s in outcome.run.samples])
        axes[2].plot(at, [s.data_mbps + s.state_mbps for s in outcome.run.samples])
    axes[0].set_yscale("log")
    axes[0].set_ylabel("worst performance ratio")
    axes[0].legend(loc="upper right", fontsize=8)
    axes[1].set_ylabel("deviation of load")
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylabel("traffic (Mbps)")
    axes[2].set_ylim(bottom=0)
    axes[2].set_xlabel("time (s)")


def draw_hosts(figure: Any, outcome: Outcome) -> None:
    """Load of every host over time, as a picture of where it is hot and when."""
    samples = outcome.run.samples
    loads = np.array([s.loads for s in samples]).T
    axis = figure.subplots()
    picture = axis.imshow(
        loads,
        aspect="auto",
        origin="lower",
        vmin=0,
        vmax=1,
        cmap="magma",
        interpolation="nearest",
        extent=(0, samples[-1].now_s, -0.5, len(loads) - 0.5),
    )
    axis.grid(visible=False)
    axis.set_xlabel("time (s)")
    axis.set_ylabel("host")
    axis.set_title(outcome.name, fontsize=9, loc="left")
    figure.colorbar(picture, ax=axis, label="load")
