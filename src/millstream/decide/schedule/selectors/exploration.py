"""The start of every run: the first algorithm alone, then each once, then the first again.

Section 5.3 and 6.1 of the seed: start-up costs must not fall on one algorithm's record, and every
algorithm gets a chance to prove itself before any is preferred.
"""

from millstream.decide.schedule.protocol import Review, Verdict


class Exploration:
    """The verdicts of the exploratory phase, one after the other; then None."""

    def __init__(self) -> None:
        self._stage = 0

    def next(self, review: Review) -> Verdict | None:
        candidates, settings = review.candidates, review.settings
        if len(candidates) == 1:
            return None
        stage, self._stage = self._stage, self._stage + 1
        if stage == 0 and settings.start_s > 0:
            return Verdict(candidates[0], "start-up", settings.start_s)
        turn = stage - 1 if settings.start_s > 0 else stage
        order = (*candidates, candidates[0])
        if turn >= len(order):
            return None
        return Verdict(order[turn], "each algorithm once", settings.explore_s)

    @staticmethod
    def seconds(candidates: int, start_s: float, explore_s: float) -> float:
        """How long the phase lasts; experiments leave it out of their figures."""
        return 0.0 if candidates == 1 else start_s + (candidates + 1) * explore_s
