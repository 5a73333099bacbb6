"""The last hour of everything: bounded, with gaps, forgotten with what it is about."""

from millstream.control.snapshot.model import (
    OperatorSnapshot,
    Overview,
    QuerySnapshot,
    Snapshot,
    StreamSnapshot,
)
from millstream.edge.dashboard.histories import POINTS_KEPT, Histories


def moment(at: float, *queries: QuerySnapshot, steps: int = 0, cost_s: float = 0.0) -> Snapshot:
    operator = OperatorSnapshot("o:1", "map", "map 1", steps=steps, cost_s=cost_s)
    stream = StreamSnapshot("s:s", "s", rejected=int(at))
    return Snapshot(at, Overview("x"), queries=queries, operators=(operator,), streams=(stream,))


def test_a_point_every_ten_seconds() -> None:
    kept = Histories()
    for at in (100.0, 105.0, 110.0, 119.0, 120.5):
        kept.note(moment(at, QuerySnapshot("q", "", delay_s=at - 100)))
    assert kept.of("query", "q")["at"] == [100.0, 110.0, 120.5]
    assert kept.of("query", "q")["delay_s"] == [0.0, 10.0, 20.5]
    assert kept.of("stream", "s")["rejected"] == [100.0, 110.0, 120.0]


def test_the_time_of_a_step_is_that_of_the_last_steps() -> None:
    kept = Histories()
    for at, steps, cost_s in ((0.0, 2, 4.0), (10.0, 4, 5.0), (20.0, 4, 5.0)):
        kept.note(moment(at, steps=steps, cost_s=cost_s))
    assert kept.of("operator", "o:1")["step_s"] == [2.0, 0.5, None], "none is a gap"


def test_who_came_later_has_gaps_and_who_left_is_forgotten() -> None:
    kept = Histories()
    kept.note(moment(0.0, QuerySnapshot("a", "")))
    kept.note(moment(10.0, QuerySnapshot("b", "", rows_per_s=3.0)))
    assert kept.of("query", "a") == {"at": [], "delay_s": [], "rows_per_s": [], "load": []}
    assert kept.of("query", "b")["rows_per_s"] == [None, 3.0]
    assert kept.of("nonsense", "b") == {"at": []}


def test_an_hour_and_no_more() -> None:
    kept = Histories()
    for number in range(POINTS_KEPT + 5):
        kept.note(moment(10.0 * number, QuerySnapshot("q", "", rows_per_s=float(number))))
    told = kept.of("query", "q")
    assert len(told["at"]) == len(told["rows_per_s"]) == POINTS_KEPT
    assert (told["at"][0], told["rows_per_s"][0]) == (50.0, 5.0)
