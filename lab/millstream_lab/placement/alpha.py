"""placement-alpha: the weight of the low-pass filter, from the seed's inequality (section 3.3)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.decide.balance.load_information import (
    Fluctuation,
    LoadInformation,
    closed_window,
    largest_alpha,
    smallest_alpha,
)
from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Claim, Row, Rows, about, at_least, mean
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress

KAPPA = 1.2
EXAMPLE = Fluctuation(1, 1, 2.0)
FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0)
ALPHAS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
WINDOW_S = 0.1


def run(seed: int, quick: bool, progress: Progress) -> list[Row]:
    progress("solving the inequality, filtering bursts")
    rows: list[Row] = [
        _row("bound", hold, factor, smallest_alpha(Fluctuation(1, hold, factor), KAPPA), 0.0, 0.0)
        for hold in (0, 1, 2, 4, 8)
        for factor in FACTORS
    ]
    windows = 2_000 if quick else 20_000
    for alpha in ALPHAS:
        reports, late = _burst_reports(alpha, windows, seed), _windows_to_notice(alpha)
        rows.append(_row("filter", 1, 2.0, alpha, reports, late))
    return rows


def _row(
    kind: str, hold: int, factor: float, alpha: float, reports: float, late: float
) -> dict[str, Any]:
    return {
        "kind": kind,
        "m1": 1,
        "m2": hold,
        "l": factor,
        "alpha": round(alpha, 6),
        "reports_a_minute": reports,
        "windows_to_notice": late,
    }


def _burst_reports(alpha: float, windows: int, seed: int) -> float:
    """Broadcasts a minute of a node whose load doubles now and then for two windows."""
    random = np.random.default_rng(seed)
    known, reports, burst = LoadInformation(), 0, 0
    for n in range(windows):
        if burst == 0 and random.random() < 0.02:
            burst = EXAMPLE.rise_windows + EXAMPLE.hold_windows
        load, burst = (0.6, burst - 1) if burst else (0.3, 0)
        known, told = closed_window(
            known, load, n * WINDOW_S, alpha=alpha, kappa=KAPPA, silence_s_max=1e9
        )
        reports += told
    return reports / (windows * WINDOW_S / 60)


def _windows_to_notice(alpha: float) -> float:
    """Windows until a lasting doubling of load is broadcast."""
    known, _ = closed_window(
        LoadInformation(), 0.3, 0.0, alpha=alpha, kappa=KAPPA, silence_s_max=1e9
    )
    for n in range(1, 10_000):
        known, told = closed_window(
            known, 0.6, n * WINDOW_S, alpha=alpha, kappa=KAPPA, silence_s_max=1e9
        )
        if told:
            return float(n)
    return float("inf")


def _filtered(rows: Rows, column: str, alpha: float) -> float:
    return mean(rows, column, kind="filter", alpha=alpha)


def _louder(rows: Rows) -> float:
    """Reports at alpha 0.5 over those at 0.9."""
    quiet = _filtered(rows, "reports_a_minute", 0.9)
    return _filtered(rows, "reports_a_minute", 0.5) / max(quiet, 0.1)


def _slower(rows: Rows) -> float:
    late = _filtered(rows, "windows_to_notice", 0.99)
    return late / max(_filtered(rows, "windows_to_notice", 0.9), 0.1)


CLAIMS = (
    Claim(
        "m1 = m2 = 1, l = 2, kappa = 1.2 give alpha >= 0.9",
        about("least alpha", lambda rows: mean(rows, "alpha", kind="bound", m2=1, l=2.0), 0.9,
              0.01),
    ),
    Claim(
        "such an alpha smooths out short fluctuations",
        at_least("reports a minute under bursts at alpha 0.5 over those at 0.9", _louder, 4, 0,
                 "times"),
        beside=lambda rows: (
            f"{_filtered(rows, 'reports_a_minute', 0.5):.1f} and "
            f"{_filtered(rows, 'reports_a_minute', 0.9):.1f} a minute"
        ),
    ),
    Claim(
        "alpha must not be too close to 1, or the load is not reflected",
        at_least("windows to notice a lasting doubling at alpha 0.99 over those at 0.9", _slower,
                 2, 0, "times"),
        beside=lambda rows: (
            f"alpha <= {largest_alpha(2.0, KAPPA, 10):.3f} tells it within 10; after "
            f"{_filtered(rows, 'windows_to_notice', 0.9):.0f} windows at 0.9"
        ),
    ),
)  # fmt: skip


def plot(rows: Sequence[Row], figure: Any) -> None:
    figure.set_size_inches(8.4, 3.6)
    left, right = figure.subplots(1, 2)
    for hold in dict.fromkeys(r["m2"] for r in rows if r["kind"] == "bound"):
        line = [r for r in rows if r["kind"] == "bound" and r["m2"] == hold]
        left.plot([r["l"] for r in line], [r["alpha"] for r in line], "o-", label=f"m2 = {hold}")
    left.plot([2.0], [0.9], "k*", markersize=9, label="the seed's example")
    left.set_xlabel("l, the fluctuation's factor")
    left.set_ylabel("least alpha (m1 = 1, kappa = 1.2)")
    left.legend(fontsize=7)
    mark_claim(left, "alpha >= 0.9 for m1 = m2 = 1, l = 2")
    line = [r for r in rows if r["kind"] == "filter"]
    right.plot([r["alpha"] for r in line], [r["reports_a_minute"] for r in line], "o-")
    right.set_xlabel("alpha")
    right.set_ylabel("reports a minute under bursts (solid)")
    mark_claim(right, "smooths short changes, but not too close to 1")
    other = right.twinx()
    other.plot([r["alpha"] for r in line], [r["windows_to_notice"] for r in line], "s--", c="C1")
    other.set_ylabel("windows until a lasting change is told (dashed)")
    other.grid(visible=False)


EXPERIMENTS.add(
    "placement-alpha",
    Experiment(
        "placement-alpha",
        "the low-pass filter's weight: bound, bursts ignored, changes noticed",
        "placement",
        run,
        plot,
        CLAIMS,
        ("alpha", "reports_a_minute", "windows_to_notice"),
    ),
)
