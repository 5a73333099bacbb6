"""A failed query is restarted: it goes on where it failed, nothing lost and nothing twice.

What a query would have given without the failure is worked out in the test; a poison is a value
that one operator cannot bear until somebody has put that right.
"""

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_hosting import compiled
from test_hosting import compute as added
from test_loop_without_spark import COLUMNS, files

from millstream.control.recovery.restarts import GUILTY
from millstream.core.errors import UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import Step
from millstream.engine.settings import EngineSettings
from millstream.engine.troubles import failing
from millstream.engine.troubles.restarting import Restarting, restarts
from millstream.language.cql.catalog import StreamDefinition
from millstream.store import faults
from millstream.store.delivery import CallbackSink
from plain_plane import PlainPlane, Read, Rows

POISON = 13
ROWS = [(n, n) for n in range(20)]


class Life:
    """An engine in which who adds 0 cannot bear a 13, as long as there is a poison."""

    def __init__(self, folder: Path, poisoned: bool = True, **settings: Any) -> None:
        self.poisoned = poisoned
        plane = PlainPlane(compiled, self.compute)
        known = {"batch_rows": 4, "sharing": "exact"} | settings
        self.engine = Engine(folder / "home", plane, EngineSettings(**known))
        source = {"path": str(folder / "in")}
        self.engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source=source))

    def compute(self, step: Step, read: Read) -> tuple[Rows, Rows | None]:
        poisonous = step.operator.id.endswith("+0") and self.poisoned
        if poisonous and any(v == POISON for _, v in read(step.new)):
            raise ValueError("13 is not a good number")
        return added(step, read)

    def listening(self, query: str, cql: str, taken: list[int]) -> None:
        self.engine.add_query(query, cql, from_beginning=True)
        sink = CallbackSink(lambda table, _: taken.extend(table["c0"].to_pylist()))
        self.engine.deliver(query, sink)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files(tmp_path / "in", ROWS)
    return tmp_path


@pytest.mark.parametrize("cql", ["0", "1+0+2", "5+0"])
def test_it_goes_on_where_it_failed(folder: Path, cql: str) -> None:
    life, taken, beside = Life(folder), [], []
    life.listening("bad", cql, taken)
    life.listening("good", "1", beside)
    Loop(life.engine).run()
    query = life.engine.queries["bad"]
    assert (query.state, query.restartable) == ("failed", True)
    before = len(taken)
    assert before < len(ROWS)
    life.poisoned = False
    life.engine.restart_query("bad")
    assert (query.state, query.reason, query.culprits) == ("running", "", [])
    Loop(life.engine).run()
    total = sum(int(part) for part in cql.split("+"))
    assert taken == [n + total for n in range(20)]
    assert beside == [n + 1 for n in range(20)]
    life.engine.close()


def test_with_the_poison_still_there_it_fails_again_by_name(folder: Path) -> None:
    life, taken = Life(folder), []
    life.listening("bad", "0", taken)
    for _ in range(3):
        Loop(life.engine).run()
        assert "13 is not a good number" in life.engine.queries["bad"].reason
        assert [c["row"] for c in life.engine.queries["bad"].culprits] == [POISON]
        assert taken == list(range(len(taken))), "nothing comes twice"
        assert len(taken) <= POISON
        life.engine.restart_query("bad")
    life.engine.close()


def test_another_process_restarts_it(folder: Path) -> None:
    life, taken = Life(folder), []
    life.listening("bad", "1+0+2", taken)
    Loop(life.engine).run()
    life.engine.close()
    again = Life(folder, poisoned=False)
    again.listening("bad", "1+0+2", taken)
    assert again.engine.queries["bad"].restartable
    Loop(again.engine).run()
    assert again.engine.queries["bad"].state == "failed", "nobody has restarted it"
    again.engine.restart_query("bad")
    Loop(again.engine).run()
    assert taken == [n + 3 for n in range(20)]
    again.engine.close()


@pytest.mark.parametrize("point", ["step.written", "step.committed", "delivery.committed"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_crash_after_the_restart_loses_nothing(folder: Path, point: str, at: int) -> None:
    life, taken = Life(folder), []
    life.listening("bad", "0+1", taken)
    Loop(life.engine).run()
    life.poisoned = False
    life.engine.restart_query("bad")
    met = itertools.count(1)

    def crash(reached: str) -> None:
        if reached == point and next(met) == at:
            faults.set_hook(None)
            raise KeyboardInterrupt

    faults.set_hook(crash)
    try:
        with suppress(KeyboardInterrupt):  # rows may be handed over all at once
            Loop(life.engine).run()
    finally:
        faults.set_hook(None)
        life.engine.close()
    again = Life(folder, poisoned=False)
    again.listening("bad", "0+1", taken)
    Loop(again.engine).run()
    assert taken == [n + 1 for n in range(20)]
    again.engine.close()


def test_who_can_be_restarted(folder: Path) -> None:
    life = Life(folder)
    engine = life.engine
    life.listening("bad", "0", [])
    with pytest.raises(UsageError, match="there is no query other"):
        engine.restart_query("other")
    with pytest.raises(UsageError, match="has not failed"):
        engine.restart_query("bad")
    Loop(engine).run()
    engine.hosting.stop(engine.queries["bad"])
    with pytest.raises(UsageError, match="cannot continue where it failed"):
        engine.restart_query("bad")
    engine.close()
    again = Life(folder)
    again.listening("bad", "0", [])
    assert again.engine.queries["bad"].given_up, "that is durable"
    again.engine.close()


def test_who_failed_under_an_older_version_has_no_place(folder: Path) -> None:
    life = Life(folder)
    life.listening("bad", "1+0", [])
    Loop(life.engine).run()
    with life.engine.ledger.transaction() as ledger:  # as it was done then
        for operator in life.engine.queries["bad"].operators:
            ledger.drop_consumer(operator)
    life.engine.close()
    again = Life(folder)
    again.listening("bad", "1+0", [])
    assert again.engine.queries["bad"].state == "failed"
    assert not again.engine.queries["bad"].restartable
    assert again.engine.operators == {}
    again.engine.close()


def test_neighbours_that_share_go_on_and_may_be_dropped(folder: Path) -> None:
    """The failed one keeps what it shares with others even when these are gone."""
    life, bad, good = Life(folder), [], []
    life.listening("bad", "1+0", bad)
    life.listening("good", "1+2", good)
    Loop(life.engine).run()
    assert good == [n + 3 for n in range(20)]
    life.engine.drop_query("good")
    life.poisoned = False
    life.engine.restart_query("bad")
    Loop(life.engine).run()
    assert bad == [n + 1 for n in range(20)]
    life.engine.close()


def test_a_new_query_does_not_stumble_over_what_broke_another(folder: Path) -> None:
    life = Life(folder)
    engine = life.engine
    heard: list[str] = []
    engine.on_notice.append(heard.append)
    life.listening("bad", "0", [])
    Loop(engine).run()
    engine.add_query("new", "0")  # from now on
    assert engine.queries["bad"].given_up
    assert any("cannot be restarted any more: query new" in text for text in heard)
    assert engine.queries["new"].state == "running"
    engine.close()


def test_its_input_is_kept_up_to_the_quota(folder: Path) -> None:
    life = Life(folder, quota_bytes=1)
    heard: list[str] = []
    life.engine.on_notice.append(heard.append)
    life.listening("bad", "0", [])
    loop = Loop(life.engine)
    loop.run()
    loop._next_review = loop._next_look = 0.0
    loop._look_after_sources()
    assert life.engine.queries["bad"].given_up
    assert any("its input grew too large to keep" in text for text in heard)
    life.engine.close()


# -- by a policy ----------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_policy_restarts_ever_later_and_ends(folder: Path) -> None:
    life, heard, clock = Life(folder, restart="backoff", restarts_max=3), [], Clock()
    life.listening("bad", "0", [])
    policy = Restarting(life.engine, heard.append, clock)
    waited = []
    for _ in range(4):
        life.engine.fail_query("bad", "no")
        began = clock.now
        while policy.waits and life.engine.queries["bad"].state == "failed":
            policy.look()
            clock.now += 0.5
        waited.append(round(clock.now - began))
    assert waited[:3] == [6, 10, 20]
    assert life.engine.queries["bad"].state == "failed"
    assert not policy.waits
    assert "restarted, 3 of 3: it failed because no" in heard[-1]
    assert restarts(life.engine.ledger, "bad").count == 3
    life.engine.restart_query("bad")
    assert restarts(life.engine.ledger, "bad").count == 0, "a person begins anew"
    life.engine.close()


def test_a_policy_tries_nobody_again_who_ends_java(folder: Path) -> None:
    life, clock = Life(folder, restart="backoff"), Clock()
    life.listening("bad", "0", [])
    life.engine.fail_query("bad", GUILTY)
    policy = Restarting(life.engine, lambda _: None, clock)
    policy.look()
    clock.now += 1e6
    policy.look()
    assert life.engine.queries["bad"].state == "failed"
    assert not policy.waits
    life.engine.close()


def test_a_run_waits_for_its_restarts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes by itself is not the end of a query."""
    from millstream.control.recovery import restarts as policy  # noqa: PLC0415

    monkeypatch.setattr(policy, "FIRST_S", 0.2)
    monkeypatch.setattr(failing, "RESTS_S", (0.0, 0.01))
    life, taken = Life(folder, restart="backoff"), []
    life.listening("bad", "0", taken)
    life.engine.on_notice.append(lambda text: setattr(life, "poisoned", "2 of 3" not in text))
    Loop(life.engine).run()
    assert life.engine.queries["bad"].state == "running"
    assert taken == list(range(20))
    life.engine.close()
