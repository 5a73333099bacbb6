"""Orders operators by a number, best first; ties go to the one listed first."""

from collections.abc import Callable, Iterator

from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.protocol import Pick, Situation


def by_preference(
    situation: Situation,
    preference: Callable[[OperatorView], tuple[float, ...]],
    reason: Callable[[OperatorView], str],
) -> Iterator[Pick]:
    """Picks in descending preference; reasons are written only for picks that are looked at."""
    for view in sorted(situation.views, key=preference, reverse=True):
        yield Pick(view.id, reason(view))
