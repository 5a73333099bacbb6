"""One algorithm for ever: the first candidate. The yardstick for every other selector."""

from millstream.decide.schedule.protocol import Review, Verdict


class Fixed:
    name = "fixed"

    def select(self, review: Review) -> Verdict:
        return Verdict(review.candidates[0], "the only algorithm wanted")
