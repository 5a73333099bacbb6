"""Rows for a manager above: each once, from the first question on, and bounded."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from test_system_feed import World, feed_of, rounds, state_of, step

from millstream.client.http import AsyncHttpClient
from millstream.control.manager.state import Live, ManagerState, Move, Processor
from millstream.control.manager.system_streams import ADMISSIONS, MOVES, OPERATORS, STEPS
from millstream.control.moves.table import Phase, Story
from millstream.edge.manager import system_log
from millstream.edge.manager.system_log import SystemLog

LIFE = 7


def ask(log: SystemLog, *wanted: str, epoch: int = LIFE, after: int = 0) -> dict[str, Any]:
    return log.answer(frozenset(wanted), LIFE, epoch, after)


def test_rows_until_they_are_acknowledged() -> None:
    log = SystemLog()
    assert log.wanted() == frozenset()
    assert ask(log, STEPS, ADMISSIONS, epoch=0) == {"epoch": LIFE, "last": 0, STEPS: []}
    assert log.wanted() == {STEPS}, "a manager below has decided nothing about a query"
    log.add(STEPS, [step(1), step(2)])
    first = ask(log, STEPS)
    assert (first["last"], first[STEPS]) == (2, [step(1), step(2)])
    log.add(STEPS, [step(3)])
    again = ask(log, STEPS)  # the answer was lost
    assert (again["last"], again[STEPS]) == (3, [step(1), step(2), step(3)])
    assert ask(log, STEPS, after=2)[STEPS] == [step(3)]
    assert ask(log, STEPS, after=3)[STEPS] == []
    assert ask(log, STEPS, after=2)[STEPS] == [], "what was acknowledged is gone"


def test_who_is_new_begins_now_and_another_life_from_its_first_row() -> None:
    log = SystemLog()
    log.add(STEPS, [step(1)])
    assert ask(log, STEPS, epoch=LIFE - 1, after=90)[STEPS] == [step(1)]
    assert ask(log, STEPS, epoch=0)[STEPS] == []
    log.add(STEPS, [step(2)])
    assert ask(log, STEPS, after=1)[STEPS] == [step(2)]


def test_it_is_bounded_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_log, "ROWS_KEPT", 3)
    log = SystemLog()
    ask(log, STEPS, MOVES)
    log.add(MOVES, [step(0)])
    log.add(STEPS, [step(n) for n in range(9)])
    told = ask(log, STEPS, MOVES)
    assert told[STEPS] == [step(6), step(7), step(8)]
    assert told[MOVES] == [step(0)], "one stream takes no room of another"
    assert log.wanted() == {STEPS, MOVES}
    log._asked_s -= 100.0
    assert log.wanted() == frozenset()


class Below:
    """Processors, and a manager above them that answers as a processor of another one."""

    def __init__(self, states: list[ManagerState]) -> None:
        self.states, self.processors = states, World()
        self.feed = feed_of(states)
        self.doors = World()
        self.lost = 0

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/system":
            return self.doors.answer(request)
        asked = request.url.params
        wanted = frozenset(asked["wanted"].split(","))
        told = self.feed.log.answer(wanted, LIFE, int(asked["epoch"]), int(asked["after"]))
        if self.lost:
            self.lost -= 1
            raise httpx.ReadTimeout("lost on its way")
        return httpx.Response(200, json=told)


def above(*streams: str) -> ManagerState:
    """A manager with another one below it, where the streams enter."""
    made = state_of(*streams)
    return replace(
        made,
        processors={"m1": Processor("m1", "http://m1", 1, {"kind": "manager"})},
        live={"m1": Live(state="up")},
        streams={name: replace(s, processor="m1") for name, s in made.streams.items()},
    )


def test_a_manager_above_gets_everything_once_whatever_is_lost() -> None:
    story = Story().through(Phase.DONE, "manager", 1.0)
    done = Move("m-3", ("o:1",), "p1", "p2", "p1 is full", story)
    below = Below([state_of()])
    states = [above()]
    top = feed_of(states)
    states.append(above(STEPS, MOVES, OPERATORS, ADMISSIONS))

    async def go(count: int) -> None:
        async with AsyncHttpClient(transport=httpx.MockTransport(below.answer)) as client:
            for _ in range(count):
                await top.round(client)

    rounds(below.feed, below.processors)
    assert below.processors.asked == [], "nobody above reads"
    for number in range(6):
        asyncio.run(go(1))
        below.processors.steps["p1" if number % 2 else "p2"].append(step(number))
        below.lost = number % 3
        if number == 2:
            below.states.append(state_of(moves={"m-3": done}))
        rounds(below.feed, below.processors)
    asyncio.run(go(3))
    taken = below.doors.taken
    assert sorted(r["operator"] for r in taken[STEPS]) == [f"o:{n}" for n in range(6)]
    assert [r["decision"] for r in taken[ADMISSIONS]] == ["admitted", "admitted"]
    ends = [(r["processor"], r["direction"]) for r in taken[MOVES]]
    assert ends == [("p1", "out"), ("p2", "in")]
    assert {r["processor"] for r in taken[OPERATORS]} == {"p1", "p2"}
    for rows in taken.values():
        assert [r["at"] for r in rows] == sorted(r["at"] for r in rows)
