"""Join orders in a cluster, from submission to rows: a query reads what was joined for another.

A manager and processors over HTTP; plans and their ways are real, rows are joined in Python.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from plain_processors import plain
from test_manager_app import Process, wait
from test_policy_moves import COLUMNS, Led

from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.ports import CompiledQuery, Step
from millstream.engine.settings import EngineSettings
from millstream.language.plan.expressions import Call, Column, conjunction
from millstream.language.plan.nodes import Join, Plan, Project, Source, Windowed
from millstream.language.plan.rewrite import rewrite
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import FOREVER, Unbounded
from millstream.language.share.dataflow import compile_plan, leaves, result_stream, stream_of
from plain_plane import PlainPlane, Read, Rows, read, write

FIELDS = tuple(Field(name, kind) for name, kind in COLUMNS.items())
ROWS = {name: [(10 * i + at, i % 5) for i in range(20)] for at, name in enumerate("abcd")}


def compiled(cql: str) -> CompiledQuery:
    """A text names streams, which are joined by their value, each with the next."""
    inputs = tuple(Windowed(Source(name, FIELDS), Unbounded()) for name in cql)
    equal = [Call("=", (Column(2 * i + 1), Column(2 * i + 3))) for i in range(len(cql) - 1)]
    join = Join(inputs, conjunction(tuple(equal)))
    root = rewrite(Project(join, (Column(1),), (FIELDS[1],)))
    plan = Plan(root, (FIELDS[1],), relation=False)
    return CompiledQuery(plan, compile_plan(plan), result_stream(plan))


def compute(step: Step, rows: Read) -> tuple[Rows, Rows | None]:
    join = step.operator.core
    if not isinstance(join, Join):
        (source,) = step.inputs.values()
        return rows(source.new), None
    sides = []
    for member in join.inputs:
        (leaf,) = leaves(member)
        source = step.inputs[stream_of(leaf)]
        old, new = rows(source.tail), rows(source.new)
        sides.append([(row, False) for row in old] + [(row, True) for row in new])
    return [
        (max(ts for (ts, _), _ in chosen), chosen[0][0][1])
        for chosen in product(*sides)
        if len({value for (_, value), _ in chosen}) == 1 and any(new for _, new in chosen)
    ], None


def joined(streams: str) -> Counter[tuple[int, int]]:
    return Counter(
        (max(ts for ts, _ in rows), rows[0][1])
        for rows in product(*(ROWS[name] for name in streams))
        if len({value for _, value in rows}) == 1
    )


class Joining(Led):
    def server(self, name: str) -> ProcessorServer:
        settings = ProcessorSettings(manager=self.manager.client.url)
        plane = PlainPlane(compiled, compute)
        return ProcessorServer(name, self.folder / name, plane, settings, EngineSettings(slots=1))

    def push(self, rows: slice) -> None:
        for name in ROWS:
            self.publish(name, ROWS[name][rows], ROWS[name][rows][-1][0])

    def publish(self, name: str, rows: Rows, mark: int) -> None:
        engine = self.alive[self.names[0]].processor.engine
        with engine.ledger.transaction() as ledger:
            ledger.publish(f"s:{name}", [write(engine.store, rows)], mark)

    def rows_of(self, stream: str) -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        for server in self.alive.values():
            engine = server.processor.engine
            found |= Counter(read(engine.store, engine.ledger.segments(stream)))
        return found

    def done(self, stream: str) -> bool:
        for server in self.alive.values():
            if server.processor.ownership.owned(stream) is not None:
                head = server.processor.engine.ledger.stream(stream)
                return head is not None and head["watermark"] == FOREVER
        return False


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Joining]:
    manager = Process(tmp_path / "manager")
    try:
        with plain(monkeypatch):
            yield Joining(tmp_path, manager)
    finally:
        manager.close()


def test_what_was_joined_for_one_query_is_read_by_another(cluster: Joining) -> None:
    client = cluster.manager.client
    for name in ("p0", "p1"):
        cluster.open(name)
    for name in ROWS:
        table = {"name": name, "columns": COLUMNS, "time": "ts", "source": "push", "rate": 10}
        client.declare(table, processor="p0")
    told = {}
    for cql in ("abc", "dbca"):  # the same three streams, in another order
        told[cql] = client.submit(cql, cql, from_beginning=True, wait_s=60)
        assert told[cql]["state"] == "running", told[cql]
    client.start_streams()
    shared = set(told["dbca"]["admission"]["reused"])
    assert shared, "a part of the first is one of the second"
    ways = told["dbca"]["admission"]["ways"]
    assert any(stream in shared for inputs in ways.values() for stream in inputs)
    running = [s.processor.engine.operators for s in cluster.alive.values()]
    inputs = {o.id: list(o.inputs) for operators in running for o in operators.values()}
    assert ways.items() <= inputs.items(), "what was chosen is what runs"
    cluster.push(slice(0, 8))
    part = min(shared)
    place = {o["id"]: o["processor"] for o in client.placement()["operators"]}[part]
    client.move(part, "p1" if place == "p0" else "p0", wait_s=60)
    cluster.push(slice(8, 20))
    for name in ROWS:
        cluster.publish(name, [], FOREVER)
    for cql in told:
        result = told[cql]["result"]
        wait(lambda stream=result: cluster.done(stream))  # type: ignore[misc]
        assert cluster.rows_of(result) == joined(cql), cql
