"""What a step costs: a fixed part and a part for each row, learnt from finished steps.

One weighted least-squares line an operator, older steps fading, so that a warmed-up engine or a
grown window shows. Constant memory. It never predicts a negative cost.
"""

from dataclasses import dataclass

SPREAD_MIN = 0.2  # of the mean: batches less unequal than that do not give a line
ROW_S_MAX = 1e-3  # more than any row costs on Spark


@dataclass(slots=True)
class CostLine:
    """seconds = fixed + row * rows.

    >>> line = CostLine()
    >>> for rows in (10, 100, 1000):
    ...     line.learn(rows, 0.05 + 0.001 * rows)
    >>> round(line.fixed_s, 6), round(line.row_s, 6)
    (0.05, 0.001)
    """

    keep: float = 0.98  # weight of the past at each step: half of it is forgotten in 34 steps
    weight: float = 0.0
    rows_mean: float = 0.0
    seconds_mean: float = 0.0
    rows_variance: float = 0.0  # weighted sums, not divided
    covariance: float = 0.0

    def learn(self, rows: float, seconds: float) -> None:
        self.weight = self.weight * self.keep + 1.0
        self.rows_variance *= self.keep
        self.covariance *= self.keep
        rows_off = rows - self.rows_mean
        self.rows_mean += rows_off / self.weight
        self.seconds_mean += (seconds - self.seconds_mean) / self.weight
        self.rows_variance += rows_off * (rows - self.rows_mean)
        self.covariance += rows_off * (seconds - self.seconds_mean)

    @property
    def row_s(self) -> float:
        """Seconds for each further row."""
        most = self.seconds_mean / self.rows_mean if self.rows_mean > 0 else 0.0
        if self.rows_variance <= 1e-6 * self.weight * max(1.0, self.rows_mean**2):
            return most  # always the same batch: all of it may be marginal, the safe guess
        return min(max(self.covariance / self.rows_variance, 0.0), most)

    @property
    def fixed_s(self) -> float:
        """Seconds for a step, however few rows it has."""
        return max(0.0, self.seconds_mean - self.row_s * self.rows_mean)

    def told(self, spread_min: float) -> float | None:
        """The fixed part, where batches differed by this share of their mean; else None.

        >>> line = CostLine()
        >>> for _ in range(5):
        ...     line.learn(1000, 0.5)
        >>> line.told(0.01) is None
        True
        """
        if (
            self.weight < 2
            or self.rows_variance <= self.weight * (spread_min * self.rows_mean) ** 2
        ):
            return None
        return self.fixed_s

    def parts(self, fixed_s_max: float) -> tuple[float, float]:
        """Fixed and marginal seconds where larger batches are to be expected than were seen.

        Steps that all had about as many rows do not tell the two apart. A step on Spark has a large
        fixed part, so that all of it is taken as fixed up to `fixed_s_max`, and the rest as the
        rows': a planner that took all of it as the rows' would refuse what fits easily.

        >>> line = CostLine()
        >>> for _ in range(5):
        ...     line.learn(1000, 0.5)
        >>> line.parts(0.2)
        (0.2, 0.0003)

        Steps of a few rows, such as those of combined panes, are all fixed: what they took divided
        by their rows is no row's cost.

        >>> few = CostLine()
        >>> for rows in (2, 4, 3):
        ...     few.learn(rows, 0.1 * rows)
        >>> [round(part, 3) for part in few.parts(0.2)]
        [0.298, 0.001]
        """
        spread = self.rows_variance / self.weight if self.weight else 0.0
        if spread > (SPREAD_MIN * self.rows_mean) ** 2:
            row = self.row_s
        else:
            rest = max(0.0, self.seconds_mean - fixed_s_max)
            row = rest / self.rows_mean if self.rows_mean > 0 else 0.0
        row = min(row, ROW_S_MAX)
        return self.seconds_mean - row * self.rows_mean, row
