"""A target that is away parks its query and no other; a run waits for it and loses nothing."""

import threading
from pathlib import Path

import pyarrow as pa
from test_loop_without_spark import files, listening, opened

from millstream.engine.loop import Loop
from millstream.store.consumers import Consumer
from millstream.store.delivery import Result, TargetError

ROWS = [(n, n) for n in range(40)]


class Target:
    """A table in memory, out of reach at first, that keeps the number beside the rows."""

    def __init__(self) -> None:
        self.away, self.asked, self.rows = True, threading.Event(), list[int]()
        self.number, self.identities, self.closed = 1, set[str](), False

    def recover(self, following: int) -> None:
        assert following == 1

    def following(self, result: Result, delivery: str) -> int:
        self.asked.set()
        self.identities.add(delivery)
        if self.away:
            raise TargetError("the target is away", detail="no route", hint="bring it back")
        return self.number

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        assert first >= self.number
        self.rows += table["c0"].to_pylist()
        self.number = last + 1

    def close(self) -> None:
        self.closed = True


def test_a_target_that_is_away_parks_its_query_alone(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", path=files(tmp_path / "in", ROWS[:20], ROWS[20:]))
    mine, theirs = listening(engine, "mine", "1"), listening(engine, "theirs", "2")
    target = Target()
    engine.deliver("mine", target, consumer=Consumer("sink", "mine:1"))
    told: list[str] = []
    engine.on_notice.append(told.append)
    states: list[tuple[str, str]] = []

    def tick() -> None:
        if target.away and len(theirs) == len(ROWS) and engine.queries["mine"].state == "parked":
            states.extend((q.name, q.state) for q in engine.queries.values())
            target.away = False

    Loop(engine).run(tick, every=0.02)
    assert dict(states) == {"mine": "parked", "theirs": "running"}
    assert told == [
        "query mine is parked: its sink has failed: the target is away: no route; "
        "hint: bring it back",
        "query mine continues",
    ]
    assert sorted(target.rows) == sorted(mine) == [v + 1 for _, v in ROWS]
    assert len(target.identities) == 1
    (before,) = target.identities
    engine.drop_query("mine")
    assert target.closed
    engine.add_query("mine", "1", from_beginning=True)
    again = engine.deliver("mine", Target(), consumer=Consumer("sink", "mine:1"))
    assert again.identity != before, "a query that was dropped is another one afterwards"
    engine.close()
