"""The one door to the mixed-integer solver (HiGHS).

Collects variables and rows, solves with one thread, a fixed seed and limits, and gives values and
a proven bound. Knows nothing of planning; no other module imports the solver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from millstream.core.extras import told_where_missing


def _library() -> Any:
    """HiGHS, where the first model is solved: whoever plans otherwise does without."""
    with told_where_missing():
        import highspy  # noqa: PLC0415
    return highspy


@dataclass(frozen=True, slots=True)
class Answer:
    """What the solver found; `values` is empty when it found nothing."""

    proven: bool  # optimal, or proven infeasible
    objective: float
    bound: float  # no solution is better
    values: tuple[float, ...]
    seconds: float


class Model:
    """A maximisation under construction; variables are numbers."""

    def __init__(self) -> None:
        self._low: list[float] = []
        self._high: list[float] = []
        self._gain: list[float] = []
        self._whole: list[bool] = []
        self._row_low: list[float] = []
        self._row_high: list[float] = []
        self._starts: list[int] = [0]
        self._columns: list[int] = []
        self._factors: list[float] = []

    @property
    def size(self) -> tuple[int, int]:
        return len(self._low), len(self._row_low)

    def variable(
        self, gain: float = 0.0, *, low: float = 0.0, high: float = 1.0, whole: bool = True
    ) -> int:
        self._low.append(low)
        self._high.append(high)
        self._gain.append(gain)
        self._whole.append(whole)
        return len(self._low) - 1

    def fix(self, variable: int, value: float) -> None:
        self._low[variable] = self._high[variable] = value

    def row(self, factors: Mapping[int, float], low: float = -inf, high: float = inf) -> None:
        """low <= sum of factor times variable <= high."""
        self._columns.extend(factors)
        self._factors.extend(factors.values())
        self._starts.append(len(self._columns))
        self._row_low.append(low)
        self._row_high.append(high)

    def solve(
        self,
        *,
        seconds: float = inf,
        start: Mapping[int, float] | None = None,
        gap: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Maximises. `start` is a known solution, given in part; `gap` is relative."""
        highs = _library().Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        highs.setOptionValue("random_seed", seed)
        highs.setOptionValue("mip_rel_gap", gap)
        highs.setOptionValue("mip_abs_gap", 1e-9)
        if seconds < inf:
            highs.setOptionValue("time_limit", float(seconds))
        highs.passModel(self._lp())
        if start is not None:
            columns = np.array(list(start), dtype=np.int32)
            highs.setSolution(len(columns), columns, np.array(list(start.values()), dtype=float))
        highs.run()
        return self._answer(highs)

    def _lp(self) -> Any:
        highspy = _library()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.size
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = np.array(self._gain)
        lp.col_lower_ = np.array(self._low)
        lp.col_upper_ = np.array(self._high)
        lp.row_lower_ = np.array(self._row_low)
        lp.row_upper_ = np.array(self._row_high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self._starts, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(self._columns, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(self._factors)
        lp.integrality_ = [
            highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
            for whole in self._whole
        ]
        return lp

    def _answer(self, highs: Any) -> Answer:
        highspy = _library()
        status = highs.getModelStatus()
        info = highs.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        proven = status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
        values: Sequence[float] = highs.getSolution().col_value if found else ()
        objective = float(info.objective_function_value) if found else -inf
        bound = objective if proven and not any(self._whole) else float(info.mip_dual_bound)
        return Answer(proven, objective, bound, tuple(values), float(highs.getRunTime()))
