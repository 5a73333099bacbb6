"""Rows about a cluster on their way: asked for while wanted, posted once, whatever happens."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from millstream.client.http import AsyncHttpClient
from millstream.control.manager.state import (
    Decision,
    Live,
    ManagerState,
    Move,
    OperatorRecord,
    Processor,
    Query,
    StreamRecord,
)
from millstream.control.manager.system_streams import (
    ADMISSIONS,
    ALARMS,
    MOVES,
    OPERATORS,
    STEPS,
    table_of,
)
from millstream.control.moves.table import Phase, Story
from millstream.control.snapshot.model import Alarm, Overview, Snapshot
from millstream.edge.manager import system_feed
from millstream.edge.manager.system_feed import SystemFeed


def state_of(*streams: str, more: tuple[Decision, ...] = (), **changes: Any) -> ManagerState:
    """Two processors, one query of a user, one that watches."""
    queries = {
        "user": Query("user", "", phase="running", sources=("s:a",), operators=("o:1",)),
        "watch": Query("watch", "", phase="running", sources=tuple(f"s:{s}" for s in streams)),
    }
    return ManagerState(
        processors={n: Processor(n, f"http://{n}", 1) for n in ("p1", "p2")},
        live={n: Live(state="up") for n in ("p1", "p2")},
        streams={s: StreamRecord(s, table_of(s), "p1", start_wanted=True) for s in streams},
        queries={**queries, **changes.pop("queries", {})},
        operators={"o:1": OperatorRecord("o:1", "map", "", ("s:a",), processor="p1")},
        decisions=(Decision(1, 1.0, "admission", "query user is taken: on p1", "", "query", "user"),
                   *more),
        **changes,
    )  # fmt: skip


class World:
    """Processors that answer; every request is noted."""

    def __init__(self) -> None:
        self.steps: dict[str, list[dict[str, Any]]] = {"p1": [], "p2": []}
        self.epochs = {"p1": 1, "p2": 1}
        self.taken: dict[str, list[dict[str, Any]]] = {}
        self.numbers: dict[str, int] = {}
        self.asked: list[tuple[str, str]] = []
        self.broken: Callable[[httpx.Request], httpx.Response | None] = lambda _: None
        self.lost = 0  # answers that do not arrive

    def answer(self, request: httpx.Request) -> httpx.Response:
        name, path = request.url.host, request.url.path
        self.asked.append((name, path))
        broken = self.broken(request)
        if broken is not None:
            return broken
        if path == "/system":
            return self._system(name, request.url.params)
        stream = path.split("/")[2]
        if "/producers/" in path:
            return httpx.Response(200, json={"expected": self.numbers.get(stream, 0) + 1})
        return self._take(stream, json.loads(request.content))

    def _system(self, name: str, params: httpx.QueryParams) -> httpx.Response:
        steps, mine = self.steps[name], self.epochs[name]
        after = int(params["after"]) if int(params["epoch"]) == mine else 0
        found = {"epoch": mine, "last": len(steps)}
        wanted = params["wanted"].split(",")
        rows = {STEPS: steps[after:], OPERATORS: [{"at": 1, "operator": "o:1", "processor": name}]}
        return httpx.Response(200, json={**found, **{w: rows[w] for w in wanted}})

    def _take(self, stream: str, body: dict[str, Any]) -> httpx.Response:
        expected = self.numbers.get(stream, 0) + 1
        if body["sequence"] > expected:
            return httpx.Response(409, json={"error": "a gap", "expected": expected})
        if body["sequence"] == expected:
            self.numbers[stream] = expected
            self.taken.setdefault(stream, []).extend(body["rows"])
        if self.lost:
            self.lost -= 1
            raise httpx.ReadTimeout("lost on its way")
        return httpx.Response(200, json={"rows": len(body["rows"])})


def rounds(feed: SystemFeed, world: World, count: int = 1) -> None:
    async def go() -> None:
        async with AsyncHttpClient(transport=httpx.MockTransport(world.answer)) as client:
            for _ in range(count):
                await feed.round(client)

    asyncio.run(go())


def feed_of(states: list[ManagerState]) -> SystemFeed:
    """A feed that sees the last of the states."""
    return SystemFeed(lambda: states[-1], None, True)


def step(number: int, at: int = 1) -> dict[str, Any]:
    return {"at": at, "operator": f"o:{number}"}


def test_nobody_is_asked_while_no_query_reads() -> None:
    world, states = World(), [state_of()]
    feed = feed_of(states)
    rounds(feed, world, 3)
    assert world.asked == []
    states.append(state_of(ADMISSIONS))
    rounds(feed, world)
    assert ("p2", "/system") not in world.asked
    assert [r["decision"] for r in world.taken[ADMISSIONS]] == ["admitted", "admitted"]
    asked = len(world.asked)
    states.append(state_of())
    rounds(feed, world, 3)
    assert len(world.asked) == asked
    assert feed.streams == {}


def test_rows_of_all_processors_come_once_whatever_is_lost() -> None:
    world, states = World(), [state_of(), state_of(STEPS)]
    feed = feed_of(states)
    world.steps = {"p1": [step(1), step(2)], "p2": [step(3)]}
    world.lost = 2
    rounds(feed, world)
    world.steps["p1"].append(step(4))
    rounds(feed, world, 4)
    told = [row["operator"] for row in world.taken[STEPS]]
    assert sorted(told) == ["o:1", "o:2", "o:3", "o:4"]
    times = [row["at"] for row in world.taken[STEPS]]
    assert times == sorted(times)


def test_restarts_of_a_processor_and_of_the_manager() -> None:
    world, states = World(), [state_of(), state_of(STEPS, OPERATORS)]
    feed = feed_of(states)
    world.steps["p2"] = [step(1), step(2)]
    rounds(feed, world)
    world.steps["p2"], world.epochs["p2"] = [step(3)], 2  # another life, with numbers of its own
    rounds(feed, world)
    assert [row["operator"] for row in world.taken[STEPS]] == ["o:1", "o:2", "o:3"]
    world.steps = {"p1": [], "p2": []}
    rounds(feed_of(states), world)  # of another manager: the numbers go on
    assert world.numbers[OPERATORS] == 3
    assert {row["processor"] for row in world.taken[OPERATORS]} == {"p1", "p2"}
    world.numbers[OPERATORS] = 0  # the home of the stream's processor was emptied
    rounds(feed, world, 3)
    assert world.numbers[OPERATORS] >= 1


def test_what_a_manager_decides_is_told_and_not_again_after_its_restart() -> None:
    before = state_of(ADMISSIONS, MOVES)
    refused = Decision(2, 2.0, "refusal", "query big is refused: no room", "cpu", "query", "big")
    story = Story().through(Phase.DONE, "manager", 1.0)
    done = Move("m-3", ("o:1",), "p1", "p2", "p1 is full", story)
    after = state_of(ADMISSIONS, MOVES, more=(refused,), moves={"m-3": done})
    world, states = World(), [before]
    feed = feed_of(states)
    rounds(feed, world)
    assert world.taken == {}
    states.append(after)
    rounds(feed, world, 2)
    (row,) = world.taken[ADMISSIONS]
    assert (row["query"], row["decision"], row["reason"]) == ("big", "refused", "no room; cpu")
    ends = [(r["processor"], r["direction"], r["kind"]) for r in world.taken[MOVES]]
    assert ends == [("p1", "out", "map"), ("p2", "in", "map")]
    rounds(feed_of(states), world, 2)
    assert len(world.taken[ADMISSIONS]) == 1
    assert len(world.taken[MOVES]) == 2


@pytest.mark.parametrize(
    "broken",
    [
        httpx.Response(404, json={"error": "there is no stream sys.steps that takes rows"}),
        httpx.Response(503, json={"error": "too many rows wait"}),
        httpx.Response(200, content=b"nonsense"),
        httpx.Response(200, json=[]),
        httpx.Response(400, json={"error": "no such rows"}),
    ],
    ids=lambda r: f"{r.status_code} {r.text[:10]}",
)
def test_trouble_is_no_end_and_what_waits_is_bounded(
    broken: httpx.Response, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_feed, "ROWS_KEPT", 3)
    monkeypatch.setattr(system_feed, "BATCH_ROWS", 2)
    world, states = World(), [state_of(), state_of(STEPS)]
    feed = feed_of(states)
    world.broken = lambda request: broken if request.method == "POST" else None
    for number in range(9):
        world.steps["p1"].append(step(number))
        rounds(feed, world)
    world.broken = lambda _: broken
    rounds(feed, world)
    out = feed.streams[STEPS]
    assert len(out.rows) + len(out.batch) <= 5
    world.broken = lambda _: None
    world.steps["p2"].append(step(10))
    rounds(feed, world, 2)
    assert [row["operator"] for row in world.taken[STEPS]][-1] == "o:10"
    assert not out.rows


def test_alarms_are_those_that_processors_know_of() -> None:
    world, states = World(), [state_of(), state_of(ALARMS)]
    goal = Alarm("warning", "query user misses delay at most 1 s", "query", "user", "goal")
    standing = [(goal,), (goal,), ()]

    async def look() -> Snapshot:
        return Snapshot(1.0, Overview("c", alarms=standing.pop(0)))

    feed = SystemFeed(lambda: states[-1], None, True, look)
    rounds(feed, world, 3)
    told = [(row["kind"], row["subject"], row["state"]) for row in world.taken[ALARMS]]
    assert told == [("goal", "user", "raised"), ("goal", "user", "ended")]
