"""How many processors there should be, by what they cost."""

import pytest

from millstream.core.errors import UsageError
from millstream.decide.balance.scaling import Bounds, Memory, Seen, Wish, scale

BOUNDS = Bounds(2, 4, 20.0, 120.0)


def seen(*costs: float, **more: object) -> Seen:
    return Seen({f"p{n}": c for n, c in enumerate(costs, 1)}, "backlog", **more)  # type: ignore[arg-type]


def over_time(what: Seen, until_s: float) -> tuple[float, Wish | None]:
    """When something is wished for first, and what."""
    now_s, memory = 0.0, Memory()
    while now_s <= until_s:
        wish, memory = scale(what, BOUNDS, memory, now_s)
        if wish.reason:
            return now_s, wish
        now_s += 2.0
    return now_s, None


def test_one_more_where_one_stays_full_and_nobody_has_room() -> None:
    at_s, wish = over_time(seen(0.9, 0.5), 60)
    assert at_s == 20.0
    assert wish == Wish(3, reason="p1 is full at a cost of 0.90 (backlog), and no other has room")


@pytest.mark.parametrize(
    "costs", [(0.9, 0.3), (0.5, 0.5), (0.9, 0.9, 0.9, 0.9), (0.0, 0.0), (0.3, 0.3, 0.3)]
)
def test_nothing_where_others_have_room_or_no_more_are_allowed(costs: tuple[float, ...]) -> None:
    assert over_time(seen(*costs), 1000)[1] is None


def test_trouble_that_ends_soon_is_none() -> None:
    memory, now_s = Memory(), 0.0
    for turn in range(100):
        costs = (0.9, 0.5) if turn % 9 else (0.4, 0.4)
        wish, memory = scale(seen(*costs), BOUNDS, memory, now_s)
        assert not wish.reason
        now_s += 2.0


def test_a_query_that_waits_for_room_is_reason_enough() -> None:
    assert over_time(seen(0.1, 0.1, waiting="q does not fit"), 10) == (
        0.0, Wish(3, reason="q does not fit"),
    )  # fmt: skip


def test_one_leaves_where_the_others_have_plenty_of_room() -> None:
    at_s, wish = over_time(seen(0.2, 0.1, 0.1), 300)
    assert at_s == 120.0
    assert wish is not None
    assert (wish.wanted, wish.leave) == (2, "p3")
    assert wish.reason == "without it the others would cost 0.20 on average (backlog)"
    _, wish = over_time(seen(0.2, 0.1, 0.1, staying={"p3": "a Spark source"}), 300)
    assert wish is not None
    assert wish.leave == "p2"
    assert over_time(seen(0.1, 0.1), 1000)[1] is None, "at least two"


def test_the_fewest_come_by_themselves_and_too_many_leave() -> None:
    wish, memory = scale(seen(0.1), BOUNDS, Memory(), 0.0)
    assert (wish.wanted, wish.reason) == (2, "at least 2 are wanted")
    wish, memory = scale(seen(0.1), BOUNDS, memory, 2.0)
    assert (wish.wanted, wish.reason) == (2, ""), "it is on its way"
    wish, _ = scale(seen(*[0.9] * 5), BOUNDS, Memory(), 0.0)
    assert (wish.leave, wish.reason) == ("p5", "at most 4 are wanted")


def test_who_was_to_leave_stays_where_it_is_needed() -> None:
    full = seen(0.9, 0.9, leaving="p3")
    memory, now_s = Memory(2), 0.0
    while True:
        wish, memory = scale(full, BOUNDS, memory, now_s)
        if wish.reason:
            break
        now_s += 2.0
    assert (wish.wanted, wish.stay, now_s) == (3, "p3", 20.0)


def test_after_a_change_it_is_seen_what_comes_of_it() -> None:
    _, memory = scale(seen(0.9, 0.9, waiting="x"), BOUNDS, Memory(), 0.0)
    for now_s in range(2, 60, 2):
        wish, memory = scale(seen(0.9, 0.9, waiting="x"), BOUNDS, memory, float(now_s))
        assert not wish.reason
        assert wish.wanted == 3
    wish, _ = scale(seen(0.9, 0.9, waiting="x"), BOUNDS, memory, 62.0)
    assert wish.reason == "x", "nobody came: asked anew"


def test_bounds_are_checked() -> None:
    for wrong in ((3, 2), (0, 2), (1, 5000)):
        with pytest.raises(UsageError):
            Bounds(*wrong)
