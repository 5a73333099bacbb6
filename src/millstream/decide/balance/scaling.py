"""How many processors there should be, and which may leave: by what they cost, within bounds.

More are wanted where one stays full and nobody has room that redistribution could fill, or where a
query does not fit. One may leave where all that is left would still have plenty of room. Growing
takes a while of trouble, shrinking a longer while of ease, and after each change nothing is decided
until it shows. Every wish has its reason. Pure; starts and ends nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from millstream.core.errors import UsageError
from millstream.decide.balance.redistribution import FULL, ROOM

SPARE = 0.25  # mean cost of those who would stay, up to which one may leave
MOST = 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many processors, and for how long something must last before it counts."""

    least: int = 0
    most: int = 0  # 0: their number is nobody's matter here
    grow_s: float = 20.0
    shrink_s: float = 120.0

    def __post_init__(self) -> None:
        if self.most and not 1 <= self.least <= self.most <= MOST:
            raise UsageError(
                f"from {self.least} to {self.most} processors",
                hint=f"at least 1, at most {MOST}, and not fewer at most than at least",
            )
        if self.grow_s < 0 or self.shrink_s < 0:
            raise UsageError("growing and shrinking take no time below 0 s")


@dataclass(frozen=True, slots=True)
class Seen:
    """Who works, and what keeps whom from leaving."""

    costs: Mapping[str, float]  # of those who take part, 0 to 1; who has not reported costs 0
    model: str  # by which cost model
    staying: Mapping[str, str] = field(default_factory=dict)  # who cannot leave, and why
    waiting: str = ""  # a query that waits for room, and for what
    leaving: str = ""  # who is being emptied


@dataclass(frozen=True, slots=True)
class Memory:
    """Between two looks."""

    wanted: int = 0
    reason: str = ""
    full_since_s: float | None = None
    easy_since_s: float | None = None
    rests_until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Wish:
    """`wanted` processors; one of them to be emptied, or to stay although it was."""

    wanted: int
    leave: str = ""
    stay: str = ""
    reason: str = ""


def scale(seen: Seen, bounds: Bounds, memory: Memory, now_s: float) -> tuple[Wish, Memory]:
    """What should be different now; a wish without a reason is the one before."""
    there = len(seen.costs)
    wanted = min(max(memory.wanted or there, bounds.least, 1), bounds.most)
    memory = _timed(seen, memory, there, now_s)
    if wanted > there and now_s >= memory.rests_until_s:
        wanted = max(there, bounds.least)  # nobody came: it is decided anew
    trouble = _trouble(seen, bounds, memory, now_s)
    if there > bounds.most and not seen.leaving:
        return _leave(seen, memory, bounds, now_s, f"at most {bounds.most} are wanted")
    if trouble and seen.leaving:
        return _wish(Wish(wanted + 1, stay=seen.leaving, reason=trouble), bounds, now_s)
    if trouble and wanted <= there < bounds.most:
        return _wish(Wish(there + 1, reason=trouble), bounds, now_s)
    if there + bool(seen.leaving) < bounds.least and wanted > max(memory.wanted, there):
        reason = f"at least {bounds.least} are wanted"
        return _wish(Wish(wanted, reason=reason), bounds, now_s)
    easy_s = now_s - memory.easy_since_s if memory.easy_since_s is not None else -1.0
    if easy_s >= bounds.shrink_s and now_s >= memory.rests_until_s and there > bounds.least:
        rest = sum(seen.costs.values()) / (there - 1)
        why = f"without it the others would cost {rest:.2f} on average ({seen.model})"
        return _leave(seen, memory, bounds, now_s, why)
    return Wish(wanted), replace(memory, wanted=wanted)


def _timed(seen: Seen, memory: Memory, there: int, now_s: float) -> Memory:
    """Since when somebody is full without help, and since when all is easy."""
    costs = seen.costs.values()
    full = any(c >= FULL for c in costs) and all(c > ROOM for c in costs)
    easy = not seen.waiting and not seen.leaving and there > 1
    easy = easy and sum(costs) / (there - 1) <= SPARE and max(costs) < FULL
    return replace(
        memory,
        full_since_s=(memory.full_since_s if memory.full_since_s is not None else now_s)
        if full else None,
        easy_since_s=(memory.easy_since_s if memory.easy_since_s is not None else now_s)
        if easy else None,
    )  # fmt: skip


def _trouble(seen: Seen, bounds: Bounds, memory: Memory, now_s: float) -> str:
    """Why one more is wanted."""
    if now_s < memory.rests_until_s:
        return ""
    if seen.waiting:
        return seen.waiting
    if memory.full_since_s is None or now_s - memory.full_since_s < bounds.grow_s:
        return ""
    fullest = max(seen.costs, key=lambda p: (seen.costs[p], p))
    cost = f"{seen.costs[fullest]:.2f} ({seen.model})"
    return f"{fullest} is full at a cost of {cost}, and no other has room"


def _leave(
    seen: Seen, memory: Memory, bounds: Bounds, now_s: float, why: str
) -> tuple[Wish, Memory]:
    """The one with least to do, of equals the one that came last."""
    free = [p for p in seen.costs if p not in seen.staying]
    if not free:
        return Wish(len(seen.costs)), replace(memory, wanted=len(seen.costs))
    chosen = min(free, key=lambda p: (round(seen.costs[p], 2), -len(p), _last_first(p)))
    wish = Wish(len(seen.costs) - 1, leave=chosen, reason=why)
    return _wish(wish, bounds, now_s)


def _last_first(name: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in name)


def _wish(wish: Wish, bounds: Bounds, now_s: float) -> tuple[Wish, Memory]:
    rest_s = bounds.shrink_s if wish.leave else 3 * bounds.grow_s
    return replace(wish, wanted=min(wish.wanted, bounds.most)), Memory(
        min(wish.wanted, bounds.most), wish.reason, rests_until_s=now_s + rest_s
    )
