"""The roulette wheel of the seed (section 5.3): chance in proportion to the score."""

from millstream.decide.schedule.protocol import Review, Verdict
from millstream.decide.schedule.selectors.exploration import Exploration


class Roulette:
    name = "roulette"

    def __init__(self) -> None:
        self._exploration = Exploration()

    def select(self, review: Review) -> Verdict:
        scores = review.scores()
        explored = self._exploration.next(review)
        if explored is not None:
            return explored
        candidates = review.candidates
        total = sum(scores[name] for name in candidates)
        if total <= 0:
            return Verdict(review.random.choice(candidates), "no score above 0")
        mark = review.random.random() * total
        for name in candidates:
            mark -= scores[name]
            if mark < 0:
                break
        return Verdict(name, f"wheel, score {scores[name]:.3f} of {total:.3f}")
