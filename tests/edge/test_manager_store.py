"""What a manager writes down, it finds again."""

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.control.manager.events import DeclareStream, Joined, Submit
from millstream.control.manager.manager import step
from millstream.control.manager.state import ManagerState, Move, OperatorRecord, Query, Settings
from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.commands import Join
from millstream.core.errors import StateError
from millstream.edge.manager.memory.sqlite_store import ManagerStore


def filled() -> ManagerState:
    state, _ = step(ManagerState(), Joined(Join("p1", "http://x", 1, {"cpu": 2})), 1.0)
    state, _ = step(state, DeclareStream({"name": "a", "columns": {"x": "int"}}), 2.0)
    state, _ = step(state, Submit("q2", "SELECT 2"), 3.0)
    state, _ = step(state, Submit("q1", "SELECT 1", from_beginning=True), 3.0)
    operator = OperatorRecord("o:1", "map", "x", ("s:a",), 8, {"w": 1.5}, "p1", 2)
    story = Story().through(Phase.SEALED, "p1", 0.5)
    move = Move("m1-9", ("o:1",), "p1", "p2", "why", story, 1.0, streams={"o:1": (4, 2)},
                told=frozenset({"new"}))  # fmt: skip
    return replace(state, operators={"o:1": operator}, moves={move.id: move})


def test_a_state_survives_a_restart(tmp_path: Path) -> None:
    store = ManagerStore(tmp_path / "manager.db")
    empty = store.load(Settings())
    state = replace(filled(), epoch=empty.epoch)
    store.save(empty, state)
    store.close()
    again = ManagerStore(tmp_path / "manager.db").load(Settings())
    assert again.epoch == empty.epoch + 1
    for part in ("processors", "streams", "queries", "operators", "moves", "decisions"):
        assert getattr(again, part) == getattr(state, part), part
    assert list(again.queries) == ["q2", "q1"], "in the order they came"
    assert again.counter == state.counter
    assert not again.live


def test_only_changes_are_written(tmp_path: Path) -> None:
    store = ManagerStore(tmp_path / "manager.db")
    empty = store.load(Settings())
    state = filled()
    store.save(empty, state)
    queries = {k: v for k, v in state.queries.items() if k != "q2"}
    changed = replace(state, queries={**queries, "q1": replace(queries["q1"], phase="failed")})
    store.save(state, changed)
    again = store.load(Settings())
    assert dict(again.queries) == {"q1": replace(state.queries["q1"], phase="failed")}
    assert isinstance(again.queries["q1"], Query)


def test_a_broken_store_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "manager.db"
    path.write_text("this is no database, however long it may be" * 100)
    with pytest.raises(StateError):
        ManagerStore(path)
    store = ManagerStore(tmp_path / "other.db")
    store.load(Settings())
    store._db.execute("INSERT INTO records VALUES ('queries', 'q', '{\"cql\": 5}')")
    with pytest.raises(StateError, match="broken record"):
        store.load(Settings())
