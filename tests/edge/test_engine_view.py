"""One engine as a person sees it: figures, sharing, results, questions, failures, the end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.control.snapshot.model import Snapshot
from millstream.core.codec import to_json
from millstream.core.errors import CqlError, StateError, UsageError
from millstream.edge.views.engine_view import EngineView
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane
from millstream.store.delivery import CallbackSink

pytestmark = pytest.mark.spark

COLUMNS = (Field("at", "long"), Field("name", "string"), Field("n", "int"))
SUMS = "SELECT name, sum(n) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY name"
LARGE = f"{SUMS} HAVING sum(n) > 5"
PLAIN = "SELECT name, n FROM s WHERE n > 1"
ROWS = [{"at": t, "name": "ab"[t % 2], "n": t} for t in range(1, 41)]


class Edits:
    """Keeps what is registered, as a run does; takes the rows."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.own = engine, set[str]()

    def register(self, name: str, cql: str) -> None:
        self._engine.add_query(name, cql, from_beginning=True)
        self._engine.deliver(name, CallbackSink(lambda *_: None))
        self.own.add(name)

    def drop(self, name: str) -> None:
        if name not in self.own:
            raise UsageError(f"query {name} belongs to the job file")
        self._engine.drop_query(name)
        self.own.remove(name)

    def droppable(self, name: str) -> bool:
        return name in self.own


class Lab:
    """An engine over one pushed stream, with a view; the loop runs when rows are pushed."""

    def __init__(self, home: Path, spark: Any) -> None:
        self.engine = Engine(home, SparkPlane(spark), EngineSettings())
        source = {"source": "push"}
        self.engine.add_stream(
            StreamDefinition("s", COLUMNS, "timestamp_seconds(at)", source=source)
        )
        self.loop = Loop(self.engine)
        self.view = EngineView(self.engine, title="test", loop=self.loop, edits=Edits(self.engine))
        self._number = 0

    def push(self, rows: list[dict[str, Any]]) -> None:
        door = self.engine.sources["s"]
        assert isinstance(door, PushSource)
        self._number += 1
        door.push("p", self._number, rows)

    def work(self) -> None:
        """Until everything that came is processed."""
        self.loop.start()
        self.loop.wake()
        assert self.loop.settled.wait(120)
        self.loop.stop()
        assert self.loop.failure is None
        self.loop = Loop(self.engine)
        self.view.attach(self.loop)


@pytest.fixture
def lab(spark: Any, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "home", spark)
    yield made
    made.engine.close()


def query(snapshot: Snapshot, name: str) -> Any:
    return next(q for q in snapshot.queries if q.name == name)


def test_from_registration_to_the_end(lab: Lab) -> None:
    view = lab.view
    lab.engine.add_query("sums", SUMS)
    lab.engine.add_query("large", LARGE)
    lab.engine.add_query("plain", PLAIN)
    lab.push(ROWS)
    before = view.snapshot()
    assert {d.subject: d.kind for d in before.decisions} == dict.fromkeys(
        ("sums", "large", "plain"), "admission"
    )
    waiting = {o.id: o for o in before.operators if o.queue_rows}
    assert {o.queue_rows for o in waiting.values()} == {40}
    assert before.overview.backlog_rows == 40 * len(waiting)
    assert query(before, "plain").delay_s is not None
    assert "40 rows waiting" in query(before, "plain").cause

    lab.work()
    after = view.snapshot()
    assert after.overview.rows_in == 40
    assert after.overview.backlog_rows == 0
    assert after.processors[0].memory_bytes
    assert after.processors[0].segments > 0
    edges = {(e.source, e.target) for e in after.edges}
    assert all(("s:s", o.id) in edges or o.kind == "combine" for o in after.operators)
    shared = [o for o in after.operators if len(o.queries) > 1]
    assert [o.kind for o in shared] == ["partial"]
    assert shared[0].queries == ("large", "sums")
    sums, plain = query(after, "sums"), query(after, "plain")
    assert sums.cost_s_shared > 0
    assert plain.cost_s_shared == 0
    assert plain.cost_s_own == pytest.approx(
        sum(o.cost_s for o in after.operators if o.queries == ("plain",)), abs=0.01
    )
    assert plain.rows == 39
    got = view.results("plain")
    assert got.columns == ("name", "n", "ts")
    assert [row[1] for row in got.rows] == list(range(2, 41))
    assert view.results("plain", got.last).rows == ()
    json.dumps(to_json(after))

    view.close("finished")
    final = view.snapshot()
    assert final.overview.state == "finished"
    assert [(q.name, q.rows, q.state) for q in final.queries] == [
        (q.name, q.rows, "done") for q in after.queries
    ]
    assert not final.overview.alarms
    with pytest.raises(StateError, match="has finished"):
        view.explain(PLAIN)


def test_questions_before_a_query_runs(lab: Lab) -> None:
    view = lab.view
    lab.engine.add_query("sums", SUMS)
    lab.push(ROWS)
    told = view.explain(LARGE)
    known = {o.kind: (o.exists, o.shared_with) for o in told.operators}
    assert known["partial"] == (True, ("sums",))
    assert known["combine"] == (False, ("sums",))  # other panes' sums in one job
    assert "1 of its 2 operators run already, 1 join a job" in told.admission.sentence
    with pytest.raises(CqlError) as wrong:
        view.explain("SELECT nam FROM s")
    assert (wrong.value.line, wrong.value.column, wrong.value.length) == (1, 8, 3)

    seen = view.preview(SUMS)
    assert seen.columns == ("name", "total", "ts")
    assert sum(row[1] for row in seen.rows) == sum(r["n"] for r in ROWS)
    assert seen.note.startswith("over 40 rows of s")
    with pytest.raises(UsageError, match="fails on its data"):
        view.preview("SELECT 10 / (n - 3) AS x FROM s")
    assert list(lab.engine.queries) == ["sums"]


def test_rows_that_go_at_once_are_seen(lab: Lab) -> None:
    """Another thread may hand a result over, and it goes, before its step has been told of."""
    lab.view.register("mine", "SELECT n FROM s WHERE n = 7")

    def hand_over(_: object) -> None:
        lab.loop.delivering.run(lab.engine.deliveries)
        assert not lab.engine.ledger.segments(lab.engine.queries["mine"].stream), "all taken"

    lab.engine.on_step.insert(0, hand_over)
    lab.push(ROWS)
    lab.work()
    assert [row[0] for row in lab.view.results("mine").rows] == [7]


def test_registering_and_dropping_while_it_runs(lab: Lab) -> None:
    view = lab.view
    lab.engine.add_query("own", PLAIN)
    made = view.register("mine", "SELECT n FROM s WHERE n = 7")
    assert (made.kind, made.subject) == ("admission", "mine")
    with pytest.raises(UsageError, match="exists already"):
        view.register("mine", PLAIN)
    lab.push(ROWS)
    lab.work()
    assert [row[0] for row in view.results("mine").rows] == [7]
    with pytest.raises(UsageError, match="belongs to the job"):
        view.drop("own")
    assert [q.droppable for q in view.snapshot().queries] == [False, True]
    view.drop("mine")
    kinds = [(d.kind, d.subject) for d in view.snapshot().decisions]
    assert kinds[-1] == ("drop", "mine")
    view.register("other", PLAIN)
    view.close()
    assert list(lab.engine.queries) == ["own", "other"], "a run keeps what was registered"


def test_a_failure_shows_the_row_behind_it(lab: Lab) -> None:
    lab.engine.add_query("bad", "SELECT 10 / (n - 3) AS x FROM s")
    lab.engine.add_query("good", PLAIN)
    lab.push(ROWS)
    lab.work()
    now = lab.view.snapshot()
    failed = query(now, "bad")
    assert failed.state == "failed"
    assert failed.error is not None
    assert "ivision by zero" in failed.error.message
    assert failed.error.row is not None
    assert failed.error.row["n"] == 3
    assert failed.error.place == "row 2 of s"
    assert [a.subject for a in now.overview.alarms if a.severity == "error"] == ["bad"]
    assert ("failure", "bad") in [(d.kind, d.subject) for d in now.decisions]
    assert query(now, "good").rows == 39
