"""A cluster as a person sees and changes it, over a made-up manager and processor."""

import doctest
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from millstream.control.manager.state import (
    Decision,
    Figures,
    Live,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    Settings,
    Statistics,
    StreamRecord,
)
from millstream.control.protocol.commands import Compile
from millstream.control.protocol.envelope import Envelope, written
from millstream.control.protocol.replies import Compiled, CompiledOperator, Refusal
from millstream.core.codec import from_json, to_json
from millstream.core.errors import CqlError, StateError, UsageError
from millstream.edge.manager import view as manager_view
from millstream.edge.manager.view import ManagerView

STATE = ManagerState(
    epoch=3,
    now_s=1000.0,
    processors={n: Processor(n, f"http://{n}", 1) for n in ("p1", "p2")},
    live={"p1": Live("up", 1000.0), "p2": Live("up", 1000.0)},
    streams={"s": StreamRecord("s", {"columns": {"n": "int"}}, "p1")},
    operators={"o:1": OperatorRecord("o:1", "map", "map 1", ("s:s",), processor="p2")},
    queries={"a": Query("a", "SELECT", phase="running", operators=("o:1",), result="o:1")},
    statistics=Statistics(streams={"o:1": Figures(1000.0, {"rows": 900, "next": 100})}),
)
COMPILED = Compiled(
    (CompiledOperator("o:1", "map", "map 1", ("s:s",)),
     CompiledOperator("o:2", "join", "join 2", ("o:1",))),
    "o:2", (("n", "int"),), False, ("s:s",), "result (stream): n int",
)  # fmt: skip
MISTAKE = "  at line 1, column 8\n  1 | SELECT x FROM s\n    |        ^"


class Answer:
    def __init__(self, told: Any) -> None:
        self._told = told

    def json(self) -> Any:
        return self._told


class Cluster:
    """Stands for a manager and its processors: answers as they do, remembers what was asked."""

    def __init__(self) -> None:
        self.state = STATE
        self.segments = {n: [{"n": n, "ts": "t"}] for n in range(1, 120)}
        self.dropped: list[str] = []
        self.refuses = False

    def ask(self, method: str, url: str, body: Any = None, **more: Any) -> Answer:
        if url.endswith("/control"):
            (command,) = from_json(Envelope, to_json(body)).commands
            assert isinstance(command, Compile)
            wrong = Refusal("mistake", "unknown column x", MISTAKE, "columns: n")
            reply = wrong if "x" in command.cql else COMPILED
            return Answer(json.loads(written([reply])))
        assert url == "http://p2/queries/a/rows", url
        after, limit = more["params"]["after"], more["params"]["limit"]
        rows, number = [], after
        while number in self.segments and len(rows) < limit:
            rows += self.segments[number]
            number += 1
        return Answer({"rows": rows, "next": number, "moved": None})

    def submit(self, name: str, cql: str, **more: Any) -> dict[str, Any]:
        if "x" in cql:
            raise UsageError("unknown column x", detail=MISTAKE)
        if self.refuses:
            raise StateError("query b was refused", detail="cpu of p1 binds")
        queries: Mapping[str, Query] = {**self.state.queries, name: replace(STATE.queries["a"])}
        decided = Decision(
            9, 1000.0, "admission", f"query {name} was taken", "on p2", "query", name
        )
        self.state = replace(self.state, queries=queries, decisions=(decided,))
        return {"state": "running"}

    def drain(self, name: str, *, back: bool = False) -> dict[str, Any]:
        self.dropped.append(f"{'undrain' if back else 'drain'} {name}")
        return {"moves": [1, 2]}

    def pause(self, name: str, *, wanted: bool, wait_s: float) -> dict[str, Any]:
        assert wait_s > 0
        self.dropped.append(f"{'pause' if wanted else 'resume'} {name}")
        return {"name": name}

    def move(self, operator: str, to: str) -> dict[str, Any]:
        return {"moves": [] if to == "p2" else [1]}

    def remove_processor(self, name: str, *, lost: bool) -> dict[str, Any]:
        assert lost
        return {"queries": ["a"]}

    def drop(self, name: str, wait_s: float = 0.0) -> dict[str, Any]:
        self.dropped.append(name)
        return {}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def view(cluster: Cluster) -> ManagerView:
    return ManagerView(lambda: cluster.state, cluster, title="mill")  # type: ignore[arg-type]


def test_the_snapshot_is_the_managers(view: ManagerView) -> None:
    seen = view.snapshot()
    assert seen.overview.title == "mill"
    assert [p.id for p in seen.processors] == ["p1", "p2"]


def test_explaining_asks_a_processor_and_the_placer(view: ManagerView) -> None:
    told = view.explain("SELECT n FROM s")
    assert told.plan.startswith("result")
    assert [(o.id, o.exists, o.shared_with) for o in told.operators] == [
        ("o:1", True, ("a",)), ("o:2", False, ()),
    ]  # fmt: skip
    assert told.admission.admitted is True
    assert told.admission.sentence.startswith("would be taken")


def test_a_mistake_knows_its_place(view: ManagerView) -> None:
    for ask in (view.explain, lambda cql: view.register("b", cql)):
        with pytest.raises(CqlError) as wrong:
            ask("SELECT x FROM s")
        assert (wrong.value.line, wrong.value.column, wrong.value.length) == (1, 8, 1)


def test_nobody_to_ask(cluster: Cluster, view: ManagerView) -> None:
    cluster.state = replace(STATE, live={})
    with pytest.raises(StateError, match="no processor answers"):
        view.explain("SELECT n FROM s")


def test_an_unknown_placer_is_an_opinion_nobody_has(cluster: Cluster, view: ManagerView) -> None:
    cluster.state = replace(STATE, settings=Settings(placer="nonsense"))
    assert view.explain("SELECT n FROM s").admission.admitted is None


def test_registering_tells_the_decision(cluster: Cluster, view: ManagerView) -> None:
    made = view.register("b", "SELECT n FROM s")
    assert (made.kind, made.sentence, made.reason) == ("admission", "query b was taken", "on p2")
    cluster.refuses = True
    refused = view.register("c", "SELECT n FROM s")
    assert (refused.kind, refused.reason) == ("refusal", "cpu of p1 binds")
    view.drop("b")
    assert cluster.dropped == ["b"]


def test_results_begin_near_the_head_and_go_on(cluster: Cluster, view: ManagerView) -> None:
    first = view.results("a")
    assert first.columns == ("n", "ts")
    assert [row[0] for row in first.rows] == list(range(80, 120))
    cluster.segments[120] = [{"n": 120, "ts": "t"}]
    assert [row[0] for row in view.results("a", first.last).rows] == [120]
    assert view.results("a", first.last + 1).rows == ()
    with pytest.raises(UsageError, match="no query nothing"):
        view.results("nothing")


def test_examples_in_the_text() -> None:
    assert doctest.testmod(manager_view).failed == 0


def test_actions_are_asked_of_the_manager_as_anybody_would(
    cluster: Cluster, view: ManagerView
) -> None:
    offered = {"drain", "undrain", "remove_lost", "move", "pause", "resume"}
    assert set(view.snapshot().overview.actions) == offered
    assert view.act("drain", "p1") == "processor p1 gives away what it has: 2 moves begin"
    assert view.act("undrain", "p1") == "processor p1 takes part again"
    assert cluster.dropped == ["drain p1", "undrain p1"]
    assert view.act("move", "o:1", "p1") == "1 moves to p1 begin"
    assert view.act("move", "o:1", "p2") == "it is at p2 already"
    assert view.act("remove_lost", "p1") == "processor p1 is given up; it had 1 queries"
    view.act("pause", "a")
    view.act("resume", "a")
    assert cluster.dropped[2:] == ["pause a", "resume a"]
    with pytest.raises(UsageError, match="a cluster cannot polish"):
        view.act("polish", "a")
