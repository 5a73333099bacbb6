"""Always the highest score (a heuristic of the seed's section 1.3); ties keep the present."""

from millstream.decide.schedule.protocol import Review, Verdict
from millstream.decide.schedule.selectors.exploration import Exploration


class HighestScore:
    name = "highest_score"

    def __init__(self) -> None:
        self._exploration = Exploration()

    def select(self, review: Review) -> Verdict:
        scores = review.scores()
        explored = self._exploration.next(review)
        if explored is not None:
            return explored
        candidates = review.candidates
        best = max(candidates, key=lambda name: (scores[name], name == review.current))
        return Verdict(best, f"highest score {scores[best]:.3f}")
