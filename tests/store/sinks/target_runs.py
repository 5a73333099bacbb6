"""Changes that come in segments, and deliveries that are cut off: for all targets alike.

A model keeps the table in plain Python. A home is a ledger with a stream of changes; whoever
delivers from it may be stopped at any named point and another one goes on.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.delivery import Delivery, Result, Sink
from millstream.store.streams import Streams

COLUMNS = (Field("name", "string"), Field("n", "bigint"))
POINTS = (*faults.SINK_POINTS, "delivery.written", "delivery.committed")
NAMES = ("a", "b", "", None, 'ü\n"x"', "NULL")


class Crash(BaseException):
    """What a test does to a process."""


class CutOff:
    """Raises when a point is reached, and from then on at every one: the process is gone."""

    def __init__(self, wanted: str, after: int) -> None:
        self.wanted, self.after, self.gone = wanted, after, False

    def __call__(self, point: str) -> None:
        if point == self.wanted:
            self.after -= 1
        self.gone = self.gone or (point == self.wanted and self.after < 0)
        if self.gone:
            raise Crash(point)


class Home:
    """A ledger and one result in it, which grows."""

    def __init__(self, folder: Path, *, changes: bool, unique: bool = True) -> None:
        self.folder, self.unique = folder, unique
        self.result = Result("q", "r:q", COLUMNS, changes)
        self.chance = random.Random(11)
        self.tables: dict[int, Counter[tuple[Any, ...]]] = {1: Counter()}  # before each number
        self._time = 0
        self.open()
        with self.streams.ledger.transaction() as ledger:
            ledger.add_stream("r:q", "result")

    def open(self) -> None:
        self.streams = Streams(self.folder)

    def close(self) -> None:
        self.streams.close()

    def grow(self, segments: int) -> None:
        """Publishes changes as an operator does: what is taken back was there."""
        ledger = self.streams.ledger
        for _ in range(segments):
            number = max(self.tables)
            table, rows = Counter(self.tables[number]), []
            for _ in range(self.chance.randrange(1, 6)):
                rows += self._change(table) if self.result.changes else self._added(table)
            stored = pa.table(
                {
                    "c0": pa.array([r[0] for r in rows], pa.string()),
                    "c1": pa.array([r[1] for r in rows], pa.int64()),
                    "_ts": pa.array([r[2] for r in rows], pa.int64()),
                    "_op": pa.array([r[3] for r in rows], pa.int8()),
                }
            )
            written = self.streams.files.write(stored)
            with ledger.transaction():
                ledger.publish("r:q", [written], self._time)
            self.tables[number + 1] = +table

    def _added(self, table: "Counter[tuple[Any, ...]]") -> list[tuple[Any, ...]]:
        self._time += 1_000_001
        row = (self.chance.choice(NAMES), self.chance.randrange(3), self._time)
        table[row] += 1
        return [(*row, 1)]

    def _change(self, table: "Counter[tuple[Any, ...]]") -> list[tuple[Any, ...]]:
        """One key's row is replaced, added or taken away."""
        name, rows = self.chance.choice(NAMES), []
        old = [r for r in table if table[r] and r[0] == name]
        if old and (self.unique or self.chance.random() < 0.6):
            gone = self.chance.choice(old)
            table[gone] -= 1
            rows.append((*gone, -1))
        if not old or self.chance.random() < 0.7:
            self._time += self.chance.choice((0, 1_000_001))
            row = (name, self.chance.randrange(4), self._time)
            table[row] += 1
            rows.append((*row, 1))
        return rows

    def delivery(self, sink: Sink) -> Delivery:
        ledger, store = self.streams.ledger, self.streams.files
        made = Delivery(Consumer("sink", "q:1"), self.result, sink, ledger, store)
        with ledger.transaction():
            made.install()
        return made

    @property
    def noted(self) -> int:
        return self.streams.ledger.cursor(Consumer("sink", "q:1"), "r:q").next


def cut_off_often(
    home: Home,
    make: Callable[[], Sink],
    seen: Callable[[], "Counter[tuple[Any, ...]]"],
    kills: int,
) -> None:
    """Kills a delivery at each point in turn; the target is the query's table at some number each
    time, no older than what was noted, and what is there when all is delivered is all."""
    for turn in range(kills):
        home.grow(home.chance.randrange(1, 4))
        cut = CutOff(POINTS[turn % len(POINTS)], home.chance.randrange(2) * (turn % 3 == 0))
        faults.set_hook(cut)
        delivery = home.delivery(make())
        try:
            while delivery.advance():
                home.grow(home.chance.randrange(2))
        except Crash:
            pass
        finally:
            faults.set_hook(None)
            delivery.close()  # as the system does when a process is gone
        now = seen()
        after = [number for number, table in home.tables.items() if table == now]
        assert after, (turn, cut.wanted, now)
        assert max(after) >= home.noted, (turn, cut.wanted)
        home.close()
        home.open()
    delivery = home.delivery(make())
    while delivery.advance():
        pass
    delivery.close()
    assert seen() == home.tables[max(home.tables)]
